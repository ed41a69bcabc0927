package oncelog

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"strings"
	"testing"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// kafkaVectors are batches of real clients, all with the same records.
type kafkaVectors struct {
	Records []struct {
		TimestampMs int64        `json:"timestamp_ms"`
		Key         *string      `json:"key"`
		Value       *string      `json:"value"`
		Headers     [][2]*string `json:"headers"`
	} `json:"records"`
	Batches []struct {
		Client string `json:"client"`
		Codec  string `json:"codec"`
		Batch  string `json:"batch"`
	} `json:"batches"`
	SnappyBlock struct {
		Block string `json:"block"`
		Plain string `json:"plain"`
	} `json:"snappy_block"`
}

func readKafkaVectors(t *testing.T) (v kafkaVectors, records []Record) {
	t.Helper()
	data, err := os.ReadFile(vectors + "/kafka/batches.json")
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil || len(v.Batches) < 8 {
		t.Fatalf("%d batches, %v", len(v.Batches), err)
	}
	for _, one := range v.Records {
		record := Record{TimestampUs: one.TimestampMs * 1000, Key: unhex(t, one.Key), Value: unhex(t, one.Value)}
		for _, header := range one.Headers {
			record.Headers = append(record.Headers, Header{*header[0], unhex(t, header[1])})
		}
		records = append(records, record)
	}
	return v, records
}

func TestBatchesOfKafkasClients(t *testing.T) {
	v, records := readKafkaVectors(t)
	for _, one := range v.Batches {
		t.Run(one.Client+" "+one.Codec, func(t *testing.T) {
			batch := unhex(t, &one.Batch)[21:]
			payload, err := decompress(pb.Codec_CODEC_KAFKA_V2, batch)
			if err != nil {
				t.Fatal(err)
			}
			same(t, decodeAll(t, payload, len(records)), records)
			for size := range len(batch) {
				if _, err := kafkaColumns(batch[:size]); err == nil {
					t.Fatalf("%d of %d bytes are taken for a batch", size, len(batch))
				}
			}
			if _, err := kafkaColumns(append(bytes.Clone(batch), 0)); err == nil {
				t.Error("a byte too many is taken")
			}
		})
	}
}

func TestASnappyBlockOfLibrdkafka(t *testing.T) {
	v, _ := readKafkaVectors(t)
	plain, err := unsnappy(unhex(t, &v.SnappyBlock.Block))
	if err != nil || !bytes.Equal(plain, unhex(t, &v.SnappyBlock.Plain)) {
		t.Errorf("%x, %v", plain, err)
	}
}

func TestAHeaderKeyThatIsNotUTF8(t *testing.T) {
	head := make([]byte, kafkaHead)
	binary.BigEndian.PutUint32(head[36:], 1)
	// Length, attributes, two deltas, null key, null value, one header: the key ff, a null.
	batch := append(head, 2*9, 0, 0, 0, 1, 1, 2, 2, 0xff, 1)
	_, err := kafkaColumns(batch)
	if err == nil || !strings.Contains(err.Error(), "not UTF-8") {
		t.Errorf("%v", err)
	}
}

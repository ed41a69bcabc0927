package oncelog

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

const vectors = "../../tests/vectors"

type vector struct {
	CRC32C  string `json:"crc32c"`
	Records []struct {
		Value       *string      `json:"value"`
		Key         *string      `json:"key"`
		TimestampUs int64        `json:"timestamp_us"`
		Headers     [][2]*string `json:"headers"`
	} `json:"records"`
}

func unhex(t *testing.T, digits *string) []byte {
	if digits == nil {
		return nil
	}
	data, err := hex.DecodeString(*digits)
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{}, data...)
}

func readVector(t *testing.T, path string) (want []byte, crc string, records []Record) {
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var v vector
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	for _, r := range v.Records {
		record := Record{TimestampUs: r.TimestampUs, Value: unhex(t, r.Value), Key: unhex(t, r.Key)}
		for _, pair := range r.Headers {
			record.Headers = append(record.Headers, Header{*pair[0], unhex(t, pair[1])})
		}
		records = append(records, record)
	}
	return readHex(t, strings.TrimSuffix(path, ".json")+".hex"), v.CRC32C, records
}

func readHex(t *testing.T, path string) []byte {
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	digits := strings.Join(strings.Fields(string(raw)), "")
	return unhex(t, &digits)
}

func encodeRecords(t *testing.T, records []Record) []byte {
	var c columns
	for _, r := range records {
		c.add(r.Value, r.Key, r.Headers, r.TimestampUs)
	}
	payload, err := c.encode()
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

// same compares records; nil and empty bytes differ.
func same(t *testing.T, got, want []Record) {
	t.Helper()
	text := func(records []Record) string {
		var all strings.Builder
		for _, r := range records {
			fmt.Fprintf(&all, "%#v %#v %d %#v\n", r.Value, r.Key, r.TimestampUs, r.Headers)
		}
		return all.String()
	}
	if text(got) != text(want) {
		t.Errorf("got\n%swant\n%s", text(got), text(want))
	}
}

func decodeAll(t *testing.T, payload []byte, count int) []Record {
	t.Helper()
	d, err := decodePayload(payload, count)
	if err != nil {
		t.Fatal(err)
	}
	records := make([]Record, count)
	for i := range records {
		d.record(i, &records[i])
	}
	return records
}

func TestVectors(t *testing.T) {
	paths, err := filepath.Glob(vectors + "/*.json")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d vectors, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			want, crc, records := readVector(t, path)
			payload := encodeRecords(t, records)
			if !bytes.Equal(payload, want) {
				t.Errorf("encoded %x, want %x", payload, want)
			}
			if got := fmt.Sprintf("%08x", checksum(payload)); got != crc {
				t.Errorf("checksum %s, want %s", got, crc)
			}
			same(t, decodeAll(t, want, len(records)), records)
		})
	}
}

func TestCompressedVectors(t *testing.T) {
	for name, codec := range map[string]pb.Codec{
		"lz4": pb.Codec_CODEC_LZ4, "zstd": pb.Codec_CODEC_ZSTD, "zstd-stream": pb.Codec_CODEC_ZSTD,
	} {
		_, _, records := readVector(t, vectors+"/06-nine-records.json")
		payload, err := decompress(codec, readHex(t, vectors+"/06-nine-records."+name+".hex"))
		if err != nil {
			t.Fatal(name, err)
		}
		same(t, decodeAll(t, payload, len(records)), records)
	}
}

func TestWhatIsCompressedUnpacks(t *testing.T) {
	payload := bytes.Repeat([]byte("once "), 50_000)
	level := 1
	for _, compression := range []Compression{NoCompression, Zstd, LZ4} {
		for _, at := range []*int{nil, &level} {
			c, err := newCompressor(compression, at)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // a compressor is used again
				packed, err := c.compress(payload)
				if err != nil {
					t.Fatal(err)
				}
				if compression != NoCompression && len(packed) > len(payload)/10 {
					t.Errorf("%s: %d bytes", compression, len(packed))
				}
				if back, err := decompress(c.codec, packed); err != nil || !bytes.Equal(back, payload) {
					t.Errorf("%s: %v", compression, err)
				}
			}
		}
	}
}

// A frame that claims little and unpacks to more than a payload may have is refused.
func TestABombIsRefused(t *testing.T) {
	for _, compression := range []Compression{Zstd, LZ4} {
		c, err := newCompressor(compression, nil)
		if err != nil {
			t.Fatal(err)
		}
		packed, err := c.compress(make([]byte, maxPayloadBytes+1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decompress(c.codec, packed); err == nil {
			t.Errorf("%s: unpacked", compression)
		}
	}
}

func TestDamagedFramesAreRefused(t *testing.T) {
	for _, codec := range []pb.Codec{pb.Codec_CODEC_ZSTD, pb.Codec_CODEC_LZ4} {
		name := map[pb.Codec]string{pb.Codec_CODEC_ZSTD: "zstd", pb.Codec_CODEC_LZ4: "lz4"}[codec]
		frame := readHex(t, vectors+"/06-nine-records."+name+".hex")
		for size := range frame {
			if payload, err := decompress(codec, frame[:size]); err == nil {
				if _, err := decodePayload(payload, 9); err == nil {
					t.Errorf("%s: %d of %d bytes are a batch", name, size, len(frame))
				}
			}
		}
		if _, err := decompress(codec, append(bytes.Clone(frame), 1, 2, 3)); err == nil {
			t.Errorf("%s: bytes behind the frame", name)
		}
	}
}

func TestWhatIsNoPayloadIsRefused(t *testing.T) {
	good, _, records := readVector(t, vectors+"/07-headers.json")
	for size := range good {
		if _, err := decodePayload(good[:size], len(records)); err == nil {
			t.Errorf("%d of %d bytes are a payload", size, len(good))
		}
	}
	if _, err := decodePayload(append(bytes.Clone(good), make([]byte, 8)...), len(records)); err == nil {
		t.Error("8 bytes more are a payload")
	}
	if _, err := decodePayload(good, len(records)+1); err == nil {
		t.Error("another record count is right")
	}
	for _, flag := range []byte{32, 128} {
		bad := bytes.Clone(good)
		bad[4] |= flag
		if _, err := decodePayload(bad, len(records)); err == nil {
			t.Errorf("flag %d is known", flag)
		}
	}
}

func FuzzDecodePayload(f *testing.F) {
	paths, err := filepath.Glob(vectors + "/*.hex")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		data, err := hex.DecodeString(strings.Join(strings.Fields(string(raw)), ""))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, 9)
	}
	f.Fuzz(func(t *testing.T, data []byte, count int) {
		d, err := decodePayload(data, count)
		if err != nil {
			return
		}
		for row := range count {
			var r Record
			d.record(row, &r)
		}
	})
}

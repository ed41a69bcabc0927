// Command franz measures the send rate of franz-go, Kafka's client for Go (acks=all, idempotent, no
// compression). It has the flags and the line of JSON of clients/go/bench. Batches, linger and
// buffer are those of docs/client-defaults.json.
//
//	go run . produce -servers ...
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] != "produce" {
		log.Fatal("usage: franz produce [FLAG...]")
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	servers := flags.String("servers", "localhost:9092", "brokers, as host:port,...")
	topic := flags.String("topic", "t-1", "a topic that exists")
	seconds := flags.Float64("seconds", 5, "how long to send")
	size := flags.Int("size", 100, "bytes of a record's value")
	linger := flags.Duration("linger", 5*time.Millisecond, "as Oncelog's default")
	batch := flags.Int("batch", 1<<20, "largest batch, as Oncelog's default")
	if err := flags.Parse(os.Args[2:]); err != nil {
		log.Fatal(err)
	}
	limit := time.Duration(*seconds * float64(time.Second))
	if err := produce(*servers, *topic, limit, *size, *linger, int32(*batch)); err != nil {
		log.Fatal(err)
	}
}

func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func print(records, bytes int64, began time.Time, used time.Duration) error {
	took := time.Since(began).Seconds()
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"records": records, "seconds": took, "records_per_s": float64(records) / took,
		"mib_per_s":         float64(bytes) / took / (1 << 20),
		"cpu_us_per_record": float64((cpu() - used).Microseconds()) / float64(max(records, 1)),
	})
}

func produce(servers, topic string, limit time.Duration, size int, linger time.Duration, batch int32) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(servers, ",")...), kgo.DefaultProduceTopic(topic),
		kgo.ProducerLinger(linger), kgo.ProducerBatchMaxBytes(batch),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(1_000_000),
		kgo.MaxBufferedBytes(64<<20),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	value := make([]byte, size)
	if err := client.ProduceSync(ctx, kgo.SliceRecord(value)).FirstErr(); err != nil {
		return err
	}
	var failed atomic.Pointer[error]
	began, used := time.Now(), cpu()
	records := int64(0)
	for time.Since(began) < limit {
		for range 1000 {
			client.Produce(ctx, kgo.SliceRecord(value), func(_ *kgo.Record, err error) {
				if err != nil {
					failed.Store(&err)
				}
			})
			records++
		}
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	if first := failed.Load(); first != nil {
		return *first
	}
	return print(records, records*int64(size), began, used)
}

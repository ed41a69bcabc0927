// Command franz measures franz-go, Kafka's client for Go, as clients/go/bench does that one: the
// same flags, the same line of JSON. Batches, linger and buffer are those of
// docs/client-defaults.json.
//
//	go run . fake                      a broker in memory (kfake); prints its address
//	go run . produce -servers ...      acks=all, idempotent, no compression
//	go run . consume -servers ...
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: franz fake|produce|consume [FLAG...]")
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	servers := flags.String("servers", "localhost:9092", "brokers, as host:port,...")
	topic := flags.String("topic", "t-1", "a topic that exists")
	partitions := flags.Int("partitions", 1, "of the topic of the broker in memory")
	seconds := flags.Float64("seconds", 5, "how long to send")
	size := flags.Int("size", 100, "bytes of a record's value")
	linger := flags.Duration("linger", 5*time.Millisecond, "as Oncelog's default")
	batch := flags.Int("batch", 1<<20, "largest batch, as Oncelog's default")
	if err := flags.Parse(os.Args[2:]); err != nil {
		log.Fatal(err)
	}
	var err error
	switch os.Args[1] {
	case "fake":
		err = fake(*topic, *partitions)
	case "produce":
		err = produce(*servers, *topic, time.Duration(*seconds*float64(time.Second)), *size, *linger, int32(*batch))
	case "consume":
		err = consume(*servers, *topic)
	default:
		log.Fatalf("no command %s", os.Args[1])
	}
	if err != nil {
		log.Fatal(err)
	}
}

func fake(topic string, partitions int) error {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(int32(partitions), topic))
	if err != nil {
		return err
	}
	defer cluster.Close()
	fmt.Println(strings.Join(cluster.ListenAddrs(), ","))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	<-ctx.Done()
	return nil
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

func consume(servers, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(servers, ",")...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxBytes(16<<20), kgo.FetchMaxPartitionBytes(4<<20))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	if left == 0 {
		return errors.New("the topic is empty")
	}
	began, used := time.Now(), cpu()
	records, bytes := int64(0), int64(0)
	for records < left {
		fetches := client.PollRecords(ctx, 10_000)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			records++
			bytes += int64(len(r.Value))
		})
	}
	return print(records, bytes, began, used)
}

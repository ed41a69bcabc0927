// Command bench measures the rate at which one process sends to a topic, or reads from it, and the
// processor time of this process. It prints one line of JSON.
//
//	go run ./bench produce -servers localhost:7001 -topic t -seconds 5 -size 100
//	go run ./bench consume -servers localhost:7001 -topic t
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"os"
	"syscall"
	"time"

	oncelog "github.com/oncelog/oncelog/clients/go"
)

type figures struct {
	Records      int64   `json:"records"`
	Seconds      float64 `json:"seconds"`
	RecordsPerS  float64 `json:"records_per_s"`
	MiBPerS      float64 `json:"mib_per_s"`
	CPUUsPerItem float64 `json:"cpu_us_per_record"`
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: bench produce|consume [FLAG...]")
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	servers := flags.String("servers", "localhost:7001", "nodes, as host:port,...")
	topic := flags.String("topic", "", "a topic that exists")
	seconds := flags.Float64("seconds", 5, "how long to send")
	size := flags.Int("size", 100, "bytes of a record's value")
	compression := flags.String("compression", "none", "none, lz4 or zstd")
	if err := flags.Parse(os.Args[2:]); err != nil {
		log.Fatal(err)
	}
	var result figures
	var err error
	switch os.Args[1] {
	case "produce":
		result, err = produce(*servers, *topic, time.Duration(*seconds*float64(time.Second)), *size, *compression)
	case "consume":
		result, err = consume(*servers, *topic)
	default:
		log.Fatalf("no command %s", os.Args[1])
	}
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
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

func figuresOf(records, bytes int64, began time.Time, used time.Duration) figures {
	took := time.Since(began).Seconds()
	return figures{
		records, took, float64(records) / took, float64(bytes) / took / (1 << 20),
		float64((cpu() - used).Microseconds()) / float64(max(records, 1)),
	}
}

func produce(servers, topic string, limit time.Duration, size int, compression string) (figures, error) {
	ctx := context.Background()
	producer, err := oncelog.NewProducer(servers, func(c *oncelog.ProducerConfig) {
		c.Compression = oncelog.Compression(compression)
	})
	if err != nil {
		return figures{}, err
	}
	value := make([]byte, size)
	if _, err := producer.SendSync(ctx, oncelog.Message{Topic: topic, Value: value}); err != nil {
		return figures{}, err
	}
	began, used := time.Now(), cpu()
	records := int64(0)
	for time.Since(began) < limit {
		for range 1000 {
			if _, err := producer.Send(ctx, oncelog.Message{Topic: topic, Value: value}); err != nil {
				return figures{}, err
			}
			records++
		}
	}
	if err := producer.Flush(ctx); err != nil {
		return figures{}, err
	}
	result := figuresOf(records, records*int64(size), began, used)
	return result, producer.Close(ctx)
}

// consume reads the present records of the topic.
func consume(servers, topic string) (figures, error) {
	ctx := context.Background()
	consumer, err := oncelog.NewConsumer(servers, func(c *oncelog.ConsumerConfig) {
		c.AutoOffsetReset = oncelog.Earliest
	})
	if err != nil {
		return figures{}, err
	}
	defer consumer.Close()
	if err := consumer.Subscribe(ctx, topic); err != nil {
		return figures{}, err
	}
	ends, err := consumer.EndOffsets(ctx, consumer.Assignment()...)
	if err != nil {
		return figures{}, err
	}
	left := int64(0)
	for _, end := range ends {
		left += end
	}
	if left == 0 {
		return figures{}, errors.New("the topic is empty")
	}
	began, used := time.Now(), cpu()
	records, bytes := int64(0), int64(0)
	for records < left {
		some, err := consumer.Poll(ctx)
		if err != nil {
			return figures{}, err
		}
		records += int64(len(some))
		for i := range some {
			bytes += int64(len(some[i].Value))
		}
	}
	return figuresOf(records, bytes, began, used), nil
}

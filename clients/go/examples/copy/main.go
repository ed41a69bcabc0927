// Command copy copies a partition to another topic, and goes on where it stopped, however it
// ended: the source's offsets are the sequences of a named producer, so the target knows how
// far the copy has come, and takes no record twice.
//
//	go run ./examples/copy localhost:7001 orders 0 orders-copy
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"strconv"
	"time"

	oncelog "github.com/oncelog/oncelog/clients/go"
)

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: copy HOST:PORT TOPIC PARTITION TARGET")
	}
	number, err := strconv.ParseInt(os.Args[3], 10, 32)
	if err != nil {
		log.Fatal(err)
	}
	if err := copyPartition(os.Args[1], oncelog.TopicPartition{Topic: os.Args[2], Partition: int32(number)}, os.Args[4]); err != nil {
		log.Fatal(err)
	}
}

func copyPartition(servers string, source oncelog.TopicPartition, target string) error {
	ctx := context.Background()
	producer, err := oncelog.NewProducer(servers, func(c *oncelog.ProducerConfig) {
		c.ProducerName = "copy " + source.String()
	})
	if err != nil {
		return err
	}
	consumer, err := oncelog.NewConsumer(servers)
	if err != nil {
		return err
	}
	defer consumer.Close()
	if err := consumer.Assign(ctx, source); err != nil {
		return err
	}
	copied, err := producer.Position(ctx, target, source.Partition)
	if err != nil {
		return err
	}
	if err := consumer.Seek(source, copied+1); err != nil {
		return err
	}
	for {
		bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
		records, err := consumer.Poll(bounded)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			return producer.Close(ctx) // nothing came for a while: all is copied
		}
		if err != nil {
			return errors.Join(err, producer.Close(ctx))
		}
		for _, r := range records {
			message := oncelog.Message{
				Topic: target, Value: r.Value, Key: r.Key, Headers: r.Headers, Timestamp: r.Time(),
			}
			if _, err := producer.Send(ctx, message, oncelog.ToPartition(source.Partition), oncelog.WithSequence(r.Offset)); err != nil {
				return errors.Join(err, producer.Close(ctx))
			}
		}
	}
}

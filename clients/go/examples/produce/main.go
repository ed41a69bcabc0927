// Command produce sends each line of standard input as a record, and says where the last one is.
//
//	go run ./examples/produce localhost:7001 greetings
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"

	oncelog "github.com/oncelog/oncelog/clients/go"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: produce HOST:PORT TOPIC")
	}
	ctx := context.Background()
	producer, err := oncelog.NewProducer(os.Args[1], func(c *oncelog.ProducerConfig) {
		c.Compression = oncelog.LZ4
	})
	if err != nil {
		log.Fatal(err)
	}
	var last oncelog.Delivery
	lines := 0
	for scanner := bufio.NewScanner(os.Stdin); scanner.Scan(); lines++ {
		// Send queues; the outcome of the record is known later.
		last, err = producer.Send(ctx, oncelog.Message{Topic: os.Args[2], Value: scanner.Bytes()})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Close waits for all of them, and fails if one that nobody asked about did.
	if err := producer.Close(ctx); err != nil {
		log.Fatal(err)
	}
	if lines > 0 {
		metadata, err := last.Wait(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d records, the last one at %s-%d offset %d\n",
			lines, metadata.Topic, metadata.Partition, metadata.Offset)
	}
}

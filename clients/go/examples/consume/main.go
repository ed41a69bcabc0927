// Command consume prints the records of a topic, from where the group stopped last, until it is
// interrupted. Several of it share the topic's partitions.
//
//	go run ./examples/consume localhost:7001 greetings my-group
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	oncelog "github.com/oncelog/oncelog/clients/go"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: consume HOST:PORT TOPIC GROUP")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	consumer, err := oncelog.NewConsumer(os.Args[1], func(c *oncelog.ConsumerConfig) {
		c.GroupID, c.AutoOffsetReset = os.Args[3], oncelog.Earliest
	})
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	if err := consumer.Subscribe(ctx, os.Args[2]); err != nil {
		log.Fatal(err)
	}
	for {
		records, err := consumer.Poll(ctx)
		if errors.Is(err, context.Canceled) {
			return
		}
		if err != nil {
			log.Print(err)
			return
		}
		for _, record := range records {
			fmt.Printf("%s-%d@%d %s\n", record.Topic, record.Partition, record.Offset, record.Value)
		}
		err = consumer.Commit(ctx)
		if errors.Is(err, oncelog.ErrFencedMember) {
			continue // the group has given a partition to another member, which reads on there
		}
		if err != nil {
			log.Print(err)
			return
		}
	}
}

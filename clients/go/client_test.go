package oncelog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func producerOf(t *testing.T, b *broker, options ...func(*ProducerConfig)) *Producer {
	t.Helper()
	p, err := NewProducer(b.address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(t.Context()) })
	return p
}

func consumerOf(t *testing.T, b *broker, options ...func(*ConsumerConfig)) *Consumer {
	t.Helper()
	options = append(options, func(c *ConsumerConfig) { c.AutoOffsetReset = Earliest })
	c, err := NewConsumer(b.address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.Subscribe(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	return c
}

// readValues polls until so many records are there.
func readValues(t *testing.T, c *Consumer, count int) map[int32][]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	values := map[int32][]string{}
	next := map[TopicPartition]int64{}
	for read := 0; read < count; {
		records, err := c.Poll(ctx)
		if err != nil {
			t.Fatalf("after %d records: %v", read, err)
		}
		for _, r := range records {
			tp := TopicPartition{r.Topic, r.Partition}
			if r.Offset != next[tp] {
				t.Fatalf("%s: offset %d, want %d", tp, r.Offset, next[tp])
			}
			next[tp]++
			values[r.Partition] = append(values[r.Partition], string(r.Value))
		}
		read += len(records)
	}
	return values
}

// Many goroutines send, streams break, the buffer is small: each record is there once, and those
// of a goroutine in its order.
func TestManyGoroutinesAndBrokenStreams(t *testing.T) {
	const senders, each = 8, 2000
	b := startBroker(t, 3)
	p := producerOf(t, b, func(c *ProducerConfig) {
		c.BatchSize, c.BufferMemory, c.Linger = 2000, 50_000, time.Millisecond
		c.RetryBackoff, c.RetryBackoffMax = time.Millisecond, 10*time.Millisecond
	})
	ctx := t.Context()
	var wait sync.WaitGroup
	var called atomic.Int64
	for sender := range senders {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for n := range each {
				value := fmt.Sprintf("%d %d", sender, n)
				_, err := p.Send(ctx, Message{Topic: "t", Value: []byte(value)}, ToPartition(int32(sender%3)),
					OnDelivery(func(m Metadata, err error) {
						if err == nil && m.Partition == int32(sender%3) {
							called.Add(1)
						}
					}))
				if err != nil {
					t.Error(err)
					return
				}
				if n%500 == 250 {
					b.mu.Lock()
					b.breakIn = 3
					b.mu.Unlock()
				}
			}
		}()
	}
	wait.Wait()
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if called.Load() != senders*each {
		t.Errorf("%d callbacks were called", called.Load())
	}
	if stats := p.Stats(); stats.BatchesRetried == 0 || stats.BufferUsed != 0 {
		t.Errorf("%+v", stats)
	}
	last := map[int]int{}
	total := 0
	for _, values := range readValues(t, consumerOf(t, b), senders*each) {
		for _, value := range values {
			var sender, n int
			if _, err := fmt.Sscan(value, &sender, &n); err != nil {
				t.Fatal(err)
			}
			if n != last[sender] {
				t.Fatalf("sender %d: %d came, want %d", sender, n, last[sender])
			}
			last[sender]++
			total++
		}
	}
	if total != senders*each {
		t.Errorf("%d records", total)
	}
}

func TestLinesOfWhatIsSentAndRead(t *testing.T) {
	for _, compression := range []Compression{NoCompression, Zstd, LZ4} {
		b := startBroker(t, 1)
		p := producerOf(t, b, func(c *ProducerConfig) { c.Compression = compression })
		var deliveries []Delivery
		for n := range 5000 {
			d, err := p.Send(t.Context(), Message{
				Topic: "t", Value: []byte(strconv.Itoa(n)), Headers: []Header{{"n", []byte{byte(n)}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			deliveries = append(deliveries, d)
		}
		for n, d := range deliveries {
			m, err := d.Wait(t.Context())
			if err != nil || m.Offset != int64(n) || m.Sequence != int64(n) {
				t.Fatalf("%+v %v", m, err)
			}
		}
		c := consumerOf(t, b)
		n := 0
		for r, err := range c.Records(t.Context()) {
			if err != nil || string(r.Value) != strconv.Itoa(n) || r.Headers[0].Value[0] != byte(n) {
				t.Fatalf("%+v %v", r, err)
			}
			if n++; n == 5000 {
				break
			}
		}
	}
}

func TestALongLogIsReadByAStream(t *testing.T) {
	b := startBroker(t, 2)
	p := producerOf(t, b, func(c *ProducerConfig) { c.BatchSize = 4096 })
	const count = 4000
	for n := range count {
		if _, err := p.Send(t.Context(), Message{Topic: "t", Value: make([]byte, 500)}, ToPartition(int32(n%2))); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := consumerOf(t, b, func(c *ConsumerConfig) { c.MaxPartitionFetchBytes, c.MaxPollRecords = 20_000, 7 })
	readValues(t, c, count)
	tp := TopicPartition{"t", 1}
	if err := c.Seek(tp, 5); err != nil {
		t.Fatal(err)
	}
	records, err := c.PollRecords(t.Context(), 1)
	if err != nil || records[0].Offset != 5 || records[0].Partition != 1 {
		t.Errorf("%+v %v", records, err)
	}
	if position, err := c.Position(t.Context(), tp); err != nil || position != 6 {
		t.Error(position, err)
	}
	if lag, err := c.Lag(t.Context(), tp); err != nil || lag != count/2-6 {
		t.Error(lag, err)
	}
}

func TestADamagedBatchIsNeverSkipped(t *testing.T) {
	b := startBroker(t, 1)
	p := producerOf(t, b)
	for n := range 3 {
		if _, err := p.SendSync(t.Context(), Message{Topic: "t", Value: []byte{byte(n)}}); err != nil {
			t.Fatal(err)
		}
	}
	b.mu.Lock()
	b.logs[0][1].Payload[33] ^= 1
	b.mu.Unlock()
	c := consumerOf(t, b)
	if records, err := c.Poll(t.Context()); err != nil || len(records) != 1 || records[0].Offset != 0 {
		t.Fatalf("what is before it: %+v %v", records, err)
	}
	for range 2 {
		_, err := c.Poll(t.Context())
		var e *Error
		if !errors.As(err, &e) || e.Kind != ErrCorruptLog || e.Offset != 1 {
			t.Fatal(err)
		}
	}
	if err := c.Seek(TopicPartition{"t", 0}, 2); err != nil {
		t.Fatal(err)
	}
	if records, err := c.Poll(t.Context()); err != nil || records[0].Offset != 2 {
		t.Errorf("%+v %v", records, err)
	}
}

func TestAFullBufferWaitsAndGivesUp(t *testing.T) {
	b := startBroker(t, 1)
	b.stuck = true
	fill := func(ctx context.Context, maxBlock time.Duration) (*Producer, error) {
		p := producerOf(t, b, func(c *ProducerConfig) {
			c.BufferMemory, c.BatchSize, c.MaxBlock = 10_000, 5000, maxBlock
		})
		// Before the first Send, which would wait for it no longer than MaxBlock.
		err := p.cluster.requireTopic(t.Context(), "t", time.Minute)
		for err == nil {
			_, err = p.Send(ctx, Message{Topic: "t", Value: make([]byte, 1000)})
		}
		return p, err
	}
	if _, err := fill(t.Context(), 50*time.Millisecond); !errors.Is(err, ErrBufferFull) {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	p, err := fill(ctx, time.Hour)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := p.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	// Closed before an acknowledgement: the outcome of sent batches is unknown, and reported as such.
	err = p.Close(ctx)
	var e *Error
	if !errors.As(err, &e) || e.Kind != ErrUndelivered || e.Count == 0 {
		t.Errorf("%+v", err)
	}
	if _, err := p.Send(t.Context(), Message{Topic: "t"}); !errors.Is(err, ErrClientClosed) {
		t.Error(err)
	}
}

func TestWhatWasLookedAtIsNotReportedAgain(t *testing.T) {
	b := startBroker(t, 1)
	b.stuck = true
	p := producerOf(t, b, func(c *ProducerConfig) {
		c.Linger, c.RequestTimeout, c.DeliveryTimeout = 0, 50*time.Millisecond, 200*time.Millisecond
	})
	var deliveries []Delivery
	for range 2 {
		d, err := p.Send(t.Context(), Message{Topic: "t"}, ToPartition(0))
		if err != nil {
			t.Fatal(err)
		}
		deliveries = append(deliveries, d)
	}
	if _, err := deliveries[0].Wait(t.Context()); !errors.Is(err, ErrDeliveryTimeout) {
		t.Error(err)
	}
	err := p.Flush(t.Context())
	var e *Error
	if !errors.As(err, &e) || e.Kind != ErrUndelivered || e.Count != 1 || !errors.Is(err, ErrDeliveryTimeout) {
		t.Errorf("%+v", err)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Error("reported twice:", err)
	}
}

func TestAClosedConsumerWakesItsPoll(t *testing.T) {
	b := startBroker(t, 1)
	c := consumerOf(t, b)
	ended := make(chan error)
	go func() {
		_, err := c.Poll(context.Background())
		ended <- err
	}()
	c.Close()
	if err := <-ended; !errors.Is(err, ErrClientClosed) {
		t.Error(err)
	}
}

func TestASingleNodeThatIsGoneIsNoMissingTopic(t *testing.T) {
	p, err := NewProducer("127.0.0.1:1", func(c *ProducerConfig) { c.MaxBlock, c.RequestTimeout = 3*time.Second, time.Second })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Send(t.Context(), Message{Topic: "t"}); !errors.Is(err, ErrRequestTimeout) {
		t.Error(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestATopicWithoutPartitionsIsNotReadyYet(t *testing.T) {
	p := producerOf(t, startBroker(t, 0))
	for range 2 {
		if _, err := p.Send(t.Context(), Message{Topic: "t"}); !errors.Is(err, ErrNotReady) {
			t.Error(err)
		}
	}
}

func BenchmarkSend(b *testing.B) {
	config := defaultProducer("a:1")
	a := newAccumulator(&config, func() {}, func(TopicPartition) bool { return true })
	p := &Producer{config: &config, cluster: newCluster(config.ClientConfig), sender: &sender{accumulator: a}}
	p.cluster.leaders.update(described(1, 1))
	tp := TopicPartition{"t", 0}
	message := Message{Topic: "t", Value: make([]byte, 100)}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if _, err := p.Send(context.Background(), message); err != nil {
			b.Fatal(err)
		}
		if n%10_000 == 0 {
			for batch := a.take(tp); batch != nil; batch = a.take(tp) {
				batch.columns.reset()
				columnPool.Put(batch.columns)
				a.release(batch.delivery)
			}
		}
	}
}

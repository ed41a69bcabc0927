package oncelog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// A process that was frozen, or stood still for another reason, looks for answers before it fails
// batches that wait for them.
func TestTimeThatPassedUnseenFailsNothingAtOnce(t *testing.T) {
	b := startBroker(t, 1)
	b.stuck = true
	p := producerOf(t, b, func(c *ProducerConfig) { c.Linger = 0 })
	d, err := p.Send(t.Context(), Message{Topic: "t"}, ToPartition(0))
	if err != nil {
		t.Fatal(err)
	}
	p.sender.ask(func() {
		later := time.Now().Add(p.config.DeliveryTimeout + time.Second)
		p.sender.tick(later)
		select {
		case <-d.Done():
			t.Error("it failed before the answers were looked at")
		default:
		}
		p.sender.tick(later.Add(tickEvery))
	})
	if _, err := d.Wait(t.Context()); !errors.Is(err, ErrDeliveryTimeout) {
		t.Error(err)
	}
}

func TestTheClockOfADeliveryBeginsAtItsSend(t *testing.T) {
	b := newBench(t)
	one := b.put(func(a *addition) { a.whole = false })
	same := b.put(func(a *addition) { a.whole = false })
	open := b.accumulator.lanes[b.window.tp].open
	if span := open.joinUntil.Sub(open.created); span != b.accumulator.config.DeliveryTimeout/4 {
		t.Errorf("records may join for %s", span)
	}
	open.joinUntil = time.Now().Add(-1)
	other := b.put(func(a *addition) { a.whole = false })
	if one.batch != same.batch || same.batch == other.batch {
		t.Error("a record has joined a batch whose time is nearly over")
	}
}

func TestOneWarningWhenNobodyAnswersAndOneWhenSomebodyDoes(t *testing.T) {
	var said bytes.Buffer
	config := defaultClient("a:1")
	config.Logger = slog.New(slog.NewTextHandler(&said, nil))
	r := newReachability(&config)
	lost := fail(ErrUnavailable, "a:1: connection refused")
	r.failed(lost)
	r.since = r.since.Add(-mostPatience)
	r.failed(lost)
	r.failed(lost)
	if o := r.outages(); o.Count != 1 || o.Current < mostPatience {
		t.Errorf("%+v", o)
	}
	if text := said.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "connection refused") {
		t.Error(text)
	}
	r.answered("a:1")
	r.answered("a:1")
	if text := said.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "answers again") {
		t.Error(text)
	}
	if o := r.outages(); o != (Outages{Count: 1}) {
		t.Errorf("%+v", o)
	}
}

func TestAProducerNoticesThatNobodyAnswers(t *testing.T) {
	warned := make(chan string, 10)
	p, err := NewProducer("127.0.0.1:1", func(c *ProducerConfig) {
		c.RequestTimeout = 50 * ms
		c.Logger = slog.New(slog.NewTextHandler(toChannel(warned), nil))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan string, 1)
	go func() { said <- <-warned; cancel() }()
	_, _ = p.Send(ctx, Message{Topic: "t"}) // until the warning, or for MaxBlock
	if text := <-said; !strings.Contains(text, "no node answers") || p.Stats().Outages.Count != 1 {
		t.Error(text, p.Stats().Outages)
	}
}

type toChannel chan string

func (c toChannel) Write(line []byte) (int, error) { c <- string(line); return len(line), nil }

func TestWhatIsDroppedWithoutCloseIsWarnedOf(t *testing.T) {
	b := startBroker(t, 1)
	warned := make(chan string, 2)
	logger := slog.New(slog.NewTextHandler(toChannel(warned), nil))
	func() {
		p, err := NewProducer(b.address, func(c *ProducerConfig) { c.Logger = logger })
		if err == nil {
			_, err = p.SendSync(t.Context(), Message{Topic: "t"})
		}
		if err != nil {
			t.Fatal(err)
		}
		var c *Consumer
		c, err = NewConsumer(b.address, func(config *ConsumerConfig) {
			config.Logger, config.GroupID = logger, "g"
			config.OnLost = func(context.Context, []TopicPartition) error { return c.Commit(t.Context()) }
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func(f *fetcher, s *sender) func() { return func() { f.stop(); s.stop() } }(c.fetcher, p.sender))
	}()
	for n := 0; n < 2; {
		runtime.GC()
		select {
		case text := <-warned:
			n++
			if !strings.Contains(text, "dropped without Close") {
				t.Error(text)
			}
		case <-time.After(ms):
		}
	}
}

const proxied = "ONCELOG_TEST_PROXIED"

// A proxy of the environment is for the web. gRPC looks at it once for a process.
func TestNoProxyOfTheEnvironmentIsUsed(t *testing.T) {
	if os.Getenv(proxied) != "" {
		p, err := NewProducer("node.invalid:9092", func(c *ProducerConfig) {
			c.RequestTimeout, c.MaxBlock = 100*ms, 300*ms
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(t.Context())
		_, err = p.Send(t.Context(), Message{Topic: "t"})
		if err == nil || strings.Contains(err.Error(), "proxy") {
			t.Error(err)
		}
		return
	}
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked sync.Map
	go func() {
		for {
			conn, err := proxy.Accept()
			if err != nil {
				return
			}
			asked.Store("asked", true)
			_ = conn.Close()
		}
	}()
	defer proxy.Close()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", t.Name())
	url := "http://" + proxy.Addr().String()
	child.Env = append(os.Environ(), proxied+"=1", "HTTPS_PROXY="+url, "https_proxy="+url, "http_proxy="+url, "NO_PROXY=", "no_proxy=")
	if output, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
	if _, was := asked.Load("asked"); was {
		t.Error("the proxy was asked")
	}
}

func TestAnOpenTransactionIsWarnedOfAtClose(t *testing.T) {
	warned := make(chan string, 2)
	b := startBroker(t, 1)
	p := producerOf(t, b, named, func(c *ProducerConfig) { c.Logger = slog.New(slog.NewTextHandler(toChannel(warned), nil)) })
	x, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x.begun.staged(TopicPartition{"t", 0}, 1, 0)
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := <-warned; !strings.Contains(text, "transaction=101") || <-b.aborted != 101 {
		t.Error(text)
	}
}

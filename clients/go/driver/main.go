// Command driver lets the conformance kit drive this client: commands come as JSON lines on
// standard input, answers go to standard output. conformance/DRIVER.md describes them.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	oncelog "github.com/oncelog/oncelog/clients/go"
)

// command holds the fields of all verbs.
type command struct {
	ID             json.RawMessage `json:"id"`
	Verb           string          `json:"verb"`
	Handle         string          `json:"handle"`
	Config         json.RawMessage `json:"config"`
	Tag            string          `json:"tag"`
	Tags           []string        `json:"tags"`
	Topic          string          `json:"topic"`
	Topics         []string        `json:"topics"`
	Partition      *int32          `json:"partition"`
	Partitions     json.RawMessage `json:"partitions"`
	Value          *string         `json:"value"`
	Key            *string         `json:"key"`
	Headers        [][2]*string    `json:"headers"`
	TimestampMs    *int64          `json:"timestamp_ms"`
	Sequence       *int64          `json:"sequence"`
	Sequences      []int64         `json:"sequences"`
	ExpectedOffset *int64          `json:"expected_offset"`
	Records        []record        `json:"records"`
	TimeoutMs      *int64          `json:"timeout_ms"`
	GiveUpMs       *int64          `json:"give_up_ms"`
	MaxRecords     *int            `json:"max_records"`
	Offset         json.RawMessage `json:"offset"`
	At             json.RawMessage `json:"at"`
	Offsets        []offset        `json:"offsets"`
	Replicas       json.RawMessage `json:"replicas"`
	MaxBatchBytes  *int32          `json:"max_batch_bytes"`
	CleanupPolicy  string          `json:"cleanup_policy"`
	MinLagMs       *int64          `json:"min_compaction_lag_ms"`
	MaxLagMs       *int64          `json:"max_compaction_lag_ms"`
	DeleteAfterMs  *int64          `json:"delete_retention_ms"`
	DirtyRatio     *float64        `json:"min_cleanable_dirty_ratio"`
	ProducerName   string          `json:"producer_name"`
	TransactionID  int64           `json:"transaction_id"`
	DryRun         bool            `json:"dry_run"`
	IdleTimeoutMs  int64           `json:"idle_timeout_ms"`
	TotalTimeoutMs int64           `json:"total_timeout_ms"`
	Consumer       string          `json:"consumer"`
	NodeID         int32           `json:"node_id"`
	Action         string          `json:"action"`
	AcceptLoss     bool            `json:"accept_loss"`
	DirectoryID    uint64          `json:"directory_id"`
	Add            []rule          `json:"add"`
	Remove         json.RawMessage `json:"remove"`
	Set            []quota         `json:"set"`
	Principal      string          `json:"principal"`
	Operation      string          `json:"operation"`
	Kind           string          `json:"kind"`
	Name           string          `json:"name"`
	Sink           string          `json:"sink"`
	Group          string          `json:"group"`
	Failing        string          `json:"failing"`
}

type record struct {
	Topic       string       `json:"topic,omitempty"`
	Partition   int32        `json:"partition"`
	Offset      int64        `json:"offset"`
	TimestampUs *int64       `json:"timestamp_us"`
	Key         *string      `json:"key"`
	Value       *string      `json:"value"`
	Headers     [][2]*string `json:"headers"`
}

type offset struct {
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"`
	Offset     int64  `json:"offset"`
	Metadata   string `json:"metadata"`
	ProducerID int64  `json:"producer_id"`
	Epoch      int32  `json:"epoch"`
	Sequence   int64  `json:"sequence"`
}

type object = map[string]any

// fault is an error that is none of the client's.
type fault struct{ reason, message string }

func (f fault) Error() string { return f.message }

func driverFault(format string, args ...any) error {
	return fault{"DRIVER_FAULT", fmt.Sprintf(format, args...)}
}

func notOffered(format string, args ...any) error {
	return fault{"NOT_OFFERED", fmt.Sprintf(format, args...)}
}

// driver holds open objects, by handle.
type driver struct {
	producers map[string]*producer
	consumers map[string]*oncelog.Consumer
	admins    map[string]*oncelog.Admin
	told      map[string][]string // which callbacks of a member were called
}

func main() {
	d := &driver{
		producers: map[string]*producer{}, consumers: map[string]*oncelog.Consumer{},
		admins: map[string]*oncelog.Admin{}, told: map[string][]string{},
	}
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriter(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		var c command
		var answer object
		if err = json.Unmarshal(line, &c); err == nil {
			answer, err = d.carryOut(&c)
			if c.GiveUpMs != nil && errors.Is(err, context.DeadlineExceeded) {
				err = fault{"CANCELLED", err.Error()}
			}
		} else {
			err = driverFault("not a command: %v", err)
		}
		if answer == nil {
			answer = object{}
		}
		reply := object{"id": c.ID, "ok": answer}
		if err != nil {
			reply = object{"id": c.ID, "error": errorObject(err)}
		}
		encoded, err := json.Marshal(reply)
		if err != nil {
			panic(err) // nothing is in an answer that cannot be encoded
		}
		if _, err := output.Write(append(encoded, '\n')); err != nil || output.Flush() != nil {
			return // nobody reads any more
		}
		if c.Verb == "exit" {
			return
		}
	}
}

func errorObject(err error) object {
	var e *oncelog.Error
	var f fault
	switch {
	case errors.As(err, &f):
		return object{"reason": f.reason, "retriable": false, "message": f.message}
	case errors.As(err, &e):
	case errors.Is(err, context.DeadlineExceeded):
		return object{"reason": "REQUEST_TIMEOUT", "retriable": true, "message": err.Error()}
	default:
		return object{"reason": "DRIVER_FAULT", "retriable": false, "message": err.Error()}
	}
	answer := object{
		"reason": e.Kind.Reason, "retriable": e.Retriable(), "message": e.Error(), "details": details(e),
	}
	if e.Outcome != "" {
		answer["outcome"] = e.Outcome
	}
	return answer
}

func details(e *oncelog.Error) object {
	all := object{
		"topic": e.Topic, "partition": e.Partition, "offset": e.Offset,
		"producer_id": e.ProducerID, "epoch": e.Epoch, "sequence": e.Sequence,
		"log_start_offset": e.LogStartOffset, "high_watermark": e.HighWatermark,
		"next_offset": e.NextOffset, "last_sequence": e.LastSequence,
		"current_epoch": e.CurrentEpoch, "leader_id": e.LeaderID, "leader_address": e.LeaderAddress,
		"producer_name": e.ProducerName, "field": e.Field, "limit": e.Limit, "count": e.Count,
		"principal": e.Lacks.Principal, "operation": e.Lacks.Operation, "kind": e.Lacks.Kind,
		"name": e.Lacks.Name,
	}
	of := map[*oncelog.Kind][]string{
		oncelog.ErrNotLeader:               {"leader_id", "leader_address"},
		oncelog.ErrUnknownTopicOrPartition: {"topic", "partition"},
		oncelog.ErrInvalidRequest:          {"field", "limit"},
		oncelog.ErrTopicAlreadyExists:      {"topic"},
		oncelog.ErrProducerNameNotFound:    {"producer_name"},
		oncelog.ErrNotAuthorized:           {"principal", "operation", "kind", "name"},
		oncelog.ErrOffsetOutOfRange:        {"topic", "partition", "offset", "log_start_offset", "high_watermark"},
		oncelog.ErrCorruptLog:              {"topic", "partition", "offset"},
		oncelog.ErrOffsetMismatch:          {"next_offset"},
		oncelog.ErrFenced:                  {"current_epoch"},
		oncelog.ErrOutOfOrder:              {"last_sequence"},
	}
	some := object{}
	for _, name := range of[e.Kind] {
		some[name] = all[name]
	}
	if errors.Is(e, oncelog.ErrDelivery) {
		for _, name := range []string{"topic", "partition", "producer_id", "epoch", "sequence"} {
			some[name] = all[name]
		}
	}
	return some
}

func (d *driver) carryOut(c *command) (object, error) {
	switch c.Verb {
	case "hello":
		return object{
			"client": "oncelog-go", "version": oncelog.Version, "protocol": 1,
			"features": []string{
				"zstd", "lz4", "no_idempotence", "send_batch", "names", "resume_from", "own_sequences",
				"expected_offset", "resolve", "read", "any_replica", "rack", "offsets", "admin", "tls", "tokens",
				"transactions", "members", "cancel", "warnings",
			},
		}, nil
	case "defaults":
		return defaults()
	case "reset":
		d.reset()
		return nil, nil
	case "exit":
		return nil, nil
	case "warnings":
		return object{"warnings": logged.all()}, nil
	case "open_producer":
		return nil, d.openProducer(c)
	case "open_consumer":
		return nil, d.openConsumer(c)
	case "open_admin":
		return nil, d.openAdmin(c)
	}
	if p := d.producers[c.Handle]; p != nil {
		return p.carryOut(d, c)
	}
	if consumer := d.consumers[c.Handle]; consumer != nil {
		return d.read(c, consumer)
	}
	if admin := d.admins[c.Handle]; admin != nil {
		return d.manage(c, admin)
	}
	return nil, driverFault("no handle %q for %q", c.Handle, c.Verb)
}

func (d *driver) reset() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for handle, p := range d.producers {
		_ = p.Close(ended) // nobody asks for the outcome of its records
		delete(d.producers, handle)
	}
	for handle, consumer := range d.consumers {
		consumer.Close()
		delete(d.consumers, handle)
	}
	for handle, admin := range d.admins {
		admin.Close()
		delete(d.admins, handle)
	}
	logged.clear()
}

// limit returns a context that ends when the caller gives up, after the command's timeout, or
// after a minute.
func (c *command) limit() (context.Context, context.CancelFunc) {
	limit := time.Minute
	if c.TimeoutMs != nil {
		limit = time.Duration(*c.TimeoutMs) * time.Millisecond
	}
	if c.GiveUpMs != nil {
		limit = time.Duration(*c.GiveUpMs) * time.Millisecond
	}
	return context.WithTimeout(context.Background(), limit)
}

func (c *command) tp() oncelog.TopicPartition {
	tp := oncelog.TopicPartition{Topic: c.Topic}
	if c.Partition != nil {
		tp.Partition = *c.Partition
	}
	return tp
}

// bytesOf reads hexadecimal digits; nil stays nil, and an empty string is not.
func bytesOf(digits *string) ([]byte, error) {
	if digits == nil {
		return nil, nil
	}
	data, err := hex.DecodeString(*digits)
	if err != nil {
		return nil, driverFault("not hexadecimal: %v", err)
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

func digitsOf(data []byte) *string {
	if data == nil {
		return nil
	}
	digits := hex.EncodeToString(data)
	return &digits
}

func message(topic string, value, key *string, headers [][2]*string) (m oncelog.Message, err error) {
	m.Topic = topic
	if m.Value, err = bytesOf(value); err != nil {
		return m, err
	}
	if m.Key, err = bytesOf(key); err != nil {
		return m, err
	}
	for _, pair := range headers {
		if pair[0] == nil {
			return m, driverFault("a header without a name")
		}
		content, err := bytesOf(pair[1])
		if err != nil {
			return m, err
		}
		m.Headers = append(m.Headers, oncelog.Header{Key: *pair[0], Value: content})
	}
	return m, nil
}

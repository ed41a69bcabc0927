package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	oncelog "github.com/oncelog/oncelog/clients/go"
)

// producer remembers sent records, by tag.
type producer struct {
	*oncelog.Producer
	sent        map[string]oncelog.Delivery
	transaction *oncelog.Transaction // the newest one
}

func (p *producer) carryOut(d *driver, c *command) (object, error) {
	ctx, cancel := c.limit()
	defer cancel()
	switch c.Verb {
	case "begin":
		return p.begin(ctx, c)
	case "commit_transaction", "abort_transaction", "send_offsets":
		if p.transaction == nil {
			return nil, driverFault("no transaction was begun")
		}
		return p.endTransaction(ctx, d, c)
	case "send":
		return nil, p.send(ctx, c)
	case "send_batch":
		return nil, p.sendBatch(ctx, c)
	case "await":
		return p.await(ctx, c)
	case "flush":
		err := p.Flush(ctx)
		return object{"settled": err == nil || errors.Is(err, oncelog.ErrUndelivered)}, nil
	case "last_sequence":
		last, err := p.Position(ctx, c.Topic, c.tp().Partition)
		return object{"last_sequence": last}, err
	case "resolve":
		delivery, ok := p.sent[c.Tag]
		if !ok {
			return nil, driverFault("no tag %q", c.Tag)
		}
		found, err := p.Resolve(ctx, delivery)
		return object{"resolution": found.Resolution, "offset": found.Offset}, err
	case "close":
		err := p.Close(ctx)
		if errors.Is(err, oncelog.ErrUndelivered) {
			err = nil
		}
		return nil, err
	}
	return nil, notOffered("no verb %s", c.Verb)
}

func (p *producer) begin(ctx context.Context, c *command) (object, error) {
	t, err := p.Begin(ctx,
		oncelog.WithIdleTimeout(time.Duration(c.IdleTimeoutMs)*time.Millisecond),
		oncelog.WithTotalTimeout(time.Duration(c.TotalTimeoutMs)*time.Millisecond))
	if err != nil {
		return nil, err
	}
	p.transaction = t
	return object{"transaction_id": t.ID()}, nil
}

func (p *producer) endTransaction(ctx context.Context, d *driver, c *command) (object, error) {
	switch c.Verb {
	case "abort_transaction":
		return nil, p.transaction.Abort(ctx)
	case "send_offsets":
		consumer := d.consumers[c.Consumer]
		if consumer == nil {
			return nil, driverFault("no consumer %q", c.Consumer)
		}
		return nil, p.transaction.CommitPositions(ctx, consumer)
	}
	done, err := p.transaction.Commit(ctx)
	if err != nil {
		return nil, err
	}
	runs := []object{}
	for tp, run := range done.Runs {
		runs = append(runs, object{
			"topic": tp.Topic, "partition": tp.Partition,
			"base_offset": run.BaseOffset, "record_count": run.RecordCount,
		})
	}
	slices.SortFunc(runs, func(a, b object) int {
		return cmp.Or(cmp.Compare(a["topic"].(string), b["topic"].(string)),
			cmp.Compare(a["partition"].(int32), b["partition"].(int32)))
	})
	return object{"transaction_id": done.TransactionID, "runs": runs}, nil
}

func (c *command) sendOptions() (options []oncelog.SendOption) {
	if c.Partition != nil {
		options = append(options, oncelog.ToPartition(*c.Partition))
	}
	if c.Sequence != nil {
		options = append(options, oncelog.WithSequence(*c.Sequence))
	}
	if c.Sequences != nil {
		options = append(options, oncelog.WithSequences(c.Sequences))
	}
	if c.ExpectedOffset != nil {
		options = append(options, oncelog.WithExpectedOffset(*c.ExpectedOffset))
	}
	return options
}

func (p *producer) send(ctx context.Context, c *command) error {
	m, err := message(c.Topic, c.Value, c.Key, c.Headers)
	if err != nil {
		return err
	}
	if c.TimestampMs != nil {
		m.Timestamp = time.UnixMilli(*c.TimestampMs)
	}
	delivery, err := p.Send(ctx, m, c.sendOptions()...)
	if err == nil {
		p.sent[c.Tag] = delivery
	}
	return err
}

func (p *producer) sendBatch(ctx context.Context, c *command) error {
	var messages []oncelog.Message
	for _, r := range c.Records {
		m, err := message(c.Topic, r.Value, r.Key, r.Headers)
		if err != nil {
			return err
		}
		if r.TimestampUs != nil {
			m.Timestamp = time.UnixMicro(*r.TimestampUs)
		}
		messages = append(messages, m)
	}
	delivery, err := p.SendBatch(ctx, c.Topic, messages, c.sendOptions()...)
	if err == nil {
		p.sent[c.Tag] = delivery
	}
	return err
}

func (p *producer) await(ctx context.Context, c *command) (object, error) {
	tags := c.Tags
	if tags == nil {
		for tag := range p.sent {
			tags = append(tags, tag)
		}
	}
	_ = p.Flush(ctx) // the outcome of the records is told below
	results := object{}
	for _, tag := range tags {
		delivery, ok := p.sent[tag]
		if !ok {
			return nil, driverFault("no tag %q", tag)
		}
		m, err := delivery.Wait(ctx)
		var known *oncelog.Error
		switch {
		case err == nil:
			results[tag] = object{"ok": object{
				"topic": m.Topic, "partition": m.Partition, "offset": m.Offset, "sequence": m.Sequence,
				"last_sequence": m.LastSequence, "producer_id": m.ProducerID, "epoch": m.Epoch,
				"duplicate": m.Duplicate,
			}}
		case errors.As(err, &known):
			results[tag] = object{"error": errorObject(err)}
		default:
			results[tag] = object{"pending": true}
		}
	}
	return object{"results": results}, nil
}

// --- consumers -----------------------------------------------------------------------

func (d *driver) read(c *command, consumer *oncelog.Consumer) (object, error) {
	ctx, cancel := c.limit()
	defer cancel()
	switch c.Verb {
	case "subscribe":
		return nil, consumer.Subscribe(ctx, c.Topics...)
	case "unsubscribe":
		return nil, consumer.Unsubscribe(ctx)
	case "subscription":
		return object{"topics": list(consumer.Subscription())}, nil
	case "assignment":
		return object{"partitions": pairs(consumer.Assignment())}, nil
	case "pause":
		return nil, consumer.Pause(c.tp())
	case "resume":
		return nil, consumer.Resume(c.tp())
	case "paused":
		return object{"partitions": pairs(consumer.Paused())}, nil
	case "assign":
		tps, err := partitionsOf(c.Partitions)
		if err != nil {
			return nil, err
		}
		return nil, consumer.Assign(ctx, tps...)
	case "poll":
		return poll(ctx, c, consumer)
	case "seek":
		return nil, seek(ctx, c, consumer)
	case "position":
		position, err := consumer.Position(ctx, c.tp())
		return object{"offset": position}, err
	case "lag":
		lag, err := consumer.Lag(ctx, c.tp())
		return object{"lag": lag}, err
	case "list_offset":
		return listOffset(ctx, c, consumer)
	case "commit":
		return nil, commit(ctx, c, consumer)
	case "committed":
		found, err := consumer.Committed(ctx, c.tp())
		if err != nil || found == nil {
			return object{"offset": nil}, err
		}
		return object{
			"offset": found.Offset, "metadata": found.Metadata, "producer_id": found.ProducerID,
			"epoch": found.Epoch, "sequence": found.Sequence,
		}, nil
	case "told":
		return object{"calls": d.told[c.Handle]}, nil
	case "close":
		consumer.Close()
		return nil, nil
	case "abandon":
		consumer.Abandon()
		return nil, nil
	}
	return nil, notOffered("no verb %s", c.Verb)
}

func partitionsOf(raw json.RawMessage) (tps []oncelog.TopicPartition, err error) {
	var pairs [][2]json.RawMessage
	if err := json.Unmarshal(raw, &pairs); err != nil {
		return nil, driverFault("partitions: %v", err)
	}
	for _, pair := range pairs {
		var tp oncelog.TopicPartition
		if err := errors.Join(json.Unmarshal(pair[0], &tp.Topic), json.Unmarshal(pair[1], &tp.Partition)); err != nil {
			return nil, driverFault("partitions: %v", err)
		}
		tps = append(tps, tp)
	}
	return tps, nil
}

func poll(ctx context.Context, c *command, consumer *oncelog.Consumer) (object, error) {
	limit := consumer.Config().MaxPollRecords
	if c.MaxRecords != nil {
		limit = *c.MaxRecords
	}
	found, err := consumer.PollRecords(ctx, limit)
	if err != nil && (c.GiveUpMs != nil || !errors.Is(err, context.DeadlineExceeded)) {
		return nil, err
	}
	records := []record{}
	for i := range found {
		r := &found[i]
		headers := [][2]*string{}
		for j := range r.Headers {
			headers = append(headers, [2]*string{&r.Headers[j].Key, digitsOf(r.Headers[j].Value)})
		}
		records = append(records, record{
			r.Topic, r.Partition, r.Offset, &r.TimestampUs, digitsOf(r.Key), digitsOf(r.Value), headers,
		})
	}
	return object{"records": records}, nil
}

func seek(ctx context.Context, c *command, consumer *oncelog.Consumer) error {
	switch string(c.Offset) {
	case `"beginning"`:
		return consumer.SeekToBeginning(ctx, c.tp())
	case `"end"`:
		return consumer.SeekToEnd(ctx, c.tp())
	}
	var offset int64
	if err := json.Unmarshal(c.Offset, &offset); err != nil {
		return driverFault("offset: %v", err)
	}
	return consumer.Seek(c.tp(), offset)
}

func listOffset(ctx context.Context, c *command, consumer *oncelog.Consumer) (object, error) {
	tp := c.tp()
	var found map[oncelog.TopicPartition]int64
	var err error
	switch string(c.At) {
	case `"earliest"`:
		found, err = consumer.BeginningOffsets(ctx, tp)
	case `"latest"`:
		found, err = consumer.EndOffsets(ctx, tp)
	default:
		var at int64
		if err := json.Unmarshal(c.At, &at); err != nil {
			return nil, driverFault("at: %v", err)
		}
		found, err = consumer.OffsetsForTimes(ctx,
			map[oncelog.TopicPartition]time.Time{tp: time.UnixMilli(at)})
	}
	return object{"offset": found[tp]}, err
}

func commit(ctx context.Context, c *command, consumer *oncelog.Consumer) error {
	if c.Offsets == nil {
		return consumer.Commit(ctx)
	}
	offsets := map[oncelog.TopicPartition]oncelog.OffsetCommit{}
	for _, o := range c.Offsets {
		offsets[oncelog.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = oncelog.OffsetCommit{
			Offset: o.Offset, Metadata: o.Metadata, ProducerID: o.ProducerID, Epoch: o.Epoch, Sequence: o.Sequence,
		}
	}
	return consumer.CommitOffsets(ctx, offsets)
}

// --- admin ---------------------------------------------------------------------------

func (d *driver) manage(c *command, admin *oncelog.Admin) (object, error) {
	ctx, cancel := c.limit()
	defer cancel()
	switch c.Verb {
	case "create_topic":
		partitions, err := read[int32]("partitions", c.Partitions)
		if err != nil {
			return nil, err
		}
		replicas, err := read[int32]("replicas", c.Replicas)
		if err != nil {
			return nil, err
		}
		_, err = admin.CreateTopic(ctx, c.Topic, partitions, replicas, oncelog.TopicConfig{
			MaxBatchBytes: c.MaxBatchBytes, CleanupPolicy: oncelog.CleanupPolicy(c.CleanupPolicy),
			MinCompactionLagMs: c.MinLagMs, MaxCompactionLagMs: c.MaxLagMs,
			DeleteRetentionMs: c.DeleteAfterMs, MinCleanableDirtyRatio: c.DirtyRatio,
		})
		return nil, err
	case "delete_topic":
		return nil, admin.DeleteTopic(ctx, c.Topic)
	case "describe_topic":
		topics, err := admin.DescribeTopics(ctx, c.Topic)
		if err != nil {
			return nil, err
		}
		partitions := []object{}
		for _, p := range topics[0].Partitions {
			partitions = append(partitions, object{"partition": p.Partition, "leader_id": p.LeaderID, "term": p.Term})
		}
		config := topics[0].Config
		return object{
			"topic_id": topics[0].TopicID, "max_batch_bytes": config.MaxBatchBytes,
			"cleanup_policy":        config.CleanupPolicy,
			"min_compaction_lag_ms": config.MinCompactionLagMs, "max_compaction_lag_ms": config.MaxCompactionLagMs,
			"delete_retention_ms":       config.DeleteRetentionMs,
			"min_cleanable_dirty_ratio": config.MinCleanableDirtyRatio,
			"partitions":                partitions,
		}, nil
	case "describe_cluster":
		info, err := admin.DescribeCluster(ctx)
		nodes := []object{}
		for _, node := range info.Nodes {
			nodes = append(nodes, object{
				"node_id": node.NodeID, "address": node.Address, "alive": node.Alive,
				"clock_disagrees": node.ClockDisagrees, "release": node.Release, "insecure": node.Insecure,
			})
		}
		return object{
			"cluster_id": info.ClusterID, "controller_id": info.ControllerID, "nodes": nodes,
			"upgrade": object{
				"cluster_version": info.Upgrade.ClusterVersion, "target_version": info.Upgrade.TargetVersion,
			},
			"damaged_replicas": list(info.DamagedReplicas), "founding": info.Founding,
		}, err
	case "resize_topic":
		partitions, err := read[int32]("partitions", c.Partitions)
		if err != nil {
			return nil, err
		}
		resized, err := admin.ResizeTopic(ctx, c.Topic, oncelog.Resize{Partitions: partitions, DryRun: c.DryRun})
		return object{"partitions": len(resized.Topic.Partitions), "moves": resized.Count}, err
	case "list_transactions":
		found, err := admin.ListTransactions(ctx, c.ProducerName, 0, 0)
		all := []object{}
		for _, one := range found {
			all = append(all, transaction(one))
		}
		return object{"transactions": all}, err
	case "describe_transaction":
		found, err := admin.DescribeTransaction(ctx, c.TransactionID)
		return transaction(found), err
	case "end_transaction":
		return nil, admin.AbortTransaction(ctx, c.TransactionID)
	case "fence_producer":
		id, epoch, err := admin.FenceProducer(ctx, c.ProducerName)
		return object{"producer_id": id, "epoch": epoch}, err
	case "close":
		admin.Close()
		return nil, nil
	}
	return administrate(ctx, c, admin)
}

// read reads a field that is of another type in other verbs; nothing is said: zero.
func read[T any](name string, given json.RawMessage) (value T, err error) {
	if given == nil {
		return value, nil
	}
	if err := json.Unmarshal(given, &value); err != nil {
		return value, driverFault("%s: %v", name, err)
	}
	return value, nil
}

func transaction(found oncelog.TransactionInfo) object {
	partitions := [][]any{}
	for _, part := range found.Partitions {
		partitions = append(partitions, []any{part.Topic, part.Partition})
	}
	return object{
		"transaction_id": found.TransactionID, "state": found.State, "reason": found.Reason,
		"producer_name": found.ProducerName, "partitions": partitions,
	}
}

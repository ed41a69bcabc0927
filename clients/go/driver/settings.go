package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"time"

	oncelog "github.com/oncelog/oncelog/clients/go"
)

// settings are those of all clients, by the names of conformance/DRIVER.md. A null has the
// client's default.
type settings map[string]json.RawMessage

func readSettings(raw json.RawMessage) (settings, error) {
	all := settings{}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, driverFault("config: %v", err)
	}
	for name, value := range all {
		if string(value) == "null" {
			delete(all, name)
		}
	}
	return all, nil
}

// take reads a setting and takes it out, so that settings left over are not offered.
func take[T any](all settings, name string, into *T, failed *error) {
	raw, ok := all[name]
	if !ok {
		return
	}
	delete(all, name)
	if err := json.Unmarshal(raw, into); err != nil && *failed == nil {
		*failed = driverFault("%s: %v", name, err)
	}
}

func takeMs(all settings, name string, into *time.Duration, failed *error) {
	number := int64(*into / time.Millisecond)
	take(all, name, &number, failed)
	*into = time.Duration(number) * time.Millisecond
}

func takeClient(all settings, c *oncelog.ClientConfig, failed *error) {
	take(all, "bootstrap_servers", &c.BootstrapServers, failed)
	c.Logger = logger
	take(all, "client_id", &c.ClientID, failed)
	takeMs(all, "request_timeout_ms", &c.RequestTimeout, failed)
	takeMs(all, "retry_backoff_ms", &c.RetryBackoff, failed)
	takeMs(all, "retry_backoff_max_ms", &c.RetryBackoffMax, failed)
	takeMs(all, "metadata_max_age_ms", &c.MetadataMaxAge, failed)
	take(all, "tls", &c.Security.TLS, failed)
	take(all, "tls_ca_file", &c.Security.TLSCAFile, failed)
	take(all, "tls_cert_file", &c.Security.TLSCertFile, failed)
	take(all, "tls_key_file", &c.Security.TLSKeyFile, failed)
	take(all, "token_file", &c.Security.TokenFile, failed)
	take(all, "token", &c.Security.Token, failed)
}

func leftOver(all settings) error {
	for name := range all {
		return notOffered("no setting %s", name)
	}
	return nil
}

func takeProducer(all settings, c *oncelog.ProducerConfig, failed *error) {
	takeClient(all, &c.ClientConfig, failed)
	take(all, "producer_name", &c.ProducerName, failed)
	take(all, "enable_idempotence", &c.EnableIdempotence, failed)
	take(all, "compression_type", &c.Compression, failed)
	take(all, "compression_level", &c.CompressionLevel, failed)
	takeMs(all, "linger_ms", &c.Linger, failed)
	take(all, "batch_size", &c.BatchSize, failed)
	take(all, "buffer_memory", &c.BufferMemory, failed)
	takeMs(all, "max_block_ms", &c.MaxBlock, failed)
	takeMs(all, "delivery_timeout_ms", &c.DeliveryTimeout, failed)
	take(all, "max_in_flight", &c.MaxInFlight, failed)
	if _, ok := all["resume_from"]; !ok {
		return
	}
	var initial struct {
		ProducerID    int64    `json:"producer_id"`
		Epoch         int32    `json:"epoch"`
		LeaseToken    string   `json:"lease_token"`
		NextSequences []offset `json:"next_sequences"`
	}
	take(all, "resume_from", &initial, failed)
	token, err := hex.DecodeString(initial.LeaseToken)
	if err != nil && *failed == nil {
		*failed = driverFault("lease_token: %v", err)
	}
	c.ResumeFrom = &oncelog.ProducerIdentity{
		ProducerID: initial.ProducerID, Epoch: initial.Epoch, LeaseToken: token,
		NextSequences: map[oncelog.TopicPartition]int64{},
	}
	for _, next := range initial.NextSequences {
		c.ResumeFrom.NextSequences[oncelog.TopicPartition{Topic: next.Topic, Partition: next.Partition}] = next.Sequence
	}
}

func takeConsumer(all settings, c *oncelog.ConsumerConfig, failed *error) {
	takeClient(all, &c.ClientConfig, failed)
	take(all, "group_id", &c.GroupID, failed)
	c.Membership = oncelog.Manual
	take(all, "membership", &c.Membership, failed)
	take(all, "group_instance_id", &c.GroupInstanceID, failed)
	take(all, "assignor", &c.Assignor, failed)
	takeMs(all, "session_timeout_ms", &c.SessionTimeout, failed)
	takeMs(all, "revoke_timeout_ms", &c.RevokeTimeout, failed)
	takeMs(all, "processing_timeout_ms", &c.ProcessingTimeout, failed)
	take(all, "enable_auto_commit", &c.EnableAutoCommit, failed)
	takeMs(all, "auto_commit_interval_ms", &c.AutoCommitInterval, failed)
	take(all, "auto_offset_reset", &c.AutoOffsetReset, failed)
	take(all, "fetch_min_bytes", &c.FetchMinBytes, failed)
	takeMs(all, "fetch_max_wait_ms", &c.FetchMaxWait, failed)
	take(all, "fetch_max_bytes", &c.FetchMaxBytes, failed)
	take(all, "max_partition_fetch_bytes", &c.MaxPartitionFetchBytes, failed)
	take(all, "max_poll_records", &c.MaxPollRecords, failed)
	take(all, "check_crcs", &c.CheckCRCs, failed)
	take(all, "any_replica", &c.AnyReplica, failed)
	take(all, "replica_node_id", &c.ReplicaNodeID, failed)
	take(all, "rack", &c.Rack, failed)
}

func (d *driver) openProducer(c *command) error {
	all, err := readSettings(c.Config)
	if err != nil {
		return err
	}
	p, err := oncelog.NewProducer("", func(config *oncelog.ProducerConfig) { takeProducer(all, config, &err) })
	if err == nil {
		err = leftOver(all)
	}
	if err != nil {
		return err
	}
	d.producers[c.Handle] = &producer{Producer: p, sent: map[string]oncelog.Delivery{}}
	return nil
}

func (d *driver) openConsumer(c *command) error {
	all, err := readSettings(c.Config)
	if err != nil {
		return err
	}
	consumer, err := oncelog.NewConsumer("", func(config *oncelog.ConsumerConfig) {
		takeConsumer(all, config, &err)
		if config.Membership == oncelog.Assigned {
			config.OnAssigned, config.OnRevoked = d.note(c, "assigned"), d.note(c, "revoked")
			config.OnLost = d.note(c, "lost")
		}
	})
	if err == nil {
		err = leftOver(all)
	}
	if err != nil {
		return err
	}
	d.consumers[c.Handle] = consumer
	return nil
}

// note returns a callback that notes its call, and fails at the first one if it is to.
func (d *driver) note(c *command, word string) oncelog.OnPartitions {
	handle, fails := c.Handle, c.Failing == word
	d.told[handle] = []string{}
	return func(context.Context, []oncelog.TopicPartition) error {
		d.told[handle] = append(d.told[handle], word)
		if fails {
			fails = false
			return driverFault("the callback for what is %s fails", word)
		}
		return nil
	}
}

func (d *driver) openAdmin(c *command) error {
	all, err := readSettings(c.Config)
	if err != nil {
		return err
	}
	admin, err := oncelog.NewAdmin("", func(config *oncelog.AdminConfig) { takeClient(all, &config.ClientConfig, &err) })
	if err == nil {
		err = leftOver(all)
	}
	if err != nil {
		return err
	}
	d.admins[c.Handle] = admin
	return nil
}

func defaults() (object, error) {
	made, err := oncelog.NewProducer("localhost:1")
	if err != nil {
		return nil, err
	}
	consumer, err := oncelog.NewConsumer("localhost:1")
	if err != nil {
		return nil, err
	}
	p, c := made.Config(), consumer.Config()
	consumer.Close()
	d := &driver{producers: map[string]*producer{"": {Producer: made}}}
	d.reset()
	client := func(c oncelog.ClientConfig, more object) object {
		more["request_timeout_ms"] = c.RequestTimeout.Milliseconds()
		more["retry_backoff_ms"] = c.RetryBackoff.Milliseconds()
		more["retry_backoff_max_ms"] = c.RetryBackoffMax.Milliseconds()
		more["metadata_max_age_ms"] = c.MetadataMaxAge.Milliseconds()
		return more
	}
	return object{
		"producer": client(p.ClientConfig, object{
			"producer_name": none(p.ProducerName), "resume_from": nil,
			"enable_idempotence": p.EnableIdempotence, "compression_type": p.Compression,
			"compression_level": p.CompressionLevel,
			"linger_ms":         p.Linger.Milliseconds(), "batch_size": p.BatchSize,
			"buffer_memory": p.BufferMemory, "max_block_ms": p.MaxBlock.Milliseconds(),
			"delivery_timeout_ms": p.DeliveryTimeout.Milliseconds(), "max_in_flight": p.MaxInFlight,
		}),
		"consumer": client(c.ClientConfig, object{
			"group_id": none(c.GroupID), "auto_offset_reset": c.AutoOffsetReset,
			"fetch_min_bytes": c.FetchMinBytes, "fetch_max_wait_ms": c.FetchMaxWait.Milliseconds(),
			"fetch_max_bytes": c.FetchMaxBytes, "max_partition_fetch_bytes": c.MaxPartitionFetchBytes,
			"max_poll_records": c.MaxPollRecords, "check_crcs": c.CheckCRCs,
			"any_replica": c.AnyReplica, "replica_node_id": none(c.ReplicaNodeID),
			"rack": none(c.Rack),
		}),
		"member": object{
			"membership": c.Membership, "group_instance_id": none(c.GroupInstanceID),
			"assignor": c.Assignor, "session_timeout_ms": c.SessionTimeout.Milliseconds(),
			"revoke_timeout_ms":       c.RevokeTimeout.Milliseconds(),
			"processing_timeout_ms":   c.ProcessingTimeout.Milliseconds(),
			"enable_auto_commit":      c.EnableAutoCommit,
			"auto_commit_interval_ms": c.AutoCommitInterval.Milliseconds(),
		},
	}, nil
}

// none returns null for the value that means so.
func none[T comparable](value T) any {
	var nothing T
	if value == nothing {
		return nil
	}
	return value
}

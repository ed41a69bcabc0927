//! Settings by the names of conformance/DRIVER.md. A null has the client's default.

use std::path::PathBuf;
use std::time::Duration;

use oncelog::{
    AdminConfig, Assignor, ClientConfig, Compression, ConsumerConfig, Membership, OffsetReset,
    ProducerConfig, ProducerIdentity, TopicPartition,
};
use serde_json::{Map, Value, json};

use crate::Fault;
use crate::verbs::unhex;

/// Settings that were not yet looked at: settings left over are not offered.
struct Settings(Map<String, Value>);

impl Settings {
    fn read(config: &Value) -> Self {
        let mut all = config.as_object().cloned().unwrap_or_default();
        all.retain(|_, value| !value.is_null());
        Self(all)
    }

    fn take<T>(
        &mut self,
        name: &str,
        into: &mut T,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<(), Fault> {
        if let Some(value) = self.0.remove(name) {
            *into = read(&value).ok_or_else(|| Fault::Driver(format!("{name}: {value}")))?;
        }
        Ok(())
    }

    fn ms(&mut self, name: &str, into: &mut Duration) -> Result<(), Fault> {
        self.take(name, into, |value| value.as_u64().map(Duration::from_millis))
    }

    fn size(&mut self, name: &str, into: &mut usize) -> Result<(), Fault> {
        self.take(name, into, |value| value.as_u64().map(|n| n as usize))
    }

    fn flag(&mut self, name: &str, into: &mut bool) -> Result<(), Fault> {
        self.take(name, into, Value::as_bool)
    }

    fn text(&mut self, name: &str, into: &mut Option<String>) -> Result<(), Fault> {
        self.take(name, into, |value| Some(Some(value.as_str()?.into())))
    }

    fn path(&mut self, name: &str, into: &mut Option<PathBuf>) -> Result<(), Fault> {
        self.take(name, into, |value| Some(Some(value.as_str()?.into())))
    }

    fn client(&mut self, c: &mut ClientConfig) -> Result<(), Fault> {
        self.take("bootstrap_servers", &mut c.bootstrap_servers, |value| {
            value.as_array()?.iter().map(|one| Some(one.as_str()?.to_owned())).collect()
        })?;
        self.take("client_id", &mut c.client_id, |value| Some(value.as_str()?.into()))?;
        self.ms("request_timeout_ms", &mut c.request_timeout)?;
        self.ms("retry_backoff_ms", &mut c.retry_backoff)?;
        self.ms("retry_backoff_max_ms", &mut c.retry_backoff_max)?;
        self.ms("metadata_max_age_ms", &mut c.metadata_max_age)?;
        self.flag("tls", &mut c.security.tls)?;
        self.path("tls_ca_file", &mut c.security.tls_ca_file)?;
        self.path("tls_cert_file", &mut c.security.tls_cert_file)?;
        self.path("tls_key_file", &mut c.security.tls_key_file)?;
        self.path("token_file", &mut c.security.token_file)?;
        self.text("token", &mut c.security.token)
    }

    fn end(self) -> Result<(), Fault> {
        match self.0.keys().next() {
            Some(name) => Err(Fault::NotOffered(format!("no setting {name}"))),
            None => Ok(()),
        }
    }
}

fn compression(value: &Value) -> Option<Compression> {
    match value.as_str()? {
        "none" => Some(Compression::None),
        "zstd" => Some(Compression::Zstd),
        "lz4" => Some(Compression::Lz4),
        _ => None,
    }
}

fn reset(value: &Value) -> Option<OffsetReset> {
    match value.as_str()? {
        "earliest" => Some(OffsetReset::Earliest),
        "latest" => Some(OffsetReset::Latest),
        "none" => Some(OffsetReset::None),
        _ => None,
    }
}

fn membership(value: &Value) -> Option<Membership> {
    match value.as_str()? {
        "assigned" => Some(Membership::Assigned),
        "manual" => Some(Membership::Manual),
        _ => None,
    }
}

fn assignor(value: &Value) -> Option<Assignor> {
    match value.as_str()? {
        "uniform" => Some(Assignor::Uniform),
        "range" => Some(Assignor::Range),
        _ => None,
    }
}

fn initial(value: &Value) -> Option<ProducerIdentity> {
    let mut identity = ProducerIdentity {
        producer_id: value["producer_id"].as_i64()?,
        epoch: value["epoch"].as_i64().unwrap_or(0) as i32,
        lease_token: unhex(value["lease_token"].as_str().unwrap_or_default())?.into(),
        ..Default::default()
    };
    for next in value["next_sequences"].as_array().into_iter().flatten() {
        let tp = TopicPartition::new(next["topic"].as_str()?, next["partition"].as_i64()? as i32);
        identity.next_sequences.insert(tp, next["sequence"].as_i64()?);
    }
    Some(identity)
}

pub fn producer(config: &Value) -> Result<ProducerConfig, Fault> {
    let mut all = Settings::read(config);
    let mut c = ProducerConfig::default();
    all.client(&mut c.client)?;
    all.text("producer_name", &mut c.producer_name)?;
    all.take("resume_from", &mut c.resume_from, |value| Some(Some(initial(value)?)))?;
    all.flag("enable_idempotence", &mut c.enable_idempotence)?;
    all.take("compression_type", &mut c.compression, compression)?;
    all.take("compression_level", &mut c.compression_level, |value| {
        Some(Some(value.as_i64()? as i32))
    })?;
    all.ms("linger_ms", &mut c.linger)?;
    all.size("batch_size", &mut c.batch_size)?;
    all.size("buffer_memory", &mut c.buffer_memory)?;
    all.ms("max_block_ms", &mut c.max_block)?;
    all.ms("delivery_timeout_ms", &mut c.delivery_timeout)?;
    all.size("max_in_flight", &mut c.max_in_flight)?;
    all.end()?;
    Ok(c)
}

pub fn consumer(config: &Value) -> Result<ConsumerConfig, Fault> {
    let mut all = Settings::read(config);
    let mut c = ConsumerConfig::default();
    c.membership = Membership::Manual;
    all.client(&mut c.client)?;
    all.text("group_id", &mut c.group_id)?;
    all.take("membership", &mut c.membership, membership)?;
    all.text("group_instance_id", &mut c.group_instance_id)?;
    all.take("assignor", &mut c.assignor, assignor)?;
    all.ms("session_timeout_ms", &mut c.session_timeout)?;
    all.ms("revoke_timeout_ms", &mut c.revoke_timeout)?;
    all.ms("processing_timeout_ms", &mut c.processing_timeout)?;
    all.flag("enable_auto_commit", &mut c.enable_auto_commit)?;
    all.ms("auto_commit_interval_ms", &mut c.auto_commit_interval)?;
    all.take("auto_offset_reset", &mut c.auto_offset_reset, reset)?;
    all.size("fetch_min_bytes", &mut c.fetch_min_bytes)?;
    all.ms("fetch_max_wait_ms", &mut c.fetch_max_wait)?;
    all.size("fetch_max_bytes", &mut c.fetch_max_bytes)?;
    all.size("max_partition_fetch_bytes", &mut c.max_partition_fetch_bytes)?;
    all.size("max_poll_records", &mut c.max_poll_records)?;
    all.flag("check_crcs", &mut c.check_crcs)?;
    all.flag("any_replica", &mut c.any_replica)?;
    all.take("replica_node_id", &mut c.replica_node_id, |value| {
        Some(Some(value.as_i64()? as i32))
    })?;
    all.take("rack", &mut c.rack, |value| Some(Some(value.as_str()?.into())))?;
    all.end()?;
    Ok(c)
}

pub fn admin(config: &Value) -> Result<AdminConfig, Fault> {
    let mut all = Settings::read(config);
    let mut c = AdminConfig::default();
    all.client(&mut c.client)?;
    all.end()?;
    Ok(c)
}

pub fn defaults() -> Value {
    let (p, c) = (ProducerConfig::new("localhost:1"), ConsumerConfig::new("localhost:1"));
    let with = |client: &ClientConfig, mut more: Value| {
        more["request_timeout_ms"] = ms(client.request_timeout);
        more["retry_backoff_ms"] = ms(client.retry_backoff);
        more["retry_backoff_max_ms"] = ms(client.retry_backoff_max);
        more["metadata_max_age_ms"] = ms(client.metadata_max_age);
        more
    };
    let producer = json!({
        "producer_name": p.producer_name, "resume_from": null,
        "enable_idempotence": p.enable_idempotence,
        "compression_type": p.compression.as_str(), "compression_level": p.compression_level,
        "linger_ms": ms(p.linger), "batch_size": p.batch_size,
        "buffer_memory": p.buffer_memory, "max_block_ms": ms(p.max_block),
        "delivery_timeout_ms": ms(p.delivery_timeout), "max_in_flight": p.max_in_flight,
    });
    let consumer = json!({
        "group_id": c.group_id, "auto_offset_reset": c.auto_offset_reset.as_str(),
        "fetch_min_bytes": c.fetch_min_bytes, "fetch_max_wait_ms": ms(c.fetch_max_wait),
        "fetch_max_bytes": c.fetch_max_bytes,
        "max_partition_fetch_bytes": c.max_partition_fetch_bytes,
        "max_poll_records": c.max_poll_records, "check_crcs": c.check_crcs,
        "any_replica": c.any_replica, "replica_node_id": c.replica_node_id,
        "rack": c.rack,
    });
    let member = json!({
        "membership": c.membership.as_str(), "group_instance_id": c.group_instance_id,
        "assignor": c.assignor.as_str(), "session_timeout_ms": ms(c.session_timeout),
        "revoke_timeout_ms": ms(c.revoke_timeout),
        "processing_timeout_ms": ms(c.processing_timeout),
        "enable_auto_commit": c.enable_auto_commit,
        "auto_commit_interval_ms": ms(c.auto_commit_interval),
    });
    json!({
        "producer": with(&p.client, producer), "consumer": with(&c.client, consumer),
        "member": member,
    })
}

fn ms(span: Duration) -> Value {
    json!(span.as_millis() as u64)
}

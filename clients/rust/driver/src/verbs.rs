//! The verbs of producers, consumers and admin clients.

use std::collections::HashMap;
use std::time::Duration;

use oncelog::{
    Admin, BatchOptions, CleanupPolicy, Consumer, Delivery, ErrorKind, Message, OffsetCommit,
    Producer, PublishedRun, Record, TopicConfig, TopicPartition, Transaction, TransactionOptions,
};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{Answer, Fault, administration, empty, error_object, settings};

pub fn fault(message: impl Into<String>) -> Fault {
    Fault::Driver(message.into())
}

/// How long a command may take.
fn limit(c: &Value) -> Duration {
    Duration::from_millis(c["timeout_ms"].as_u64().unwrap_or(60_000))
}

pub fn tp(c: &Value) -> TopicPartition {
    let partition = c["partition"].as_i64().unwrap_or(0) as i32;
    TopicPartition::new(c["topic"].as_str().unwrap_or_default(), partition)
}

pub fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|two| match two {
            [_, _] => u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok(),
            _ => None,
        })
        .collect()
}

fn bytes_of(value: &Value) -> Result<Option<Vec<u8>>, Fault> {
    let read = |digits: &str| unhex(digits).ok_or_else(|| fault("not hexadecimal"));
    value.as_str().map(read).transpose()
}

fn digits_of(data: Option<&[u8]>) -> Value {
    data.map_or(Value::Null, |data| {
        data.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
    })
}

/// A record's bytes, which a message borrows.
struct Parts {
    value: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Parts {
    fn read(c: &Value) -> Result<Self, Fault> {
        let mut headers = vec![];
        for pair in c["headers"].as_array().into_iter().flatten() {
            let name = pair[0].as_str().ok_or_else(|| fault("a header without a name"))?;
            headers.push((name.to_owned(), bytes_of(&pair[1])?));
        }
        Ok(Self { value: bytes_of(&c["value"])?, key: bytes_of(&c["key"])?, headers })
    }

    fn message<'a>(&'a self, topic: &'a str) -> Message<'a> {
        let mut message = match &self.value {
            Some(value) => Message::new(topic, value),
            None => Message::null(topic),
        };
        if let Some(key) = &self.key {
            message = message.key(key);
        }
        for (name, value) in &self.headers {
            message = match value {
                Some(value) => message.header(name, value),
                None => message.null_header(name),
            };
        }
        message
    }
}

/// A producer, and its sent records, by tag.
pub struct Producing {
    pub producer: Producer,
    sent: HashMap<String, Delivery>,
    /// The newest one.
    transaction: Option<Transaction>,
}

impl Producing {
    pub fn open(config: &Value) -> Result<Self, Fault> {
        let producer = Producer::new(settings::producer(config)?)?;
        Ok(Self { producer, sent: HashMap::new(), transaction: None })
    }

    pub async fn carry_out(
        &mut self,
        verb: &str,
        c: &Value,
        consumer: Option<&Consumer>,
    ) -> Answer {
        match verb {
            "begin" => self.begin(c).await,
            "commit_transaction" => self.commit().await,
            "abort_transaction" => {
                self.begun()?.abort().await?;
                Ok(empty())
            }
            "send_offsets" => {
                let consumer = consumer.ok_or_else(|| fault("no such consumer"))?;
                self.begun()?.commit_positions(consumer).await?;
                Ok(empty())
            }
            "send" => self.send(c).await,
            "send_batch" => self.send_batch(c).await,
            "await" => self.await_results(c).await,
            "flush" => {
                let flushed = timeout(limit(c), self.producer.flush()).await;
                let settled = match flushed {
                    Ok(Err(error)) => error.kind() == ErrorKind::Undelivered,
                    Ok(Ok(())) => true,
                    Err(_) => false,
                };
                Ok(json!({ "settled": settled }))
            }
            "last_sequence" => {
                Ok(json!({ "last_sequence": self.producer.position(&tp(c)).await? }))
            }
            "resolve" => {
                let found = self.producer.resolve(self.delivery(&c["tag"])?).await?;
                Ok(json!({ "resolution": found.resolution.as_str(), "offset": found.offset }))
            }
            "close" => match self.producer.close_within(limit(c)).await {
                Err(error) if error.kind() != ErrorKind::Undelivered => Err(error.into()),
                _ => Ok(empty()),
            },
            verb => Err(Fault::NotOffered(format!("no verb {verb}"))),
        }
    }

    async fn begin(&mut self, c: &Value) -> Answer {
        let span = |name: &str| c[name].as_u64().map(Duration::from_millis);
        let mut options = TransactionOptions::new();
        options.idle_timeout = span("idle_timeout_ms");
        options.total_timeout = span("total_timeout_ms");
        let begun = self.producer.begin_with(options).await?;
        let id = begun.id();
        self.transaction = Some(begun);
        Ok(json!({ "transaction_id": id }))
    }

    fn begun(&self) -> Result<&Transaction, Fault> {
        self.transaction.as_ref().ok_or_else(|| fault("no transaction was begun"))
    }

    async fn commit(&self) -> Answer {
        let committed = self.begun()?.commit().await?;
        let run = |(tp, run): (&TopicPartition, &PublishedRun)| {
            json!({
                "topic": &*tp.topic, "partition": tp.partition,
                "base_offset": run.base_offset, "record_count": run.record_count,
            })
        };
        let runs: Vec<Value> = committed.runs.iter().map(run).collect();
        Ok(json!({ "transaction_id": committed.transaction_id, "runs": runs }))
    }

    fn delivery(&self, tag: &Value) -> Result<&Delivery, Fault> {
        let known = self.sent.get(tag.as_str().unwrap_or_default());
        known.ok_or_else(|| fault(format!("no tag {tag}")))
    }

    fn remember(&mut self, c: &Value, delivery: Delivery) -> Answer {
        self.sent.insert(c["tag"].as_str().unwrap_or_default().into(), delivery);
        Ok(empty())
    }

    async fn send(&mut self, c: &Value) -> Answer {
        let parts = Parts::read(c)?;
        let mut message = parts.message(c["topic"].as_str().unwrap_or_default());
        if let Some(partition) = c["partition"].as_i64() {
            message = message.partition(partition as i32);
        }
        if let Some(ms) = c["timestamp_ms"].as_i64() {
            message = message.timestamp_us(ms * 1000);
        }
        if let Some(sequence) = c["sequence"].as_i64() {
            message = message.sequence(sequence);
        }
        if let Some(offset) = c["expected_offset"].as_i64() {
            message = message.expected_offset(offset);
        }
        let delivery = self.producer.send(message).await?;
        self.remember(c, delivery)
    }

    async fn send_batch(&mut self, c: &Value) -> Answer {
        let topic = c["topic"].as_str().unwrap_or_default();
        let records = c["records"].as_array().cloned().unwrap_or_default();
        let parts: Vec<Parts> = records.iter().map(Parts::read).collect::<Result<_, _>>()?;
        let messages: Vec<Message<'_>> = parts
            .iter()
            .zip(&records)
            .map(|(parts, record)| match record["timestamp_us"].as_i64() {
                Some(us) => parts.message(topic).timestamp_us(us),
                None => parts.message(topic),
            })
            .collect();
        let mut options = BatchOptions::new();
        if let Some(sequences) = c["sequences"].as_array() {
            options = options.sequences(sequences.iter().filter_map(Value::as_i64).collect());
        }
        if let Some(offset) = c["expected_offset"].as_i64() {
            options = options.expected_offset(offset);
        }
        let partition = tp(c).partition;
        let delivery = self.producer.send_batch(topic, partition, &messages, options).await?;
        self.remember(c, delivery)
    }

    async fn await_results(&mut self, c: &Value) -> Answer {
        let deadline = Instant::now() + limit(c);
        let tags: Vec<Value> = match c["tags"].as_array() {
            Some(tags) => tags.clone(),
            None => self.sent.keys().map(|tag| tag.as_str().into()).collect(),
        };
        // The outcome of the records is told below.
        let _ = timeout_at(deadline, self.producer.flush()).await;
        let mut results = Map::new();
        for tag in tags {
            let outcome = timeout_at(deadline, self.delivery(&tag)?.wait()).await;
            let result = match outcome {
                Ok(Ok(m)) => json!({ "ok": {
                    "topic": &*m.topic, "partition": m.partition, "offset": m.offset,
                    "sequence": m.sequence, "last_sequence": m.last_sequence,
                    "producer_id": m.producer_id, "epoch": m.epoch, "duplicate": m.duplicate,
                }}),
                Ok(Err(error)) => json!({ "error": error_object(&error.into()) }),
                Err(_) => json!({ "pending": true }),
            };
            results.insert(tag.as_str().unwrap_or_default().into(), result);
        }
        Ok(json!({ "results": results }))
    }
}

// --- consumers -----------------------------------------------------------------------------

fn pairs(tps: &[TopicPartition]) -> Vec<Value> {
    tps.iter().map(|tp| json!([&*tp.topic, tp.partition])).collect()
}

pub async fn read(consumer: &Consumer, verb: &str, c: &Value) -> Answer {
    match verb {
        "subscribe" => {
            let topics = c["topics"].as_array().into_iter().flatten();
            consumer.subscribe(topics.filter_map(Value::as_str)).await?;
        }
        "unsubscribe" => consumer.unsubscribe().await?,
        "subscription" => return Ok(json!({ "topics": consumer.subscription() })),
        "assignment" => return Ok(json!({ "partitions": pairs(&consumer.assignment()) })),
        "pause" => consumer.pause(&[tp(c)])?,
        "resume" => consumer.resume(&[tp(c)])?,
        "paused" => return Ok(json!({ "partitions": pairs(&consumer.paused()) })),
        "assign" => {
            let pairs = c["partitions"].as_array().into_iter().flatten();
            let pair = |two: &Value| {
                let partition = two[1].as_i64().unwrap_or_default() as i32;
                TopicPartition::new(two[0].as_str().unwrap_or_default(), partition)
            };
            let partitions: Vec<TopicPartition> = pairs.map(pair).collect();
            consumer.assign(&partitions).await?;
        }
        "poll" => return poll(consumer, c).await,
        "seek" => {
            let all = [tp(c)];
            match c["offset"].as_str() {
                Some("beginning") => consumer.seek_to_beginning(&all).await?,
                Some("end") => consumer.seek_to_end(&all).await?,
                _ => {
                    let offset = c["offset"].as_i64().ok_or_else(|| fault("offset"))?;
                    consumer.seek(&all[0], offset)?;
                }
            }
        }
        "position" => return Ok(json!({ "offset": consumer.position(&tp(c)).await? })),
        "lag" => return Ok(json!({ "lag": consumer.lag(&tp(c)).await? })),
        "list_offset" => {
            let all = [tp(c)];
            let found = match (c["at"].as_str(), c["at"].as_i64()) {
                (Some("earliest"), _) => consumer.beginning_offsets(&all).await?,
                (Some("latest"), _) => consumer.end_offsets(&all).await?,
                (_, Some(ms)) => {
                    consumer.offsets_for_times(&HashMap::from([(tp(c), ms * 1000)])).await?
                }
                _ => return Err(fault("at")),
            };
            return Ok(json!({ "offset": found.get(&all[0]) }));
        }
        "commit" => match c["offsets"].as_array() {
            Some(offsets) => consumer.commit_offsets(&commits(offsets)).await?,
            None => consumer.commit().await?,
        },
        "committed" => {
            let Some(found) = consumer.committed(&tp(c)).await? else {
                return Ok(json!({ "offset": null }));
            };
            let known = found.commit;
            return Ok(json!({
                "offset": known.offset, "metadata": known.metadata,
                "producer_id": known.producer_id, "epoch": known.epoch,
                "sequence": known.sequence,
            }));
        }
        "close" => consumer.close().await?,
        "abandon" => consumer.abandon().await?,
        verb => return Err(Fault::NotOffered(format!("no verb {verb}"))),
    }
    Ok(empty())
}

async fn poll(consumer: &Consumer, c: &Value) -> Answer {
    let most = consumer.config().max_poll_records;
    let most = c["max_records"].as_u64().map_or(most, |n| n as usize);
    let records = match timeout(limit(c), consumer.poll_records(most)).await {
        Ok(records) => records?,
        Err(_) => vec![],
    };
    let record = |record: &Record| {
        let headers: Vec<Value> = record
            .headers
            .iter()
            .map(|header| json!([header.key, digits_of(header.value.as_deref())]))
            .collect();
        json!({
            "topic": &*record.topic, "partition": record.partition, "offset": record.offset,
            "timestamp_us": record.timestamp_us, "key": digits_of(record.key.as_deref()),
            "value": digits_of(record.value.as_deref()), "headers": headers,
        })
    };
    Ok(json!({ "records": records.iter().map(record).collect::<Vec<Value>>() }))
}

fn commits(offsets: &[Value]) -> HashMap<TopicPartition, OffsetCommit> {
    let commit = |o: &Value| {
        let commit = OffsetCommit {
            offset: o["offset"].as_i64().unwrap_or_default(),
            metadata: o["metadata"].as_str().unwrap_or_default().into(),
            producer_id: o["producer_id"].as_i64().unwrap_or_default(),
            epoch: o["epoch"].as_i64().unwrap_or_default() as i32,
            sequence: o["sequence"].as_i64().unwrap_or_default(),
        };
        (tp(o), commit)
    };
    offsets.iter().map(commit).collect()
}

// --- admin ---------------------------------------------------------------------------------

pub async fn manage(admin: &Admin, verb: &str, c: &Value) -> Answer {
    let topic = c["topic"].as_str().unwrap_or_default();
    match timeout(limit(c) + Duration::from_secs(1), manage_topic(admin, verb, c, topic)).await {
        Ok(answer) => answer,
        Err(_) => Err(Fault::Timeout),
    }
}

async fn manage_topic(admin: &Admin, verb: &str, c: &Value, topic: &str) -> Answer {
    let number = |name: &str| c[name].as_i64().map(|n| n as i32);
    match verb {
        "create_topic" => {
            let config = TopicConfig {
                max_batch_bytes: number("max_batch_bytes"),
                cleanup_policy: match c["cleanup_policy"].as_str() {
                    Some("delete") => Some(CleanupPolicy::Delete),
                    Some("compact") => Some(CleanupPolicy::Compact),
                    Some("compact_delete") => Some(CleanupPolicy::CompactDelete),
                    _ => None,
                },
                min_compaction_lag_ms: c["min_compaction_lag_ms"].as_i64(),
                max_compaction_lag_ms: c["max_compaction_lag_ms"].as_i64(),
                delete_retention_ms: c["delete_retention_ms"].as_i64(),
                min_cleanable_dirty_ratio: c["min_cleanable_dirty_ratio"].as_f64(),
                ..Default::default()
            };
            let (partitions, replicas) =
                (number("partitions").unwrap_or(0), number("replicas").unwrap_or(0));
            admin.create_topic_within(limit(c), topic, partitions, replicas, config).await?;
            Ok(empty())
        }
        "delete_topic" => {
            admin.delete_topic(topic).await?;
            Ok(empty())
        }
        "describe_topic" => {
            let found = admin.describe_topic(topic).await?;
            let partitions: Vec<Value> = found
                .partitions
                .iter()
                .map(
                    |p| json!({"partition": p.partition, "leader_id": p.leader_id, "term": p.term}),
                )
                .collect();
            let config = found.config;
            let cleanup = match config.cleanup_policy {
                Some(CleanupPolicy::Compact) => "compact",
                Some(CleanupPolicy::CompactDelete) => "compact_delete",
                _ => "delete",
            };
            Ok(json!({
                "topic_id": found.topic_id, "max_batch_bytes": config.max_batch_bytes,
                "cleanup_policy": cleanup,
                "min_compaction_lag_ms": config.min_compaction_lag_ms,
                "max_compaction_lag_ms": config.max_compaction_lag_ms,
                "delete_retention_ms": config.delete_retention_ms,
                "min_cleanable_dirty_ratio": config.min_cleanable_dirty_ratio,
                "partitions": partitions,
            }))
        }
        "describe_cluster" => {
            let info = admin.describe_cluster().await?;
            let nodes: Vec<Value> = info
                .nodes
                .iter()
                .map(|node| {
                    json!({
                        "node_id": node.node_id, "address": node.address, "alive": node.alive,
                        "clock_disagrees": node.clock_disagrees, "release": node.release,
                        "insecure": node.insecure,
                    })
                })
                .collect();
            Ok(json!({
                "cluster_id": info.cluster_id, "controller_id": info.controller_id, "nodes": nodes,
                "upgrade": {
                    "cluster_version": info.upgrade.cluster_version,
                    "target_version": info.upgrade.target_version,
                },
                "damaged_replicas": info.damaged_replicas, "founding": info.founding,
            }))
        }
        "fence_producer" => {
            let name = c["producer_name"].as_str().unwrap_or_default();
            let fenced = admin.fence_producer(name).await?;
            Ok(json!({ "producer_id": fenced.producer_id, "epoch": fenced.epoch }))
        }
        "close" => {
            admin.close();
            Ok(empty())
        }
        verb => administration::carry_out(admin, verb, c).await,
    }
}

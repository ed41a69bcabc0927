//! The producer: records in, deliveries out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::accumulator::{Accumulator, Addition, OpenBatch};
use crate::cluster::{Backoff, Cluster, no_partition};
use crate::compress::Compression;
use crate::config::ProducerConfig;
use crate::delivery::{BatchDelivery, Delivery, Stored};
use crate::errors::{Error, ErrorKind, Outcome, Result};
use crate::identities::Identities;
use crate::leaders::TopicFacts;
use crate::partitioner::key_partition;
use crate::payload::MAX_PAYLOAD_BYTES;
use crate::resolve::resolve_sequence;
use crate::sealing::{Codec, Identity};
use crate::sender::{Event, Sender};
use crate::types::{BatchOptions, Message, Metadata, ResolvedSequence, TopicPartition};

const MOST_FAILED_KEPT: usize = 1000;

/// A producer's counters since its start.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
#[allow(missing_docs)] // they say it themselves
pub struct Stats {
    pub records_sent: u64,
    pub records_acked: u64,
    pub records_failed: u64,
    pub batches_sent: u64,
    pub batches_acked: u64,
    pub batches_retried: u64,
    pub bytes_sent: u64,
    /// Acknowledged as stored by an earlier attempt.
    pub duplicates: u64,
    /// Changes of a partition's producer id for a cause.
    pub resets: u64,
    pub max_ack_latency: Duration,
    pub buffer_used: usize,
}

/// What the users' side, the sender and the windows of a producer share.
pub(crate) struct Common {
    pub(crate) config: ProducerConfig,
    pub(crate) accumulator: Accumulator,
    pub(crate) backoff: Backoff,
    pub(crate) codec: Codec,
    stats: Mutex<Stats>,
    failures: Mutex<Failures>,
}

/// Batches that failed and that flush and close have not reported yet.
#[derive(Default)]
struct Failures {
    batches: VecDeque<Arc<BatchDelivery>>,
    /// Records of batches that are no longer kept.
    dropped: usize,
}

impl Common {
    pub(crate) fn new(config: ProducerConfig, wake: Arc<Notify>) -> Self {
        Self {
            accumulator: Accumulator::new(&config, wake),
            backoff: Backoff {
                first: config.client.retry_backoff,
                most: config.client.retry_backoff_max,
            },
            codec: Codec { compression: config.compression, level: config.compression_level },
            stats: Mutex::default(),
            failures: Mutex::default(),
            config,
        }
    }

    pub(crate) fn stats(&self) -> MutexGuard<'_, Stats> {
        self.stats.lock().expect("no panic while it is held")
    }

    /// The outcome of a batch is known.
    pub(crate) fn settle(&self, batch: &OpenBatch, outcome: Result<Stored>) {
        if outcome.is_err() {
            let mut failures = self.failures.lock().expect("no panic while it is held");
            failures.batches.push_back(batch.delivery.clone());
            if failures.batches.len() > MOST_FAILED_KEPT
                && let Some(oldest) = failures.batches.pop_front()
            {
                failures.dropped += oldest.unlooked();
            }
        }
        self.accumulator.release(batch);
        batch.delivery.settle(outcome);
    }

    /// An error for failures that nobody has looked at.
    pub(crate) fn report(&self) -> Result<()> {
        let Failures { batches, dropped } =
            std::mem::take(&mut *self.failures.lock().expect("no panic while it is held"));
        let unlooked: Vec<_> = batches.iter().filter(|batch| batch.unlooked() > 0).collect();
        let count = dropped + unlooked.iter().map(|batch| batch.unlooked()).sum::<usize>();
        if count == 0 {
            return Ok(());
        }
        let first = unlooked.first().and_then(|batch| batch.error());
        let mut message = format!("{count} records were not delivered");
        if let Some(first) = first {
            message += &format!(", the first: {first}");
        }
        let outcome = first.and_then(Error::outcome).unwrap_or(Outcome::Unknown);
        Err(Error::new(ErrorKind::Undelivered, message)
            .with_outcome(outcome)
            .with(|d| d.count = count as u64))
    }
}

/// Sends records; each is stored once, in order per partition, whatever fails between.
///
/// It is used by reference, by any number of tasks. Close it at the end: a producer that is
/// dropped gives up what is still on its way.
pub struct Producer {
    common: Arc<Common>,
    cluster: Arc<Cluster>,
    identities: Arc<Identities>,
    events: mpsc::UnboundedSender<Event>,
    sender: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Producer {
    /// Makes a producer, within a Tokio runtime. No node is asked yet.
    ///
    /// It fails with [`ErrorKind::InvalidConfig`] for settings that are out of range or
    /// contradict each other.
    pub fn new(mut config: ProducerConfig) -> Result<Self> {
        config.check()?;
        let cluster = Arc::new(Cluster::new(config.client.clone())?);
        let identities = Arc::new(Identities::new(config.clone(), cluster.clone()));
        let wake = Arc::new(Notify::new());
        let common = Arc::new(Common::new(config, wake.clone()));
        let (events, received) = mpsc::unbounded_channel();
        let sender =
            Sender::new(common.clone(), cluster.clone(), identities.clone(), events.clone());
        let task = tokio::spawn(sender.run(received, wake));
        let sender = tokio::sync::Mutex::new(Some(task));
        Ok(Self { common, cluster, identities, events, sender })
    }

    /// The settings in force.
    pub fn config(&self) -> &ProducerConfig {
        &self.common.config
    }

    // --- sending -------------------------------------------------------------------------

    /// Queues one record and returns its future outcome. The message's bytes are copied.
    ///
    /// Without a partition the key decides (Kafka's murmur2), without a key records stick to one
    /// partition until its batch is closed. It waits for a topic that is not known yet, and while
    /// the buffer is full, for at most `max_block`. On an error, and when the future is dropped,
    /// nothing was queued.
    pub async fn send(&self, message: Message<'_>) -> Result<Delivery> {
        let sequences = message.sequence.map(|sequence| [sequence]);
        let addition = Addition {
            topic: message.topic,
            partition: message.partition.unwrap_or(-1),
            sticky: false,
            sequences: sequences.as_ref().map(|one| one.as_slice()),
            expected_offset: message.expected_offset,
            whole: false,
            max_batch_bytes: 0,
            messages: std::slice::from_ref(&message),
        };
        self.queue(addition, message.partition.is_some()).await
    }

    /// Sends many records as exactly one batch of a partition. What the messages say of topic,
    /// partition, sequence and expected offset is ignored.
    pub async fn send_batch(
        &self,
        topic: &str,
        partition: i32,
        messages: &[Message<'_>],
        options: BatchOptions,
    ) -> Result<Delivery> {
        if messages.is_empty() {
            return Err(Error::invalid("messages", "a batch needs at least one record"));
        }
        let addition = Addition {
            topic,
            partition,
            sticky: false,
            sequences: options.sequences.as_deref(),
            expected_offset: options.expected_offset,
            whole: true,
            max_batch_bytes: 0,
            messages,
        };
        self.queue(addition, true).await
    }

    /// Sends one record and waits for its outcome.
    pub async fn send_and_wait(&self, message: Message<'_>) -> Result<Metadata> {
        self.send(message).await?.wait().await
    }

    async fn queue(&self, mut addition: Addition<'_>, placed: bool) -> Result<Delivery> {
        self.check(&addition)?;
        let facts = match self.cluster.leaders.topic(addition.topic) {
            Some(facts) if facts.partitions > 0 => facts,
            _ => self.learn(addition.topic).await?,
        };
        // With a codec only the size as sent counts: the node judges it.
        let packed = self.common.config.compression != Compression::None;
        addition.max_batch_bytes = if packed { MAX_PAYLOAD_BYTES } else { facts.max_batch_bytes };
        if placed {
            let known = 0..facts.partitions as i64;
            if !known.contains(&addition.partition.into()) {
                return Err(no_partition(&TopicPartition::new(addition.topic, addition.partition)));
            }
        } else if let Some(key) = addition.messages[0].key {
            addition.partition = key_partition(key, facts.partitions);
        } else {
            addition.partition = fastrand::i32(0..facts.partitions as i32);
            // A record with demands of its own does not set the place for others.
            addition.sticky = addition.sequences.is_none() && addition.expected_offset.is_none();
        }
        self.common.accumulator.append(&addition).await
    }

    fn check(&self, addition: &Addition<'_>) -> Result<()> {
        if let Some(sequences) = addition.sequences {
            if !self.common.config.enable_idempotence {
                return Err(Error::invalid("sequence", "sequence needs enable_idempotence"));
            }
            let count = addition.messages.len();
            let rising = sequences.windows(2).all(|two| two[0] < two[1]);
            if sequences.len() != count || sequences[0] < 0 || !rising {
                return Err(Error::invalid(
                    "sequences",
                    format!("sequences must be {count} rising numbers from 0, one for each record"),
                ));
            }
        }
        if addition.expected_offset.is_some_and(|offset| offset < 0) {
            return Err(Error::invalid("expected_offset", "expected_offset must not be negative"));
        }
        Ok(())
    }

    async fn learn(&self, topic: &str) -> Result<TopicFacts> {
        if topic.is_empty() {
            return Err(Error::invalid("topic", "the topic must have a name"));
        }
        if let Some(failure) = self.common.accumulator.failure() {
            return Err(failure);
        }
        self.cluster.require_topic(topic, self.common.config.max_block).await?;
        match self.cluster.leaders.topic(topic) {
            Some(facts) if facts.partitions > 0 => Ok(facts),
            _ => Err(Error::new(
                ErrorKind::NotReady,
                format!("topic {topic:?} has no partitions yet"),
            )),
        }
    }

    // --- waiting, asking -----------------------------------------------------------------

    /// Sends what lingers and waits until the outcome of all records is known.
    ///
    /// It fails with [`ErrorKind::Undelivered`] for failures since the last flush that nobody has
    /// looked at: no `wait` returned them.
    pub async fn flush(&self) -> Result<()> {
        self.settle_all().await;
        self.common.report()
    }

    async fn settle_all(&self) {
        let (_guard, waiting) = self.common.accumulator.begin_flush();
        for batch in waiting {
            batch.settled().await;
        }
    }

    /// Flushes and frees everything. It fails with [`ErrorKind::Undelivered`] as a flush does; a
    /// second close does nothing.
    pub async fn close(&self) -> Result<()> {
        self.close_within(Duration::MAX).await
    }

    /// The same, and what has no outcome in time fails.
    pub async fn close_within(&self, limit: Duration) -> Result<()> {
        let mut sender = self.sender.lock().await;
        let Some(task) = sender.take() else { return Ok(()) };
        // What is left fails below, and is reported with its outcome.
        let _ = timeout(limit, self.settle_all()).await;
        let _ = self.events.send(Event::Stop); // it has ended already, then
        let _ = task.await;
        self.cluster.close();
        self.common.report()
    }

    /// The number of a topic's partitions.
    pub async fn partitions(&self, topic: &str) -> Result<usize> {
        match self.cluster.leaders.topic(topic) {
            Some(facts) if facts.partitions > 0 => Ok(facts.partitions),
            _ => Ok(self.learn(topic).await?.partitions),
        }
    }

    /// The last sequence of this producer that is stored in a partition; -1: none.
    pub async fn position(&self, tp: &TopicPartition) -> Result<i64> {
        let partitions = self.partitions(&tp.topic).await?;
        if !(0..partitions as i64).contains(&tp.partition.into()) {
            return Err(no_partition(tp));
        }
        let limit = self.common.config.max_block;
        let identity = match timeout(limit, self.identity_of(tp)).await {
            Ok(identity) => identity?,
            Err(_) => {
                let message = format!("no answer within max_block={limit:?}");
                return Err(Error::new(ErrorKind::RequestTimeout, message));
            }
        };
        self.identities.last_stored(tp, &identity).await
    }

    /// The producer id that the partition has, or gets now.
    async fn identity_of(&self, tp: &TopicPartition) -> Result<Arc<Identity>> {
        let (answer, found) = oneshot::channel();
        // If the sender has ended, the answer's end is dropped.
        let _ = self.events.send(Event::WantIdentity { tp: tp.clone(), answer });
        found.await.map_err(|_| {
            self.common.accumulator.failure().unwrap_or_else(|| Error::closed("producer"))
        })
    }

    /// Asks what became of a record (or a batch, by its last record) after a timeout. `NotYet`:
    /// it may still come. A record without idempotence, or one that was never sent, is
    /// [`ErrorKind::InvalidRequest`]: there is nothing to ask for.
    pub async fn resolve(&self, delivery: &Delivery) -> Result<ResolvedSequence> {
        let (producer_id, epoch, sequence) = delivery.numbers();
        if producer_id == 0 || sequence < 0 {
            let message = "the record has no sequence: it was never sent, or not with idempotence";
            return Err(Error::invalid("record", message));
        }
        resolve_sequence(&self.cluster, &delivery.batch.tp, producer_id, epoch, sequence).await
    }

    /// The producer id and epoch in use; `None` before the first record is on its way.
    pub fn identity(&self) -> Option<(i64, i32)> {
        self.identities.current().map(|identity| (identity.producer_id, identity.epoch))
    }

    /// The producer's counters.
    pub fn stats(&self) -> Stats {
        let buffer_used = self.common.accumulator.used();
        Stats { buffer_used, ..self.common.stats().clone() }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let _ = self.events.send(Event::Stop); // it has ended already, then
    }
}

//! The producer: records in, deliveries out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::accumulator::{Accumulator, OpenBatch};
use crate::cluster::{Backoff, Cluster, no_partition};
use crate::config::ProducerConfig;
use crate::delivery::{BatchDelivery, Delivery, Stored};
use crate::errors::{Error, ErrorKind, Outcome, Result};
use crate::identities::Identities;
use crate::queue::Queue;
use crate::reachability::Outages;
use crate::resolve::resolve_sequence;
use crate::sealing::{Codec, Identity};
use crate::sender::{Event, Sender};
use crate::staging::CommittedTransaction;
use crate::transaction::{Transaction, TransactionOptions};
use crate::transactions::Transactions;
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
    pub outages: Outages,
}

/// Parts that the users' side, the sender and the windows of a producer share.
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
        // Of a transaction's its end tells.
        if outcome.is_err() && batch.transaction.is_none() {
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

    /// Sends lingering records, and returns when nothing waits any more and nothing is on its way.
    pub(crate) async fn settle_all(&self) {
        let (_guard, waiting) = self.accumulator.begin_flush();
        for batch in waiting {
            batch.settled().await;
        }
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

/// Sends records; each is stored once, in order per partition, through any failure.
///
/// It is used by reference, by any number of tasks. Close it at the end: a producer that is dropped
/// is closed by its task, when its records have an outcome. Where the runtime ends before, a
/// warning says how many records were not delivered.
pub struct Producer {
    common: Arc<Common>,
    cluster: Arc<Cluster>,
    identities: Arc<Identities>,
    events: mpsc::UnboundedSender<Event>,
    sender: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    queue: Queue,
    transactions: Arc<Transactions>,
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
        let transactions = Arc::new(Transactions::new(
            common.clone(),
            cluster.clone(),
            identities.clone(),
            events.clone(),
        ));
        let queue = Queue { common: common.clone(), cluster: cluster.clone() };
        Ok(Self { common, cluster, identities, events, sender, queue, transactions })
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
        self.queue.send(&message).await
    }

    /// Sends many records as exactly one batch of a partition. The messages' topic, partition,
    /// sequence and expected offset are ignored.
    pub async fn send_batch(
        &self,
        topic: &str,
        partition: i32,
        messages: &[Message<'_>],
        options: BatchOptions,
    ) -> Result<Delivery> {
        self.queue.send_batch(topic, partition, messages, &options).await
    }

    /// Sends one record and waits for its outcome.
    pub async fn send_and_wait(&self, message: Message<'_>) -> Result<Metadata> {
        self.send(message).await?.wait().await
    }

    // --- transactions --------------------------------------------------------------------

    /// Begins a transaction, when all that was sent before is settled. The producer needs a
    /// `producer_name`.
    ///
    /// It fails with [`ErrorKind::Fenced`] if another producer has taken over the name, with
    /// [`ErrorKind::TransactionOpen`] if nobody has asked for the end of the one before, and with a
    /// [retriable](ErrorKind::Retriable) error when nobody answers. A transaction that has begun
    /// when the future is dropped is aborted; records go without it at once.
    pub async fn begin(&self) -> Result<Transaction> {
        self.begin_with(TransactionOptions::default()).await
    }

    /// The same, with times of its own.
    pub async fn begin_with(&self, options: TransactionOptions) -> Result<Transaction> {
        Transaction::begin(self.transactions.clone(), self.queue.clone(), options).await
    }

    /// Begins a transaction, calls `f`, and commits; if `f` fails it aborts. It fails with `f`'s
    /// error, or that of [`Producer::begin`] and [`Transaction::commit`].
    pub async fn transact<E: From<Error>>(
        &self,
        f: impl AsyncFnOnce(&Transaction) -> std::result::Result<(), E>,
    ) -> std::result::Result<CommittedTransaction, E> {
        let transaction = self.begin().await?;
        if let Err(error) = f(&transaction).await {
            // Its error says more; a transaction not aborted now is aborted when it has been idle.
            let _ = timeout(self.config().client.request_timeout, transaction.abort()).await;
            return Err(error);
        }
        Ok(transaction.commit_unless_aborted().await?)
    }

    // --- waiting, asking -----------------------------------------------------------------

    /// Sends lingering records and waits until the outcome of all records is known.
    ///
    /// It fails with [`ErrorKind::Undelivered`] for failures since the last flush that nobody has
    /// looked at: no `wait` returned them.
    pub async fn flush(&self) -> Result<()> {
        self.settle_all().await;
        self.common.report()
    }

    async fn settle_all(&self) {
        self.common.settle_all().await;
    }

    /// Flushes and frees everything; a transaction that is open is aborted. It fails with [`ErrorKind::Undelivered`] as a flush does; a
    /// second close does nothing.
    pub async fn close(&self) -> Result<()> {
        self.close_within(Duration::MAX).await
    }

    /// The same, and records without an outcome in time fail.
    pub async fn close_within(&self, limit: Duration) -> Result<()> {
        let mut sender = self.sender.lock().await;
        let Some(task) = sender.take() else { return Ok(()) };
        // The rest fails below, and is reported with its outcome.
        let _ = timeout(limit, async {
            self.transactions.close().await;
            self.settle_all().await;
        })
        .await;
        self.transactions.stop();
        let _ = self.events.send(Event::Stop); // it has ended already, then
        let _ = task.await;
        self.cluster.close();
        self.common.report()
    }

    /// The number of a topic's partitions.
    pub async fn partitions(&self, topic: &str) -> Result<usize> {
        match self.cluster.leaders.topic(topic) {
            Some(facts) if facts.partitions > 0 => Ok(facts.partitions),
            _ => Ok(self.queue.learn(topic).await?.partitions),
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
                let message = format!("{tp}: no position within max_block={limit:?}");
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

    /// Asks for the outcome of a record (or a batch, by its last record) after a timeout. `NotYet`:
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
        let outages = self.cluster.reached.outages();
        Stats { buffer_used, outages, ..self.common.stats().clone() }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.transactions.stop();
        let _ = self.events.send(Event::Finish); // it has ended already, then
    }
}

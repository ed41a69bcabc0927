//! A transaction as its application holds it.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use crate::consumer::Consumer;
use crate::delivery::Delivery;
use crate::errors::{Error, ErrorKind, Result};
use crate::following::Times;
use crate::groups::CommitTerms;
use crate::queue::Queue;
use crate::staging::{CommittedTransaction, Staging, TransactionState};
use crate::transactions::Transactions;
use crate::types::{BatchOptions, Message, OffsetCommit, TopicPartition};

/// Options of one [`Producer::begin_with`](crate::Producer::begin_with). A field that is `None` is
/// the nodes' own.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TransactionOptions {
    /// It is aborted after so long without a sign of life; the producer gives them by itself.
    pub idle_timeout: Option<Duration>,
    /// It is aborted after so long altogether.
    pub total_timeout: Option<Duration>,
}

impl TransactionOptions {
    /// Nothing special.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`TransactionOptions::idle_timeout`].
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = Some(timeout);
        self
    }

    /// Sets [`TransactionOptions::total_timeout`].
    pub fn total_timeout(mut self, timeout: Duration) -> Self {
        self.total_timeout = Some(timeout);
        self
    }

    fn times(&self) -> Result<Times> {
        let whole = |name: &str, given: Option<Duration>| match given {
            None => Ok(Duration::ZERO),
            Some(span) if (1..=i32::MAX as u128).contains(&span.as_millis()) => Ok(span),
            Some(span) => {
                let message = format!("{name} must be from 1 ms to {} ms, got {span:?}", i32::MAX);
                Err(Error::invalid(name, message))
            }
        };
        Ok(Times {
            idle: whole("idle_timeout", self.idle_timeout)?,
            total: whole("total_timeout", self.total_timeout)?,
        })
    }
}

/// Records in several partitions that become readable together, or never, and how far a group has
/// read with them. [`Producer::begin`](crate::Producer::begin) begins it, [`Transaction::commit`]
/// or [`Transaction::abort`] ends it; [`Producer::transact`](crate::Producer::transact) does all
/// of that.
///
/// While it is open, all that its producer sends belongs to it. A record's [`Delivery`] is done
/// when the record is staged: on disks of a majority, and not readable. Its offset is -1 until the
/// commit. One transaction of a producer is open at a time. It is for any number of tasks.
///
/// Dropping it does not wait. One that is open fails at once, and is aborted by a task of the
/// runtime; the producer's next `begin` waits for that, and a send before that is refused with
/// [`ErrorKind::TransactionAborted`]. One without an answer to its commit is asked for again by the
/// next `begin`. Where nobody can be asked any more it is aborted when it has been idle.
///
/// A future of its that is dropped ends waiting, never a commit that is on its way: call
/// [`Transaction::commit`] again to learn how that ended. The next `begin` waits for it.
pub struct Transaction {
    transactions: Arc<Transactions>,
    queue: Queue,
    staging: Arc<Staging>,
}

/// Has a task of its own carry it out: the waiting caller may go away.
async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(ended) if ended.is_panic() => resume_unwind(ended.into_panic()),
        Err(_) => Err(Error::closed("runtime")),
    }
}

impl Transaction {
    pub(crate) async fn begin(
        transactions: Arc<Transactions>,
        queue: Queue,
        options: TransactionOptions,
    ) -> Result<Self> {
        let staging = transactions.begin(options.times()?).await?;
        Ok(Self { transactions, queue, staging })
    }

    /// The transaction's number, which is never used again.
    pub fn id(&self) -> i64 {
        self.staging.id
    }

    /// How far it is.
    pub fn state(&self) -> TransactionState {
        self.staging.state()
    }

    /// As [`Producer::send`](crate::Producer::send). It fails with
    /// [`ErrorKind::TransactionAborted`] once the transaction cannot be committed.
    pub async fn send(&self, message: Message<'_>) -> Result<Delivery> {
        self.staging.check_open()?;
        self.queue.send(&message).await
    }

    /// As [`Producer::send_batch`](crate::Producer::send_batch).
    pub async fn send_batch(
        &self,
        topic: &str,
        partition: i32,
        messages: &[Message<'_>],
        options: BatchOptions,
    ) -> Result<Delivery> {
        self.staging.check_open()?;
        self.queue.send_batch(topic, partition, messages, &options).await
    }

    /// Stores how far a consumer has read, together with all of the transaction or not at all: its
    /// positions as the next offsets of its group.
    ///
    /// [`ErrorKind::FencedMember`] says that a partition is another member's by now; the
    /// transaction is then only to be aborted.
    pub async fn commit_positions(&self, consumer: &Consumer) -> Result<()> {
        self.commit_offsets(consumer, &consumer.positions()).await
    }

    /// The same, with these offsets.
    pub async fn commit_offsets(
        &self,
        consumer: &Consumer,
        offsets: &HashMap<TopicPartition, OffsetCommit>,
    ) -> Result<()> {
        let group = consumer.group()?;
        self.staging.check_open()?;
        if offsets.is_empty() {
            return Ok(());
        }
        match consumer.terms_to_commit(offsets) {
            Ok(terms) => self.stage(group, offsets, terms).await,
            Err(error) => {
                self.transactions.fail(&self.staging, &error);
                Err(error)
            }
        }
    }

    /// The same for a group without members, by its name.
    pub async fn commit_group_offsets(
        &self,
        group: &str,
        offsets: &HashMap<TopicPartition, OffsetCommit>,
    ) -> Result<()> {
        crate::config::check_name("group", group)
            .map_err(|error| Error::invalid("group", error.message()))?;
        self.staging.check_open()?;
        if offsets.is_empty() {
            return Ok(());
        }
        self.stage(group, offsets, None).await
    }

    async fn stage(
        &self,
        group: &str,
        offsets: &HashMap<TopicPartition, OffsetCommit>,
        terms: Option<CommitTerms>,
    ) -> Result<()> {
        let (transactions, staging) = (self.transactions.clone(), self.staging.clone());
        let (group, offsets) = (group.to_owned(), offsets.clone());
        detached(async move {
            transactions.stage_offsets(&staging, &group, &offsets, terms.as_ref()).await
        })
        .await
    }

    /// Makes all of it readable. It returns when it is, with the places; called again after a
    /// success, it answers the same.
    ///
    /// Errors, with nothing of it readable: [`ErrorKind::TransactionAborted`] (a record failed, it
    /// was idle or open for too long, an operator aborted it); [`ErrorKind::Fenced`] and others
    /// that end the producer come as themselves. [`ErrorKind::CommitTimeout`]: not known yet, call
    /// it again.
    pub async fn commit(&self) -> Result<CommittedTransaction> {
        let (transactions, staging) = (self.transactions.clone(), self.staging.clone());
        detached(async move { transactions.commit(&staging).await }).await
    }

    /// Drops all of it. Again, it does nothing.
    ///
    /// It fails with [`ErrorKind::TransactionCommitted`] if a commit was decided, and with
    /// [`ErrorKind::CommitTimeout`] if nobody answers; it is aborted then when it has been idle
    /// for long enough.
    pub async fn abort(&self) -> Result<()> {
        let (transactions, staging) = (self.transactions.clone(), self.staging.clone());
        detached(async move { transactions.abort(&staging).await }).await
    }

    /// Commits it; one that was aborted by hand answers without places.
    pub(crate) async fn commit_unless_aborted(&self) -> Result<CommittedTransaction> {
        match self.staging.committed() {
            None if self.staging.is_over() => {
                Ok(CommittedTransaction { transaction_id: self.id(), runs: Default::default() })
            }
            Some(committed) => Ok(committed),
            None => self.commit().await,
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.staging.is_over() {
            return;
        }
        self.staging.let_go();
        if self.staging.state() != TransactionState::Open {
            return; // the next begin asks how it ended
        }
        let message = format!("transaction {} was dropped without a commit", self.staging.id);
        let error = Error::new(ErrorKind::TransactionAborted, message);
        self.transactions.fail(&self.staging, &error);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (transactions, staging) = (self.transactions.clone(), self.staging.clone());
            // A transaction that cannot be aborted now is aborted when it has been idle.
            runtime.spawn(async move {
                let _ = transactions.abort(&staging).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Notify, mpsc};

    use super::*;
    use crate::cluster::Cluster;
    use crate::config::ProducerConfig;
    use crate::identities::Identities;
    use crate::producer::{Common, Producer};

    /// One that is open, of a producer without a sender.
    fn open() -> (Transaction, Arc<Staging>) {
        let config = ProducerConfig::new("a:1");
        let cluster = Arc::new(Cluster::new(config.client.clone()).unwrap());
        let common = Arc::new(Common::new(config.clone(), Arc::new(Notify::new())));
        let identities = Arc::new(Identities::new(config, cluster.clone()));
        let (events, _) = mpsc::unbounded_channel();
        let transactions =
            Arc::new(Transactions::new(common.clone(), cluster.clone(), identities, events));
        let staging = Arc::new(Staging::new(7, 1, 0, Duration::from_secs(60)));
        common.accumulator.resume(Some(&staging));
        let queue = Queue { common, cluster };
        (Transaction { transactions, queue, staging: staging.clone() }, staging)
    }

    #[tokio::test]
    async fn one_that_is_dropped_is_never_committed() {
        let (transaction, staging) = open();
        drop(transaction);
        assert!(staging.was_dropped());
        let failure = staging.failure().unwrap();
        assert_eq!(failure.kind(), ErrorKind::TransactionAborted);
        assert!(failure.message().contains("dropped"));
        assert_ne!(staging.end(crate::staging::EndCall::Commit), crate::staging::EndCall::Commit);
    }

    #[tokio::test]
    async fn times_are_bounded() {
        for span in [Duration::ZERO, Duration::MAX] {
            let options = TransactionOptions::new().idle_timeout(span);
            assert_eq!(options.times().unwrap_err().details().field, "idle_timeout");
        }
        assert_eq!(TransactionOptions::new().times().unwrap(), Times::default());
    }

    #[tokio::test]
    async fn futures_of_it_can_go_to_other_threads() {
        fn is_send(_: impl Send) {}
        let producer = Producer::new(ProducerConfig::new("a:1")).unwrap();
        is_send(producer.begin());
        is_send(producer.transact::<Error>(async |txn| {
            txn.send(Message::new("t", "v")).await?;
            Ok(())
        }));
        let told = producer.begin().await.err().unwrap();
        assert_eq!(told.details().field, "producer_name");
    }
}

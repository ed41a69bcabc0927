//! The consumer's work when its partitions change: within its polls, between two records.
//!
//! ```text
//! GroupMember --Change--> FetchBuffer --interruption--> Rebalance --> lost, revoked, assigned
//! owned, commits <-- GroupMember <--------------------------'
//! ```

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use tokio::time::{Instant, timeout_at};

use crate::buffer::FetchBuffer;
use crate::config::ConsumerConfig;
use crate::consumer::Consumer;
use crate::errors::{Error, ErrorKind, Result};
use crate::groups::CommitTerms;
use crate::member::{Change, GroupMember};
use crate::types::{OffsetCommit, TopicPartition};

/// Result of a [`RebalanceListener`].
pub type Followed<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// Is told which partitions come or go, by [`Consumer::poll`], [`Consumer::close`], and
/// [`Records`](crate::Records): between two records, and to its end however short a poll is. Its
/// error fails that poll, when all changes are done. One that panics fails with
/// [`ErrorKind::Internal`].
///
/// It may commit with the consumer that it is given, and must not poll or close it.
///
/// ```
/// use oncelog::{Consumer, Followed, RebalanceListener, TopicPartition};
///
/// struct Work;
///
/// impl RebalanceListener for Work {
///     fn revoked<'a>(&'a self, consumer: &'a Consumer, _: &'a [TopicPartition]) -> Followed<'a> {
///         Box::pin(async move { consumer.commit().await })
///     }
/// }
/// ```
pub trait RebalanceListener: Send + Sync {
    /// These have come.
    fn assigned<'a>(
        &'a self,
        consumer: &'a Consumer,
        partitions: &'a [TopicPartition],
    ) -> Followed<'a> {
        let _ = (consumer, partitions);
        Box::pin(async { Ok(()) })
    }

    /// These are about to go: their records that were read can be finished and committed. The
    /// future is dropped when `revoke_timeout` is over.
    fn revoked<'a>(
        &'a self,
        consumer: &'a Consumer,
        partitions: &'a [TopicPartition],
    ) -> Followed<'a> {
        let _ = (consumer, partitions);
        Box::pin(async { Ok(()) })
    }

    /// These are gone: nothing can be committed.
    fn lost<'a>(
        &'a self,
        consumer: &'a Consumer,
        partitions: &'a [TopicPartition],
    ) -> Followed<'a> {
        let _ = (consumer, partitions);
        Box::pin(async { Ok(()) })
    }
}

/// A [`RebalanceListener`], as [`ConsumerConfig`] has it: `Some(listener.into())`.
#[derive(Clone)]
pub struct Listener(Arc<dyn RebalanceListener>);

impl<T: RebalanceListener + 'static> From<T> for Listener {
    fn from(listener: T) -> Self {
        Self(Arc::new(listener))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

#[derive(Clone, Copy)]
enum Call {
    Assigned,
    Revoked,
    Lost,
}

pub(crate) struct Rebalance {
    config: ConsumerConfig,
    buffer: Arc<FetchBuffer>,
    pub(crate) member: Arc<GroupMember>,
    state: Mutex<State>,
}

struct State {
    /// Under which ownership the records of each partition are being read.
    numbers: BTreeMap<TopicPartition, i64>,
    /// By automatic commits.
    stored: HashMap<TopicPartition, i64>,
    commit_at: Instant,
}

impl Rebalance {
    pub(crate) fn new(
        config: &ConsumerConfig,
        buffer: Arc<FetchBuffer>,
        member: Arc<GroupMember>,
    ) -> Self {
        let state = State {
            numbers: BTreeMap::new(),
            stored: HashMap::new(),
            commit_at: Instant::now() + config.auto_commit_interval,
        };
        Self { config: config.clone(), buffer, member, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    /// When the next automatic commit is due; `None`: there are none.
    pub(crate) fn commit_at(&self) -> Option<Instant> {
        self.config.enable_auto_commit.then(|| self.state().commit_at)
    }

    /// Whether there is something to follow.
    pub(crate) fn is_due(&self) -> bool {
        self.buffer.is_interrupted()
            || self.commit_at().is_some_and(|at| Instant::now() >= at)
            || self.member.failure().is_err()
    }

    pub(crate) fn terms_to_commit(
        &self,
        offsets: &HashMap<TopicPartition, OffsetCommit>,
    ) -> Result<CommitTerms> {
        let numbers = self.state().numbers.clone();
        self.member.terms_to_commit(offsets, &numbers)
    }

    fn all(&self) -> Vec<TopicPartition> {
        self.state().numbers.keys().cloned().collect()
    }

    fn known(&self, tps: &[TopicPartition]) -> Vec<TopicPartition> {
        let state = self.state();
        tps.iter().filter(|tp| state.numbers.contains_key(*tp)).cloned().collect()
    }

    /// Does all that is due. It fails with the first error of a listener, and with the error that
    /// has ended the membership.
    pub(crate) async fn follow(self: Arc<Self>, consumer: Consumer) -> Result<()> {
        let mut first = Ok(());
        while let Some(change) = self.buffer.interruption() {
            let done = self.take(&consumer, &change).await;
            self.buffer.followed();
            first = first.and(done);
        }
        first.and(self.member.failure())?;
        match self.commit_at() {
            Some(at) if Instant::now() >= at => self.commit(&self.all()).await,
            _ => Ok(()),
        }
    }

    /// The consumer closes. `failed`: the records given out last may not have been worked on.
    pub(crate) async fn leave(&self, consumer: &Consumer, failed: bool) -> Result<()> {
        let tps = self.all();
        let result = if failed {
            self.call(Call::Lost, consumer, &tps).await
        } else {
            self.finish(consumer, &tps, Instant::now() + self.config.revoke_timeout).await
        };
        self.drop_all(&tps);
        self.member.leave().await;
        result
    }

    /// Does all of it, even if a listener fails.
    async fn take(&self, consumer: &Consumer, change: &Change) -> Result<()> {
        let lost = self.known(&change.step.lost);
        self.drop_all(&lost);
        let mut result = self.call(Call::Lost, consumer, &lost).await;
        if change.ended {
            self.member.comes_back();
        }
        if !change.step.revoked.is_empty() {
            result = result.and(self.give_back(consumer, change).await);
        }
        if !change.step.assigned.is_empty() {
            result = result.and(self.gain(consumer, &change.step.assigned).await);
        }
        result
    }

    async fn give_back(&self, consumer: &Consumer, change: &Change) -> Result<()> {
        let asked = self.member.asked_back(change);
        let known = self.known(&asked);
        let result = self.finish(consumer, &known, change.deadline).await;
        let kept = self.member.release(change, &asked);
        let (again, gone): (Vec<_>, Vec<_>) = known.into_iter().partition(|tp| kept.contains(tp));
        self.drop_all(&gone);
        // Those kept: a new connection has begun meanwhile, and said that they are held.
        result.and(self.call(Call::Assigned, consumer, &again).await)
    }

    async fn gain(
        &self,
        consumer: &Consumer,
        assigned: &HashMap<TopicPartition, i64>,
    ) -> Result<()> {
        let fresh = self.member.still_owned(assigned);
        let mut tps: Vec<_> = fresh.keys().cloned().collect();
        tps.sort();
        self.state().numbers.extend(fresh);
        if !tps.is_empty() {
            self.buffer.assign(&[self.buffer.assignment(), tps.clone()].concat());
        }
        self.call(Call::Assigned, consumer, &tps).await
    }

    /// The records given out are worked on and committed.
    async fn finish(
        &self,
        consumer: &Consumer,
        tps: &[TopicPartition],
        deadline: Instant,
    ) -> Result<()> {
        if tps.is_empty() {
            return Ok(());
        }
        let told = self.call(Call::Revoked, consumer, tps);
        let result = timeout_at(deadline, told).await.unwrap_or_else(|_| {
            let limit = self.config.revoke_timeout;
            let message = format!("the listener took longer than revoke_timeout={limit:?}");
            Err(Error::new(ErrorKind::RequestTimeout, message))
        });
        if !self.config.enable_auto_commit {
            return result;
        }
        // Without an answer in time the next owner reads it again.
        let committed = timeout_at(deadline, self.commit(tps)).await;
        result.and(committed.unwrap_or(Ok(())))
    }

    /// Stores the user's places, as far as they have moved.
    async fn commit(&self, tps: &[TopicPartition]) -> Result<()> {
        let mut moved = HashMap::new();
        for tp in tps {
            let position = self.buffer.place(tp);
            let stored = self.state().stored.get(tp).copied();
            if let Some(position) = position.filter(|position| stored != Some(*position)) {
                moved.insert(tp.clone(), OffsetCommit::at(position));
            }
        }
        let result = match self.commit_moved(&moved).await {
            Ok(()) => {
                let stored = moved.into_iter().map(|(tp, commit)| (tp, commit.offset));
                self.state().stored.extend(stored);
                Ok(())
            }
            // The next one stores it, a later one has, or nobody may.
            Err(error)
                if error.is_retriable()
                    || error.is(ErrorKind::OutOfOrder)
                    || error.is(ErrorKind::FencedMember) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        };
        self.state().commit_at = Instant::now() + self.config.auto_commit_interval;
        result
    }

    async fn commit_moved(&self, moved: &HashMap<TopicPartition, OffsetCommit>) -> Result<()> {
        if moved.is_empty() {
            return Ok(());
        }
        let terms = self.terms_to_commit(moved)?;
        self.member.groups.commit(&self.member.group, moved, Some(&terms)).await
    }

    fn drop_all(&self, tps: &[TopicPartition]) {
        if tps.is_empty() {
            return;
        }
        {
            let mut state = self.state();
            for tp in tps {
                state.numbers.remove(tp);
                state.stored.remove(tp);
            }
        }
        let mut left = self.buffer.assignment();
        left.retain(|tp| !tps.contains(tp));
        self.buffer.assign(&left);
    }

    async fn call(&self, call: Call, consumer: &Consumer, tps: &[TopicPartition]) -> Result<()> {
        let Some(Listener(listener)) = self.config.listener.as_ref().filter(|_| !tps.is_empty())
        else {
            return Ok(());
        };
        let begin = || match call {
            Call::Assigned => listener.assigned(consumer, tps),
            Call::Revoked => listener.revoked(consumer, tps),
            Call::Lost => listener.lost(consumer, tps),
        };
        match catch_unwind(AssertUnwindSafe(begin)) {
            Ok(told) => caught(told).await,
            Err(panic) => Err(panicked(panic.as_ref())),
        }
    }
}

/// A listener that panics is one that fails: no part of a change may be left out for that.
async fn caught(mut told: Followed<'_>) -> Result<()> {
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| told.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked(panic.as_ref()))))
    })
    .await
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = format!("the listener has panicked: {}", text.unwrap_or("no text"));
    Error::new(ErrorKind::Internal, message)
}

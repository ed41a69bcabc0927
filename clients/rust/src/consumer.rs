//! The consumer: records out, in offset order per partition.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{timeout, timeout_at};

use crate::buffer::FetchBuffer;
use crate::cluster::{Cluster, no_partition};
use crate::config::{ConsumerConfig, OffsetReset};
use crate::errors::{Error, ErrorKind, Result};
use crate::fetcher::Fetcher;
use crate::groups::{CommitTerms, Groups};
use crate::growth::Growth;
use crate::member::GroupMember;
use crate::pb::offset_query::Position;
use crate::positions::{Positions, Slot, is_final, place_of};
use crate::reachability::Outages;
use crate::rebalance::{Followed, Rebalance};
use crate::records::Records;
use crate::routes::Routes;
use crate::types::{CommittedOffset, OffsetCommit, Record, TopicPartition};

/// Reads topics, or assigned partitions, in offset order per partition, each record once per
/// consumer. It survives leader changes and restarts unseen.
///
/// With a `group_id` reading starts where the group committed last, if it did. The topics, or
/// patterns of topics (`^...`), that are subscribed to are shared out among the group's consumers;
/// partitions come and go within polls, of which a [`RebalanceListener`](crate::RebalanceListener)
/// is told. With [`Membership::Manual`](crate::Membership::Manual), or [`Consumer::assign`] instead
/// of a subscription, the group only keeps offsets. Commits are made by [`Consumer::commit`] only,
/// unless `enable_auto_commit` is set.
///
/// Records that one task polls no other one gets. Close it at the end: one that is dropped leaves
/// its group without a commit, and without a word to its listener.
pub struct Consumer {
    inner: Arc<Inner>,
    /// Else it is one that a listener is given.
    is_owner: bool,
}

struct Inner {
    cluster: Arc<Cluster>,
    positions: Arc<Positions>,
    buffer: Arc<FetchBuffer>,
    /// Held by the task that takes records.
    taking: Mutex<()>,
    fetcher: AbortHandle,
    /// Held by the subscribing task.
    joining: tokio::sync::Mutex<()>,
    /// Of a member of a group.
    rebalance: Slot<Rebalance>,
    /// Topics, and patterns of them, in order.
    subscribed: Mutex<Vec<String>>,
    following: tokio::sync::Mutex<Following>,
}

/// Changes for a member. A poll that is dropped leaves it to the next one.
#[derive(Default)]
struct Following {
    work: Option<Followed<'static>>,
    closed: bool,
}

/// Begins a pattern of topics.
const PATTERN_MARK: char = '^';
/// For how long a seek waits for a leader.
const SOON: Duration = Duration::from_secs(1);

impl Consumer {
    /// Makes a consumer, within a Tokio runtime.
    ///
    /// It fails with [`ErrorKind::InvalidConfig`] for settings that are out of range or
    /// contradict each other.
    pub fn new(mut config: ConsumerConfig) -> Result<Self> {
        config.check()?;
        let cluster = Arc::new(Cluster::new(config.client.clone())?);
        let wake = Arc::new(Notify::new());
        let limit = config.max_partition_fetch_bytes;
        let buffer = FetchBuffer::new(limit, cluster.clone(), wake.clone());
        let buffer = Arc::new(buffer);
        let in_group = config.group_id.is_some();
        let positions = Arc::new(Positions {
            routes: Arc::new(Routes::new(&config, cluster.clone())),
            groups: Arc::new(Groups::new(cluster.clone())),
            growth: Growth::new(cluster.clone(), buffer.clone(), in_group),
            member: Slot::default(),
            cluster: cluster.clone(),
            config,
        });
        let fetcher = tokio::spawn(Fetcher::run(positions.clone(), buffer.clone(), wake));
        let inner = Inner {
            cluster,
            positions,
            buffer,
            taking: Mutex::new(()),
            fetcher: fetcher.abort_handle(),
            joining: tokio::sync::Mutex::new(()),
            rebalance: Slot::default(),
            subscribed: Mutex::default(),
            following: tokio::sync::Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner), is_owner: true })
    }

    /// The settings in force.
    pub fn config(&self) -> &ConsumerConfig {
        &self.inner.positions.config
    }

    /// How often, and whether, no node has answered.
    pub fn outages(&self) -> Outages {
        self.inner.cluster.reached.outages()
    }

    /// The same consumer, for a listener.
    fn lent(&self) -> Self {
        Self { inner: self.inner.clone(), is_owner: false }
    }

    // --- partitions to read ---------------------------------------------------------------

    /// Reads all partitions of these topics, also those that come later, and nothing else; a
    /// member of a group its share of them. It returns when the group has answered.
    pub async fn subscribe<T: AsRef<str>>(
        &self,
        topics: impl IntoIterator<Item = T>,
    ) -> Result<()> {
        let topics: Vec<Arc<str>> = topics.into_iter().map(|topic| topic.as_ref().into()).collect();
        let is_member = self.config().is_member();
        for topic in &topics {
            if !topic.starts_with(PATTERN_MARK) {
                self.learn(topic).await?;
            } else if !is_member {
                let message = "patterns of topics are for members of a group";
                return Err(Error::invalid("topics", message));
            }
        }
        if is_member {
            return self.join(topics.iter().map(|topic| topic.to_string()).collect()).await;
        }
        self.inner.positions.growth.subscribe(&topics);
        self.set_subscription(topics.iter().map(ToString::to_string).collect());
        Ok(())
    }

    fn set_subscription(&self, mut topics: Vec<String>) {
        topics.sort();
        topics.dedup();
        *self.inner.subscribed.lock().expect("no panic while it is held") = topics;
    }

    /// The topics, and patterns of topics, that are subscribed to, in order; none after
    /// [`Consumer::assign`] or [`Consumer::unsubscribe`].
    pub fn subscription(&self) -> Vec<String> {
        self.inner.subscribed.lock().expect("no panic while it is held").clone()
    }

    /// Reads nothing any more. A member of a group finishes the records it was given, as
    /// [`Consumer::close`] does, and leaves; its next subscription joins again. A listener's error
    /// is returned, and it has left all the same. If the future is dropped, call it again.
    pub async fn unsubscribe(&self) -> Result<()> {
        let inner = &self.inner;
        let _joining = inner.joining.lock().await;
        let mut result = Ok(());
        if let Some(rebalance) = inner.rebalance.get() {
            let mut following = inner.following.lock().await;
            if following.closed {
                return Err(Error::closed("consumer"));
            }
            if let Some(work) = &mut following.work {
                result = work.await;
            }
            following.work = None;
            result = result.and(rebalance.leave(&self.lent(), false).await);
            inner.rebalance.set(None);
            inner.positions.member.set(None);
            inner.buffer.forget_group();
        }
        self.set_subscription(vec![]);
        inner.positions.growth.assign(&[]);
        result
    }

    async fn join(&self, topics: Vec<String>) -> Result<()> {
        let inner = &self.inner;
        let _joining = inner.joining.lock().await;
        if let Some(rebalance) = inner.rebalance.get() {
            rebalance.member.subscribe(topics.clone());
            self.set_subscription(topics);
            return Ok(());
        }
        let groups = inner.positions.groups.clone();
        let buffer = inner.buffer.clone();
        let member = GroupMember::start(
            self.config(),
            inner.cluster.clone(),
            groups,
            buffer.clone(),
            topics.clone(),
        );
        // Until it has joined: a caller that gives up waiting has no member running.
        let guard = Leaving(Some((member.clone(), buffer.clone())));
        member.await_joined().await?;
        inner.positions.member.set(Some(member.clone()));
        let rebalance = Rebalance::new(self.config(), buffer, member);
        inner.rebalance.set(Some(Arc::new(rebalance)));
        self.set_subscription(topics);
        guard.keep();
        Ok(())
    }

    /// Reads exactly these partitions; those already assigned keep their position.
    pub async fn assign(&self, partitions: &[TopicPartition]) -> Result<()> {
        if self.inner.rebalance.get().is_some() {
            let message = "the group assigns the partitions: use membership manual";
            return Err(Error::invalid("partitions", message));
        }
        for tp in partitions {
            self.learn(&tp.topic).await?;
            if self.inner.cluster.leaders.leader(tp).is_none() {
                return Err(no_partition(tp));
            }
        }
        self.inner.positions.growth.assign(partitions);
        self.set_subscription(vec![]);
        Ok(())
    }

    /// The partitions that are read, in order.
    pub fn assignment(&self) -> Vec<TopicPartition> {
        self.inner.buffer.assignment()
    }

    async fn learn(&self, topic: &str) -> Result<()> {
        if self.inner.cluster.leaders.topic(topic).is_some() {
            return Ok(());
        }
        self.inner.cluster.require_topic(topic, self.config().client.request_timeout).await
    }

    // --- reading -------------------------------------------------------------------------

    /// Waits until there is a record, and returns the records there are, at most
    /// `max_poll_records`.
    ///
    /// In a group it fails with a listener's error, too, and with errors that end a membership for
    /// good, such as [`ErrorKind::FencedMember`]. Errors are [`ErrorKind::OffsetOutOfRange`],
    /// [`ErrorKind::UnknownTopicOrPartition`], [`ErrorKind::CorruptLog`], or a node's final
    /// refusal. Reading can go on after them, for instance after a seek; a damaged batch is never
    /// skipped, its error comes again until a seek goes elsewhere. Records that were there before
    /// the error are returned first. Nothing is lost when the future is dropped.
    pub async fn poll(&self) -> Result<Vec<Record>> {
        self.poll_records(self.config().max_poll_records).await
    }

    /// The same, with another limit.
    pub async fn poll_records(&self, limit: usize) -> Result<Vec<Record>> {
        if limit == 0 {
            return Err(Error::invalid("limit", "limit must be at least 1, got 0"));
        }
        let _waiting = self.inner.buffer.comes_back();
        loop {
            let changed = self.inner.buffer.changed();
            self.follow().await?;
            match self.take(limit) {
                Ok(records) if records.is_empty() => {}
                // The group will take it away; it hides no records of other partitions.
                Err(error) if self.will_be_taken_away(&error) => continue,
                taken => return taken,
            }
            match self.inner.rebalance.get().and_then(|rebalance| rebalance.commit_at()) {
                None => changed.await,
                Some(at) => {
                    let _ = timeout_at(at, changed).await; // one of both
                }
            }
        }
    }

    pub(crate) fn will_be_taken_away(&self, error: &Error) -> bool {
        let kinds = [ErrorKind::UnknownTopicOrPartition, ErrorKind::FencedMember];
        kinds.contains(&error.kind()) && self.inner.rebalance.get().is_some()
    }

    /// Whether something has to be followed before records are given out.
    pub(crate) fn is_due(&self) -> bool {
        self.inner.rebalance.get().is_some_and(|rebalance| rebalance.is_due())
    }

    /// Carries out changes of a member; goes on with the rest of an earlier poll.
    async fn follow(&self) -> Result<()> {
        let Some(rebalance) = self.inner.rebalance.get().filter(|rebalance| rebalance.is_due())
        else {
            return Ok(());
        };
        let mut following = self.inner.following.lock().await;
        if following.closed {
            return Err(Error::closed("consumer"));
        }
        let begin = || Box::pin(rebalance.clone().follow(self.lent())) as Followed<'static>;
        let result = following.work.get_or_insert_with(begin).await;
        following.work = None;
        result
    }

    /// The records there are.
    fn take(&self, limit: usize) -> Result<Vec<Record>> {
        let _taking = self.inner.taking.lock().expect("no panic while it is held");
        let mut records = vec![];
        while records.len() < limit {
            let Some(first) = self.inner.buffer.peek(records.is_empty())? else { break };
            let decoded = match first.open(self.config().check_crcs) {
                Ok(decoded) => decoded,
                Err(error) if records.is_empty() => return Err(error),
                Err(_) => break, // it comes with the next call
            };
            records.reserve(first.left().min(limit - records.len()));
            first.take(decoded, &mut records, limit);
            self.inner.buffer.advance(&first);
        }
        Ok(records)
    }

    /// The next record, if it is there.
    pub(crate) fn take_one(&self) -> Result<Vec<Record>> {
        let _waiting = self.inner.buffer.comes_back();
        self.take(1)
    }

    /// Records as a stream, which ends after an error.
    pub fn records(&self) -> Records<'_> {
        Records::of(self)
    }

    // --- positions -----------------------------------------------------------------------

    /// Goes on at an offset in this partition.
    pub fn seek(&self, tp: &TopicPartition, offset: i64) -> Result<()> {
        self.inner.buffer.check_assigned(tp)?;
        if offset < 0 {
            let message = format!("offset must not be negative, got {offset}");
            return Err(Error::invalid("offset", message));
        }
        self.inner.buffer.seek(tp, offset);
        Ok(())
    }

    /// Goes to the first record that is kept, in these partitions. Where no leader answers soon it
    /// is done as soon as one does.
    pub async fn seek_to_beginning(&self, partitions: &[TopicPartition]) -> Result<()> {
        self.seek_all(partitions, OffsetReset::Earliest).await
    }

    /// Goes behind the last record, in these partitions, as [`Consumer::seek_to_beginning`] does.
    pub async fn seek_to_end(&self, partitions: &[TopicPartition]) -> Result<()> {
        self.seek_all(partitions, OffsetReset::Latest).await
    }

    async fn seek_all(&self, partitions: &[TopicPartition], place: OffsetReset) -> Result<()> {
        for tp in partitions {
            self.inner.buffer.check_assigned(tp)?;
        }
        let queries = partitions.iter().map(|tp| (tp.clone(), place_of(place))).collect();
        let limit = self.config().client.request_timeout.min(SOON);
        let (found, failed) = self.inner.positions.list_for(&queries, limit).await;
        for (tp, offset) in found {
            self.inner.buffer.seek(&tp, offset);
        }
        let mut result = Ok(());
        for (tp, error) in failed {
            if is_final(&error) {
                result = result.and(Err(error));
            } else {
                self.inner.buffer.seek_to(&tp, place);
            }
        }
        result
    }

    /// The offset of the next record that will be given out. It waits for a start position that
    /// is not known yet, for at most `request_timeout`. It fails with [`ErrorKind::FencedMember`] if
    /// the group has just given the partition to another member, which the next poll follows.
    pub async fn position(&self, tp: &TopicPartition) -> Result<i64> {
        let known = async {
            loop {
                let changed = self.inner.buffer.changed();
                if let Some(position) = self.inner.buffer.position(tp)? {
                    return Ok(position);
                }
                changed.await;
            }
        };
        match timeout(self.config().client.request_timeout, known).await {
            Ok(position) => position,
            Err(_) => Err(Error::new(
                ErrorKind::RequestTimeout,
                format!("{tp}: the start position is not known yet"),
            )),
        }
    }

    /// How many records there are from the position to the high watermark. Those that are no longer
    /// kept do not count.
    pub async fn lag(&self, tp: &TopicPartition) -> Result<i64> {
        let position = self.position(tp).await?;
        let tps = std::slice::from_ref(tp);
        let start = self.beginning_offsets(tps).await?.get(tp).copied().unwrap_or(0);
        let end = self.end_offsets(tps).await?.get(tp).copied().unwrap_or(0);
        Ok(lag(position, start, end))
    }

    /// Each partition's first offset that is kept.
    pub async fn beginning_offsets(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<HashMap<TopicPartition, i64>> {
        self.list(partitions, OffsetReset::Earliest).await
    }

    /// Each partition's high watermark: the offset that comes next.
    pub async fn end_offsets(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<HashMap<TopicPartition, i64>> {
        self.list(partitions, OffsetReset::Latest).await
    }

    /// Where to start to see everything from these times on, in microseconds since the Unix
    /// epoch; -1: nothing is there. It is the first offset of the first batch with a record at or
    /// after the time.
    pub async fn offsets_for_times(
        &self,
        times: &HashMap<TopicPartition, i64>,
    ) -> Result<HashMap<TopicPartition, i64>> {
        let queries = times.iter().map(|(tp, us)| (tp.clone(), Position::TimestampUs(*us)));
        self.inner.positions.list(&queries.collect()).await
    }

    async fn list(
        &self,
        partitions: &[TopicPartition],
        place: OffsetReset,
    ) -> Result<HashMap<TopicPartition, i64>> {
        let queries = partitions.iter().map(|tp| (tp.clone(), place_of(place)));
        self.inner.positions.list(&queries.collect()).await
    }

    /// Gives out nothing of these partitions until they are resumed.
    pub fn pause(&self, partitions: &[TopicPartition]) -> Result<()> {
        self.set_paused(partitions, true)
    }

    /// The partitions that are paused, in order.
    pub fn paused(&self) -> Vec<TopicPartition> {
        self.inner.buffer.paused()
    }

    /// Takes a pause back.
    pub fn resume(&self, partitions: &[TopicPartition]) -> Result<()> {
        self.set_paused(partitions, false)
    }

    fn set_paused(&self, partitions: &[TopicPartition], paused: bool) -> Result<()> {
        for tp in partitions {
            self.inner.buffer.check_assigned(tp)?;
            self.inner.buffer.pause(tp, paused);
        }
        Ok(())
    }

    // --- the group -----------------------------------------------------------------------

    /// Stores the positions of all partitions as where the group goes on. It returns when they
    /// are stored on a majority.
    pub async fn commit(&self) -> Result<()> {
        self.commit_offsets(&self.positions()).await
    }

    /// The user's places, as far as they are known.
    pub(crate) fn positions(&self) -> HashMap<TopicPartition, OffsetCommit> {
        let place = |tp| {
            let position = self.inner.buffer.place(&tp)?;
            Some((tp, OffsetCommit::at(position)))
        };
        self.assignment().into_iter().filter_map(place).collect()
    }

    /// Stores these offsets. A commit with a producer id may be refused with
    /// [`ErrorKind::Fenced`], [`ErrorKind::OutOfOrder`] or [`ErrorKind::SequenceConflict`]; in a
    /// group with members one is refused with [`ErrorKind::FencedMember`] for a partition that
    /// belongs to another member by now, and with [`ErrorKind::GroupHasMembers`] if this consumer
    /// is none.
    pub async fn commit_offsets(
        &self,
        offsets: &HashMap<TopicPartition, OffsetCommit>,
    ) -> Result<()> {
        let group = self.group()?;
        if offsets.is_empty() {
            return Ok(());
        }
        let terms = self.terms_to_commit(offsets)?;
        self.inner.positions.groups.commit(group, offsets, terms.as_ref()).await
    }

    /// The member's part of a commit; `None` for a consumer that is no member.
    pub(crate) fn terms_to_commit(
        &self,
        offsets: &HashMap<TopicPartition, OffsetCommit>,
    ) -> Result<Option<CommitTerms>> {
        self.inner.rebalance.get().map(|rebalance| rebalance.terms_to_commit(offsets)).transpose()
    }

    /// The group's committed offset of a partition.
    pub async fn committed(&self, tp: &TopicPartition) -> Result<Option<CommittedOffset>> {
        let found = self.inner.positions.groups.committed(
            self.group()?,
            std::slice::from_ref(tp),
            None,
            true,
        );
        Ok(found.await?.remove(tp))
    }

    pub(crate) fn group(&self) -> Result<&str> {
        let none = || Error::invalid("group_id", "the consumer has no group_id");
        self.config().group_id.as_deref().ok_or_else(none)
    }

    /// Frees everything. A poll that waits returns [`ErrorKind::ClientClosed`]. A member of a group
    /// has finished the records it was given: its listener is told, `enable_auto_commit` commits,
    /// and it leaves; errors of that are returned, and it has left all the same. Otherwise nothing
    /// is committed. A second close does nothing.
    pub async fn close(&self) -> Result<()> {
        self.end(false).await
    }

    /// [`Consumer::close`] for a caller that has failed to work on the records polled last: its
    /// listener is told that all is lost, and nothing is committed.
    pub async fn abandon(&self) -> Result<()> {
        self.end(true).await
    }

    async fn end(&self, failed: bool) -> Result<()> {
        self.inner.buffer.close();
        let mut following = self.inner.following.lock().await;
        if following.closed {
            return Ok(());
        }
        let mut result = match &mut following.work {
            Some(work) => work.await,
            None => Ok(()),
        };
        following.work = None;
        if let Some(rebalance) = self.inner.rebalance.get() {
            result = result.and(rebalance.leave(&self.lent(), failed).await);
        }
        following.closed = true;
        self.inner.fetcher.abort();
        self.inner.cluster.close();
        result
    }
}

/// How many records there are to read; those before the log's start are none.
fn lag(position: i64, start: i64, end: i64) -> i64 {
    (end - position.max(start)).max(0)
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if !self.is_owner {
            return;
        }
        let inner = self.inner.clone();
        inner.buffer.close();
        inner.fetcher.abort();
        if let Ok(mut following) = inner.following.try_lock() {
            following.work = None; // it holds this consumer
            if following.closed {
                return;
            }
        }
        match inner.rebalance.get() {
            None => inner.cluster.close(),
            Some(rebalance) => {
                let member = rebalance.member.clone();
                leave(member, move || inner.cluster.close());
            }
        }
    }
}

/// Has a member leave, without waiting for it.
fn leave(member: Arc<GroupMember>, then: impl FnOnce() + Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => {
            runtime.spawn(async move {
                member.leave().await;
                then();
            });
        }
        Err(_) => {
            member.stop(); // its session will end
            then();
        }
    }
}

/// A member that leaves when this is dropped.
struct Leaving(Option<(Arc<GroupMember>, Arc<FetchBuffer>)>);

impl Leaving {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some((member, buffer)) = self.0.take() {
            member.stop();
            buffer.forget_group();
            leave(member, || {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::lag;

    #[test]
    fn lag_counts_what_is_kept() {
        assert_eq!([lag(2, 7, 10), lag(8, 7, 10), lag(10, 7, 10)], [3, 2, 0]);
        assert_eq!(lag(12, 7, 10), 0, "a node that is behind");
    }
}

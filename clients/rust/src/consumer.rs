//! The consumer: records out, in offset order per partition.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::buffer::FetchBuffer;
use crate::cluster::{Cluster, no_partition};
use crate::config::{ConsumerConfig, OffsetReset};
use crate::errors::{Error, ErrorKind, Result};
use crate::fetcher::Fetcher;
use crate::groups::Groups;
use crate::pb::offset_query::Position;
use crate::positions::{Positions, place_of};
use crate::routes::Routes;
use crate::types::{CommittedOffset, OffsetCommit, Record, TopicPartition};

/// Reads topics, or assigned partitions, in offset order per partition, each record once per
/// consumer. It survives leader changes and restarts unseen.
///
/// With a group reading starts where the group committed last, if it did; commits are made by
/// [`Consumer::commit`] only. Groups keep offsets, they do not share out partitions: assign those
/// yourself. What one task polls no other one gets.
pub struct Consumer {
    cluster: Arc<Cluster>,
    positions: Arc<Positions>,
    buffer: Arc<FetchBuffer>,
    /// Held by who takes records.
    taking: Mutex<()>,
    fetcher: AbortHandle,
}

impl Consumer {
    /// Makes a consumer, within a Tokio runtime.
    ///
    /// It fails with [`ErrorKind::InvalidConfig`] for settings that are out of range or
    /// contradict each other.
    pub fn new(mut config: ConsumerConfig) -> Result<Self> {
        config.check()?;
        let cluster = Arc::new(Cluster::new(config.client.clone())?);
        let wake = Arc::new(Notify::new());
        let buffer = FetchBuffer::new(config.max_partition_fetch_bytes, wake.clone());
        let buffer = Arc::new(buffer);
        let positions = Arc::new(Positions {
            routes: Arc::new(Routes::new(&config, cluster.clone())),
            groups: Groups::new(cluster.clone()),
            cluster: cluster.clone(),
            config,
        });
        let fetcher = tokio::spawn(Fetcher::run(positions.clone(), buffer.clone(), wake));
        let fetcher = fetcher.abort_handle();
        Ok(Self { cluster, positions, buffer, taking: Mutex::new(()), fetcher })
    }

    /// The settings in force.
    pub fn config(&self) -> &ConsumerConfig {
        &self.positions.config
    }

    // --- what to read --------------------------------------------------------------------

    /// Reads all partitions of these topics, and nothing else.
    pub async fn subscribe<T: AsRef<str>>(
        &self,
        topics: impl IntoIterator<Item = T>,
    ) -> Result<()> {
        let mut tps = vec![];
        for topic in topics {
            let topic: Arc<str> = topic.as_ref().into();
            self.learn(&topic).await?;
            let count = self.cluster.leaders.topic(&topic).map_or(0, |facts| facts.partitions);
            tps.extend((0..count as i32).map(|n| TopicPartition::new(topic.clone(), n)));
        }
        self.buffer.assign(&tps);
        Ok(())
    }

    /// Reads exactly these partitions; those already assigned keep their position.
    pub async fn assign(&self, partitions: &[TopicPartition]) -> Result<()> {
        for tp in partitions {
            self.learn(&tp.topic).await?;
            if self.cluster.leaders.leader(tp).is_none() {
                return Err(no_partition(tp));
            }
        }
        self.buffer.assign(partitions);
        Ok(())
    }

    /// The partitions that are read, in order.
    pub fn assignment(&self) -> Vec<TopicPartition> {
        self.buffer.assignment()
    }

    async fn learn(&self, topic: &str) -> Result<()> {
        if self.cluster.leaders.topic(topic).is_some() {
            return Ok(());
        }
        self.cluster.require_topic(topic, self.config().client.request_timeout).await
    }

    // --- reading -------------------------------------------------------------------------

    /// Waits until there is a record, and returns what is there, at most `max_poll_records`.
    ///
    /// Errors are [`ErrorKind::OffsetOutOfRange`], [`ErrorKind::UnknownTopicOrPartition`],
    /// [`ErrorKind::CorruptLog`], or what a node refused for good. Reading can go on after them,
    /// for instance after a seek; a damaged batch is never skipped, its error comes again until a
    /// seek goes elsewhere. Records that were there before the error are returned first. Nothing
    /// is lost when the future is dropped.
    pub async fn poll(&self) -> Result<Vec<Record>> {
        self.poll_records(self.config().max_poll_records).await
    }

    /// The same, with another limit.
    pub async fn poll_records(&self, limit: usize) -> Result<Vec<Record>> {
        if limit == 0 {
            return Err(Error::invalid("limit", "limit must be at least 1, got 0"));
        }
        loop {
            let changed = self.buffer.changed();
            let records = self.take(limit)?;
            if !records.is_empty() {
                return Ok(records);
            }
            changed.await;
        }
    }

    /// What is there.
    fn take(&self, limit: usize) -> Result<Vec<Record>> {
        let _taking = self.taking.lock().expect("no panic while it is held");
        let mut records = vec![];
        while records.len() < limit {
            let Some(first) = self.buffer.peek(records.is_empty())? else { break };
            let decoded = match first.open(self.config().check_crcs) {
                Ok(decoded) => decoded,
                Err(error) if records.is_empty() => return Err(error),
                Err(_) => break, // it comes with the next call
            };
            records.reserve(first.left().min(limit - records.len()));
            first.take(decoded, &mut records, limit);
            self.buffer.advance(&first);
        }
        Ok(records)
    }

    /// Records as a stream, which ends after an error.
    pub fn records(&self) -> Records<'_> {
        Records { consumer: self, waiting: None, ended: false }
    }

    // --- positions -----------------------------------------------------------------------

    /// Goes on at an offset in this partition.
    pub fn seek(&self, tp: &TopicPartition, offset: i64) -> Result<()> {
        self.buffer.check_assigned(tp)?;
        if offset < 0 {
            let message = format!("offset must not be negative, got {offset}");
            return Err(Error::invalid("offset", message));
        }
        self.buffer.seek(tp, Some(offset));
        Ok(())
    }

    /// Goes to the first record that is kept, in these partitions.
    pub async fn seek_to_beginning(&self, partitions: &[TopicPartition]) -> Result<()> {
        self.seek_all(partitions, OffsetReset::Earliest).await
    }

    /// Goes behind the last record, in these partitions.
    pub async fn seek_to_end(&self, partitions: &[TopicPartition]) -> Result<()> {
        self.seek_all(partitions, OffsetReset::Latest).await
    }

    async fn seek_all(&self, partitions: &[TopicPartition], place: OffsetReset) -> Result<()> {
        for tp in partitions {
            self.buffer.check_assigned(tp)?;
        }
        for (tp, offset) in self.list(partitions, place).await? {
            self.buffer.seek(&tp, Some(offset));
        }
        Ok(())
    }

    /// The offset of the next record that will be given out. It waits for a start position that
    /// is not known yet, for at most `request_timeout`.
    pub async fn position(&self, tp: &TopicPartition) -> Result<i64> {
        let known = async {
            loop {
                let changed = self.buffer.changed();
                if let Some(position) = self.buffer.position(tp)? {
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

    /// How many records there are from the position to the high watermark.
    pub async fn lag(&self, tp: &TopicPartition) -> Result<i64> {
        let position = self.position(tp).await?;
        let ends = self.end_offsets(std::slice::from_ref(tp)).await?;
        Ok(ends.get(tp).map_or(0, |end| (end - position).max(0)))
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
        self.positions.list(&queries.collect()).await
    }

    async fn list(
        &self,
        partitions: &[TopicPartition],
        place: OffsetReset,
    ) -> Result<HashMap<TopicPartition, i64>> {
        let queries = partitions.iter().map(|tp| (tp.clone(), place_of(place)));
        self.positions.list(&queries.collect()).await
    }

    /// Gives out nothing of these partitions until they are resumed.
    pub fn pause(&self, partitions: &[TopicPartition]) -> Result<()> {
        self.set_paused(partitions, true)
    }

    /// Takes a pause back.
    pub fn resume(&self, partitions: &[TopicPartition]) -> Result<()> {
        self.set_paused(partitions, false)
    }

    fn set_paused(&self, partitions: &[TopicPartition], paused: bool) -> Result<()> {
        for tp in partitions {
            self.buffer.check_assigned(tp)?;
            self.buffer.pause(tp, paused);
        }
        Ok(())
    }

    // --- the group -----------------------------------------------------------------------

    /// Stores the positions of all partitions as where the group goes on. It returns when they
    /// are stored on a majority.
    pub async fn commit(&self) -> Result<()> {
        self.commit_offsets(&self.positions()?).await
    }

    /// The user's places, as far as they are known.
    pub(crate) fn positions(&self) -> Result<HashMap<TopicPartition, OffsetCommit>> {
        let mut offsets = HashMap::new();
        for tp in self.assignment() {
            if let Some(position) = self.buffer.position(&tp)? {
                offsets.insert(tp, OffsetCommit::at(position));
            }
        }
        Ok(offsets)
    }

    /// Stores these offsets. A commit with a producer id may be refused with
    /// [`ErrorKind::Fenced`], [`ErrorKind::OutOfOrder`] or [`ErrorKind::SequenceConflict`].
    pub async fn commit_offsets(
        &self,
        offsets: &HashMap<TopicPartition, OffsetCommit>,
    ) -> Result<()> {
        let group = self.group()?;
        if offsets.is_empty() {
            return Ok(());
        }
        self.positions.groups.commit(group, offsets).await
    }

    /// What the group has committed for a partition.
    pub async fn committed(&self, tp: &TopicPartition) -> Result<Option<CommittedOffset>> {
        let found = self.positions.groups.committed(self.group()?, std::slice::from_ref(tp), true);
        Ok(found.await?.remove(tp))
    }

    pub(crate) fn group(&self) -> Result<&str> {
        let none = || Error::invalid("group_id", "the consumer has no group_id");
        self.config().group_id.as_deref().ok_or_else(none)
    }

    /// Frees everything, as dropping it does. Nothing is committed. A poll that waits returns
    /// [`ErrorKind::ClientClosed`].
    pub fn close(&self) {
        self.buffer.close();
        self.fetcher.abort();
        self.cluster.close();
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.close();
    }
}

/// The records of a [`Consumer`], as a [`Stream`].
pub struct Records<'a> {
    consumer: &'a Consumer,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>,
    ended: bool,
}

impl Stream for Records<'_> {
    type Item = Result<Record>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        loop {
            let consumer = self.consumer;
            if let Some(waiting) = &mut self.waiting {
                std::task::ready!(waiting.as_mut().poll(cx));
                self.waiting = None;
            }
            match consumer.take(1) {
                Err(error) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
                Ok(records) => {
                    if let Some(record) = records.into_iter().next() {
                        return Poll::Ready(Some(Ok(record)));
                    }
                }
            }
            // What came after that take is seen by the one below.
            self.waiting = Some(Box::pin(consumer.buffer.changed()));
            match consumer.take(1) {
                Ok(records) if records.is_empty() => {}
                Ok(records) => {
                    self.waiting = None;
                    return Poll::Ready(records.into_iter().next().map(Ok));
                }
                Err(error) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

//! Records, per partition, until they form a batch that can be sent. A batch keeps growing after
//! its linger time until the sender has room for it, so slow acknowledgements make batches larger
//! and not more.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::config::ProducerConfig;
use crate::delivery::{BatchDelivery, Delivery};
use crate::errors::{Error, ErrorKind, Outcome, Result};
use crate::payload::{BATCH_OVERHEAD, Columns, HEADER_OVERHEAD, RECORD_OVERHEAD};
use crate::sealing::SealedPayload;
use crate::staging::Staging;
use crate::types::{Message, TopicPartition, now_us};

/// The part of the delivery timeout after which a waiting batch takes no more records: a quarter.
const TIME_FOR_OTHERS: u32 = 4;

/// Batches that wait in one partition.
struct Lane {
    tp: TopicPartition,
    open: Option<OpenBatch>,
    closed: VecDeque<OpenBatch>,
    numbering: Numbering,
    /// Of the batch before: its records, and their bytes.
    before: (usize, usize),
}

/// Records of one partition that will be one batch.
pub(crate) struct OpenBatch {
    pub(crate) id: u64,
    pub(crate) delivery: Arc<BatchDelivery>,
    /// Until the payload is made of them.
    pub(crate) columns: Columns,
    pub(crate) payload: Option<SealedPayload>,
    pub(crate) created: Instant,
    /// A record that came later, by the wall clock, would have too little of its own time left.
    join_until_us: i64,
    /// Its share of the buffer.
    pub(crate) size: usize,
    /// Never larger than this with more than one record.
    cap: usize,
    due: bool,
    pub(crate) sequences: Option<Vec<i64>>,
    pub(crate) expected_offset: Option<i64>,
    pub(crate) count: usize,
    pub(crate) transaction: Option<Arc<Staging>>,
}

/// The side that numbers the records of a lane: the producer, or the application, up to
/// `last_given`.
#[derive(Clone, Copy)]
struct Numbering {
    counted: bool,
    given: bool,
    last_given: i64,
}

#[derive(Default)]
struct TopicLanes {
    lanes: Vec<Option<Lane>>,
    /// The partition that messages without a key go to, until its open batch is closed.
    sticky: Option<i32>,
}

#[derive(Default)]
struct State {
    topics: HashMap<String, TopicLanes>,
    ready: HashSet<TopicPartition>,
    /// Open batches, by when they were created.
    lingering: VecDeque<(Instant, TopicPartition, u64)>,
    flushing: usize,
    used: usize,
    incomplete: HashMap<u64, Arc<BatchDelivery>>,
    failure: Option<Error>,
    last_id: u64,
    /// Why no batch may be begun just now: a transaction begins or ends.
    paused: Option<Error>,
    /// To which batches belong.
    transaction: Option<Arc<Staging>>,
    /// The side that numbered the records of a partition before the transaction.
    numbered_before: HashMap<TopicPartition, Numbering>,
}

pub(crate) struct Accumulator {
    batch_size: usize,
    buffer_memory: usize,
    linger: Duration,
    max_block: Duration,
    delivery_timeout: Duration,
    /// Has the sender look for work.
    pub(crate) wake: Arc<Notify>,
    state: Mutex<State>,
    room: Notify,
}

/// A record, or several that are to be one batch, to be queued.
pub(crate) struct Addition<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    /// It may go elsewhere: to where messages without a key go now.
    pub(crate) sticky: bool,
    /// Where it may go anywhere: a partition, and whether it has a leader that can be reached.
    pub(crate) choose: Option<&'a (dyn Fn() -> (i32, bool) + Send + Sync)>,
    pub(crate) messages: &'a [Message<'a>],
    pub(crate) sequences: Option<&'a [i64]>,
    pub(crate) expected_offset: Option<i64>,
    /// Exactly one batch.
    pub(crate) whole: bool,
    pub(crate) max_batch_bytes: usize,
}

impl Addition<'_> {
    fn size(&self) -> usize {
        let bytes = |item: Option<&[u8]>| item.map_or(0, <[u8]>::len);
        let mut size = 0;
        for message in self.messages {
            size += RECORD_OVERHEAD + bytes(message.value) + bytes(message.key);
            for (name, value) in &message.headers {
                size += HEADER_OVERHEAD + name.len() + bytes(*value);
            }
        }
        size
    }

    fn is_alone(&self) -> bool {
        self.whole || self.expected_offset.is_some()
    }
}

enum Placed {
    /// Whether the sender has something to do now.
    At(Delivery, bool),
    NoRoom,
}

impl Accumulator {
    pub(crate) fn new(config: &ProducerConfig, wake: Arc<Notify>) -> Self {
        Self {
            batch_size: config.batch_size,
            buffer_memory: config.buffer_memory,
            linger: config.linger,
            max_block: config.max_block,
            delivery_timeout: config.delivery_timeout,
            wake,
            state: Mutex::default(),
            room: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    /// Queues records; waits while the buffer is full.
    pub(crate) async fn append(&self, add: &Addition<'_>) -> Result<Delivery> {
        let size = add.size();
        let mut deadline = None;
        loop {
            let room = {
                let mut state = self.state();
                if let Some(failure) = &state.failure {
                    return Err(failure.clone());
                }
                if let Some(transaction) = &state.transaction {
                    transaction.check_addition(add.expected_offset)?;
                }
                match self.place(&mut state, add, size)? {
                    Placed::At(delivery, woken) => {
                        drop(state);
                        if woken {
                            self.wake.notify_one();
                        }
                        return Ok(delivery);
                    }
                    Placed::NoRoom => {
                        // Lingering records hold the room that is waited for.
                        state.make_all_due();
                        self.room.notified()
                    }
                }
            };
            self.wake.notify_one();
            let limit = *deadline.get_or_insert_with(|| Instant::now() + self.max_block);
            if timeout_at(limit, room).await.is_err() {
                return Err(Error::new(
                    ErrorKind::BufferFull,
                    format!(
                        "buffer_memory={} stayed full for max_block={:?}",
                        self.buffer_memory, self.max_block
                    ),
                ));
            }
        }
    }

    fn place(&self, state: &mut State, add: &Addition<'_>, size: usize) -> Result<Placed> {
        let need = BATCH_OVERHEAD + size;
        if need > add.max_batch_bytes || need > self.buffer_memory {
            let message = format!(
                "{need} bytes with overhead, the topic takes {} and the buffer {}",
                add.max_batch_bytes, self.buffer_memory
            );
            let error = Error::new(ErrorKind::BatchTooLarge, message);
            return Err(error.with_outcome(Outcome::NeverSent));
        }
        let State { topics, ready, lingering, incomplete, used, last_id, flushing, .. } = state;
        let (transaction, numbered_before) = (&state.transaction, &mut state.numbered_before);
        let topic = match topics.get_mut(add.topic) {
            Some(topic) => topic,
            None => topics.entry(add.topic.into()).or_default(),
        };
        let now = now_us(); // once for all that a record needs it for
        let full = |batch: &OpenBatch| {
            add.is_alone() || batch.size + size > batch.cap || now > batch.join_until_us
        };
        let mut woken = add.is_alone();
        // When the batch that records stick to is full, they go on with another partition.
        let stuck = topic.sticky.filter(|_| add.sticky);
        let mut partition = add.partition;
        let mut attracts = true;
        for stuck in stuck.map(Some).into_iter().chain([None]) {
            (partition, attracts) = match (stuck, add.choose) {
                (Some(stuck), _) => (stuck, true),
                (None, Some(choose)) => choose(),
                (None, None) => (add.partition, true),
            };
            let sticky = topic.sticky == Some(partition);
            let lane = topic.lane(add.topic, partition);
            lane.check_sequences(add.sequences)?;
            if !lane.open.as_ref().is_some_and(full) {
                break;
            }
            lane.close(ready);
            woken = true;
            if sticky {
                topic.sticky = None;
            }
        }
        let lane = topic.lane(add.topic, partition);
        let more = if lane.open.is_some() { size } else { need };
        if *used + more > self.buffer_memory {
            return Ok(Placed::NoRoom);
        }
        if lane.open.is_none() {
            if let Some(why) = &state.paused {
                return Err(why.clone());
            }
            *last_id += 1;
            let cap = self.batch_size.min(add.max_batch_bytes).max(need);
            let own_time = self.linger.max(self.delivery_timeout / TIME_FOR_OTHERS);
            let join_until_us = now + own_time.as_micros() as i64;
            let batch = OpenBatch::new(*last_id, &lane.tp, cap, lane.before, join_until_us);
            incomplete.insert(batch.id, batch.delivery.clone());
            if self.linger.is_zero() || *flushing > 0 {
                ready.insert(lane.tp.clone());
                woken = true;
            } else {
                woken |= lingering.is_empty();
                lingering.push_back((batch.created, lane.tp.clone(), batch.id));
            }
            let due = self.linger.is_zero() || *flushing > 0;
            lane.open = Some(OpenBatch { due, transaction: transaction.clone(), ..batch });
        }
        if transaction.is_some() && !numbered_before.contains_key(&lane.tp) {
            numbered_before.insert(lane.tp.clone(), lane.numbering);
        }
        *used += more;
        let delivery = lane.put(add, size, now);
        if add.is_alone() {
            lane.close(ready);
        } else if add.sticky && attracts {
            topic.sticky = Some(partition);
        }
        Ok(Placed::At(delivery, woken))
    }

    // --- flushing ------------------------------------------------------------------------

    /// Makes everything due at once, and tells which batches are not yet done. Until the guard is
    /// dropped, new records are due at once, too.
    pub(crate) fn begin_flush(&self) -> (FlushGuard<'_>, Vec<Arc<BatchDelivery>>) {
        let mut state = self.state();
        state.flushing += 1;
        state.make_all_due();
        let waiting = state.incomplete.values().cloned().collect();
        drop(state);
        self.wake.notify_one();
        (FlushGuard(self), waiting)
    }

    // --- the sender's side ---------------------------------------------------------------

    /// The partitions that may have something to send, and when to look again.
    pub(crate) fn ready(&self, now: Instant) -> (Vec<TopicPartition>, Option<Instant>) {
        let mut state = self.state();
        let mut next = None;
        while let Some((created, tp, id)) = state.lingering.front() {
            let (at, id, tp) = (*created + self.linger, *id, tp.clone());
            if let Some(batch) = state.open(&tp).filter(|batch| batch.id == id) {
                if at > now {
                    next = Some(at);
                    break;
                }
                batch.due = true;
                state.ready.insert(tp);
            }
            state.lingering.pop_front();
        }
        (state.ready.iter().cloned().collect(), next)
    }

    /// The partition's oldest batch that is due, closed.
    pub(crate) fn take(&self, tp: &TopicPartition) -> Option<OpenBatch> {
        let mut state = self.state();
        let State { topics, ready, .. } = &mut *state;
        let topic = topics.get_mut(&*tp.topic)?;
        let sticky = topic.sticky;
        let lane = topic.lanes.get_mut(tp.partition as usize)?.as_mut()?;
        if lane.closed.is_empty() && lane.open.as_ref().is_some_and(|batch| batch.due) {
            lane.close(ready);
        }
        let batch = lane.closed.pop_front();
        if batch.is_none() {
            ready.remove(tp);
        }
        if lane.open.is_none() && sticky == Some(tp.partition) {
            topic.sticky = None;
        }
        batch
    }

    /// Takes out the batches that are past their delivery timeout; none has been sent.
    pub(crate) fn expire(&self, now: Instant) -> Vec<(TopicPartition, OpenBatch)> {
        let mut state = self.state();
        let over = |batch: &OpenBatch| now >= batch.created + self.delivery_timeout;
        let mut expired = vec![];
        let State { topics, ready, .. } = &mut *state;
        for topic in topics.values_mut() {
            for lane in topic.lanes.iter_mut().flatten() {
                if lane.open.as_ref().is_some_and(over) {
                    lane.close(ready);
                    if topic.sticky == Some(lane.tp.partition) {
                        topic.sticky = None;
                    }
                }
                while lane.closed.front().is_some_and(over) {
                    let batch = lane.closed.pop_front().expect("there is one");
                    expired.push((lane.tp.clone(), batch));
                }
            }
        }
        expired
    }

    /// Batches that wait for a leader must not attract more.
    pub(crate) fn leave_unavailable(&self, is_available: impl Fn(&str, i32) -> bool) {
        for (name, topic) in &mut self.state().topics {
            topic.sticky = topic.sticky.filter(|partition| is_available(name, *partition));
        }
    }

    /// Takes out the waiting batches of a partition that no longer exists.
    pub(crate) fn drop_lane(&self, tp: &TopicPartition) -> VecDeque<OpenBatch> {
        let mut state = self.state();
        let State { topics, ready, .. } = &mut *state;
        let Some(topic) = topics.get_mut(&*tp.topic) else { return VecDeque::new() };
        topic.sticky = topic.sticky.filter(|partition| *partition != tp.partition);
        let lane = topic.lane(&tp.topic, tp.partition);
        if lane.open.is_some() {
            lane.close(ready);
        }
        ready.remove(tp);
        std::mem::take(&mut lane.closed)
    }

    /// Takes no further records, for this reason.
    pub(crate) fn refuse(&self, failure: &Error) {
        self.state().failure.get_or_insert_with(|| failure.clone());
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.state().failure.clone()
    }

    /// Refuses further records and returns all waiting batches.
    pub(crate) fn stop(&self, failure: &Error) -> Vec<OpenBatch> {
        self.refuse(failure);
        let left = self.state().take_all();
        self.room.notify_waiters();
        left
    }

    /// Frees the room of a batch with a known outcome.
    pub(crate) fn release(&self, batch: &OpenBatch) {
        let mut state = self.state();
        state.used -= batch.size;
        state.incomplete.remove(&batch.id);
        drop(state);
        self.room.notify_waiters();
    }

    /// Whether nothing waits and nothing is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().incomplete.is_empty()
    }

    pub(crate) fn used(&self) -> usize {
        self.state().used
    }
}

/// While it lives nothing lingers.
pub(crate) struct FlushGuard<'a>(&'a Accumulator);

impl Drop for FlushGuard<'_> {
    fn drop(&mut self) {
        self.0.state().flushing -= 1;
    }
}

impl State {
    fn open(&mut self, tp: &TopicPartition) -> Option<&mut OpenBatch> {
        self.topics
            .get_mut(&*tp.topic)?
            .lanes
            .get_mut(tp.partition as usize)?
            .as_mut()?
            .open
            .as_mut()
    }

    fn take_all(&mut self) -> Vec<OpenBatch> {
        let mut left = vec![];
        for topic in self.topics.values_mut() {
            for lane in topic.lanes.iter_mut().flatten() {
                if lane.open.is_some() {
                    lane.close(&mut self.ready);
                }
                left.extend(lane.closed.drain(..));
            }
            topic.sticky = None;
        }
        self.ready.clear();
        left
    }

    fn make_all_due(&mut self) {
        for lane in self.topics.values_mut().flat_map(|topic| topic.lanes.iter_mut().flatten()) {
            if let Some(batch) = &mut lane.open {
                batch.due = true;
                self.ready.insert(lane.tp.clone());
            }
        }
        self.lingering.clear();
    }
}

impl TopicLanes {
    fn lane(&mut self, topic: &str, partition: i32) -> &mut Lane {
        let at = partition as usize;
        if self.lanes.len() <= at {
            self.lanes.resize_with(at + 1, || None);
        }
        self.lanes[at].get_or_insert_with(|| Lane {
            tp: TopicPartition::new(topic, partition),
            open: None,
            closed: VecDeque::new(),
            numbering: Numbering { counted: false, given: false, last_given: -1 },
            before: (0, 0),
        })
    }
}

impl Lane {
    /// Refuses sequences that do not fit the numbering of the partition's records.
    fn check_sequences(&self, sequences: Option<&[i64]>) -> Result<()> {
        let Some(sequences) = sequences else {
            if self.numbering.given {
                return Err(Error::invalid(
                    "sequence",
                    format!(
                        "sequence is missing: {} has application-controlled sequences",
                        self.tp
                    ),
                ));
            }
            return Ok(());
        };
        let first = sequences[0];
        if self.numbering.counted {
            return Err(Error::invalid(
                "sequence",
                format!(
                    "sequence={first}: {} already has sequences that the producer counts",
                    self.tp
                ),
            ));
        }
        if first <= self.numbering.last_given {
            return Err(Error::invalid(
                "sequence",
                format!(
                    "sequence={first} is not above the last one of {}, {}",
                    self.tp, self.numbering.last_given
                ),
            )
            .with(|d| d.limit = "> last".into()));
        }
        Ok(())
    }

    /// Adds the records to the open batch.
    fn put(&mut self, add: &Addition<'_>, size: usize, now_us: i64) -> Delivery {
        let batch = self.open.as_mut().expect("it was placed");
        let index = batch.columns.len();
        for message in add.messages {
            let stamp = message.timestamp_us.unwrap_or(now_us);
            batch.columns.add(message.value, message.key, &message.headers, stamp);
        }
        match add.sequences {
            None => self.numbering.counted = true,
            Some(sequences) => {
                self.numbering.given = true;
                self.numbering.last_given = sequences[sequences.len() - 1];
                batch.sequences.get_or_insert_default().extend_from_slice(sequences);
            }
        }
        batch.size += size;
        if add.is_alone() {
            batch.expected_offset = add.expected_offset;
        }
        let index = if add.whole { None } else { Some(index) };
        Delivery { batch: batch.delivery.clone(), index }
    }

    fn close(&mut self, ready: &mut HashSet<TopicPartition>) {
        let mut batch = self.open.take().expect("there is an open one");
        batch.count = batch.columns.len();
        self.before = (batch.count, batch.size - BATCH_OVERHEAD - RECORD_OVERHEAD * batch.count);
        batch.delivery.close(batch.count, batch.sequences.clone());
        self.closed.push_back(batch);
        ready.insert(self.tp.clone());
    }
}

impl OpenBatch {
    fn new(
        id: u64,
        tp: &TopicPartition,
        cap: usize,
        room: (usize, usize),
        join_until_us: i64,
    ) -> Self {
        Self {
            id,
            delivery: Arc::new(BatchDelivery::new(tp.clone())),
            columns: Columns::with_room(room.0, room.1),
            payload: None,
            created: Instant::now(),
            join_until_us,
            size: BATCH_OVERHEAD,
            cap,
            due: false,
            sequences: None,
            expected_offset: None,
            count: 0,
            transaction: None,
        }
    }
}

#[path = "accumulator_transactions.rs"]
mod transactions;

#[cfg(test)]
#[path = "accumulator_tests.rs"]
mod tests;

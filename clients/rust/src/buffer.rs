//! Fetched records that are not yet taken. The fetcher fills it, the user empties it. Batches of a
//! partition follow each other without a hole, an answer to a question from before a seek is thrown
//! away, and records come before an error or a reset behind them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::compress::{checksum, decompress};
use crate::config::OffsetReset;
use crate::errors::{Error, ErrorKind, Result};
use crate::fetcher::MOST_FETCHED;
use crate::member::Change;
use crate::payload::Decoded;
use crate::pb::{self, PartitionError};
use crate::types::{Record, TopicPartition};

/// One stored batch, decoded when it is first looked at.
pub(crate) struct Chunk {
    tp: TopicPartition,
    header: pb::BatchHeader,
    payload: Bytes,
    /// Compaction made it: some of its records may be blanks.
    carried: bool,
    base: i64,
    end: i64,
    /// The user's place in it.
    next: AtomicI64,
    decoded: OnceLock<Result<Decoded>>,
}

impl Chunk {
    /// Decodes the batch. An error stays: nothing of the batch is ever skipped.
    pub(crate) fn open(&self, check_crc: bool) -> Result<&Decoded> {
        let decoded = self.decoded.get_or_init(|| {
            self.decode(check_crc).map_err(|e| {
                corrupt(&self.tp, self.base, format!("batch at offset {}: {e}", self.base))
            })
        });
        decoded.as_ref().map_err(Error::clone)
    }

    fn decode(&self, check_crc: bool) -> Result<Decoded> {
        if check_crc && checksum(&self.payload) != self.header.crc32c {
            return Err(Error::new(ErrorKind::InvalidBatch, "checksum differs"));
        }
        let plain = decompress(self.header.codec, &self.payload)?;
        Decoded::new(plain, self.header.record_count as usize)
    }

    /// Appends records from the user's place on, until there are `limit`. The place passes over
    /// blanks.
    pub(crate) fn take(&self, decoded: &Decoded, into: &mut Vec<Record>, limit: usize) {
        let mut next = self.next.load(Ordering::Relaxed);
        while next < self.end {
            let row = (next - self.base) as usize;
            if !(self.carried && decoded.is_blank(row)) {
                if into.len() == limit {
                    break;
                }
                into.push(decoded.record(&self.tp.topic, self.tp.partition, self.base, row));
            }
            next += 1;
        }
        self.next.store(next, Ordering::Relaxed);
    }

    pub(crate) fn left(&self) -> usize {
        (self.end - self.next.load(Ordering::Relaxed)) as usize
    }
}

pub(crate) fn corrupt(tp: &TopicPartition, offset: i64, message: String) -> Error {
    Error::new(ErrorKind::CorruptLog, format!("{tp}: {message}")).with(|d| {
        d.topic = tp.topic.to_string();
        d.partition = tp.partition;
        d.offset = offset;
    })
}

/// Where one partition stands.
#[derive(Default)]
struct Cursor {
    /// Partitions of one group share a Fetch.
    group: usize,
    /// Next offset for the user, at the start of the first chunk.
    position: Option<i64>,
    /// Without a position: go there; `None`: as the group and the settings say.
    begin: Option<OffsetReset>,
    /// Of the topic that it reads; 0: not known yet.
    topic_id: u64,
    /// Next offset to ask for.
    fetch_offset: i64,
    /// Rises with each seek.
    generation: u64,
    chunks: VecDeque<Arc<Chunk>>,
    buffered: usize,
    paused: bool,
    /// Returned when the chunks are taken.
    error: Option<Error>,
    /// A fetch ahead here was out of range; it is asked again without chunks.
    refused_at: Option<i64>,
    /// The position was reached by reading, so the records before it did exist.
    by_reading: bool,
}

impl Cursor {
    /// The user's.
    fn place(&self) -> Option<i64> {
        let first = self.chunks.front().map(|chunk| chunk.next.load(Ordering::Relaxed));
        first.or(self.position)
    }

    fn wanted(&self, tp: &TopicPartition) -> Wanted {
        Wanted {
            tp: tp.clone(),
            group: self.group,
            offset: self.fetch_offset,
            generation: self.generation,
            begin: self.begin,
        }
    }

    /// Whether to fetch more.
    fn has_room(&self, limit: usize) -> bool {
        let refused = !self.chunks.is_empty() && self.refused_at == Some(self.fetch_offset);
        self.buffered < limit && !refused
    }
}

/// A partition's next position to fetch.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) tp: TopicPartition,
    pub(crate) group: usize,
    pub(crate) offset: i64,
    pub(crate) generation: u64,
    pub(crate) begin: Option<OffsetReset>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    Taken,
    /// The user has gone elsewhere, or takes the records before an error first.
    Stale,
    /// The answer carries an error; nothing was added.
    Refused,
    /// It is of another topic of the same name; nothing was added.
    Anew,
    /// The node has not heard of that yet; nothing was added.
    Behind,
}

#[derive(Default)]
struct State {
    cursors: HashMap<TopicPartition, Cursor>,
    /// Partitions with chunks, in turn.
    turns: VecDeque<TopicPartition>,
    /// Those with an error, in turn; and some without one by now.
    failed: Vec<TopicPartition>,
    closed: bool,
    generations: u64,
    /// Work of polls before records are given out: the group's changes.
    interruptions: VecDeque<Change>,
    /// From this time on nothing is given out: the group may have gone on without.
    held_from: Option<Instant>,
    /// How many polls wait for records, and when the last one did.
    waiting: usize,
    came_back: Option<Instant>,
}

impl State {
    /// The first error whose partition has no records before it.
    fn take_error(&mut self) -> Option<Error> {
        let Self { cursors, failed, .. } = self;
        failed.retain(|tp| cursors.get(tp).is_some_and(|cursor| cursor.error.is_some()));
        let at = failed.iter().position(|tp| cursors[tp].chunks.is_empty())?;
        cursors.get_mut(&failed.remove(at))?.error.take()
    }
}

pub(crate) struct FetchBuffer {
    partition_bytes: usize,
    cluster: Arc<Cluster>,
    /// Has the fetcher look for wanted positions.
    wake: Arc<Notify>,
    state: Mutex<State>,
    changed: Notify,
}

fn not_assigned(tp: &TopicPartition) -> Error {
    Error::invalid("partition", format!("{tp} is not assigned"))
}

impl FetchBuffer {
    pub(crate) fn new(partition_bytes: usize, cluster: Arc<Cluster>, wake: Arc<Notify>) -> Self {
        let state = State { came_back: Some(Instant::now()), ..State::default() };
        let changed = Notify::new();
        Self { partition_bytes, cluster, wake, state: Mutex::new(state), changed }
    }

    /// 0: not known.
    fn topic_id(&self, tp: &TopicPartition) -> u64 {
        self.cluster.leaders.topic(&tp.topic).map_or(0, |topic| topic.id)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    /// Ends when something has changed since the call.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + Send + '_ {
        self.changed.notified()
    }

    fn notify(&self) {
        self.changed.notify_waiters();
        self.wake.notify_one();
    }

    // --- the user's side -----------------------------------------------------------------

    /// Reads exactly these; those that are kept keep their place.
    pub(crate) fn assign(&self, tps: &[TopicPartition]) {
        let mut state = self.state();
        let mut old = std::mem::take(&mut state.cursors);
        for (at, tp) in tps.iter().enumerate() {
            // Earlier assignments do not take the answers to later questions.
            state.generations += 1;
            let generation = state.generations << 32;
            let topic_id = self.topic_id(tp);
            let fresh = Cursor { generation, topic_id, ..Cursor::default() };
            let mut cursor = old.remove(tp).unwrap_or(fresh);
            cursor.group = at / MOST_FETCHED;
            state.cursors.insert(tp.clone(), cursor);
        }
        let State { cursors, turns, .. } = &mut *state;
        turns.retain(|tp| cursors.contains_key(tp));
        drop(state);
        self.notify();
    }

    pub(crate) fn assignment(&self) -> Vec<TopicPartition> {
        let mut tps: Vec<_> = self.state().cursors.keys().cloned().collect();
        tps.sort();
        tps
    }

    pub(crate) fn check_assigned(&self, tp: &TopicPartition) -> Result<()> {
        match self.state().cursors.contains_key(tp) {
            true => Ok(()),
            false => Err(not_assigned(tp)),
        }
    }

    /// Goes on at an offset.
    pub(crate) fn seek(&self, tp: &TopicPartition, offset: i64) {
        self.go_to(tp, None, Some(offset), None);
    }

    /// Goes where the log begins or ends, when its leader can be asked.
    pub(crate) fn seek_to(&self, tp: &TopicPartition, place: OffsetReset) {
        self.go_to(tp, None, None, Some(place));
    }

    /// The same after a refusal of this position; a seek in the meantime wins.
    pub(crate) fn reset(&self, wanted: &Wanted, place: OffsetReset) {
        self.go_to(&wanted.tp, Some(wanted.generation), None, Some(place));
    }

    /// Does nothing after a seek since that generation; `None`: any.
    fn go_to(
        &self,
        tp: &TopicPartition,
        since: Option<u64>,
        offset: Option<i64>,
        begin: Option<OffsetReset>,
    ) {
        let mut state = self.state();
        if let Some(cursor) = state.cursors.get_mut(tp)
            && since.is_none_or(|since| cursor.generation == since)
        {
            *cursor = Cursor {
                group: cursor.group,
                generation: cursor.generation + 1,
                paused: cursor.paused,
                position: offset,
                begin,
                topic_id: cursor.topic_id,
                fetch_offset: offset.unwrap_or(0),
                ..Cursor::default()
            };
            state.turns.retain(|other| other != tp);
        }
        drop(state);
        self.notify();
    }

    /// The oldest chunk of the partition that is next. An error comes first; with `may_fail` false
    /// it stays where it is.
    pub(crate) fn peek(&self, may_fail: bool) -> Result<Option<Arc<Chunk>>> {
        let mut state = self.state();
        if state.closed {
            return Err(Error::closed("consumer"));
        }
        if !state.interruptions.is_empty() {
            return Ok(None);
        }
        if may_fail && let Some(error) = state.take_error() {
            self.wake.notify_one();
            return Err(error);
        }
        let held = state.held_from.is_some_and(|at| Instant::now() >= at);
        for tp in state.turns.iter().filter(|_| !held) {
            if let Some(cursor) = state.cursors.get(tp).filter(|cursor| !cursor.paused) {
                return Ok(cursor.chunks.front().cloned());
            }
        }
        Ok(None)
    }

    /// The user has moved on in the chunk.
    pub(crate) fn advance(&self, taken: &Arc<Chunk>) {
        if taken.left() > 0 {
            return;
        }
        let mut state = self.state();
        let State { cursors, turns, .. } = &mut *state;
        let Some(cursor) = cursors.get_mut(&taken.tp) else { return };
        if !cursor.chunks.front().is_some_and(|first| Arc::ptr_eq(first, taken)) {
            return;
        }
        let had_room = cursor.has_room(self.partition_bytes);
        cursor.chunks.pop_front();
        cursor.position = Some(taken.end);
        cursor.by_reading = true;
        cursor.buffered -= taken.payload.len();
        turns.retain(|tp| *tp != taken.tp);
        if !cursor.chunks.is_empty() {
            turns.push_back(taken.tp.clone());
        }
        let room = !had_room && cursor.has_room(self.partition_bytes);
        drop(state);
        if room {
            self.notify();
        }
    }

    /// The user's place; `None`: it is not known, or nothing is read there.
    pub(crate) fn place(&self, tp: &TopicPartition) -> Option<i64> {
        self.state().cursors.get(tp).and_then(Cursor::place)
    }

    /// The user's place; `None`: it is not known yet. It takes the error of a start that is not
    /// known.
    pub(crate) fn position(&self, tp: &TopicPartition) -> Result<Option<i64>> {
        let mut state = self.state();
        let cursor = state.cursors.get_mut(tp).ok_or_else(|| not_assigned(tp))?;
        if cursor.position.is_none()
            && let Some(error) = cursor.error.take()
        {
            self.wake.notify_one();
            return Err(error);
        }
        Ok(cursor.place())
    }

    pub(crate) fn paused(&self) -> Vec<TopicPartition> {
        let state = self.state();
        let paused = state.cursors.iter().filter(|(_, cursor)| cursor.paused);
        let mut tps: Vec<_> = paused.map(|(tp, _)| tp.clone()).collect();
        tps.sort();
        tps
    }

    pub(crate) fn pause(&self, tp: &TopicPartition, paused: bool) {
        if let Some(cursor) = self.state().cursors.get_mut(tp) {
            cursor.paused = paused;
        }
        self.notify();
    }

    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.notify();
    }

    // --- a member of a group -------------------------------------------------------------

    /// The user asks for records, and waits for them until the guard is dropped.
    pub(crate) fn comes_back(&self) -> Waiting<'_> {
        self.state().waiting += 1;
        Waiting(self)
    }

    /// For how long the user has not come back for records.
    pub(crate) fn idle(&self) -> Duration {
        let state = self.state();
        match state.came_back {
            Some(at) if state.waiting == 0 => at.elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Has the user's polls look at this before they give out more records.
    pub(crate) fn interrupt(&self, change: Change) {
        self.state().interruptions.push_back(change);
        self.changed.notify_waiters();
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        !self.state().interruptions.is_empty()
    }

    /// The work that comes first. Nothing is given out before it is followed.
    pub(crate) fn interruption(&self) -> Option<Change> {
        self.state().interruptions.front().cloned()
    }

    pub(crate) fn followed(&self) {
        self.state().interruptions.pop_front();
        self.notify();
    }

    /// It was not joined after all; its answers in the meantime mean nothing.
    pub(crate) fn forget_group(&self) {
        let mut state = self.state();
        state.interruptions.clear();
        state.held_from = None;
    }

    /// Gives out nothing from that time on, unless it is put off.
    pub(crate) fn hold_from(&self, moment: Instant) {
        self.state().held_from = Some(moment);
        self.changed.notify_waiters();
    }

    // --- the fetcher's side --------------------------------------------------------------

    /// The start position was found out; a seek in the meantime wins.
    pub(crate) fn found(&self, wanted: &Wanted, offset: i64) {
        let mut state = self.state();
        if let Some(cursor) = state.cursors.get_mut(&wanted.tp)
            && cursor.generation == wanted.generation
            && cursor.position.is_none()
        {
            cursor.position = Some(offset);
            cursor.fetch_offset = offset;
            drop(state);
            self.notify();
        }
    }

    /// Has the user's next call return this, once.
    pub(crate) fn fail(&self, wanted: &Wanted, error: Error) {
        let mut state = self.state();
        let State { cursors, failed, .. } = &mut *state;
        if let Some(cursor) = cursors.get_mut(&wanted.tp)
            && cursor.generation == wanted.generation
        {
            cursor.error = Some(error);
            failed.push(wanted.tp.clone());
            drop(state);
            self.notify();
        }
    }

    fn all(&self, chosen: impl Fn(&Cursor) -> bool) -> Vec<Wanted> {
        let state = self.state();
        let some = state.cursors.iter().filter(|(_, cursor)| chosen(cursor));
        some.map(|(tp, cursor)| cursor.wanted(tp)).collect()
    }

    /// The partitions without a known start.
    pub(crate) fn without_position(&self) -> Vec<Wanted> {
        self.all(|cursor| cursor.position.is_none() && cursor.error.is_none())
    }

    /// The partitions to fetch now: position known, room in the buffer.
    pub(crate) fn wanted(&self) -> Vec<Wanted> {
        self.all(|cursor| {
            let readable = cursor.position.is_some() && cursor.error.is_none() && !cursor.paused;
            readable && cursor.has_room(self.partition_bytes)
        })
    }

    /// Whether to read on as wanted, when there is room.
    pub(crate) async fn await_room(&self, wanted: &Wanted) -> bool {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state();
                let cursor = state.cursors.get(&wanted.tp);
                let alive = cursor.filter(|cursor| {
                    let same = cursor.generation == wanted.generation;
                    same && !state.closed && !cursor.paused && cursor.error.is_none()
                });
                match alive {
                    None => return false,
                    Some(cursor) if cursor.has_room(self.partition_bytes) => return true,
                    Some(_) => {}
                }
            }
            changed.await;
        }
    }

    /// The partitions of topics that were created anew under the same name, with the new id.
    pub(crate) fn recreated(&self) -> Vec<(Wanted, u64)> {
        let mut recreated = vec![];
        for (tp, cursor) in &mut self.state().cursors {
            let id = self.topic_id(tp);
            if cursor.topic_id != 0 && cursor.topic_id < id {
                recreated.push((cursor.wanted(tp), id));
            }
            cursor.topic_id = id.max(cursor.topic_id);
        }
        recreated
    }

    /// The topic has this id by now. Positions in the former one do not apply.
    pub(crate) fn begin_anew(&self, wanted: &Wanted, id: u64) {
        if let Some(cursor) = self.state().cursors.get_mut(&wanted.tp) {
            cursor.topic_id = id.max(cursor.topic_id);
        }
        self.go_to(&wanted.tp, Some(wanted.generation), None, None);
    }

    /// Whether the partition's position was reached by reading.
    pub(crate) fn was_read(&self, tp: &TopicPartition) -> bool {
        self.state().cursors.get(tp).is_some_and(|cursor| cursor.by_reading)
    }

    /// Takes over one partition's answer.
    pub(crate) fn add(&self, wanted: &Wanted, answer: &pb::PartitionRecords) -> Added {
        let mut state = self.state();
        let State { cursors, turns, failed, .. } = &mut *state;
        let Some(cursor) =
            cursors.get_mut(&wanted.tp).filter(|cursor| cursor.generation == wanted.generation)
        else {
            return Added::Stale;
        };
        let (id, known) = (answer.topic_id, cursor.topic_id);
        if id != 0 && id < known {
            return Added::Behind; // ids only rise
        }
        let gone = answer.error == i32::from(PartitionError::UnknownTopicOrPartition);
        if known != 0 && id > known && !gone {
            return Added::Anew;
        }
        let out_of_range = answer.error == i32::from(PartitionError::OffsetOutOfRange);
        if out_of_range && !cursor.chunks.is_empty() {
            cursor.refused_at = Some(wanted.offset);
            return Added::Stale;
        }
        if answer.error != i32::from(PartitionError::None) {
            return Added::Refused;
        }
        cursor.topic_id = cursor.topic_id.max(answer.topic_id);
        if wanted.offset != cursor.fetch_offset {
            return Added::Stale; // another answer has already brought these
        }
        for stored in &answer.batches {
            let header = stored.header.clone().unwrap_or_default();
            let base = stored.base_offset;
            let end = base.saturating_add(header.record_count.into());
            let at = cursor.fetch_offset;
            // It may begin before the position: batches are sent whole, and may have been cut anew.
            if base > at || end <= at {
                let message = format!(
                    "after offset {} came a batch with offsets {base} to {}",
                    at - 1,
                    end - 1
                );
                cursor.error = Some(corrupt(&wanted.tp, at, message));
                failed.push(wanted.tp.clone());
                break;
            }
            cursor.buffered += stored.payload.len();
            cursor.fetch_offset = end;
            cursor.chunks.push_back(Arc::new(Chunk {
                tp: wanted.tp.clone(),
                header,
                payload: stored.payload.clone(),
                carried: stored.carried,
                base,
                end,
                next: AtomicI64::new(at),
                decoded: OnceLock::new(),
            }));
        }
        if !cursor.chunks.is_empty() && !turns.contains(&wanted.tp) {
            turns.push_back(wanted.tp.clone());
        }
        drop(state);
        self.changed.notify_waiters();
        Added::Taken
    }
}

/// While it lives the user waits for records.
pub(crate) struct Waiting<'a>(&'a FetchBuffer);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.waiting -= 1;
        state.came_back = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(base_offset: i64, count: i32, payload: &'static [u8]) -> pb::StoredBatch {
        let header = pb::BatchHeader { record_count: count, ..Default::default() };
        let payload = Bytes::from_static(payload);
        pb::StoredBatch { header: Some(header), payload, base_offset, ..Default::default() }
    }

    fn answer(batches: Vec<pb::StoredBatch>) -> pb::PartitionRecords {
        pb::PartitionRecords { batches, high_watermark: 100, ..Default::default() }
    }

    fn empty() -> FetchBuffer {
        let cluster = Cluster::new(crate::ConsumerConfig::new("a:1").client).unwrap();
        FetchBuffer::new(10, Arc::new(cluster), Arc::new(Notify::new()))
    }

    fn assigned() -> (FetchBuffer, TopicPartition) {
        let buffer = empty();
        let tp = TopicPartition::new("t", 0);
        buffer.assign(std::slice::from_ref(&tp));
        buffer.found(&buffer.without_position()[0], 5);
        (buffer, tp)
    }

    #[tokio::test]
    async fn an_answer_from_before_a_seek_is_thrown_away() {
        let (buffer, tp) = assigned();
        let before = buffer.wanted().pop().unwrap();
        buffer.seek(&tp, 7);
        assert_eq!(buffer.add(&before, &answer(vec![stored(5, 1, b"x")])), Added::Stale);
        let now = buffer.wanted().pop().unwrap();
        assert_eq!(now.offset, 7);
        assert_eq!(buffer.add(&now, &answer(vec![stored(5, 4, b"x")])), Added::Taken);
        assert_eq!(buffer.position(&tp).unwrap(), Some(7));
    }

    #[tokio::test]
    async fn a_hole_is_an_error_and_what_was_before_it_comes_first() {
        let (buffer, tp) = assigned();
        let wanted = buffer.wanted().pop().unwrap();
        let batches = vec![stored(5, 1, b"x"), stored(7, 1, b"x")];
        assert_eq!(buffer.add(&wanted, &answer(batches)), Added::Taken);
        let first = buffer.peek(true).unwrap().unwrap();
        assert!(buffer.wanted().is_empty(), "nothing is asked for behind an error");
        first.next.store(6, Ordering::Relaxed);
        buffer.advance(&first);
        let Err(error) = buffer.peek(true) else { panic!("the hole is skipped") };
        assert_eq!((error.kind(), error.details().offset), (ErrorKind::CorruptLog, 6));
        assert_eq!(buffer.position(&tp).unwrap(), Some(6));
    }

    #[tokio::test]
    async fn a_seek_wins_against_a_reset() {
        let (buffer, tp) = assigned();
        let refused = buffer.wanted().pop().unwrap();
        buffer.seek(&tp, 7);
        buffer.reset(&refused, OffsetReset::Earliest);
        buffer.begin_anew(&refused, 2);
        assert_eq!(buffer.place(&tp), Some(7));
        buffer.reset(&buffer.wanted()[0], OffsetReset::Earliest);
        assert_eq!(buffer.place(&tp), None);
    }

    #[tokio::test]
    async fn partitions_fail_in_turn() {
        let buffer = empty();
        buffer.assign(&[TopicPartition::new("t", 0), TopicPartition::new("t", 1)]);
        let fail = || {
            for wanted in buffer.without_position() {
                buffer.fail(&wanted, corrupt(&wanted.tp, 0, String::new()));
            }
            buffer.peek(true).err().unwrap().details().partition
        };
        assert_ne!(fail(), fail());
    }

    #[tokio::test]
    async fn a_full_buffer_wants_nothing() {
        let (buffer, _) = assigned();
        let wanted = buffer.wanted().pop().unwrap();
        buffer.add(&wanted, &answer(vec![stored(5, 1, b"ten bytes or more")]));
        assert!(buffer.wanted().is_empty());
        let first = buffer.peek(true).unwrap().unwrap();
        first.next.store(6, Ordering::Relaxed);
        buffer.advance(&first);
        assert_eq!(buffer.wanted().len(), 1);
    }

    #[tokio::test]
    async fn nothing_is_given_out_while_it_is_held_or_before_a_change_is_followed() {
        let (buffer, _) = assigned();
        let wanted = buffer.wanted().pop().unwrap();
        buffer.add(&wanted, &answer(vec![stored(5, 1, b"x")]));
        let is_given = || buffer.peek(true).unwrap().is_some();
        assert!(is_given());
        let now = Instant::now();
        buffer.hold_from(now);
        assert!(!is_given());
        buffer.hold_from(now + Duration::from_secs(3600));
        assert!(is_given());
        buffer.interrupt(Change {
            connection: 1,
            step: Default::default(),
            deadline: now,
            ended: false,
        });
        assert!(!is_given() && buffer.interruption().is_some() && buffer.interruption().is_some());
        buffer.followed();
        assert!(is_given());
    }

    #[tokio::test]
    async fn an_answer_for_an_earlier_ownership_is_thrown_away() {
        let buffer = empty();
        let tps = [TopicPartition::new("t", 0)];
        buffer.assign(&tps);
        let before = buffer.without_position().pop().unwrap();
        buffer.assign(&[]);
        buffer.assign(&tps);
        buffer.found(&before, 5);
        assert_eq!(buffer.without_position().len(), 1);
    }

    #[tokio::test]
    async fn a_closed_buffer_wakes_who_waits() {
        let (buffer, _) = assigned();
        let changed = buffer.changed();
        buffer.close();
        changed.await;
        assert!(buffer.peek(true).is_err_and(|e| e.kind() == ErrorKind::ClientClosed));
    }
}

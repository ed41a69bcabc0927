//! One partition's batches on their way: order, retries, and the meaning of each verdict. The
//! sender asks `next` for batches to send, reports answers, broken connections and the passing of
//! time, and carries out the returned reaction. No IO; the clock's reading is an argument.
//!
//! The rules that make a retry safe:
//!
//! - sequences are given when a batch is first sent, and never change after that;
//! - after any failure, everything that is not acknowledged is sent again from the head on, the
//!   same bytes;
//! - a batch behind a retried one may be answered OUT_OF_ORDER; the head, sent when all before it
//!   was acknowledged, may not: then this producer cannot go on;
//! - a batch that a node refused for good consumed no sequence. Batches behind it can never be
//!   stored under the same producer id, because the gap stays; so it is sealed anew under a new
//!   one (a reset, of this partition only);
//! - that holds only while no attempt of the refused batch is unaccounted for. If one is, the
//!   outcome is unknown, and everything behind it fails as unknown too.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::accumulator::OpenBatch;
use crate::attempts::{Obstacles, tells};
use crate::delivery::Stored;
use crate::errors::{Error, ErrorKind, Outcome};
use crate::pb::{self, Verdict};
use crate::producer::Common;
use crate::sealing::{Identity, SealedBatch};
use crate::staging::Staging;
use crate::status::{from_verdict, is_retriable, is_stored, verdict_kind};
use crate::types::TopicPartition;

pub(crate) struct Window {
    pub(crate) tp: TopicPartition,
    pub(crate) common: Arc<Common>,
    pub(crate) batches: VecDeque<SealedBatch>,
    /// The batches before it were sent since the last rewind.
    pub(crate) cursor: usize,
    /// To be sealed anew, before waiting batches.
    pub(crate) again: VecDeque<OpenBatch>,
    pub(crate) retry_at: Option<Instant>,
    failures: u32,
    last_serial: u64,

    pub(crate) identity: Arc<Identity>,
    pub(crate) prev_sequence: i64,
    /// Of the topic in which the identity began.
    pub(crate) topic_id: u64,
    /// No batch may be sealed with the identity any more.
    pub(crate) dead: bool,
    /// Since the last acknowledgement.
    pub(crate) resets: u32,
    /// The application's own sequence that was stored last; -1: none.
    pub(crate) stored_given: i64,
    /// A batch with the application's own sequences has failed. Later batches must not be stored:
    /// `prev_sequence` would hide the gap, and a copy lose records unseen.
    pub(crate) gap: Option<Error>,
    /// Where a transaction began here.
    before: Option<Before>,
    /// The topic was made anew while a transaction wrote to it.
    pub(crate) made_anew: bool,
    pub(crate) obstacles: Obstacles,
}

/// A window's place before a transaction.
struct Before {
    transaction: Arc<Staging>,
    prev_sequence: i64,
    stored_given: i64,
}

impl Before {
    fn is_of(&self, transaction: &Arc<Staging>) -> bool {
        Arc::ptr_eq(&self.transaction, transaction)
    }
}

/// The sender's work after an event.
#[derive(Debug)]
pub(crate) enum Reaction {
    Nothing,
    LeaderLost,
    Hinted {
        leader_id: i32,
        address: String,
    },
    /// The whole producer stops with this error,
    Fatal(Error),
    /// the same, unless the topic has been deleted and created anew.
    FatalUnlessRecreated(Error),
}

impl Window {
    pub(crate) fn new(tp: TopicPartition, common: Arc<Common>) -> Self {
        Self {
            dead: common.config.enable_idempotence,
            tp,
            common,
            batches: VecDeque::new(),
            cursor: 0,
            again: VecDeque::new(),
            retry_at: None,
            failures: 0,
            last_serial: 0,
            identity: Arc::default(),
            prev_sequence: -1,
            topic_id: 0,
            resets: 0,
            stored_given: -1,
            obstacles: Obstacles::default(),
            gap: None,
            before: None,
            made_anew: false,
        }
    }

    /// The producer id is the cluster's, so another one can be had.
    pub(crate) fn is_leased(&self) -> bool {
        self.common.config.resume_from.is_none()
    }

    // --- identity ------------------------------------------------------------------------

    /// Whether `adopt` must come before the next batch can be sealed.
    pub(crate) fn needs_identity(&self, now: Instant, current: Option<&Identity>) -> bool {
        self.batches.is_empty() && self.identity_is_over(now, current)
    }

    /// No further batch may be sealed with the identity; the window drains.
    fn identity_is_over(&self, now: Instant, current: Option<&Identity>) -> bool {
        if !self.common.config.enable_idempotence {
            return false;
        }
        let newer = current.is_some_and(|current| current.serial > self.identity.serial);
        self.dead || newer || self.identity.is_over(now)
    }

    pub(crate) fn was_reset(&self) -> bool {
        self.dead && self.identity.serial > 0
    }

    /// Whether it can no longer go on under this identity.
    pub(crate) fn has_used_up(&self, identity: &Identity) -> bool {
        self.was_reset() && self.identity.serial >= identity.serial
    }

    /// Goes on with this identity after `last_sequence` (-1: from the start).
    pub(crate) fn adopt(&mut self, identity: Arc<Identity>, last_sequence: i64, topic_id: u64) {
        assert!(self.batches.is_empty(), "an identity changes only when nothing is on its way");
        self.identity = identity;
        self.prev_sequence = last_sequence;
        self.topic_id = topic_id;
        self.dead = false;
        self.made_anew = false;
        self.obstacles = Obstacles::default();
    }

    /// Nobody is known to send to. The last leader's word tells more than that.
    pub(crate) fn lacks_leader(&mut self, no_metadata: Option<&Error>) {
        if let Some(problem) = no_metadata {
            self.obstacles.met(format!("no metadata: {}", problem.message()), tells(problem));
        } else if self.obstacles.is_empty() {
            self.obstacles.met("no leader is known".into(), false);
        }
    }

    // --- batches to send ------------------------------------------------------------------

    pub(crate) fn is_idle(&self) -> bool {
        self.batches.is_empty() && self.again.is_empty()
    }

    /// The place of the next batch to send; without one, the sender's work.
    pub(crate) fn next(
        &mut self,
        now: Instant,
        current: Option<&Identity>,
    ) -> Result<usize, Reaction> {
        if self.retry_at.is_some_and(|at| now < at) || self.gap.is_some() {
            return Err(self.after_gap());
        }
        while self.cursor < self.batches.len() {
            self.cursor += 1;
            if !self.batches[self.cursor - 1].acked {
                return Ok(self.cursor - 1);
            }
        }
        let full = self.batches.len() >= self.common.config.max_in_flight;
        if full || self.identity_is_over(now, current) {
            return Err(Reaction::Nothing);
        }
        let Some(sealed) = self.seal_next() else { return Err(self.after_gap()) };
        if self.common.config.enable_idempotence {
            self.prev_sequence = sealed.last_sequence;
        }
        self.batches.push_back(sealed);
        self.cursor = self.batches.len();
        Ok(self.cursor - 1)
    }

    fn seal_next(&mut self) -> Option<SealedBatch> {
        while self.gap.is_none() {
            let batch = match self.again.pop_front() {
                Some(batch) => batch,
                None => self.common.accumulator.take(&self.tp)?,
            };
            if let Some(transaction) = &batch.transaction
                && !self.before.as_ref().is_some_and(|before| before.is_of(transaction))
            {
                self.before = Some(Before {
                    transaction: transaction.clone(),
                    prev_sequence: self.prev_sequence,
                    stored_given: self.stored_given,
                });
            }
            self.last_serial += 1;
            let deadline = batch.created + self.common.config.delivery_timeout;
            let prev = self.prev_sequence;
            match SealedBatch::new(
                self.last_serial,
                batch,
                &self.identity,
                prev,
                deadline,
                self.common.codec,
            ) {
                Ok(sealed) => return Some(sealed),
                Err(unsealed) => {
                    let (batch, error) = *unsealed;
                    let message = format!("{}: cannot be encoded: {error}", self.tp);
                    let error = Error::new(ErrorKind::InvalidBatch, message);
                    self.fail_batch(&batch, error.with_outcome(Outcome::NeverSent));
                }
            }
        }
        None
    }

    /// An attempt is handed to the connection; answers will name its id.
    pub(crate) fn sent(&mut self, at: usize, attempt_id: u64, now: Instant) -> pb::Batch {
        let head = self.head() == Some(at);
        let sealed = &mut self.batches[at];
        let mut stats = self.common.stats();
        if sealed.attempts > 0 {
            stats.batches_retried += 1;
        } else {
            sealed.first_sent_at = now;
            stats.batches_sent += 1;
            stats.records_sent += sealed.batch.count as u64;
            stats.bytes_sent += sealed.size() as u64;
        }
        sealed.attempts += 1;
        sealed.attempt_id = attempt_id;
        sealed.sent_at = now;
        sealed.refused = false;
        sealed.sent_as_head = head;
        sealed.message(attempt_id)
    }

    /// The serial of the batch at a place.
    pub(crate) fn serial(&self, at: usize) -> u64 {
        self.batches[at].serial
    }

    fn head(&self) -> Option<usize> {
        self.batches.iter().position(|sealed| !sealed.acked)
    }

    // --- events --------------------------------------------------------------------------

    pub(crate) fn on_result(
        &mut self,
        serial: u64,
        attempt_id: u64,
        result: &pb::BatchResult,
        now: Instant,
    ) -> Reaction {
        let Some(at) = self.batches.iter().position(|sealed| sealed.serial == serial) else {
            return Reaction::Nothing; // one for a batch that was given up
        };
        if self.batches[at].acked {
            return Reaction::Nothing; // a second answer
        }
        if is_stored(result.verdict) {
            // True whichever attempt it answers.
            self.stored(at, result, now);
            return Reaction::Nothing;
        }
        if self.batches[at].attempt_id != attempt_id {
            return Reaction::Nothing; // says nothing about the attempt that is on its way
        }
        self.batches[at].attempt_id = 0;
        let verdict = result.verdict;
        if is_retriable(verdict) || verdict == i32::from(Verdict::Unspecified) {
            return self.try_again(at, result, now);
        }
        let is_head = self.head() == Some(at);
        let out_of_order = verdict == i32::from(Verdict::OutOfOrder);
        if out_of_order && !(is_head && self.batches[at].sent_as_head) {
            self.batches[at].refused = true;
            if is_head {
                self.rewind(now, Duration::ZERO);
            }
            return Reaction::Nothing;
        }
        self.refused_by(at, result)
    }

    fn refused_by(&mut self, at: usize, result: &pb::BatchResult) -> Reaction {
        if verdict_kind(result.verdict).is_none() {
            // A later version's word: it may mean that the batch is stored.
            self.batches[at].ambiguous = true;
        }
        let mut error = from_verdict(result, &self.tp);
        if self.batches[at].ambiguous {
            error = error.with_outcome(Outcome::Unknown);
        }
        match error.kind() {
            ErrorKind::ProducerExpired if self.is_leased() => self.refused_for_good(at, error),
            ErrorKind::Fenced => {
                // Batches sent behind it are refused, too: a partition's epoch never falls, and a
                // node takes the batches of a stream in order.
                for behind in self.batches.iter_mut().skip(at + 1) {
                    behind.attempt_id = 0;
                }
                Reaction::Fatal(error)
            }
            ErrorKind::UnknownProducer => Reaction::FatalUnlessRecreated(error),
            kind if kind.is(ErrorKind::ProducerFailed) => Reaction::Fatal(error),
            _ => self.refused_for_good(at, error),
        }
    }

    fn stored(&mut self, at: usize, result: &pb::BatchResult, now: Instant) {
        self.failures = 0;
        self.resets = 0;
        self.obstacles = Obstacles::default();
        let sealed = &mut self.batches[at];
        sealed.acked = true;
        sealed.attempt_id = 0;
        let duplicate = result.verdict == i32::from(Verdict::Duplicate);
        let mut stats = self.common.stats();
        stats.duplicates += u64::from(duplicate);
        if !sealed.abandoned {
            stats.batches_acked += 1;
            stats.records_acked += sealed.batch.count as u64;
            stats.max_ack_latency = stats.max_ack_latency.max(now - sealed.first_sent_at);
            if sealed.batch.sequences.is_some() {
                self.stored_given = self.stored_given.max(sealed.last_sequence);
            }
            drop(stats);
            let staged = |transaction: &Arc<Staging>| {
                transaction.staged(&self.tp, sealed.batch.count, sealed.last_sequence)
            };
            let run = sealed.batch.transaction.as_ref().map(staged);
            let stored = Stored { base_offset: result.base_offset, run, duplicate };
            self.common.settle(&sealed.batch, Ok(stored));
        } else {
            drop(stats);
        }
        self.pop_acked(now);
        self.reset_if_abandoned();
    }

    /// The transaction was aborted. Its sequences are free, for late copies name it.
    pub(crate) fn roll_back(&mut self, transaction: &Arc<Staging>) {
        let Some(before) = self.before.take_if(|before| before.is_of(transaction)) else { return };
        assert!(self.is_idle(), "a transaction's batches have failed before it is rolled back");
        self.prev_sequence = before.prev_sequence;
        self.stored_given = before.stored_given;
        self.failures = 0;
        self.resets = 0;
        self.retry_at = None;
        self.dead = self.made_anew;
    }

    fn pop_acked(&mut self, now: Instant) {
        while self.batches.front().is_some_and(|sealed| sealed.acked) {
            self.batches.pop_front();
            self.cursor = self.cursor.saturating_sub(1);
        }
        if self.batches.front().is_some_and(|sealed| sealed.refused) {
            // Its turn has come: the reason of the refusal, the gap before it, is filled.
            self.rewind(now, Duration::ZERO);
        }
    }

    fn try_again(&mut self, at: usize, result: &pb::BatchResult, now: Instant) -> Reaction {
        self.failures += 1;
        let mut delay = self.common.backoff.delay(self.failures);
        let mut reaction = Reaction::Nothing;
        let mut doubt = true; // whether this attempt may be stored
        match Verdict::try_from(result.verdict) {
            Ok(Verdict::NotLeader) if !result.leader_address.is_empty() && self.failures == 1 => {
                reaction = Reaction::Hinted {
                    leader_id: result.leader_id,
                    address: result.leader_address.clone(),
                };
                delay = Duration::ZERO; // a fresh hint needs no pause
            }
            Ok(Verdict::NotLeader) => reaction = Reaction::LeaderLost,
            Ok(Verdict::NotReady | Verdict::UnknownTopicOrPartition) => {
                reaction = Reaction::LeaderLost;
                doubt = false;
            }
            Ok(Verdict::Throttled | Verdict::StorageFull) => doubt = false,
            Ok(Verdict::Timeout | Verdict::Unspecified) => self.batches[at].unanswered = true,
            _ => {}
        }
        self.batches[at].ambiguous |= doubt;
        self.rewind(now, delay);
        reaction
    }

    /// No answer will come for the attempts on their way.
    pub(crate) fn on_connection_lost(&mut self, now: Instant) {
        if self.batches.iter().any(|sealed| sealed.attempt_id != 0) {
            self.failures += 1;
            // The first retry goes at once: a new leader may already be known.
            self.rewind(now, self.common.backoff.delay(self.failures - 1));
        }
    }

    /// Goes on at another node, at once.
    pub(crate) fn on_leader_changed(&mut self, now: Instant) {
        self.rewind(now, Duration::ZERO);
    }

    /// Nobody knows the meaning of an answer. Hear it once more.
    pub(crate) fn send_again(&mut self, now: Instant) {
        self.failures += 1;
        self.rewind(now, self.common.backoff.delay(self.failures));
    }

    fn rewind(&mut self, now: Instant, delay: Duration) {
        for sealed in &mut self.batches {
            if sealed.attempt_id != 0 {
                sealed.ambiguous = true;
                sealed.unanswered = true;
                sealed.attempt_id = 0;
            }
            sealed.refused = false;
        }
        self.cursor = 0;
        self.retry_at = Some(now + delay);
    }

    /// When the oldest attempt that waits for its answer was sent.
    pub(crate) fn oldest_attempt(&self) -> Option<Instant> {
        let waiting = self.batches.iter().filter(|sealed| sealed.attempt_id != 0);
        waiting.map(|sealed| sealed.sent_at).min()
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;

//! Fate of a window with batches that are refused for good, or out of time.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::accumulator::OpenBatch;
use crate::errors::{Error, ErrorKind, Outcome};
use crate::sealing::SealedBatch;
use crate::staging::Staging;
use crate::types::TopicPartition;
use crate::window::{Reaction, Window};

/// So often in a row a partition gets another producer id; then something else is wrong.
const MOST_RESETS: u32 = 3;

impl Window {
    /// The producer stops if there is a gap in the application's own sequences.
    pub(crate) fn after_gap(&self) -> Reaction {
        self.gap.clone().map_or(Reaction::Nothing, Reaction::Fatal)
    }

    pub(crate) fn refused_for_good(&mut self, at: usize, error: Error) -> Reaction {
        if let Some(transaction) = self.batches[at].batch.transaction.clone() {
            return self.staging_failed(&transaction, &error);
        }
        let refused = &self.batches[at];
        // Offsets only grow: a delayed copy will be refused for the same reason.
        let too_late = error.kind() == ErrorKind::OffsetMismatch
            && refused.batch.expected_offset.is_some_and(|e| error.details().next_offset > e);
        let certain = !refused.ambiguous || too_late;
        let error = error.with_outcome(if certain { Outcome::NotStored } else { Outcome::Unknown });
        if !self.common.config.enable_idempotence {
            // Batches without sequences do not depend on each other.
            let refused = self.batches.remove(at).expect("it is in the window");
            if at < self.cursor {
                self.cursor -= 1;
            }
            self.fail_sealed([&refused], &error);
            while self.batches.front().is_some_and(|sealed| sealed.acked) {
                self.batches.pop_front();
                self.cursor = self.cursor.saturating_sub(1);
            }
            return Reaction::Nothing;
        }
        let mut behind = self.batches.split_off(at);
        self.cursor = self.cursor.min(self.batches.len());
        if error.kind() == ErrorKind::ProducerExpired && certain {
            // Nothing is wrong with its records: they need another producer id.
            return self.seal_again(behind, &error);
        }
        let refused = behind.pop_front().expect("it is the first one");
        self.fail_sealed([&refused], &error);
        if !certain {
            self.reset();
            let message =
                format!("{}: a batch before it was refused and its outcome is not known", self.tp);
            let unknown = Error::new(ErrorKind::DeliveryTimeout, message);
            self.fail_sealed(&behind, &unknown.with_outcome(Outcome::Unknown));
            return self.after_gap();
        }
        if behind.is_empty() {
            self.prev_sequence = refused.prev_sequence;
            return self.after_gap();
        }
        self.seal_again(behind, &error)
    }

    /// The transaction cannot be committed any more. All of it fails; its stored part is dropped.
    fn staging_failed(&mut self, transaction: &Staging, error: &Error) -> Reaction {
        self.common.accumulator.fail_transaction(transaction, error);
        self.fail_all(error);
        Reaction::Nothing
    }

    fn reset(&mut self) {
        self.dead = true;
        self.common.stats().resets += 1;
    }

    /// The topic was deleted and created again, and its leader knows nothing of this producer.
    ///
    /// A batch without an answer may have been stored in the topic that is gone: it fails. Refused
    /// batches are in neither, nor those behind them: it goes to the new one, under a new producer
    /// id, so that no delayed copy can take its place.
    pub(crate) fn on_topic_created_anew(&mut self) -> Reaction {
        if !self.is_leased() {
            let message = format!(
                "{}: the topic was deleted and created anew; the given producer id cannot go on: \
                 make a new producer",
                self.tp
            );
            return Reaction::Fatal(Error::new(ErrorKind::ProducerFailed, message));
        }
        if self.batches.iter().any(|sealed| sealed.batch.sequences.is_some()) {
            let gap = lost_with_topic(&self.tp, self.stored_given);
            self.common.accumulator.refuse(&gap);
            self.gap = Some(gap);
            return self.after_gap();
        }
        let mut left = std::mem::take(&mut self.batches);
        left.retain(|sealed| !sealed.acked);
        self.cursor = 0;
        if let Some(transaction) = left.front().and_then(|first| first.batch.transaction.clone()) {
            self.made_anew = true;
            self.batches = left;
            let message = format!("{}: the topic was deleted and created anew", self.tp);
            return self.staging_failed(&transaction, &Error::new(ErrorKind::Delivery, message));
        }
        let sure = left.iter().position(|sealed| !sealed.unanswered).unwrap_or(left.len());
        let behind = left.split_off(sure);
        let message = format!(
            "{}: the topic was deleted and created anew while this was on its way",
            self.tp
        );
        let gone = Error::new(ErrorKind::Delivery, message).with_outcome(Outcome::Unknown);
        self.fail_sealed(&left, &gone);
        self.seal_again(behind, &gone)
    }

    /// The topic was created anew without this partition. Batches that wait for it fail, and those
    /// on their way. A partition that comes again gets another identity.
    pub(crate) fn on_partition_gone(&mut self, left: VecDeque<OpenBatch>) -> Reaction {
        let error = gone(&self.tp);
        for batch in left {
            self.fail_batch(&batch, error.clone().with_outcome(Outcome::NeverSent));
        }
        self.fail_all(&error);
        self.dead = self.common.config.enable_idempotence;
        self.made_anew = true;
        self.after_gap()
    }

    fn seal_again(&mut self, behind: VecDeque<SealedBatch>, error: &Error) -> Reaction {
        if !self.is_leased() || self.resets >= MOST_RESETS {
            self.batches.extend(behind);
            // Records behind a refused one would need another producer id.
            let message =
                format!("{}: {error}; the batches behind it need a new producer id", self.tp);
            return Reaction::Fatal(Error::new(ErrorKind::ProducerFailed, message));
        }
        self.resets += 1;
        self.reset();
        let alive = behind.into_iter().filter(|sealed| !sealed.abandoned);
        for batch in alive.map(|sealed| sealed.batch).rev().collect::<Vec<_>>() {
            self.again.push_front(batch);
        }
        self.after_gap()
    }

    fn fail_sealed<'a>(
        &mut self,
        batches: impl IntoIterator<Item = &'a SealedBatch>,
        error: &Error,
    ) {
        for sealed in batches {
            if !sealed.abandoned && !sealed.acked {
                self.fail_batch(&sealed.batch, error.clone());
            }
        }
    }

    pub(crate) fn fail_batch(&mut self, batch: &OpenBatch, error: Error) {
        self.common.stats().records_failed += batch.count as u64;
        if let Some(transaction) = &batch.transaction {
            self.common.accumulator.fail_transaction(transaction, &error);
        }
        if self.gap.is_none() {
            self.gap = gap_after(batch, &error);
            if let Some(gap) = &self.gap {
                // Before anybody learns of it: a window that does may send the next batch.
                self.common.accumulator.refuse(gap);
            }
        }
        self.common.settle(batch, Err(error));
    }

    // --- time ----------------------------------------------------------------------------

    /// Fails a batch that was past its delivery timeout before it was taken out.
    pub(crate) fn expire_unsent(&mut self, batch: &OpenBatch) -> Reaction {
        let limit = self.common.config.delivery_timeout;
        let error = self.late(&format!("not sent within delivery_timeout={limit:?}"));
        self.fail_batch(batch, error.with_outcome(Outcome::NeverSent));
        self.after_gap()
    }

    /// Fails batches past their delivery timeout.
    ///
    /// A batch that was sent may be stored, so it keeps its place in the window while batches
    /// behind it are alive; when none is, the window is given up and the partition goes on under
    /// a new id.
    pub(crate) fn expire(&mut self, now: Instant) -> Reaction {
        let limit = self.common.config.delivery_timeout;
        for at in 0..self.batches.len() {
            let sealed = &mut self.batches[at];
            if sealed.acked || sealed.abandoned || sealed.deadline > now {
                continue;
            }
            sealed.abandoned = true;
            let sent = sealed.attempts;
            let outcome = if sent > 0 { Outcome::Unknown } else { Outcome::NeverSent };
            let what =
                format!("no acknowledgement within delivery_timeout={limit:?}, sent {sent} times");
            let error = self.late(&what).with_outcome(outcome);
            // Its place is empty for the moment of the call.
            let sealed = self.batches.remove(at).expect("it is there");
            self.fail_batch(&sealed.batch, error);
            self.batches.insert(at, sealed);
        }
        while self.again.front().is_some_and(|batch| now >= batch.created + limit) {
            let batch = self.again.pop_front().expect("there is one");
            self.fail_batch(&batch, self.late(&format!("delivery_timeout={limit:?} is over")));
        }
        self.reset_if_abandoned();
        self.after_gap()
    }

    /// The late part, and its last obstacle.
    fn late(&self, what: &str) -> Error {
        let why = if self.obstacles.is_empty() { "" } else { "; " };
        let message = format!("{}: {what}{why}{}", self.tp, self.obstacles);
        Error::new(ErrorKind::DeliveryTimeout, message)
    }

    pub(crate) fn reset_if_abandoned(&mut self) {
        if self.batches.is_empty()
            || self.batches.iter().any(|sealed| !sealed.acked && !sealed.abandoned)
        {
            return;
        }
        if self.batches.iter().all(|sealed| sealed.attempts == 0) {
            self.prev_sequence = self.batches[0].prev_sequence;
        } else if self.common.config.enable_idempotence {
            self.reset();
        }
        self.batches.clear();
        self.cursor = 0;
    }

    /// The producer stops, or its transaction. Batches on their way fail.
    pub(crate) fn fail_all(&mut self, error: &Error) {
        self.cursor = 0;
        for sealed in std::mem::take(&mut self.batches) {
            if sealed.acked || sealed.abandoned {
                continue;
            }
            let unanswered = sealed.ambiguous || sealed.attempt_id != 0;
            let doubt = unanswered && sealed.batch.transaction.is_none();
            let outcome = if doubt { Outcome::Unknown } else { Outcome::NotStored };
            self.fail_batch(&sealed.batch, error.clone().with_outcome(outcome));
        }
        for batch in std::mem::take(&mut self.again) {
            self.fail_batch(&batch, error.clone().with_outcome(Outcome::NotStored));
        }
    }
}

/// Error of a partition that no longer exists.
pub(crate) fn gone(tp: &TopicPartition) -> Error {
    let message = format!("{tp}: the topic was deleted and created anew, without this partition");
    Error::new(ErrorKind::Delivery, message).with(|d| {
        d.topic = tp.topic.to_string();
        d.partition = tp.partition;
    })
}

/// Fatal error of a producer that could not store a batch with given sequences. A refused
/// condition is no gap: the application asked for it.
fn gap_after(batch: &OpenBatch, error: &Error) -> Option<Error> {
    let given = batch.sequences.as_ref()?;
    // Later batches of a transaction go with it.
    if error.kind() == ErrorKind::OffsetMismatch || batch.transaction.is_some() {
        return None;
    }
    let message = format!(
        "{}: the records with the application's sequences {} to {} failed, and later records must \
         not be stored without them; go on behind position() with a new producer: {error}",
        batch.delivery.tp,
        given[0],
        given[given.len() - 1],
    );
    Some(Error::new(ErrorKind::ProducerFailed, message))
}

/// Fatal error of a producer with sequences of its own that the partition has lost.
pub(crate) fn lost_with_topic(tp: &TopicPartition, stored: i64) -> Error {
    let message = format!(
        "{tp}: the records with the application's sequences up to {stored} are no longer there, \
         the topic was deleted and created anew; later records must not be stored without them: \
         send all of them again with a new producer"
    );
    Error::new(ErrorKind::ProducerFailed, message)
}

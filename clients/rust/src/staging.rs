//! One transaction as its producer sees it: staged records, failures, and its end. No IO.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::errors::{Error, ErrorKind, Outcome, Result};
use crate::pb;
use crate::types::TopicPartition;

/// How far a transaction is.
///
/// Where it ends no answer is guessed: a call without one is made again, the same call, until one
/// comes; the coordinator's word is final.
///
/// ```text
/// open --commit--> committing --answer--> committed
///  |                   | refused: an earlier call, without an answer, may have decided
///  +------abort--> aborting ---answer---> aborted
///                      '-- "it was committed" --> committing: ask for the places
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransactionState {
    /// It takes records.
    Open,
    /// Asked to be committed, without a final answer yet.
    Committing,
    /// Asked to be aborted, without a final answer yet.
    Aborting,
    /// All of it is readable.
    Committed,
    /// Nothing of it is readable, now or later.
    Aborted,
    /// It has ended, and nobody knows how: only if its name was given up meanwhile. Or a state that
    /// this client does not know.
    Unknown,
}

impl TransactionState {
    /// The state's name in all clients.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Committing => "committing",
            Self::Aborting => "aborting",
            Self::Committed => "committed",
            Self::Aborted => "aborted",
            Self::Unknown => "unknown",
        }
    }

    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Committed | Self::Aborted | Self::Unknown)
    }
}

/// Where a transaction's records are in one partition: they lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublishedRun {
    /// Of the first one.
    pub base_offset: i64,
    /// How many.
    pub record_count: i64,
}

/// Answer to a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommittedTransaction {
    /// Its number, which is never used again.
    pub transaction_id: i64,
    /// Where its records are. Empty: it ended long ago, or has none.
    pub runs: BTreeMap<TopicPartition, PublishedRun>,
}

/// Start of a transaction's part in one partition, once it is committed.
#[derive(Debug)]
pub(crate) struct StagedRun(AtomicI64);

impl StagedRun {
    /// -1: not known.
    pub(crate) fn base_offset(&self) -> i64 {
        self.0.load(Ordering::Acquire)
    }
}

struct Run {
    record_count: i64,
    last_sequence: i64,
    place: Arc<StagedRun>,
}

impl Default for Run {
    fn default() -> Self {
        let place = Arc::new(StagedRun(AtomicI64::new(-1)));
        Self { record_count: 0, last_sequence: -1, place }
    }
}

/// Staged offsets of one group.
#[derive(Clone, Copy, Default)]
pub(crate) struct StagedOffsets {
    pub(crate) last_number: i64,
    count: i64,
}

/// A call that ends a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndCall {
    Commit,
    Abort,
}

struct Facts {
    state: TransactionState,
    runs: BTreeMap<TopicPartition, Run>,
    offsets: BTreeMap<String, StagedOffsets>,
    /// Why it can no longer be committed; the first one counts.
    failure: Option<Error>,
    result: Option<CommittedTransaction>,
    asked_to_commit: bool,
    /// A commit call without an answer may have decided.
    in_doubt: bool,
    refused: Option<Error>,
    was_committed: bool,
}

/// A transaction. Begin and end belong to the holder of the turn of `Transactions`.
pub(crate) struct Staging {
    pub(crate) id: i64,
    pub(crate) producer_id: i64,
    pub(crate) epoch: i32,
    pub(crate) idle: Duration,
    /// Its owner has let it go: it is to be aborted.
    dropped: AtomicBool,
    facts: Mutex<Facts>,
}

impl Staging {
    pub(crate) fn new(id: i64, producer_id: i64, epoch: i32, idle: Duration) -> Self {
        let facts = Facts {
            state: TransactionState::Open,
            runs: BTreeMap::new(),
            offsets: BTreeMap::new(),
            failure: None,
            result: None,
            asked_to_commit: false,
            in_doubt: false,
            refused: None,
            was_committed: false,
        };
        let dropped = AtomicBool::new(false);
        Self { id, producer_id, epoch, idle, dropped, facts: Mutex::new(facts) }
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().expect("no panic while it is held")
    }

    pub(crate) fn state(&self) -> TransactionState {
        self.facts().state
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state().is_over()
    }

    pub(crate) fn let_go(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    pub(crate) fn was_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    // --- staging -------------------------------------------------------------------------

    /// A batch is on disks of a majority. Batches of a partition come in any order.
    pub(crate) fn staged(
        &self,
        tp: &TopicPartition,
        records: usize,
        last_sequence: i64,
    ) -> Arc<StagedRun> {
        let mut facts = self.facts();
        let run = facts.runs.entry(tp.clone()).or_default();
        run.record_count += records as i64;
        run.last_sequence = run.last_sequence.max(last_sequence);
        run.place.clone()
    }

    /// Where it has staged something.
    pub(crate) fn written(&self) -> Vec<TopicPartition> {
        self.facts().runs.keys().cloned().collect()
    }

    /// Staged offsets of a group.
    pub(crate) fn offsets_of(&self, group: &str) -> StagedOffsets {
        self.facts().offsets.get(group).copied().unwrap_or_default()
    }

    pub(crate) fn staged_offsets(&self, group: &str, number: i64, count: usize) {
        let mut facts = self.facts();
        let staged = facts.offsets.entry(group.into()).or_default();
        staged.last_number = number;
        staged.count += count as i64;
    }

    /// Something of it will not be there, so it must not be committed. The first one counts.
    pub(crate) fn fail(&self, error: &Error) {
        let mut facts = self.facts();
        if facts.failure.is_none() && facts.state == TransactionState::Open {
            facts.failure = Some(error.clone());
        }
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.facts().failure.clone()
    }

    /// Error of a caller that goes on with a failed transaction.
    pub(crate) fn refusal(&self, failure: &Error) -> Error {
        let message = format!("transaction {} cannot be committed: {failure}", self.id);
        Error::new(ErrorKind::TransactionAborted, message)
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if let Some(failure) = self.failure() {
            return Err(self.refusal(&failure));
        }
        match self.state() {
            TransactionState::Open => Ok(()),
            state => {
                let message = format!("transaction {} is {}", self.id, state.as_str());
                Err(Error::invalid("transaction", message))
            }
        }
    }

    /// Refuses records that cannot become part of it.
    pub(crate) fn check_addition(&self, expected_offset: Option<i64>) -> Result<()> {
        if let Some(offset) = expected_offset {
            let message = format!(
                "expected_offset={offset}: records of a transaction have no offset before its commit"
            );
            return Err(Error::invalid("expected_offset", message));
        }
        match self.failure() {
            Some(failure) => Err(self.refusal(&failure)),
            None => Ok(()),
        }
    }

    // --- ending --------------------------------------------------------------------------

    /// The application asks for this call; returns the first one to make. A failed transaction, or
    /// one being aborted, is not committed.
    pub(crate) fn end(&self, call: EndCall) -> EndCall {
        let mut facts = self.facts();
        let aborting = facts.failure.is_some() || facts.state == TransactionState::Aborting;
        if call == EndCall::Commit && !aborting {
            facts.state = TransactionState::Committing;
            facts.asked_to_commit = true;
            return EndCall::Commit;
        }
        facts.state = TransactionState::Aborting;
        EndCall::Abort
    }

    /// Whether a commit call may decide without its answer being heard; returns the state before.
    pub(crate) fn doubt(&self, in_doubt: bool) -> bool {
        std::mem::replace(&mut self.facts().in_doubt, in_doubt)
    }

    /// Takes note of an answer, and returns the next call to make.
    pub(crate) fn answered(&self, call: EndCall, error: Option<&Error>) -> Option<EndCall> {
        let mut facts = self.facts();
        match (call, error) {
            (_, Some(error)) if error.is_retriable() => {
                facts.in_doubt |= call == EndCall::Commit;
                Some(call)
            }
            (EndCall::Commit, None) => {
                facts.state = TransactionState::Committed;
                None
            }
            (EndCall::Commit, Some(error)) => facts.commit_refused(error),
            (EndCall::Abort, error) => facts.abort_answered(error),
        }
    }

    /// Why it was not committed, for the caller of commit.
    pub(crate) fn error(&self) -> Error {
        let facts = self.facts();
        if let (Some(failure), None) = (&facts.failure, &facts.refused) {
            if failure.is(ErrorKind::ProducerFailed) {
                return failure.clone();
            }
            return self.refusal(failure);
        }
        let aborted = facts.state == TransactionState::Aborted;
        let error = match &facts.refused {
            None => Error::new(
                ErrorKind::TransactionAborted,
                format!("transaction {} was aborted", self.id),
            ),
            // No commit call of ours had a chance, and its name has begun another since.
            Some(refused) if aborted && refused.kind() == ErrorKind::UnknownTransaction => {
                Error::new(ErrorKind::TransactionAborted, refused.message())
            }
            Some(refused) => refused.clone(),
        };
        error.with_outcome(if aborted { Outcome::NotStored } else { Outcome::Unknown })
    }

    /// It is committed, and its records are there.
    pub(crate) fn published(&self, published: &[pb::PublishedRun]) {
        let mut facts = self.facts();
        let mut runs = BTreeMap::new();
        for run in published {
            let tp = TopicPartition::new(run.topic.as_str(), run.partition);
            let place = &facts.runs.entry(tp.clone()).or_default().place;
            place.0.store(run.base_offset, Ordering::Release);
            let (base_offset, record_count) = (run.base_offset, run.record_count);
            runs.insert(tp, PublishedRun { base_offset, record_count });
        }
        facts.result = Some(CommittedTransaction { transaction_id: self.id, runs });
    }

    pub(crate) fn committed(&self) -> Option<CommittedTransaction> {
        self.facts().result.clone()
    }

    /// The same in each call, in one order: nothing is staged after the first one.
    pub(crate) fn commit_request(
        &self,
        timeout: Duration,
        begin_next: Option<pb::NextTransaction>,
    ) -> pb::CommitTransactionRequest {
        let facts = self.facts();
        let run = |(tp, run): (&TopicPartition, &Run)| pb::StagedRun {
            topic: tp.topic.to_string(),
            partition: tp.partition,
            record_count: run.record_count,
            last_sequence: run.last_sequence,
        };
        let offsets = |(group, staged): (&String, &StagedOffsets)| pb::StagedOffsets {
            group: group.clone(),
            offset_count: staged.count,
            last_number: staged.last_number,
        };
        pb::CommitTransactionRequest {
            transaction_id: self.id,
            producer_id: self.producer_id,
            epoch: self.epoch,
            runs: facts.runs.iter().map(run).collect(),
            offsets: facts.offsets.iter().map(offsets).collect(),
            at_decision: false,
            timeout_ms: timeout.as_millis() as i32,
            begin_next,
        }
    }
}

impl Facts {
    fn refuse(&mut self, error: &Error) {
        self.refused.get_or_insert_with(|| error.clone());
    }

    fn commit_refused(&mut self, error: &Error) -> Option<EndCall> {
        self.refuse(error);
        let unknown = error.kind() == ErrorKind::UnknownTransaction;
        let aborted = error.kind() == ErrorKind::TransactionAborted;
        if aborted || unknown && !self.in_doubt {
            self.state = TransactionState::Aborted;
        } else if self.was_committed {
            // It is committed, but nobody says where its records are.
            self.state = TransactionState::Committed;
        } else if unknown {
            self.state = TransactionState::Unknown;
        } else {
            // Refused; yet an earlier call, which had no answer, may have been granted.
            self.state = TransactionState::Aborting;
            return Some(EndCall::Abort);
        }
        None
    }

    fn abort_answered(&mut self, error: Option<&Error>) -> Option<EndCall> {
        let was_committed = error.is_some_and(|e| e.kind() == ErrorKind::TransactionCommitted);
        if was_committed && self.asked_to_commit {
            self.was_committed = true;
            self.refused = None;
            self.state = TransactionState::Committing;
            return Some(EndCall::Commit);
        }
        self.state = TransactionState::Aborted;
        // Without a commit call nothing of it is ever readable, whichever way this one ends: a
        // transaction that could not be aborted now is aborted when it has been idle.
        if let Some(error) = error.filter(|_| self.asked_to_commit) {
            self.refuse(error);
            self.state = match error.kind() {
                ErrorKind::TransactionEnded | ErrorKind::UnknownTransaction => {
                    TransactionState::Unknown
                }
                _ => TransactionState::Aborting,
            };
        }
        None
    }
}

#[cfg(test)]
#[path = "staging_tests.rs"]
mod tests;

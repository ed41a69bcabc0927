//! Outcome of a batch, and of each of its records.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, OnceLock};

use tokio::sync::Notify;

use crate::errors::{Error, ErrorKind, Outcome, Result};
use crate::staging::StagedRun;
use crate::types::{Metadata, TopicPartition};

/// Numbers of a batch when it was last sealed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i32,
    pub(crate) base_sequence: i64,
}

/// Where a batch is stored. In a transaction the offset is within its run.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) base_offset: i64,
    pub(crate) run: Option<Arc<StagedRun>>,
    pub(crate) duplicate: bool,
}

impl Stored {
    /// -1 if it is not known: in a transaction, until that is committed.
    fn first_offset(&self) -> i64 {
        match &self.run {
            Some(run) if self.base_offset >= 0 => match run.base_offset() {
                -1 => -1,
                base => base + self.base_offset,
            },
            _ => self.base_offset,
        }
    }
}

/// Outcome of one batch. All its records share it.
pub(crate) struct BatchDelivery {
    pub(crate) tp: TopicPartition,
    outcome: OnceLock<Result<Stored>>,
    done: Notify,
    facts: Mutex<Facts>,
}

struct Facts {
    /// Set when the batch is closed.
    count: usize,
    /// The application's own; `None`: counted.
    sequences: Option<Vec<i64>>,
    stamp: Stamp,
    /// Failed records with a fetched error; `None` among them: the whole batch's.
    looked: HashSet<Option<usize>>,
}

impl BatchDelivery {
    pub(crate) fn new(tp: TopicPartition) -> Self {
        let facts = Facts {
            count: 0,
            sequences: None,
            stamp: Stamp { producer_id: 0, epoch: 0, base_sequence: -1 },
            looked: HashSet::new(),
        };
        Self { tp, outcome: OnceLock::new(), done: Notify::new(), facts: Mutex::new(facts) }
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().expect("no panic while it is held")
    }

    pub(crate) fn close(&self, count: usize, sequences: Option<Vec<i64>>) {
        let mut facts = self.facts();
        facts.count = count;
        facts.sequences = sequences;
    }

    pub(crate) fn stamp(&self, stamp: Stamp) {
        self.facts().stamp = stamp;
    }

    pub(crate) fn settle(&self, outcome: Result<Stored>) {
        let first = self.outcome.set(outcome.map_err(|error| self.named(error))).is_ok();
        assert!(first, "a batch has one outcome");
        self.done.notify_waiters();
    }

    /// The same error with the name of this batch, so that the caller can ask for it later.
    fn named(&self, error: Error) -> Error {
        if !error.is(ErrorKind::Delivery) {
            return error;
        }
        let facts = self.facts();
        let Stamp { producer_id, epoch, .. } = facts.stamp;
        let (first, last) = (facts.sequence(0), facts.sequence(facts.count.saturating_sub(1)));
        let error = error.with(|d| {
            d.topic = self.tp.topic.to_string();
            d.partition = self.tp.partition;
            (d.producer_id, d.epoch, d.sequence) = (producer_id, epoch, last);
        });
        if producer_id == 0 || error.outcome() != Some(Outcome::Unknown) {
            return error;
        }
        // These words are the same in all clients: tools read them.
        let message = format!(
            "{error}; {} producer {producer_id} epoch {epoch} sequences {first}..{last} may be \
             stored, resolve_sequence tells",
            self.tp
        );
        error.with_message(message)
    }

    pub(crate) fn error(&self) -> Option<&Error> {
        self.outcome.get().and_then(|outcome| outcome.as_ref().err())
    }

    pub(crate) async fn settled(&self) {
        loop {
            let notified = self.done.notified();
            if self.outcome.get().is_some() {
                return;
            }
            notified.await;
        }
    }

    /// How many failed records nobody has looked at.
    pub(crate) fn unlooked(&self) -> usize {
        let facts = self.facts();
        if facts.looked.contains(&None) { 0 } else { facts.count - facts.looked.len() }
    }
}

impl Facts {
    fn sequence(&self, index: usize) -> i64 {
        match &self.sequences {
            _ if self.stamp.base_sequence < 0 => -1,
            Some(given) => given[index],
            None => self.stamp.base_sequence + index as i64,
        }
    }
}

/// The future outcome of a record, or of a batch that was sent as one.
#[derive(Clone)]
pub struct Delivery {
    pub(crate) batch: Arc<BatchDelivery>,
    /// `None`: all of the batch.
    pub(crate) index: Option<usize>,
}

impl Delivery {
    /// Returns the record's place, or an error below
    /// [`ErrorKind::Delivery`](crate::ErrorKind::Delivery) with the known outcome. Dropping the
    /// future leaves the record on its way.
    pub async fn wait(&self) -> Result<Metadata> {
        self.batch.settled().await;
        self.outcome().expect("it is settled")
    }

    /// The same, if it is known already.
    pub fn outcome(&self) -> Option<Result<Metadata>> {
        Some(match self.batch.outcome.get()? {
            Ok(stored) => Ok(self.metadata(stored)),
            Err(error) => {
                self.batch.facts().looked.insert(self.index);
                Err(error.clone())
            }
        })
    }

    /// Numbers of the record, or of the last one of the batch: (producer id, epoch,
    /// sequence).
    pub(crate) fn numbers(&self) -> (i64, i32, i64) {
        let facts = self.batch.facts();
        let last = self.index.unwrap_or(facts.count.saturating_sub(1));
        (facts.stamp.producer_id, facts.stamp.epoch, facts.sequence(last))
    }

    fn metadata(&self, stored: &Stored) -> Metadata {
        let facts = self.batch.facts();
        let (first, last) = match self.index {
            Some(index) => (index, index),
            None => (0, facts.count - 1),
        };
        let base = stored.first_offset();
        Metadata {
            topic: self.batch.tp.topic.clone(),
            partition: self.batch.tp.partition,
            offset: if base >= 0 { base + first as i64 } else { -1 },
            sequence: facts.sequence(first),
            last_sequence: facts.sequence(last),
            producer_id: facts.stamp.producer_id,
            epoch: facts.stamp.epoch,
            duplicate: stored.duplicate,
        }
    }
}

//! Effects of a transaction on records that wait: batches belong to the one that is open when they
//! begin, so it begins and ends with none.

use super::*;

impl Accumulator {
    /// Begins no further batch, until `resume`; the open batch is still filled.
    pub(crate) fn pause(&self, why: Error) {
        self.state().paused = Some(why);
    }

    /// Goes on; records belong to this transaction from now on, or to none.
    pub(crate) fn resume(&self, transaction: Option<&Arc<Staging>>) {
        let mut state = self.state();
        let same = match (&state.transaction, transaction) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (None, None) => true,
            _ => false,
        };
        assert!(
            same || state.incomplete.is_empty(),
            "a transaction begins and ends without batches"
        );
        state.transaction = transaction.cloned();
        state.paused = None;
        state.numbered_before.clear();
    }

    /// Whether a transaction is open, or is being begun or ended.
    pub(crate) fn is_transactional(&self) -> bool {
        let state = self.state();
        state.transaction.is_some() || state.paused.is_some()
    }

    pub(crate) fn transaction(&self) -> Option<Arc<Staging>> {
        self.state().transaction.clone()
    }

    /// It cannot be committed any more; no further records are taken for it.
    pub(crate) fn fail_transaction(&self, transaction: &Staging, error: &Error) {
        transaction.fail(error);
        self.room.notify_waiters();
        self.wake.notify_one();
    }

    /// Takes out batches that wait to be sent; sequences that were given may be given again.
    pub(crate) fn drop_transaction(&self) -> Vec<OpenBatch> {
        let mut state = self.state();
        let left = state.take_all();
        let before: Vec<_> = state.numbered_before.iter().map(|(tp, n)| (tp.clone(), *n)).collect();
        for (tp, numbering) in before {
            if let Some(topic) = state.topics.get_mut(&*tp.topic) {
                topic.lane(&tp.topic, tp.partition).numbering = numbering;
            }
        }
        left
    }
}

//! The transaction that a commit has begun for its producer's next begin, which saves a call. A
//! ticket that is not taken soon is aborted: an open transaction keeps the cluster from forgetting
//! ended ones. No IO.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::pb;
use crate::sealing::Identity;

/// A producer that begins so soon after a commit is expected to do so again; for so long one is
/// kept.
const SOON_AFTER: Duration = Duration::from_secs(1);
/// Part of the idle time that may pass before it is taken: its first sign of life is due then.
const IDLE_SHARE: u32 = 4;

/// How long a transaction may be open; zero: as long as nodes say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) idle: Duration,
    pub(crate) total: Duration,
}

/// The transaction's owner and its longest open time.
#[derive(Clone)]
pub(crate) struct Terms {
    pub(crate) identity: Arc<Identity>,
    pub(crate) times: Times,
}

impl Terms {
    fn are(&self, other: &Self) -> bool {
        self.identity.serial == other.identity.serial && self.times == other.times
    }
}

#[derive(Default)]
pub(crate) struct Following {
    /// It waits to be taken.
    begun: Option<pb::BeginTransactionResponse>,
    /// Of the newest transaction.
    terms: Option<Terms>,
    expected: bool,
    ended_at: Option<Instant>,
}

impl Following {
    /// The transaction that begins under these terms, if there is one already; and one that is to
    /// be aborted, because it has others.
    pub(crate) fn begin(
        &mut self,
        terms: &Terms,
        now: Instant,
    ) -> (Option<pb::BeginTransactionResponse>, Option<(i64, Arc<Identity>)>) {
        let same = self.terms.as_ref().is_some_and(|before| before.are(terms));
        let unused = if same { None } else { self.take_unused() };
        self.expected = self.ended_at.is_some_and(|at| now < at + SOON_AFTER);
        self.terms = Some(terms.clone());
        (self.begun.take(), unused)
    }

    /// Of the newest transaction.
    pub(crate) fn terms(&self) -> Option<Terms> {
        self.terms.clone()
    }

    /// On which terms a commit is to begin the next one.
    pub(crate) fn wanted(&self) -> Option<Times> {
        self.terms.as_ref().filter(|_| self.expected).map(|terms| terms.times)
    }

    /// One has ended, and a next one may have begun; for how long that may be taken.
    pub(crate) fn ended(
        &mut self,
        now: Instant,
        next: Option<pb::BeginTransactionResponse>,
    ) -> Option<Duration> {
        self.ended_at = Some(now);
        let next = next?;
        let idle = Duration::from_millis(next.idle_timeout_ms.max(0) as u64);
        self.begun = Some(next);
        Some(SOON_AFTER.min(idle / IDLE_SHARE))
    }

    /// The one that nobody has taken, to be aborted.
    pub(crate) fn take_unused(&mut self) -> Option<(i64, Arc<Identity>)> {
        let begun = self.begun.take()?;
        let terms = self.terms.as_ref().expect("it was begun on some");
        Some((begun.transaction_id, terms.identity.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(serial: u64) -> Terms {
        let identity = Arc::new(Identity { serial, ..Default::default() });
        Terms { identity, times: Times::default() }
    }

    fn begun() -> Option<pb::BeginTransactionResponse> {
        let (transaction_id, idle_timeout_ms) = (8, 400);
        Some(pb::BeginTransactionResponse { transaction_id, idle_timeout_ms, ..Default::default() })
    }

    #[test]
    fn who_begins_soon_is_expected_to_do_so_again() {
        let mut following = Following::default();
        let now = Instant::now();
        assert!(following.begin(&terms(1), now).0.is_none());
        assert_eq!(following.wanted(), None, "it is the first one");
        following.ended(now, None);
        following.begin(&terms(1), now + SOON_AFTER / 2);
        assert_eq!(following.wanted(), Some(Times::default()));
        let kept = following.ended(now, begun());
        assert_eq!(kept, Some(Duration::from_millis(100)), "a sign of life would be due");
        let (taken, unused) = following.begin(&terms(1), now);
        assert_eq!((taken.unwrap().transaction_id, unused.is_none()), (8, true));
        following.ended(now, None);
        following.begin(&terms(1), now + SOON_AFTER);
        assert_eq!(following.wanted(), None, "that was long ago");
    }

    #[test]
    fn one_on_other_terms_is_aborted() {
        let mut following = Following::default();
        let now = Instant::now();
        following.begin(&terms(1), now);
        following.ended(now, begun());
        let (taken, unused) = following.begin(&terms(2), now);
        let (id, identity) = unused.unwrap();
        assert_eq!((taken.is_none(), id, identity.serial), (true, 8, 1));
        assert!(following.take_unused().is_none());
    }
}

//! A warning when no node has answered for a while, and one when one does again.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::errors::Error;

const MOST_PATIENCE: Duration = Duration::from_secs(5);

/// How a client's connection to the cluster has been since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outages {
    /// How often no node answered for 5 s, or for `request_timeout` if that is shorter.
    pub count: u64,
    /// For how long that has been so by now; `None`: a node answers.
    pub current: Option<Duration>,
}

pub(crate) struct Reachability {
    patience: Duration,
    /// A client calls seldom while it is idle: failures so far apart are not one outage.
    gap: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The first failure after the last answer, and the last one.
    failing: Option<(Instant, Instant)>,
    warned: bool,
    count: u64,
}

impl Reachability {
    pub(crate) fn new(request_timeout: Duration) -> Self {
        Self {
            patience: request_timeout.min(MOST_PATIENCE),
            gap: request_timeout.max(MOST_PATIENCE) * 2,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    pub(crate) fn answered(&self, address: &str) {
        let mut state = self.state();
        let failing = state.failing.take();
        if std::mem::take(&mut state.warned)
            && let Some((since, _)) = failing
        {
            drop(state);
            warn(&format!("{address} answers again, after {:.1?}", since.elapsed()));
        }
    }

    pub(crate) fn failed(&self, why: &str, now: Instant) {
        let mut state = self.state();
        let known = state.failing.filter(|(_, last)| now - *last <= self.gap);
        let since = known.map_or(now, |(since, _)| since);
        state.failing = Some((since, now));
        state.warned &= known.is_some();
        if state.warned || now - since < self.patience {
            return;
        }
        state.warned = true;
        state.count += 1;
        drop(state);
        let span = now - since;
        warn(&format!("no node has answered for {span:.1?}, the client keeps trying: {why}"));
    }

    /// Outcome of a call.
    pub(crate) fn note<T>(&self, address: &str, answer: &Result<T, Error>) {
        match answer {
            Err(error) if error.is_silence() => self.failed(&error.to_string(), Instant::now()),
            _ => self.answered(address),
        }
    }

    pub(crate) fn outages(&self) -> Outages {
        let state = self.state();
        let current = state.failing.filter(|_| state.warned).map(|(since, _)| since.elapsed());
        Outages { count: state.count, current }
    }
}

/// Reports events that no call can return: to the program's logger or, where it has none, to
/// stderr.
pub(crate) fn warn(text: &str) {
    if log::max_level() == log::LevelFilter::Off {
        eprintln!("oncelog: {text}");
    } else {
        log::warn!(target: "oncelog", "{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_counted_once() {
        let reached = Reachability::new(Duration::from_secs(10));
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        reached.failed("a:1: refused", at(0));
        assert_eq!(reached.outages(), Outages::default());
        for seconds in [5, 6, 7] {
            reached.failed("a:1: refused", at(seconds));
        }
        let outages = reached.outages();
        assert!(outages.count == 1 && outages.current.is_some(), "{outages:?}");
        reached.answered("a:1");
        assert_eq!(reached.outages(), Outages { count: 1, current: None });
        reached.failed("a:1: refused", at(100));
        reached.failed("a:1: refused", at(200));
        assert_eq!(reached.outages().count, 1, "failures that far apart are not one outage");
    }
}

//! A consumer's part in its group: its partitions, and those it has to give back. No IO.
//!
//! ```text
//! stream --assignment, fenced--> Membership --Step--> lost, revoked, assigned
//! revoked partitions are finished --released--> owned --> stream
//! ```
//!
//! An ownership has a number. The same partition under another number is another ownership: records
//! read and not committed under the first may belong to another member, so it is lost first.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::types::TopicPartition;

#[derive(Default)]
pub(crate) struct Membership {
    /// Of the newest hello; rises.
    pub(crate) connection: i64,
    /// Of the newest assignment; 0: none yet, or fenced since.
    pub(crate) epoch: i64,
    /// With the number of each ownership.
    pub(crate) owned: BTreeMap<TopicPartition, i64>,
    pub(crate) revoking: BTreeSet<TopicPartition>,
    commits: i64,
}

/// Consequences of an assignment, in the order in which they are to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// Gone already: drop positions, commit nothing.
    pub(crate) lost: Vec<TopicPartition>,
    /// Finish the records that were read, commit, then call `released`.
    pub(crate) revoked: Vec<TopicPartition>,
    /// Read from the committed offset on; with the number for commits.
    pub(crate) assigned: HashMap<TopicPartition, i64>,
}

impl Step {
    pub(crate) fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.revoked.is_empty() && self.assigned.is_empty()
    }
}

impl Membership {
    /// A new connection begins; its number. Owned partitions stay owned: the hello that follows
    /// says so, and the same partitions are asked back again.
    pub(crate) fn connect(&mut self) -> i64 {
        self.connection += 1;
        self.revoking.clear();
        self.connection
    }

    /// The number of a commit.
    pub(crate) fn next_commit(&mut self) -> i64 {
        self.commits += 1;
        self.commits
    }

    /// Takes the newest assignment over. One of an older connection changes nothing.
    pub(crate) fn assignment(
        &mut self,
        connection: i64,
        epoch: i64,
        partitions: &HashMap<TopicPartition, i64>,
        revoke: &[TopicPartition],
    ) -> Step {
        if connection != self.connection {
            return Step::default();
        }
        self.epoch = epoch;
        let asked: BTreeSet<&TopicPartition> = revoke.iter().collect();
        let is_lost = |tp: &TopicPartition, number: i64| match partitions.get(tp) {
            Some(kept) => *kept != number,
            None => !asked.contains(tp),
        };
        let owned = self.owned.iter();
        let lost: Vec<_> =
            owned.filter(|(tp, number)| is_lost(tp, **number)).map(|(tp, _)| tp.clone()).collect();
        for tp in &lost {
            self.owned.remove(tp);
        }
        let mut assigned = partitions.clone();
        assigned.retain(|tp, _| !self.owned.contains_key(tp));
        self.owned.extend(assigned.iter().map(|(tp, number)| (tp.clone(), *number)));
        let held = asked.into_iter().filter(|tp| self.owned.contains_key(*tp));
        let revoking: BTreeSet<TopicPartition> = held.cloned().collect();
        let revoked = revoking.difference(&self.revoking).cloned().collect();
        self.revoking = revoking;
        Step { lost, revoked, assigned }
    }

    /// The work on these is finished and committed; partitions still held are to be named. False if
    /// a new connection has begun since they were asked back: its hello said that they are held, so
    /// they are, until they are asked back there.
    pub(crate) fn released(&mut self, connection: i64, tps: &[TopicPartition]) -> bool {
        if connection != self.connection {
            return false;
        }
        for tp in tps {
            if self.revoking.remove(tp) {
                self.owned.remove(tp);
            }
        }
        true
    }

    /// The coordinator has ended the membership; the partitions lost by that.
    pub(crate) fn fenced(&mut self) -> Vec<TopicPartition> {
        let lost = self.held();
        self.owned.clear();
        self.revoking.clear();
        self.epoch = 0;
        lost
    }

    pub(crate) fn held(&self) -> Vec<TopicPartition> {
        self.owned.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tp(partition: i32) -> TopicPartition {
        TopicPartition::new("t", partition)
    }

    fn numbers<const N: usize>(all: [(i32, i64); N]) -> HashMap<TopicPartition, i64> {
        all.into_iter().map(|(partition, number)| (tp(partition), number)).collect()
    }

    #[test]
    fn another_number_is_another_ownership() {
        let mut member = Membership::default();
        let one = member.connect();
        let step = member.assignment(one, 2, &numbers([(0, 5), (1, 5)]), &[]);
        assert_eq!(step.assigned, numbers([(0, 5), (1, 5)]));
        let step = member.assignment(one, 3, &numbers([(0, 9)]), &[tp(1)]);
        assert_eq!((step.lost, step.revoked), (vec![tp(0)], vec![tp(1)]));
        assert_eq!(step.assigned, numbers([(0, 9)]));
        let step = member.assignment(one, 4, &numbers([(0, 9)]), &[tp(1)]);
        assert!(step.is_empty(), "it is asked back once");
    }

    #[test]
    fn what_is_given_back_on_a_connection_that_is_over_is_held() {
        let mut member = Membership::default();
        let one = member.connect();
        member.assignment(one, 2, &numbers([(0, 5)]), &[]);
        member.assignment(one, 3, &numbers([]), &[tp(0)]);
        let two = member.connect();
        assert!(!member.released(one, &[tp(0)]));
        assert!(member.assignment(one, 4, &numbers([]), &[]).is_empty());
        assert_eq!(member.held(), [tp(0)]);
        member.assignment(two, 5, &numbers([]), &[tp(0)]);
        assert!(member.released(two, &[tp(0)]));
        assert!(member.held().is_empty());
    }

    #[test]
    fn who_is_fenced_has_nothing() {
        let mut member = Membership::default();
        let one = member.connect();
        member.assignment(one, 2, &numbers([(0, 5)]), &[]);
        assert_eq!(member.fenced(), [tp(0)]);
        assert_eq!((member.epoch, member.held()), (0, vec![]));
    }
}

//! Which node a consumer asks for a partition, and when: the leader, a near replica or, if any
//! replica will do, one of them that is not known to be damaged; after a failure not before a pause
//! that grows.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::config::ConsumerConfig;
use crate::pb::PartitionError;
use crate::types::TopicPartition;

/// How long a near replica is left out after a failure; doubled by each further one,
const FAR_FOR: Duration = Duration::from_secs(10);
/// up to this.
const MOST_FAR_FOR: Duration = Duration::from_secs(60);

pub(crate) struct Routes {
    any_replica: bool,
    replica_node_id: Option<i32>,
    rack: Option<String>,
    cluster: Arc<Cluster>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    not_before: HashMap<TopicPartition, Instant>,
    failures: HashMap<TopicPartition, u32>,
    /// Replicas that cannot read their log, where another may be asked.
    damaged: HashSet<(TopicPartition, String)>,
    /// Near replicas that have failed: when to ask them again, and the pause before that.
    far: HashMap<(TopicPartition, String), (Instant, Duration)>,
    outdated: HashSet<String>,
}

impl Routes {
    pub(crate) fn new(config: &ConsumerConfig, cluster: Arc<Cluster>) -> Self {
        Self {
            any_replica: config.any_replica,
            replica_node_id: config.replica_node_id,
            rack: config.rack.clone(),
            cluster,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    /// Where to go for records; `None`: it is not known.
    pub(crate) fn address(&self, tp: &TopicPartition) -> Option<String> {
        let state = self.state();
        self.near(tp, &state).or_else(|| self.address_of(tp, &state))
    }

    /// Where to ask for an offset; `None`: it is not known.
    pub(crate) fn offset_address(&self, tp: &TopicPartition) -> Option<String> {
        self.address_of(tp, &self.state())
    }

    /// A replica in the client's rack; `None`: the leader is to be asked.
    fn near(&self, tp: &TopicPartition, state: &State) -> Option<String> {
        let (leaders, rack) = (&self.cluster.leaders, self.rack.as_deref()?);
        let known = leaders.leader(tp)?;
        let replicas = known.replicas.iter().copied();
        let near: Vec<i32> = replicas.filter(|id| leaders.is_in_rack(*id, rack)).collect();
        if near.is_empty() || near.contains(&known.node_id) {
            return None;
        }
        let in_turn = (0..near.len()).map(|i| near[(tp.partition as usize + i) % near.len()]);
        let mut addresses = in_turn.filter_map(|id| leaders.node(id));
        addresses.find(|address| {
            let far = state.far.get(&(tp.clone(), address.clone()));
            far.is_none_or(|(until, _)| Instant::now() >= *until)
        })
    }

    /// Whether this node is asked because it is near, not because it leads.
    fn is_near(&self, tp: &TopicPartition, address: &str) -> bool {
        let leads = self.cluster.leaders.address(tp).as_deref() == Some(address);
        self.rack.is_some() && !address.is_empty() && !leads
    }

    /// Whether another node is to be asked than this silent one: the leader, if it is only near.
    pub(crate) fn asks_another(&self, tp: &TopicPartition, address: &str) -> bool {
        self.address(tp).as_deref() != Some(address) || self.is_near(tp, address)
    }

    fn address_of(&self, tp: &TopicPartition, state: &State) -> Option<String> {
        let leaders = &self.cluster.leaders;
        let known = leaders.leader(tp)?;
        if !self.any_replica {
            return Some(known.address).filter(|address| !address.is_empty());
        }
        if let Some(chosen) = self.replica_node_id {
            return if known.replicas.contains(&chosen) { leaders.node(chosen) } else { None };
        }
        let all: Vec<String> = known.replicas.iter().filter_map(|id| leaders.node(*id)).collect();
        let sound = |address: &&String| !state.damaged.contains(&(tp.clone(), (*address).clone()));
        let mut some: Vec<&String> = all.iter().filter(sound).collect();
        if some.is_empty() {
            some = all.iter().collect();
        }
        if some.is_empty() {
            return None;
        }
        // Spread, but always the same for a partition until it fails.
        let failures = state.failures.get(tp).copied().unwrap_or(0);
        Some(some[(tp.partition as usize + failures as usize) % some.len()].clone())
    }

    /// The time from which the partition may be asked for.
    pub(crate) fn ready_at(&self, tp: &TopicPartition) -> Option<Instant> {
        self.state().not_before.get(tp).copied()
    }

    pub(crate) fn answered(&self, tp: &TopicPartition, address: &str) {
        let mut state = self.state();
        state.failures.remove(tp);
        if !state.far.is_empty() {
            state.far.remove(&(tp.clone(), address.to_owned()));
        }
    }

    /// Topics to ask for again: a near replica has failed, and may have moved.
    pub(crate) fn take_outdated(&self) -> Vec<String> {
        self.state().outdated.drain().collect()
    }

    /// Nothing from this node. Ask for the leader, after a pause that grows.
    pub(crate) fn failed(&self, tp: &TopicPartition, address: &str) {
        let mut state = self.state();
        let failures = state.failures.entry(tp.clone()).or_insert(0);
        *failures += 1;
        let failures = *failures;
        let pause = self.cluster.backoff.delay(failures - 1);
        state.not_before.insert(tp.clone(), Instant::now() + pause);
        if self.is_near(tp, address) {
            let place = (tp.clone(), address.to_owned());
            let before = state.far.get(&place).map_or(FAR_FOR / 2, |(_, pause)| *pause);
            let pause = (2 * before).min(MOST_FAR_FOR);
            state.far.insert(place, (Instant::now() + pause, pause));
            state.outdated.insert(tp.topic.to_string());
        }
        drop(state);
        self.cluster.leaders.forget(tp, address);
        self.cluster.leader_failed(address, failures);
    }

    /// The node refused, and perhaps named the leader.
    pub(crate) fn leads_elsewhere(
        &self,
        tp: &TopicPartition,
        address: &str,
        leader_id: i32,
        leader_address: &str,
    ) {
        self.failed(tp, address);
        if leader_address != address {
            self.cluster.leaders.hint(tp, leader_id, leader_address);
        }
    }

    /// After an error: whether the replica is damaged and a sound one may be asked.
    pub(crate) fn is_elsewhere(&self, tp: &TopicPartition, address: &str, error: i32) -> bool {
        let mut state = self.state();
        let here = (tp.clone(), address.to_owned());
        if error == i32::from(PartitionError::Storage) && self.is_near(tp, address) {
            return true;
        }
        if error == i32::from(PartitionError::Storage) && self.any_replica {
            state.damaged.insert(here.clone());
        }
        let next = (tp.clone(), self.address_of(tp, &state).unwrap_or_default());
        state.damaged.contains(&here) && !state.damaged.contains(&next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb;

    #[tokio::test]
    async fn a_near_replica_that_hangs_is_tried_less_and_less_often() {
        let mut config = ConsumerConfig::new("n1:1");
        config.rack = Some("b".into());
        let cluster = Arc::new(Cluster::new(config.client.clone()).unwrap());
        let node = |node_id, rack: &str| pb::NodeInfo {
            node_id,
            address: format!("n{node_id}:1"),
            rack: rack.into(),
            ..Default::default()
        };
        let partition =
            pb::PartitionInfo { leader_id: 1, term: 1, replicas: vec![1, 2], ..Default::default() };
        cluster.leaders.update(&pb::DescribeTopicsResponse {
            nodes: vec![node(1, "a"), node(2, "b")],
            topics: vec![pb::TopicInfo {
                name: "t".into(),
                topic_id: 5,
                partitions: vec![partition],
                ..Default::default()
            }],
        });
        let (routes, tp) = (Routes::new(&config, cluster), TopicPartition::new("t", 0));
        let near = (tp.clone(), "n2:1".to_owned());
        for seconds in [10, 20, 40, 60, 60] {
            routes.failed(&tp, "n2:1");
            assert_eq!(routes.state().far[&near].1, Duration::from_secs(seconds));
            assert_eq!(routes.address(&tp).as_deref(), Some("n1:1"));
            routes.state().far.get_mut(&near).unwrap().0 = Instant::now(); // it is over
            assert_eq!(routes.address(&tp).as_deref(), Some("n2:1"));
        }
        routes.answered(&tp, "n2:1");
        routes.failed(&tp, "n2:1");
        assert_eq!(routes.state().far[&near].1, FAR_FOR, "an answer ends the row of failures");
        assert_eq!(routes.take_outdated(), ["t"], "it may have moved");
        assert!(routes.take_outdated().is_empty());
    }
}

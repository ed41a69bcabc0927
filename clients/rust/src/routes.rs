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

/// How long the leader is asked after a near replica has failed or refused.
const FAR_FOR: Duration = Duration::from_secs(10);

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
    near_from: HashMap<TopicPartition, Instant>,
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
        if state.near_from.get(tp).is_some_and(|from| Instant::now() < *from) {
            return None;
        }
        let replicas = known.replicas.iter().copied();
        let near: Vec<i32> = replicas.filter(|id| leaders.is_in_rack(*id, rack)).collect();
        if near.is_empty() || near.contains(&known.node_id) {
            return None;
        }
        leaders.node(near[tp.partition as usize % near.len()])
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

    pub(crate) fn answered(&self, tp: &TopicPartition) {
        self.state().failures.remove(tp);
    }

    /// Nothing from this node. Ask who leads, after a pause that grows.
    pub(crate) fn failed(&self, tp: &TopicPartition, address: &str) {
        let mut state = self.state();
        let failures = state.failures.entry(tp.clone()).or_insert(0);
        *failures += 1;
        let failures = *failures;
        let pause = self.cluster.backoff.delay(failures - 1);
        state.not_before.insert(tp.clone(), Instant::now() + pause);
        if self.is_near(tp, address) {
            state.near_from.insert(tp.clone(), Instant::now() + FAR_FOR);
        }
        drop(state);
        self.cluster.leaders.forget(tp, address);
        self.cluster.leader_failed(address, failures);
    }

    /// The node refused, and perhaps said who leads.
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

//! Topics that get more partitions while they are read by subscription, outside of a group; a
//! member of one is given them by its coordinator.
//!
//! ```text
//! fetcher, each metadata_max_age --take--> Growth --more cursors--> FetchBuffer
//! positions --begins_at_start--> Growth
//! ```
//!
//! A reader that begins at the end reads a partition that is younger than it is from its start:
//! earlier records would be lost otherwise. Since when a group reads nobody knows, so
//! for a group each partition counts as younger that its topic did not begin with.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::buffer::FetchBuffer;
use crate::cluster::Cluster;
use crate::types::TopicPartition;

pub(crate) struct Growth {
    cluster: Arc<Cluster>,
    buffer: Arc<FetchBuffer>,
    in_group: bool,
    /// Held while the followed and the assigned partitions differ.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many partitions there are, of the topics that are followed.
    counts: HashMap<Arc<str>, usize>,
    came: HashSet<TopicPartition>,
}

impl Growth {
    pub(crate) fn new(cluster: Arc<Cluster>, buffer: Arc<FetchBuffer>, in_group: bool) -> Self {
        Self { cluster, buffer, in_group, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    /// Reads all partitions of these topics, with known metadata.
    pub(crate) fn subscribe(&self, topics: &[Arc<str>]) {
        let mut state = self.state();
        state.counts = topics.iter().map(|topic| (topic.clone(), 0)).collect();
        let tps = self.follow(&mut state);
        self.buffer.assign(&tps);
    }

    /// Reads exactly these, and follows nothing.
    pub(crate) fn assign(&self, tps: &[TopicPartition]) {
        let mut state = self.state();
        state.counts.clear();
        self.buffer.assign(tps);
    }

    /// The partitions that there are beyond those that are followed.
    fn follow(&self, state: &mut State) -> Vec<TopicPartition> {
        let mut fresh = vec![];
        for (topic, count) in &mut state.counts {
            let known = self.cluster.leaders.topic(topic).map_or(0, |facts| facts.partitions);
            fresh.extend((*count..known).map(|n| TopicPartition::new(topic.clone(), n as i32)));
            *count = known.max(*count);
        }
        fresh
    }

    /// The partition is of another topic of the same name, all of which is news.
    pub(crate) fn anew(&self, tp: &TopicPartition) {
        self.state().came.insert(tp.clone());
    }

    /// Stops reading partitions that a topic lost when it was created anew.
    pub(crate) fn drop_gone(&self, topic: &str) {
        let mut state = self.state();
        let known = self.cluster.leaders.topic(topic).map_or(0, |facts| facts.partitions);
        let fewer = |count: &&mut usize| known > 0 && **count > known;
        let Some(count) = state.counts.get_mut(topic).filter(fewer) else {
            return;
        };
        *count = known;
        let mut left = self.buffer.assignment();
        left.retain(|tp| *tp.topic != *topic || (tp.partition as usize) < known);
        self.buffer.assign(&left);
    }

    /// Reads new partitions, too.
    pub(crate) fn take(&self) {
        let mut state = self.state();
        let fresh = self.follow(&mut state);
        if !fresh.is_empty() {
            state.came.extend(fresh.iter().cloned());
            self.buffer.assign(&[self.buffer.assignment(), fresh].concat());
        }
    }

    /// Whether a reader without a position goes to its start, though others begin at the end.
    pub(crate) fn begins_at_start(&self, tp: &TopicPartition) -> bool {
        let added = self.cluster.leaders.leader(tp).is_some_and(|leader| leader.added);
        self.in_group && added || self.state().came.contains(tp)
    }
}

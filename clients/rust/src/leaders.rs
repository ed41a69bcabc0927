//! A client's view of topics and their leaders. News of an older term never replaces a newer
//! leader, so a node that is behind cannot send a client back.

use std::collections::{HashMap, HashSet};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::pb;
use crate::types::TopicPartition;

const DEFAULT_MAX_BATCH_BYTES: usize = 4 << 20;
/// Of a topic: far above the limits of a cluster.
const MOST_PARTITIONS: i32 = 1_000_000;

/// Known leader of a partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leader {
    pub(crate) node_id: i32,
    /// Empty: not known.
    pub(crate) address: String,
    pub(crate) term: i64,
    /// A node refused and named this one instead, without a term: another node may know better.
    hinted: bool,
    /// The node that did so; empty: none, or its word has been doubted since.
    refused: String,
    pub(crate) replicas: Vec<i32>,
    /// The partition came after the topic's creation.
    pub(crate) added: bool,
    /// The last word was that nobody leads it.
    leaderless: bool,
}

/// A topic: its id, the largest payload that it takes, and how many partitions it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopicFacts {
    pub(crate) id: u64,
    pub(crate) max_batch_bytes: usize,
    pub(crate) partitions: usize,
}

struct Topic {
    id: u64,
    max_batch_bytes: usize,
    partitions: Vec<Leader>,
}

#[derive(Default)]
struct Known {
    nodes: HashMap<i32, String>,
    racks: HashMap<i32, String>,
    topics: HashMap<String, Topic>,
    /// Nodes that do not answer: a record that may go elsewhere does.
    unreachable: HashSet<String>,
}

#[derive(Default)]
pub(crate) struct Leaders {
    known: RwLock<Known>,
}

impl Leaders {
    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().expect("no panic while it is held")
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().expect("no panic while it is held")
    }

    pub(crate) fn update(&self, answer: &pb::DescribeTopicsResponse) {
        let mut known = self.write();
        let Known { nodes, racks, topics, .. } = &mut *known;
        for node in &answer.nodes {
            if !node.address.is_empty() {
                nodes.insert(node.node_id, node.address.clone());
                racks.insert(node.node_id, node.rack.clone());
            }
        }
        for topic in &answer.topics {
            let view =
                topics.entry(topic.name.clone()).or_insert_with(|| Topic::new(topic.topic_id));
            if topic.topic_id < view.id {
                continue; // the node has not heard yet that this one was deleted: ids only rise
            }
            if topic.topic_id > view.id {
                // Deleted and created again: terms start anew.
                *view = Topic::new(topic.topic_id);
            }
            view.update(topic, nodes);
        }
    }

    /// Calls `f` with the known leader of a partition, if there is one.
    fn change(&self, tp: &TopicPartition, f: impl FnOnce(&mut Leader, &mut HashMap<i32, String>)) {
        let mut known = self.write();
        let Known { nodes, topics, .. } = &mut *known;
        if let Some(topic) = topics.get_mut(&*tp.topic)
            && let Some(leader) = topic.partitions.get_mut(tp.partition as usize)
        {
            f(leader, nodes);
        }
    }

    /// Takes over the leader named by a node that refused as not the leader.
    pub(crate) fn hint(&self, tp: &TopicPartition, node_id: i32, address: &str) {
        if address.is_empty() {
            return;
        }
        self.change(tp, |leader, nodes| {
            nodes.entry(node_id).or_insert_with(|| address.into());
            if leader.address != address {
                leader.refused = std::mem::replace(&mut leader.address, address.into());
                leader.hinted = true;
            }
            leader.node_id = node_id;
            leader.leaderless = false;
        });
    }

    /// The supposed leader does not lead, and names nobody. Any node's word may take its place.
    pub(crate) fn suspect(&self, tp: &TopicPartition) {
        self.change(tp, |leader, _| leader.refused.clear());
    }

    /// This node does not lead the partition, in spite of the client's view.
    pub(crate) fn forget(&self, tp: &TopicPartition, address: &str) {
        self.change(tp, |leader, _| {
            if leader.address == address {
                leader.address.clear();
                leader.refused.clear();
                leader.hinted = false;
                leader.leaderless = true;
            }
        });
    }

    /// This node answers, or does not.
    pub(crate) fn reached(&self, address: &str, answers: bool) {
        if self.read().unreachable.contains(address) != answers {
            return; // as nearly always
        }
        let mut known = self.write();
        if answers {
            known.unreachable.remove(address);
        } else {
            known.unreachable.insert(address.into());
        }
    }

    /// Which of a topic's partitions have a leader that can be reached, as far as is known.
    pub(crate) fn available(&self, topic: &str) -> Vec<i32> {
        let known = self.read();
        let Some(view) = known.topics.get(topic) else { return vec![] };
        let all = (0..).zip(&view.partitions);
        all.filter(|(_, leader)| leader.is_available(&known.unreachable))
            .map(|(partition, _)| partition)
            .collect()
    }

    pub(crate) fn is_available(&self, topic: &str, partition: i32) -> bool {
        let known = self.read();
        let leader =
            known.topics.get(topic).and_then(|view| view.partitions.get(partition as usize));
        leader.is_some_and(|leader| leader.is_available(&known.unreachable))
    }

    /// Topics to ask for again, and nodes to connect to again: somebody may be back.
    pub(crate) fn lacking(&self) -> (Vec<String>, Vec<String>) {
        let mut known = self.write();
        let Known { topics, unreachable, .. } = &mut *known;
        let lacks = |view: &Topic| view.partitions.iter().any(|leader| leader.leaderless);
        let lacking = topics.iter().filter(|(_, view)| lacks(view)).map(|(name, _)| name.clone());
        let lacking = lacking.collect();
        let all = || topics.values().flat_map(|view| &view.partitions);
        unreachable.retain(|address| all().any(|leader| leader.address == *address));
        (lacking, unreachable.iter().cloned().collect())
    }

    pub(crate) fn leader(&self, tp: &TopicPartition) -> Option<Leader> {
        let known = self.read();
        known.topics.get(&*tp.topic)?.partitions.get(tp.partition as usize).cloned()
    }

    /// Where the leader is; `None`: not known.
    pub(crate) fn address(&self, tp: &TopicPartition) -> Option<String> {
        self.leader(tp).map(|leader| leader.address).filter(|address| !address.is_empty())
    }

    pub(crate) fn topic(&self, name: &str) -> Option<TopicFacts> {
        self.read().topics.get(name).map(|topic| TopicFacts {
            id: topic.id,
            max_batch_bytes: topic.max_batch_bytes,
            partitions: topic.partitions.len(),
        })
    }

    pub(crate) fn node(&self, id: i32) -> Option<String> {
        self.read().nodes.get(&id).cloned()
    }

    pub(crate) fn is_in_rack(&self, id: i32, rack: &str) -> bool {
        self.read().racks.get(&id).is_some_and(|known| known == rack)
    }

    pub(crate) fn node_addresses(&self) -> Vec<String> {
        self.read().nodes.values().cloned().collect()
    }

    pub(crate) fn topic_names(&self) -> Vec<String> {
        self.read().topics.keys().cloned().collect()
    }
}

impl Topic {
    fn new(id: u64) -> Self {
        Self { id, max_batch_bytes: DEFAULT_MAX_BATCH_BYTES, partitions: vec![] }
    }

    fn update(&mut self, topic: &pb::TopicInfo, nodes: &HashMap<i32, String>) {
        let limit = topic.config.as_ref().and_then(|config| config.max_batch_bytes).unwrap_or(0);
        if limit > 0 {
            self.max_batch_bytes = limit as usize;
        }
        for info in &topic.partitions {
            if info.partition < 0 || info.partition >= MOST_PARTITIONS {
                continue; // no node says so
            }
            let at = info.partition as usize;
            if self.partitions.len() <= at {
                self.partitions.resize_with(at + 1, || Leader { term: -1, ..Leader::default() });
            }
            self.partitions[at].update(info, nodes);
        }
    }
}

impl Leader {
    fn update(&mut self, info: &pb::PartitionInfo, nodes: &HashMap<i32, String>) {
        self.replicas.clone_from(&info.replicas);
        self.added = info.added_ms > 0;
        if info.term < self.term {
            return;
        }
        let Some(address) = nodes.get(&info.leader_id) else {
            // The address that is known stays: this node may be the one that is cut off.
            self.leaderless = true;
            return;
        };
        if info.term == self.term && !self.address.is_empty() {
            if *address == self.refused {
                return; // it led in this term, and does not any more
            }
            if !self.hinted && info.leader_id != self.node_id {
                return; // same term, same leader; but its address may be news
            }
        }
        self.node_id = info.leader_id;
        self.address.clone_from(address);
        self.term = info.term;
        self.hinted = false;
        self.leaderless = false;
        self.refused.clear();
    }

    fn is_available(&self, unreachable: &HashSet<String>) -> bool {
        !self.address.is_empty() && !self.leaderless && !unreachable.contains(&self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(topic_id: u64, leader_id: i32, term: i64) -> pb::DescribeTopicsResponse {
        let node = |node_id| pb::NodeInfo {
            node_id,
            address: format!("n:{node_id}"),
            ..Default::default()
        };
        let partition = pb::PartitionInfo { leader_id, term, ..Default::default() };
        pb::DescribeTopicsResponse {
            nodes: (1..4).map(node).collect(),
            topics: vec![pb::TopicInfo {
                name: "t".into(),
                topic_id,
                partitions: vec![partition],
                ..Default::default()
            }],
        }
    }

    #[test]
    fn the_higher_term_counts() {
        let leaders = Leaders::default();
        let tp = TopicPartition::new("t", 0);
        leaders.update(&told(1, 1, 5));
        leaders.update(&told(1, 2, 4));
        assert_eq!(leaders.address(&tp).unwrap(), "n:1");
        leaders.update(&told(1, 3, 6));
        assert_eq!(leaders.address(&tp).unwrap(), "n:3");
        leaders.forget(&tp, "n:3");
        assert_eq!(leaders.address(&tp), None);
    }

    #[test]
    fn who_refused_is_not_believed_in_the_same_term_until_it_is_doubted() {
        let leaders = Leaders::default();
        let tp = TopicPartition::new("t", 0);
        leaders.update(&told(1, 1, 5));
        leaders.hint(&tp, 2, "n:2");
        leaders.update(&told(1, 1, 5));
        assert_eq!(leaders.address(&tp).unwrap(), "n:2");
        leaders.suspect(&tp);
        leaders.update(&told(1, 1, 5));
        assert_eq!(leaders.address(&tp).unwrap(), "n:1");
    }

    #[test]
    fn a_partition_is_available_if_its_leader_is_known_and_can_be_reached() {
        let leaders = Leaders::default();
        let tp = TopicPartition::new("t", 0);
        leaders.update(&told(1, 1, 5));
        assert!(leaders.is_available("t", 0) && leaders.lacking() == (vec![], vec![]));
        leaders.reached("n:1", false);
        assert!(!leaders.is_available("t", 0) && leaders.available("t").is_empty());
        assert_eq!(leaders.lacking(), (vec![], vec!["n:1".into()]));
        leaders.reached("n:1", true);
        assert_eq!(leaders.available("t"), [0]);
        leaders.update(&told(1, 0, 6));
        assert_eq!(leaders.address(&tp).unwrap(), "n:1", "who says so may be cut off");
        assert!(!leaders.is_available("t", 0));
        assert_eq!(leaders.lacking(), (vec!["t".into()], vec![]));
        leaders.update(&told(1, 2, 6));
        assert!(leaders.is_available("t", 0));
    }

    #[test]
    fn a_topic_made_anew_starts_anew() {
        let leaders = Leaders::default();
        let tp = TopicPartition::new("t", 0);
        leaders.update(&told(1, 1, 50));
        leaders.update(&told(2, 2, 1));
        leaders.update(&told(1, 1, 51));
        assert_eq!(leaders.address(&tp).unwrap(), "n:2");
        assert_eq!(leaders.topic("t").unwrap().id, 2);
    }
}

//! How far groups are behind the ends of their partitions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::admin::Admin;
use crate::buffer::FetchBuffer;
use crate::config::{ConsumerConfig, OffsetReset};
use crate::errors::{Error, Result};
use crate::groups::Groups;
use crate::growth::Growth;
use crate::positions::{Positions, Slot, join_all, place_of};
use crate::routes::Routes;
use crate::types::{CommittedOffset, GroupDescription, TopicPartition};

/// For how long a partition's leader may take to answer, with an election.
const LAG_WAIT: Duration = Duration::from_secs(2);

/// How far a group is in a partition. Unknown fields are `None`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PartitionLag {
    /// `None` for a partition that a member owns and has not committed.
    pub committed: Option<CommittedOffset>,
    /// The first offset that is kept.
    pub log_start_offset: Option<i64>,
    /// The offset that comes next.
    pub high_watermark: Option<i64>,
    /// The number of readable records behind the committed offset.
    pub lag: Option<i64>,
    /// Why no leader answered.
    pub error: Option<Error>,
}

/// A group's lag in each partition that it has committed or that a member owns.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupLag {
    /// The group, with its members and committed offsets.
    pub group: GroupDescription,
    /// By partition.
    pub partitions: BTreeMap<TopicPartition, PartitionLag>,
}

impl GroupLag {
    /// The sum of the known lags.
    pub fn lag(&self) -> i64 {
        self.partitions.values().filter_map(|one| one.lag).sum()
    }
}

impl Admin {
    /// A group's lag in records, with its members and committed offsets. No partition is missing:
    /// one without an answer within 2 s has an error instead of a lag.
    pub async fn group_lag(&self, group: &str) -> Result<GroupLag> {
        let group = self.describe_group(group).await?;
        let mut partitions: BTreeMap<TopicPartition, PartitionLag> = BTreeMap::new();
        for (tp, committed) in &group.offsets {
            partitions.entry(tp.clone()).or_default().committed = Some(committed.clone());
        }
        for tp in group.members.iter().flat_map(|member| member.owned.keys()) {
            partitions.entry(tp.clone()).or_default();
        }
        if partitions.is_empty() {
            return Ok(GroupLag { group, partitions });
        }
        let positions = self.positions();
        let mut topics: Vec<_> = partitions.keys().map(|tp| tp.topic.to_string()).collect();
        topics.dedup();
        let _ = self.cluster.refresh(&topics).await; // the leader is asked for again below
        let at = |place| -> HashMap<_, _> {
            partitions.keys().map(|tp| (tp.clone(), place_of(place))).collect()
        };
        let (earliest, latest) = (at(OffsetReset::Earliest), at(OffsetReset::Latest));
        let asking =
            [&earliest, &latest].map(|queries| positions.list_for(queries, LAG_WAIT)).into();
        let mut found = join_all(asking).await;
        let (ends, late) = found.pop().expect("two were asked for");
        let (starts, failed) = found.pop().expect("two were asked for");
        for (tp, one) in &mut partitions {
            one.log_start_offset = starts.get(tp).copied();
            one.high_watermark = ends.get(tp).copied();
            one.error = failed.get(tp).or(late.get(tp)).cloned();
            if let (Some(committed), Some(start), Some(end)) =
                (&one.committed, one.log_start_offset, one.high_watermark)
            {
                one.lag = Some((end - committed.commit.offset.max(start)).max(0));
            }
        }
        Ok(GroupLag { group, partitions })
    }

    /// Finds offsets as a consumer of no group does.
    fn positions(&self) -> Positions {
        let config = ConsumerConfig { client: self.cluster.config.clone(), ..Default::default() };
        let cluster = &self.cluster;
        let buffer = FetchBuffer::new(0, cluster.clone(), Arc::new(Notify::new()));
        Positions {
            routes: Arc::new(Routes::new(&config, cluster.clone())),
            groups: Arc::new(Groups::new(cluster.clone())),
            growth: Growth::new(cluster.clone(), Arc::new(buffer), false),
            member: Slot::default(),
            cluster: cluster.clone(),
            config,
        }
    }
}

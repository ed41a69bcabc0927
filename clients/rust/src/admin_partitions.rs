//! More partitions for a topic, more or fewer replicas, other nodes.

use std::time::Duration;

use crate::admin::{Admin, MOST_CREATION, held_for, held_ms};
use crate::attempts::may_have_been_done;
use crate::cluster::ask;
use crate::errors::{Error, ErrorKind, Result};
use crate::info::{TopicInfo, topic_info};
use crate::pb;
use crate::types::TopicPartition;

/// A partition that comes, moves, or would; the first node is preferred as leader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionMove {
    /// Which one.
    pub tp: TopicPartition,
    /// Now; empty: it comes.
    pub replicas: Vec<i32>,
    /// Afterwards.
    pub target: Vec<i32>,
    /// That the replicas which come hold when they are whole.
    pub bytes: i64,
    /// And hold by now.
    pub copied: i64,
    /// For people: progress, or the reason for none.
    pub waits_for: String,
}

/// A topic that gets more partitions, or another number of replicas.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Resized {
    /// Afterwards.
    pub topic: TopicInfo,
    /// The first of `count`.
    pub moves: Vec<PartitionMove>,
    /// How many.
    pub count: i32,
}

/// Changes of [`Admin::resize_topic`]: partitions or replicas, the other one is 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resize {
    /// More than the topic has. Records of a key go to another partition from then on, and nothing
    /// that is stored moves.
    pub partitions: i32,
    /// Of each partition.
    pub replicas: i32,
    /// Checks it, and describes its effect.
    pub dry_run: bool,
}

impl Admin {
    /// Gives a topic more partitions, and waits up to half a minute until each has a leader; or all
    /// its partitions another number of replicas, which are there later.
    pub async fn resize_topic(&self, name: &str, resize: Resize) -> Result<Resized> {
        self.resize_topic_within(MOST_CREATION, name, resize).await
    }

    /// The same, with another limit.
    pub async fn resize_topic_within(
        &self,
        limit: Duration,
        name: &str,
        resize: Resize,
    ) -> Result<Resized> {
        let request = pb::ResizeTopicRequest {
            name: name.into(),
            partitions: resize.partitions,
            replicas: resize.replicas,
            dry_run: resize.dry_run,
            timeout_ms: held_ms(limit),
        };
        let mut in_doubt = false;
        let noting = &mut |e: &Error| in_doubt |= may_have_been_done(e);
        let call = ask!(cluster.resize_topic(request));
        let error = match self.cluster.call_noting(held_for(limit), None, noting, call).await {
            Ok(answer) => {
                return Ok(Resized {
                    topic: topic_info(answer.topic.unwrap_or_default()),
                    moves: answer.moves.into_iter().map(partition_move).collect(),
                    count: answer.count,
                });
            }
            Err(error) => error,
        };
        let refused = error.kind() == ErrorKind::InvalidRequest;
        if !refused || error.details().field != "partitions" || !in_doubt || resize.dry_run {
            return Err(error);
        }
        // After a call without an answer they may be those of this call.
        match self.describe_topic(name).await {
            Ok(topic) if topic.partitions.len() == resize.partitions as usize => {
                Ok(Resized { topic, moves: vec![], count: 0 })
            }
            _ => Err(error),
        }
    }

    /// Has the partition's replicas on these nodes, the first preferred as leader. It returns when
    /// that is decided; [`PartitionInfo::target`](crate::PartitionInfo::target) tells whether it is
    /// done.
    pub async fn reassign_partition(
        &self,
        tp: &TopicPartition,
        replicas: &[i32],
    ) -> Result<TopicInfo> {
        let request = pb::ReassignPartitionRequest {
            topic: tp.topic.to_string(),
            partition: tp.partition,
            replicas: replicas.into(),
        };
        let answer = self.call(ask!(cluster.reassign_partition(request))).await?;
        Ok(topic_info(answer.topic.unwrap_or_default()))
    }
}

pub(crate) fn partition_move(one: pb::PartitionMove) -> PartitionMove {
    PartitionMove {
        tp: TopicPartition::new(one.topic, one.partition),
        replicas: one.replicas,
        target: one.target,
        bytes: one.bytes,
        copied: one.copied,
        waits_for: one.waits_for,
    }
}

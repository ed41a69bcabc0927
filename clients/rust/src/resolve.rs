//! Outcome of a batch without an acknowledgement.

use crate::cluster::{Cluster, ask};
use crate::errors::Result;
use crate::pb;
use crate::types::{Resolution, ResolvedSequence, TopicPartition};

pub(crate) async fn resolve_sequence(
    cluster: &Cluster,
    tp: &TopicPartition,
    producer_id: i64,
    epoch: i32,
    sequence: i64,
) -> Result<ResolvedSequence> {
    let request = pb::ResolveSequenceRequest {
        topic: tp.topic.to_string(),
        partition: tp.partition,
        producer_id,
        epoch,
        sequence,
    };
    let answer = cluster.call_leader(tp, ask!(log.resolve_sequence(request))).await?;
    let (resolution, offset) = match answer.resolution() {
        pb::Resolution::Committed => (Resolution::Committed, answer.offset),
        pb::Resolution::Never => (Resolution::Never, -1),
        pb::Resolution::NotYet => (Resolution::NotYet, -1),
        pb::Resolution::Unspecified => (Resolution::Forgotten, -1),
    };
    Ok(ResolvedSequence {
        resolution,
        offset,
        last_sequence: answer.last_sequence,
        current_epoch: answer.current_epoch,
    })
}

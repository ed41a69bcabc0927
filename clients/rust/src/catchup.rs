//! Reads stored records by a stream instead of question and answer. Where a poll's answer
//! was cut short because there is more, the partition is subscribed to, and polled again when all
//! that there was has come, or something happened that a poll deals with. So at the end of the
//! log, where a node may have nothing to say for long and lose its office meanwhile, there are
//! only polls.

use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::buffer::{Added, FetchBuffer, Wanted};
use crate::cluster::Cluster;
use crate::config::ConsumerConfig;
use crate::fetcher::end_offset;
use crate::pb;

/// Enough that a message costs little beside its bytes, and no more, because a node sends one
/// while it collects the next.
const SUBSCRIBE_BYTES: usize = 2 << 20;
/// Where there is more to read, silence is a reason to poll, which looks for the leader.
const SILENCE: Duration = Duration::from_secs(2);

/// A stream that brings a partition.
pub(crate) struct CatchUp {
    pub(crate) id: u64,
    pub(crate) generation: u64,
    pub(crate) task: AbortHandle,
}

/// Whether a poll's answer was cut short because there is more.
pub(crate) fn is_worth_it(config: &ConsumerConfig, records: &pb::PartitionRecords) -> bool {
    let size: usize = records.batches.iter().map(|stored| stored.payload.len()).sum();
    let enough = config.max_partition_fetch_bytes.min(config.fetch_max_bytes) / 2;
    size > 0 && size >= enough && end_offset(records) < records.high_watermark
}

/// Fills the buffer, and returns its last position, and the node's refusal if that ended it.
pub(crate) async fn read_ahead(
    config: &ConsumerConfig,
    cluster: &Cluster,
    buffer: &FetchBuffer,
    address: &str,
    mut at: Wanted,
) -> (Wanted, Option<pb::PartitionRecords>) {
    let mut stream = None;
    // The buffer is full, most likely: only a reader that continues gets a stream.
    while buffer.await_room(&at).await {
        let stream = match &mut stream {
            Some(stream) => stream,
            none => match subscribe(config, cluster, address, &at).await {
                Some(subscribed) => none.insert(subscribed),
                None => return (at, None), // a poll will find out
            },
        };
        let Ok(Ok(Some(message))) = timeout(SILENCE, stream.message()).await else {
            return (at, None);
        };
        for records in message.partitions {
            match buffer.add(&at, &records) {
                Added::Refused => return (at, Some(records)),
                // A poll will find out.
                Added::Stale | Added::Anew | Added::Behind => return (at, None),
                Added::Taken => {}
            }
            if records.batches.is_empty() {
                return (at, None);
            }
            at.offset = end_offset(&records);
            if at.offset >= records.high_watermark {
                return (at, None);
            }
        }
    }
    (at, None)
}

async fn subscribe(
    config: &ConsumerConfig,
    cluster: &Cluster,
    address: &str,
    at: &Wanted,
) -> Option<tonic::Streaming<pb::FetchResponse>> {
    let bytes = config.max_partition_fetch_bytes.min(config.fetch_max_bytes).min(SUBSCRIBE_BYTES);
    let request = pb::SubscribeRequest {
        partitions: vec![pb::PartitionFetch {
            topic: at.tp.topic.to_string(),
            partition: at.tp.partition,
            offset: at.offset,
            ..Default::default()
        }],
        max_bytes: bytes as i32,
        any_replica: config.any_replica,
        near: config.rack.is_some(),
    };
    let node = cluster.node(address).ok()?;
    let answer = timeout(SILENCE, async { node.log().subscribe(request).await }).await;
    Some(answer.ok()?.ok()?.into_inner())
}

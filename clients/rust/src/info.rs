//! Nodes' descriptions of topics, of the cluster and of its producers.

use std::collections::HashMap;

use crate::pb;

/// A node, as the answering node sees it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeInfo {
    /// Its number.
    pub node_id: i32,
    /// Where clients reach it.
    pub address: String,
    /// Whether it is heard.
    pub alive: bool,
    /// With a majority's, so the node does not lead.
    pub clock_disagrees: bool,
    /// Its release; empty while it is not heard, as the next three.
    pub release: String,
    /// The cluster versions that it takes part in, from
    pub oldest_cluster_version: i32,
    /// to.
    pub newest_cluster_version: i32,
    /// Its knowledge.
    pub features: Vec<String>,
    /// It listens without TLS beyond its machine.
    pub insecure: bool,
}

/// The cluster's version, and the version it could be upgraded to.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct UpgradeInfo {
    /// Finalized.
    pub cluster_version: i32,
    /// Those that are on.
    pub features: Vec<String>,
    /// The same as `cluster_version` if nothing is pending.
    pub target_version: i32,
    /// Those that would be on.
    pub target_features: Vec<String>,
    /// For people: a line for each node that stands in the way.
    pub hindered_by: Vec<String>,
}

/// A partition's leader and replicas, as the answering node knows them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PartitionInfo {
    /// Its number.
    pub partition: i32,
    /// 0: none known.
    pub leader_id: i32,
    /// The leader's.
    pub term: i64,
    /// The first is preferred as leader.
    pub replicas: Vec<i32>,
    /// -1: the node that answered has no replica.
    pub log_start_offset: i64,
    /// The offset that comes next.
    pub high_watermark: i64,
    /// Of its Raft group.
    pub group_id: u64,
    /// The nodes that it is being moved to; empty: it is not moved.
    pub target: Vec<i32>,
    /// When the topic got it; 0: with its creation.
    pub added_ms: i64,
}

/// A topic's treatment of a batch's expected offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedOffsets {
    /// Checks it where a batch carries one.
    Checked,
    /// Does nothing with it.
    Ignored,
    /// Refuses a batch without one.
    Required,
}

/// Formats of the batches that a topic takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicFormats {
    /// Batches of this protocol.
    Columnar,
    /// Batches of Kafka's protocol.
    Kafka,
    /// Either.
    Both,
}

/// Treatment of a topic's old records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanupPolicy {
    /// The limits of retention delete them.
    Delete,
    /// Each key's newest record stays, for ever.
    Compact,
    /// Each key's newest record stays, up to the limits of retention.
    CompactDelete,
}

/// A topic's settings. A field that is `None` has the cluster's default or, in
/// [`Admin::alter_topic`](crate::Admin::alter_topic), stays as it is.
#[derive(Clone, Debug, Default)]
pub struct TopicConfig {
    /// -1: for ever.
    pub retention_ms: Option<i64>,
    /// -1: no limit.
    pub retention_bytes: Option<i64>,
    /// The largest batch, as sent.
    pub max_batch_bytes: Option<i32>,
    /// Treatment of expected offsets.
    pub expected_offsets: Option<ExpectedOffsets>,
    /// Of an existing topic they can only change to both. Not columnar: needs the feature "kafka".
    pub formats: Option<TopicFormats>,
    /// This and the settings below need the cluster's feature "compaction".
    pub cleanup_policy: Option<CleanupPolicy>,
    /// Records stay as they are for so long.
    pub min_compaction_lag_ms: Option<i64>,
    /// And are compacted at the latest then; -1: no limit.
    pub max_compaction_lag_ms: Option<i64>,
    /// How long a record without a value stays after it.
    pub delete_retention_ms: Option<i64>,
    /// Share of new bytes that makes one due.
    pub min_cleanable_dirty_ratio: Option<f64>,
}

impl TopicConfig {
    /// Whether a topic has the settings that a call gives; nodes may omit defaults.
    pub(crate) fn fits(&self, asked: &Self) -> bool {
        fn is<T: PartialEq>(has: Option<T>, asked: Option<T>) -> bool {
            has.is_none() || asked.is_none() || has == asked
        }
        is(self.retention_ms, asked.retention_ms)
            && is(self.retention_bytes, asked.retention_bytes)
            && is(self.max_batch_bytes, asked.max_batch_bytes)
            && is(self.expected_offsets, asked.expected_offsets)
            && is(self.formats, asked.formats)
            && is(self.cleanup_policy, asked.cleanup_policy)
            && is(self.min_compaction_lag_ms, asked.min_compaction_lag_ms)
            && is(self.max_compaction_lag_ms, asked.max_compaction_lag_ms)
            && is(self.delete_retention_ms, asked.delete_retention_ms)
            && is(self.min_cleanable_dirty_ratio, asked.min_cleanable_dirty_ratio)
    }
}

/// A topic with its partitions.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopicInfo {
    /// Its name.
    pub name: String,
    /// A topic made anew has a higher one.
    pub topic_id: u64,
    /// By number.
    pub partitions: Vec<PartitionInfo>,
    /// Its settings.
    pub config: TopicConfig,
    /// Unix time.
    pub created_ms: i64,
}

/// The cluster, as the answering node sees it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterInfo {
    /// Its own.
    pub cluster_id: String,
    /// The answering node.
    pub answering_node_id: i32,
    /// Leader of the metadata group; 0: not known.
    pub controller_id: i32,
    /// All nodes.
    pub nodes: Vec<NodeInfo>,
    /// How many.
    pub topics: i32,
    /// How many.
    pub partitions: i32,
    /// How many.
    pub leaderless_partitions: i32,
    /// How many.
    pub under_replicated_partitions: i32,
    /// The largest request.
    pub max_message_bytes: i64,
    /// How far the cluster is with an upgrade.
    pub upgrade: UpgradeInfo,
    /// Settings of all nodes.
    pub settings: HashMap<String, i64>,
    /// For people: the replicas that have stopped for damage, and their repair.
    pub damaged_replicas: Vec<String>,
    /// Of the answering node, as [`ErrorKind::OtherCluster`](crate::ErrorKind) names it; empty: not
    /// told.
    pub founding: String,
}

/// The epoch of a producer id: batches of lower epochs are fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProducerEpoch {
    /// The id.
    pub producer_id: i64,
    /// Its epoch.
    pub epoch: i32,
}

/// A producer name and the id and epoch it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProducerName {
    /// The name.
    pub name: String,
    /// Its id.
    pub producer_id: i64,
    /// Its newest epoch.
    pub epoch: i32,
    /// Unix time.
    pub last_lease_ms: i64,
}

/// One of the last batches of a producer in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecentBatch {
    /// Of its first record.
    pub first_sequence: i64,
    /// Of its last record.
    pub last_sequence: i64,
    /// Of its first record.
    pub base_offset: i64,
    /// How many.
    pub record_count: i32,
    /// Of its payload as sent.
    pub crc32c: u32,
}

/// A producer as a partition remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProducerState {
    /// Its id.
    pub producer_id: i64,
    /// The newest one here.
    pub epoch: i32,
    /// The last one that is stored.
    pub last_sequence: i64,
    /// Unix time.
    pub last_append_ms: i64,
    /// Oldest first.
    pub recent: Vec<RecentBatch>,
}

pub(crate) fn message(config: &TopicConfig) -> pb::TopicConfig {
    let expected = match config.expected_offsets {
        None | Some(ExpectedOffsets::Checked) => pb::ExpectedOffsets::Checked,
        Some(ExpectedOffsets::Ignored) => pb::ExpectedOffsets::Ignored,
        Some(ExpectedOffsets::Required) => pb::ExpectedOffsets::Required,
    };
    let formats = config.formats.map(|formats| match formats {
        TopicFormats::Columnar => pb::TopicFormats::Columnar,
        TopicFormats::Kafka => pb::TopicFormats::Kafka,
        TopicFormats::Both => pb::TopicFormats::Both,
    });
    let cleanup = config.cleanup_policy.map(|policy| match policy {
        CleanupPolicy::Delete => pb::CleanupPolicy::Delete,
        CleanupPolicy::Compact => pb::CleanupPolicy::Compact,
        CleanupPolicy::CompactDelete => pb::CleanupPolicy::CompactDelete,
    });
    pb::TopicConfig {
        retention_ms: config.retention_ms,
        retention_bytes: config.retention_bytes,
        max_batch_bytes: config.max_batch_bytes,
        expected_offsets: expected.into(),
        formats: formats.map(Into::into),
        cleanup_policy: cleanup.map(Into::into),
        min_compaction_lag_ms: config.min_compaction_lag_ms,
        max_compaction_lag_ms: config.max_compaction_lag_ms,
        delete_retention_ms: config.delete_retention_ms,
        min_cleanable_dirty_ratio: config.min_cleanable_dirty_ratio,
    }
}

pub(crate) fn topic_info(topic: pb::TopicInfo) -> TopicInfo {
    let config = topic.config.unwrap_or_default();
    let expected = match config.expected_offsets() {
        pb::ExpectedOffsets::Checked => ExpectedOffsets::Checked,
        pb::ExpectedOffsets::Ignored => ExpectedOffsets::Ignored,
        pb::ExpectedOffsets::Required => ExpectedOffsets::Required,
    };
    let formats = match config.formats() {
        pb::TopicFormats::Columnar => TopicFormats::Columnar,
        pb::TopicFormats::Kafka => TopicFormats::Kafka,
        pb::TopicFormats::Both => TopicFormats::Both,
    };
    let cleanup = match config.cleanup_policy() {
        pb::CleanupPolicy::Delete => CleanupPolicy::Delete,
        pb::CleanupPolicy::Compact => CleanupPolicy::Compact,
        pb::CleanupPolicy::CompactDelete => CleanupPolicy::CompactDelete,
    };
    let partition = |p: pb::PartitionInfo| PartitionInfo {
        partition: p.partition,
        leader_id: p.leader_id,
        term: p.term,
        replicas: p.replicas,
        log_start_offset: p.log_start_offset,
        high_watermark: p.high_watermark,
        group_id: p.group_id,
        target: p.target,
        added_ms: p.added_ms,
    };
    TopicInfo {
        name: topic.name,
        topic_id: topic.topic_id,
        partitions: topic.partitions.into_iter().map(partition).collect(),
        config: TopicConfig {
            retention_ms: config.retention_ms,
            retention_bytes: config.retention_bytes,
            max_batch_bytes: config.max_batch_bytes,
            expected_offsets: Some(expected),
            formats: Some(formats),
            cleanup_policy: Some(cleanup),
            min_compaction_lag_ms: config.min_compaction_lag_ms,
            max_compaction_lag_ms: config.max_compaction_lag_ms,
            delete_retention_ms: config.delete_retention_ms,
            min_cleanable_dirty_ratio: config.min_cleanable_dirty_ratio,
        },
        created_ms: topic.created_ms,
    }
}

pub(crate) fn upgrade_info(upgrade: Option<pb::UpgradeInfo>) -> UpgradeInfo {
    let upgrade = upgrade.unwrap_or_default();
    // A node of an older release says nothing of it: its cluster was never upgraded.
    let cluster_version = upgrade.cluster_version.max(1);
    UpgradeInfo {
        cluster_version,
        features: upgrade.features,
        target_version: upgrade.target_version.max(cluster_version),
        target_features: upgrade.target_features,
        hindered_by: upgrade.hindered_by,
    }
}

pub(crate) fn settings_of(settings: Vec<pb::ClusterSetting>) -> HashMap<String, i64> {
    settings.into_iter().map(|setting| (setting.name, setting.value)).collect()
}

pub(crate) fn producer_state(state: pb::ProducerState) -> ProducerState {
    let batch = |batch: pb::RecentBatch| RecentBatch {
        first_sequence: batch.first_sequence,
        last_sequence: batch.last_sequence,
        base_offset: batch.base_offset,
        record_count: batch.record_count,
        crc32c: batch.crc32c,
    };
    ProducerState {
        producer_id: state.producer_id,
        epoch: state.epoch,
        last_sequence: state.last_sequence,
        last_append_ms: state.last_append_ms,
        recent: state.recent.into_iter().map(batch).collect(),
    }
}

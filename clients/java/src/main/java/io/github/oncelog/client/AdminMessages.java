package io.github.oncelog.client;

import io.github.oncelog.client.proto.BalanceClusterResponse;
import io.github.oncelog.client.proto.ClusterSetting;
import io.github.oncelog.client.proto.DescribeClusterResponse;
import io.github.oncelog.client.proto.ListPermissionsResponse;
import io.github.oncelog.client.proto.NodeInfo;
import io.github.oncelog.client.proto.NodeStatus;
import io.github.oncelog.client.proto.PartitionInfo;
import io.github.oncelog.client.proto.PartitionMove;
import io.github.oncelog.client.proto.PermissionRule;
import io.github.oncelog.client.proto.ProducerState;
import io.github.oncelog.client.proto.Quota;
import io.github.oncelog.client.proto.QuotaKey;
import io.github.oncelog.client.proto.SinkDescription;
import io.github.oncelog.client.proto.TopicConfig;
import io.github.oncelog.client.proto.TopicInfo;
import io.github.oncelog.client.proto.TransactionDescription;
import io.github.oncelog.client.proto.TransactionPart;
import io.github.oncelog.client.proto.UpgradeInfo;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Arguments and results of an {@link Admin}, as messages of the protocol. */
final class AdminMessages {
  private AdminMessages() {}

  // --- topics ------------------------------------------------------------------------

  static TopicConfig config(Admin.TopicConfig config) {
    var message = TopicConfig.newBuilder();
    if (config.retentionMs() != null) {
      message.setRetentionMs(config.retentionMs());
    }
    if (config.retentionBytes() != null) {
      message.setRetentionBytes(config.retentionBytes());
    }
    if (config.maxBatchBytes() != null) {
      message.setMaxBatchBytes(config.maxBatchBytes());
    }
    if (config.expectedOffsets() != null) {
      message.setExpectedOffsetsValue(config.expectedOffsets().ordinal());
    }
    if (config.formats() != null) {
      message.setFormatsValue(config.formats().ordinal());
    }
    if (config.cleanupPolicy() != null) {
      message.setCleanupPolicyValue(config.cleanupPolicy().ordinal());
    }
    if (config.minCompactionLagMs() != null) {
      message.setMinCompactionLagMs(config.minCompactionLagMs());
    }
    if (config.maxCompactionLagMs() != null) {
      message.setMaxCompactionLagMs(config.maxCompactionLagMs());
    }
    if (config.deleteRetentionMs() != null) {
      message.setDeleteRetentionMs(config.deleteRetentionMs());
    }
    if (config.minCleanableDirtyRatio() != null) {
      message.setMinCleanableDirtyRatio(config.minCleanableDirtyRatio());
    }
    return message.build();
  }

  static Admin.TopicInfo info(TopicInfo topic) {
    return new Admin.TopicInfo(
        topic.getName(),
        topic.getTopicId(),
        topic.getPartitionsList().stream().map(AdminMessages::info).toList(),
        config(topic.getConfig()),
        topic.getCreatedMs());
  }

  private static Admin.TopicConfig config(TopicConfig config) {
    return new Admin.TopicConfig(
        config.hasRetentionMs() ? config.getRetentionMs() : null,
        config.hasRetentionBytes() ? config.getRetentionBytes() : null,
        config.hasMaxBatchBytes() ? config.getMaxBatchBytes() : null,
        switch (config.getExpectedOffsets()) {
          case EXPECTED_OFFSETS_IGNORED -> Admin.ExpectedOffsets.IGNORED;
          case EXPECTED_OFFSETS_REQUIRED -> Admin.ExpectedOffsets.REQUIRED;
          default -> Admin.ExpectedOffsets.CHECKED;
        },
        switch (config.getFormats()) {
          case TOPIC_FORMATS_KAFKA -> Admin.TopicFormats.KAFKA;
          case TOPIC_FORMATS_BOTH -> Admin.TopicFormats.BOTH;
          default -> Admin.TopicFormats.COLUMNAR;
        },
        switch (config.getCleanupPolicy()) {
          case CLEANUP_POLICY_COMPACT -> Admin.CleanupPolicy.COMPACT;
          case CLEANUP_POLICY_COMPACT_DELETE -> Admin.CleanupPolicy.COMPACT_DELETE;
          default -> Admin.CleanupPolicy.DELETE;
        },
        config.hasMinCompactionLagMs() ? config.getMinCompactionLagMs() : null,
        config.hasMaxCompactionLagMs() ? config.getMaxCompactionLagMs() : null,
        config.hasDeleteRetentionMs() ? config.getDeleteRetentionMs() : null,
        config.hasMinCleanableDirtyRatio() ? config.getMinCleanableDirtyRatio() : null);
  }

  /** Whether a topic has the settings that a call gives; nodes may omit defaults. */
  static boolean fits(Admin.TopicConfig asked, Admin.TopicConfig has) {
    return fits(asked.retentionMs(), has.retentionMs())
        && fits(asked.retentionBytes(), has.retentionBytes())
        && fits(asked.maxBatchBytes(), has.maxBatchBytes())
        && fits(asked.expectedOffsets(), has.expectedOffsets())
        && fits(asked.formats(), has.formats())
        && fits(asked.cleanupPolicy(), has.cleanupPolicy())
        && fits(asked.minCompactionLagMs(), has.minCompactionLagMs())
        && fits(asked.maxCompactionLagMs(), has.maxCompactionLagMs())
        && fits(asked.deleteRetentionMs(), has.deleteRetentionMs())
        && fits(asked.minCleanableDirtyRatio(), has.minCleanableDirtyRatio());
  }

  private static boolean fits(Object asked, Object has) {
    return asked == null || has == null || asked.equals(has);
  }

  private static Admin.PartitionInfo info(PartitionInfo p) {
    return new Admin.PartitionInfo(
        p.getPartition(),
        p.getLeaderId(),
        p.getTerm(),
        List.copyOf(p.getReplicasList()),
        p.getLogStartOffset(),
        p.getHighWatermark(),
        p.getGroupId(),
        List.copyOf(p.getTargetList()),
        p.getAddedMs());
  }

  static List<Admin.PartitionMove> moves(List<PartitionMove> moves) {
    return moves.stream()
        .map(
            move ->
                new Admin.PartitionMove(
                    move.getTopic(),
                    move.getPartition(),
                    List.copyOf(move.getReplicasList()),
                    List.copyOf(move.getTargetList()),
                    move.getBytes(),
                    move.getCopied(),
                    move.getWaitsFor()))
        .toList();
  }

  // --- cluster -----------------------------------------------------------------------

  static Admin.ClusterInfo info(DescribeClusterResponse answer) {
    return new Admin.ClusterInfo(
        answer.getClusterId(),
        answer.getAnsweringNodeId(),
        answer.getControllerId(),
        answer.getNodesList().stream().map(AdminMessages::info).toList(),
        answer.getTopics(),
        answer.getPartitions(),
        answer.getLeaderlessPartitions(),
        answer.getUnderReplicatedPartitions(),
        answer.getMaxMessageBytes(),
        info(answer.getUpgrade()),
        settings(answer.getSettingsList()),
        List.copyOf(answer.getDamagedReplicasList()),
        answer.getFounding());
  }

  private static Admin.NodeInfo info(NodeInfo node) {
    return new Admin.NodeInfo(
        node.getNodeId(),
        node.getAddress(),
        node.getAlive(),
        node.getClockDisagrees(),
        node.getRelease(),
        node.getOldestClusterVersion(),
        node.getNewestClusterVersion(),
        List.copyOf(node.getFeaturesList()),
        node.getInsecure());
  }

  static Admin.UpgradeInfo info(UpgradeInfo upgrade) {
    // A node of an older release says nothing of it: its cluster was never upgraded.
    int version = Math.max(upgrade.getClusterVersion(), 1);
    return new Admin.UpgradeInfo(
        version,
        List.copyOf(upgrade.getFeaturesList()),
        Math.max(upgrade.getTargetVersion(), version),
        List.copyOf(upgrade.getTargetFeaturesList()),
        List.copyOf(upgrade.getHinderedByList()));
  }

  static Map<String, Long> settings(List<ClusterSetting> settings) {
    Map<String, Long> all = new TreeMap<>();
    settings.forEach(setting -> all.put(setting.getName(), setting.getValue()));
    return all;
  }

  static Admin.NodeStatus status(NodeStatus node) {
    return new Admin.NodeStatus(
        node.getNodeId(),
        node.getAddress(),
        node.getAlive(),
        node.getExpected(),
        node.getJoining(),
        node.getLeaving(),
        node.getDrained(),
        node.getReplicas(),
        node.getLeaderships(),
        node.getComing(),
        node.getGoing(),
        List.copyOf(node.getWaitsForList()),
        node.getComingBytes(),
        node.getCopiedBytes());
  }

  static Admin.Balance balance(BalanceClusterResponse answer) {
    return new Admin.Balance(
        answer.getBalancing(),
        moves(answer.getMovesList()),
        answer.getCount(),
        answer.getBytes(),
        answer.getCopied(),
        List.copyOf(answer.getWaitsForList()));
  }

  // --- permissions and quotas --------------------------------------------------------

  static PermissionRule message(Admin.PermissionRule rule) {
    return PermissionRule.newBuilder()
        .setPrincipal(rule.principal())
        .addAllOperations(rule.operations())
        .setKind(rule.kind())
        .setName(rule.name())
        .setPrefix(rule.prefix())
        .setDeny(rule.deny())
        .build();
  }

  static Admin.Permissions permissions(ListPermissionsResponse answer) {
    return new Admin.Permissions(
        answer.getRulesList().stream().map(AdminMessages::rule).toList(),
        answer.getEnforced(),
        answer.getCaller());
  }

  private static Admin.PermissionRule rule(PermissionRule rule) {
    return new Admin.PermissionRule(
        rule.getPrincipal(),
        List.copyOf(rule.getOperationsList()),
        rule.getKind(),
        rule.getName(),
        rule.getPrefix(),
        rule.getDeny());
  }

  static Quota message(Admin.Quota quota) {
    return Quota.newBuilder()
        .setPrincipal(quota.principal())
        .setName(quota.name())
        .setValue(quota.value())
        .build();
  }

  static Admin.Quota quota(Quota quota) {
    return new Admin.Quota(quota.getPrincipal(), quota.getName(), quota.getValue());
  }

  static QuotaKey message(Admin.QuotaKey key) {
    return QuotaKey.newBuilder().setPrincipal(key.principal()).setName(key.name()).build();
  }

  // --- producers, transactions, sinks ------------------------------------------------

  static Admin.ProducerState state(ProducerState one) {
    return new Admin.ProducerState(
        one.getProducerId(),
        one.getEpoch(),
        one.getLastSequence(),
        one.getLastAppendMs(),
        one.getRecentList().stream()
            .map(
                r ->
                    new Admin.RecentBatch(
                        r.getFirstSequence(),
                        r.getLastSequence(),
                        r.getBaseOffset(),
                        r.getRecordCount(),
                        r.getCrc32C()))
            .toList());
  }

  static Admin.TransactionInfo info(TransactionDescription one) {
    return new Admin.TransactionInfo(
        one.getTransactionId(),
        one.getState().name().replaceFirst("^TRANSACTION_STATE_", ""),
        one.getReason(),
        one.getProducerName(),
        one.getSink(),
        one.getProducerId(),
        one.getEpoch(),
        one.getBegunMs(),
        Duration.ofMillis(one.getAgeMs()),
        Duration.ofMillis(one.getIdleTimeoutMs()),
        Duration.ofMillis(one.getTotalTimeoutMs()),
        one.getStagedBytes(),
        one.getPartitionsList().stream().map(AdminMessages::part).toList());
  }

  private static Admin.TransactionPart part(TransactionPart part) {
    return new Admin.TransactionPart(
        new TopicPartition(part.getTopic(), part.getPartition()),
        part.getEnded(),
        part.getStagedRecords(),
        part.getStagedBytes(),
        part.getStagedOffsets());
  }

  static Admin.SinkInfo info(SinkDescription one) {
    var before = one.getBefore();
    return new Admin.SinkInfo(
        one.getSink(),
        one.getJobs(),
        one.getQuery(),
        one.getRun(),
        one.getCommittedBatch(),
        one.getRecordCount(),
        one.getOpenTransactionId(),
        one.getOpenTransactionId() == 0 ? -1 : one.getOpenBatch(),
        one.getCommittedList().stream()
            .map(range -> new Admin.BatchRange(range.getFirst(), range.getLast()))
            .toList(),
        one.hasBefore()
            ? new Admin.SinkBefore(before.getQuery(), before.getBatch(), before.getRecordCount())
            : null);
  }
}

package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.oncelog.client.proto.DescribeTopicsResponse;
import io.github.oncelog.client.proto.NodeInfo;
import io.github.oncelog.client.proto.PartitionInfo;
import io.github.oncelog.client.proto.TopicInfo;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** Where records may go that ask for no partition. */
class LeadersTest {
  private static final TopicPartition T0 = new TopicPartition("t", 0);

  private final Leaders leaders = new Leaders();

  private void told(long term, int... nodeIds) {
    TopicInfo.Builder topic = TopicInfo.newBuilder().setName("t").setTopicId(1);
    for (int partition = 0; partition < nodeIds.length; partition++) {
      topic.addPartitions(
          PartitionInfo.newBuilder()
              .setPartition(partition)
              .setLeaderId(nodeIds[partition])
              .setTerm(term));
    }
    leaders.update(
        DescribeTopicsResponse.newBuilder()
            .addNodes(NodeInfo.newBuilder().setNodeId(1).setAddress("node1:1"))
            .addNodes(NodeInfo.newBuilder().setNodeId(2).setAddress("node2:1"))
            .addTopics(topic)
            .build());
  }

  /** Which partitions are chosen, of many tries. */
  private Set<Integer> chosen() {
    return IntStream.range(0, 200)
        .mapToObj(i -> leaders.anyPartition("t", 4))
        .collect(Collectors.toSet());
  }

  @Test
  void theyGoWhereThereIsALeaderThatCanBeReached() {
    told(1, 1, 0, 2, 1);
    assertEquals(Set.of(0, 2, 3), chosen());
    leaders.reached("node1:1", false);
    leaders.reached("nobody:1", false);
    assertEquals(Set.of(2), chosen());
    assertEquals(new Leaders.Lacking(Set.of("t"), Set.of("node1:1")), leaders.lacking());
    leaders.reached("node2:1", false);
    assertEquals(Set.of(0, 1, 2, 3), chosen(), "any, where none is available");
    leaders.reached("node1:1", true);
    leaders.reached("node2:1", true);
    leaders.hint(new TopicPartition("t", 1), 2, "node2:1");
    assertEquals(Set.of(0, 1, 2, 3), chosen());
    assertTrue(leaders.lacking().isNothing());
  }

  @Test
  void anAnswerThatNamesNobodyCountsUnlessItIsOfAnOlderTerm() {
    told(1, 1);
    told(0, 0);
    assertTrue(leaders.isAvailable(T0));
    told(1, 0);
    assertFalse(leaders.isAvailable(T0));
    assertEquals("node1:1", leaders.address(T0), "it may be there yet");
  }
}

package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;

import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Which batch a record goes into. */
class AccumulatorTest {
  private static final TopicPartition T0 = new TopicPartition("t", 0);
  private static final TopicPartition T1 = new TopicPartition("t", 1);

  private final Set<TopicPartition> away = new HashSet<>();

  private Accumulator accumulator(Duration deliveryTimeout) {
    ProducerConfig config =
        new ProducerConfig("localhost:1").linger(Duration.ZERO).deliveryTimeout(deliveryTimeout);
    return new Accumulator(config, () -> {}, tp -> !away.contains(tp));
  }

  private static BatchDelivery add(Accumulator to, TopicPartition tp) {
    Message message = Message.of(tp.topic(), new byte[1]);
    return to.append(
            new Accumulator.Addition(
                tp, true, List.of(message), message.size(), SendOptions.NONE, false, 1000))
        .batch;
  }

  @Test
  void aBatchThatWaitsForALeaderAttractsNoRecordsWithoutAKey() {
    Accumulator all = accumulator(Duration.ofMinutes(1));
    BatchDelivery first = add(all, T0);
    assertSame(first, add(all, T1), "they stick together");
    away.add(T0);
    all.leaveUnavailable();
    assertEquals(T1, add(all, T1).tp);
    assertEquals(T1, add(all, T0).tp);
    away.add(T1);
    all.leaveUnavailable();
    assertEquals(T0, add(all, T0).tp, "where no other one is");
    assertEquals(5, all.pending());
  }

  @Test
  void aRecordIsGivenItsOwnTimeAndNotWhatIsLeftOfAnOldBatchs() {
    Accumulator all = accumulator(Duration.ofSeconds(1000));
    BatchDelivery old = add(all, T0);
    all.expire(Times.now() + 200 * Times.SECOND);
    assertSame(old, add(all, T0));
    all.expire(Times.now() + 300 * Times.SECOND);
    assertNotSame(old, add(all, T0));
  }

  @Test
  void timeInWhichTheProcessStoodStillDoesNotCount() {
    Accumulator all = accumulator(Duration.ofSeconds(1000));
    add(all, T0);
    long later = Times.now() + 5000 * Times.SECOND;
    all.putOff(4900 * Times.SECOND, later);
    assertEquals(List.of(), all.expire(later));
    all.putOff(60_000 * Times.SECOND, later);
    assertEquals(
        1, all.expire(later + 1000 * Times.SECOND).size(), "but for its whole time from then on");
  }
}

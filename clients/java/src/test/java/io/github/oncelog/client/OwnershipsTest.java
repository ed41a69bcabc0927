package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Partitions that a member of a group owns. */
class OwnershipsTest {
  private static final TopicPartition A = new TopicPartition("t", 0);
  private static final TopicPartition B = new TopicPartition("t", 1);

  private final Ownerships machine = new Ownerships();
  private final long connection = machine.connect();

  private Ownerships.Step assign(
      long epoch, Map<TopicPartition, Long> all, TopicPartition... revoke) {
    return machine.assignment(connection, epoch, all, List.of(revoke));
  }

  @Test
  void whatIsAskedBackIsHeldUntilItIsReleased() {
    assertEquals(Map.of(A, 1L, B, 1L), assign(1, Map.of(A, 1L, B, 1L)).assigned());
    Ownerships.Step step = assign(2, Map.of(A, 1L), B);
    assertEquals(List.of(B), step.revoked());
    assertEquals(List.of(), step.lost());
    assertFalse(machine.mayPoll(B));
    assertEquals(1L, machine.number(B), "a commit may name it still");
    assertEquals(List.of(), assign(2, Map.of(A, 1L), B).revoked(), "asked once");
    assertEquals(new Ownerships.Owned(2, List.of(A)), machine.released(connection, List.of(B)));
    assertNull(machine.number(B));
  }

  @Test
  void anotherNumberIsAnotherOwnership() {
    assign(1, Map.of(A, 1L));
    Ownerships.Step step = assign(2, Map.of(A, 5L));
    assertEquals(List.of(A), step.lost());
    assertEquals(Map.of(A, 5L), step.assigned());
  }

  @Test
  void whatIsInNeitherIsLost() {
    assign(1, Map.of(A, 1L, B, 1L));
    assertEquals(List.of(B), assign(2, Map.of(A, 1L)).lost());
  }

  @Test
  void anOlderConnectionChangesNothing() {
    assign(1, Map.of(A, 1L, B, 1L));
    assign(2, Map.of(A, 1L), B);
    machine.connect();
    assertTrue(machine.mayPoll(B), "it is asked back again, if at all");
    assertNull(machine.released(connection, List.of(B)));
    assertEquals(Ownerships.Step.NOTHING, assign(3, Map.of()));
    assertEquals(1L, machine.number(B));
  }

  @Test
  void whoIsFencedOwnsNothing() {
    assign(4, Map.of(A, 1L));
    assertEquals(List.of(A), machine.fenced());
    assertEquals(0, machine.epoch());
    assertEquals(Map.of(), machine.owned());
  }
}

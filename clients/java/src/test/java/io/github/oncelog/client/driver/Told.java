package io.github.oncelog.client.driver;

import io.github.oncelog.client.RebalanceListener;
import io.github.oncelog.client.TopicPartition;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;

/** Notes its events. The record named by the word "failing" fails the first time. */
final class Told implements RebalanceListener {
  final List<String> calls = new ArrayList<>();
  private final String failing;

  Told(String failing) {
    this.failing = failing;
  }

  @Override
  public void onAssigned(List<TopicPartition> partitions) {
    note("assigned");
  }

  @Override
  public void onRevoked(List<TopicPartition> partitions, Instant until) {
    note("revoked");
  }

  @Override
  public void onLost(List<TopicPartition> partitions) {
    note("lost");
  }

  private void note(String word) {
    boolean isFirst = !calls.contains(word);
    calls.add(word);
    if (isFirst && word.equals(failing)) {
      throw Fault.driver("the callback for what is " + word + " fails");
    }
  }
}

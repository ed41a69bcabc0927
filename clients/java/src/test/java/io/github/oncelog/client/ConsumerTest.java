package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.Test;

/** Uses of a consumer by the application that need no node. */
class ConsumerTest {
  private static final TopicPartition T0 = new TopicPartition("t", 0);
  private final Consumer consumer =
      new Consumer(new ConsumerConfig("127.0.0.1:1").groupId("g").membership(Membership.MANUAL));

  private static void refused(String field, Runnable call) {
    OncelogException error = assertThrows(OncelogException.class, call::run);
    assertEquals(ErrorKind.INVALID_REQUEST, error.kind());
    assertEquals(field, error.details().field());
  }

  @Test
  void anotherThreadIsRefusedWhileOneReads() throws InterruptedException, ExecutionException {
    CompletableFuture<Throwable> ended = new CompletableFuture<>();
    CountDownLatch begun = new CountDownLatch(1);
    Thread reader =
        new Thread(
            () -> {
              begun.countDown();
              try {
                consumer.poll(Duration.ofNanos(Long.MAX_VALUE)); // without end, and no overflow
              } catch (OncelogException e) {
                ended.complete(e);
              }
            });
    reader.start();
    begun.await();
    while (reader.getState() != Thread.State.TIMED_WAITING) {
      Thread.onSpinWait();
    }
    refused("consumer", () -> consumer.poll(Duration.ZERO));
    refused("consumer", () -> consumer.seek(T0, 1));
    refused("consumer", () -> consumer.seekToEnd(T0));
    refused("consumer", () -> consumer.commit());
    refused("consumer", () -> consumer.pause(T0));
    refused("consumer", () -> consumer.subscribe("t"));
    assertEquals(List.of(), consumer.assignment(), "what only looks is for any thread");
    consumer.close();
    assertEquals(ErrorKind.CLIENT_CLOSED, ((OncelogException) ended.get()).kind());
  }

  @Test
  void whoWasInterruptedMayClose() {
    Thread.currentThread().interrupt();
    consumer.close();
    assertTrue(Thread.interrupted());
  }

  @Test
  void offsetsAreCheckedInTheCall() {
    try (consumer) {
      refused("offset", () -> consumer.seek(T0, -1));
      refused("partition", () -> consumer.seek(T0, Long.MAX_VALUE)); // it is not assigned
    }
  }
}

package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

/** Errors that the application's code may throw, and the places where it may wait. */
class CallbacksTest {
  private final List<String> reported = Collections.synchronizedList(new ArrayList<>());

  /** Runs it on a thread with kept uncaught errors. */
  private void onThread(Runnable task) throws InterruptedException {
    Thread thread = new Thread(task);
    thread.setUncaughtExceptionHandler((on, error) -> reported.add(error.getMessage()));
    thread.start();
    thread.join();
  }

  @Test
  void aCallbackThatThrowsAlsoAnErrorKeepsNobodyFromBeingCalled() throws InterruptedException {
    BatchDelivery delivery = new BatchDelivery(new TopicPartition("t", 0));
    List<Long> told = new ArrayList<>();
    for (int i = 0; i < 3; i++) {
      boolean fails = i < 2;
      Throwable bug = i == 0 ? new AssertionError("first") : new IllegalStateException("second");
      delivery.callbacks.add(
          new BatchDelivery.Callback(
              i,
              (metadata, error) -> {
                told.add(metadata.offset());
                if (fails && bug instanceof Error bad) {
                  throw bad;
                } else if (fails) {
                  throw (RuntimeException) bug;
                }
              }));
    }
    delivery.count = 3;
    onThread(delivery::callBack);
    assertEquals(List.of(0L, 1L, 2L), told);
    assertEquals(List.of("first", "second"), reported);
  }

  @Test
  void aLoopThatMeetsABugGoesOnAndSaysSo() {
    CompletableFuture<Throwable> bug = new CompletableFuture<>();
    CompletableFuture<String> waits = new CompletableFuture<>();
    Loop loop = new Loop("test", now -> now + Times.SECOND, bug::complete);
    loop.start();
    loop.post(
        () -> {
          Thread.currentThread().setUncaughtExceptionHandler((on, e) -> reported.add("told"));
          throw new AssertionError("a bug");
        });
    assertEquals("a bug", bug.join().getMessage());
    loop.post(
        () -> {
          OncelogException error = assertThrows(OncelogException.class, Loop::checkMayWait);
          waits.complete(error.details().field());
        });
    assertEquals("thread", waits.join());
    assertEquals(List.of("told"), reported);
    loop.stop();
  }
}

package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/**
 * The thread of a client's IO: no wake is lost, or nobody reads or sends until the next refresh.
 */
class LoopTest {
  private final Semaphore looks = new Semaphore(0);
  private final Loop loop =
      new Loop(
          "loop",
          now -> {
            looks.release();
            return Times.NEVER;
          },
          bug -> {});

  private void looksFor(int times) throws InterruptedException {
    assertTrue(looks.tryAcquire(times, 60, TimeUnit.SECONDS), "it looks for work");
  }

  @Test
  void aWakeWhileEventsRunLosesNoLaterOne() throws InterruptedException {
    loop.start();
    looksFor(1);
    loop.post(loop::wake); // its event is taken in the same turn
    looksFor(1);
    while (looks.tryAcquire(100, TimeUnit.MILLISECONDS)) {
      // a look too many is no fault
    }
    loop.wake();
    looksFor(1);
    loop.stop();
  }
}

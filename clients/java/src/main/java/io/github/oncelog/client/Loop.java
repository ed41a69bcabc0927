package io.github.oncelog.client;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.LongUnaryOperator;

/**
 * One thread that owns all state of a producer's or consumer's IO. Others post to it. After what
 * was posted it looks for work, which says when to look again.
 */
final class Loop {
  private final BlockingQueue<Runnable> events = new LinkedBlockingQueue<>();
  private final AtomicBoolean woken = new AtomicBoolean();
  private final LongUnaryOperator work;
  private final Thread thread;
  private volatile boolean stopped;

  Loop(String name, LongUnaryOperator work) {
    this.work = work;
    thread = new Thread(this::run, name);
    thread.setDaemon(true);
  }

  void start() {
    thread.start();
  }

  /** Has it look for work soon; from any thread. */
  void wake() {
    if (woken.compareAndSet(false, true)) {
      events.add(() -> {});
    }
  }

  /** Has it run this; not at all if it has ended. */
  void post(Runnable event) {
    events.add(event);
  }

  /** Waits for what an event completes, or for the loop's end. */
  void await(CompletableFuture<?> done) {
    while (!done.isDone() && thread.isAlive()) {
      try {
        done.get(100, TimeUnit.MILLISECONDS);
      } catch (TimeoutException e) {
        // it may have ended meanwhile
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new CancellationException("interrupted");
      } catch (ExecutionException e) {
        throw new IllegalStateException(e); // it is never completed so
      }
    }
  }

  /** Runs what was posted before, and ends. */
  void stop() {
    post(() -> stopped = true);
    boolean interrupted = false;
    while (thread.isAlive()) {
      try {
        thread.join();
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  boolean ended() {
    return stopped;
  }

  private void run() {
    long next = 0;
    while (!stopped) {
      try {
        Runnable event = events.poll(Math.max(0, next - Times.now()), TimeUnit.NANOSECONDS);
        woken.set(false);
        for (; event != null && !stopped; event = events.poll()) {
          event.run();
        }
      } catch (InterruptedException e) {
        return; // nobody interrupts it
      }
      next = work.applyAsLong(Times.now());
    }
  }
}

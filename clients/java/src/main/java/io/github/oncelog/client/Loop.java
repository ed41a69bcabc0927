package io.github.oncelog.client;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.function.LongUnaryOperator;

/**
 * One thread that owns all state of a producer's or consumer's IO. Others post to it. After the
 * posted events it looks for work, which says when to look again.
 */
final class Loop {
  /** After a bug; it may come again at once. */
  private static final long PAUSE = Times.SECOND;

  private static final class Own extends Thread {
    Own(Runnable run, String name) {
      super(run, name);
    }
  }

  private final BlockingQueue<Runnable> events = new LinkedBlockingQueue<>();
  private final AtomicBoolean woken = new AtomicBoolean();
  private final LongUnaryOperator work;
  private final Consumer<Throwable> onBug;
  private final Thread thread;
  private volatile boolean stopped;

  /**
   * @param onBug called on the thread with the error of an event or of work; the loop goes on
   */
  Loop(String name, LongUnaryOperator work, Consumer<Throwable> onBug) {
    this.work = work;
    this.onBug = onBug;
    thread = new Own(this::run, name);
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

  /** Throws if this is the thread of a loop, which would wait for itself, or hold up its client. */
  static void checkMayWait() {
    if (Thread.currentThread() instanceof Own) {
      throw Detail.invalid(
          "thread", "nothing may wait on a client's own thread: go on with an Async method");
    }
  }

  /** Waits for the completion by an event, or for the loop's end. */
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

  /** Runs the events posted before, and ends. */
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
        for (; event != null && !stopped; event = events.poll()) {
          event.run();
        }
        // Only now: a wake's event may be among those that have just been taken.
        woken.set(false);
        next = work.applyAsLong(Times.now());
      } catch (InterruptedException e) {
        return; // nobody interrupts it
      } catch (Throwable e) {
        report(e);
        onBug.accept(e);
        next = Times.now() + PAUSE;
      }
    }
  }

  /** Tells the program of an error of a client's thread, as if that had ended it. */
  static void report(Throwable error) {
    Thread thread = Thread.currentThread();
    thread.getUncaughtExceptionHandler().uncaughtException(thread, error);
  }
}

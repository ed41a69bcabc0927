package io.github.oncelog.client;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.WeakHashMap;

/**
 * Sends lingering records when the JVM ends while producers are open: all threads of a client are
 * daemons, and waiting records would be lost without a word. A few seconds later it says how many
 * records were not delivered.
 */
final class OpenProducers {
  private static final Duration PATIENCE = Duration.ofSeconds(5);

  private static final Set<Producer> OPEN = Collections.newSetFromMap(new WeakHashMap<>());
  private static Thread hook; // while one is open

  private OpenProducers() {}

  static synchronized void add(Producer producer) {
    OPEN.add(producer);
    if (hook == null) {
      hook = new Thread(OpenProducers::flush, "oncelog-exit");
      try {
        Runtime.getRuntime().addShutdownHook(hook);
      } catch (IllegalStateException e) {
        // The JVM ends already.
      }
    }
  }

  static synchronized void remove(Producer producer) {
    OPEN.remove(producer);
    if (OPEN.isEmpty() && hook != null) {
      try {
        Runtime.getRuntime().removeShutdownHook(hook);
        hook = null;
      } catch (IllegalStateException e) {
        // The same.
      }
    }
  }

  private static synchronized List<Producer> all() {
    return new ArrayList<>(OPEN);
  }

  private static void flush() {
    List<Producer> all = all();
    all.removeIf(one -> one.pending() == 0);
    long until = Times.after(PATIENCE);
    all.forEach(Producer::sendAll); // all of them begin before the first is waited for
    long left = 0;
    for (Producer producer : all) {
      left += producer.undeliveredAt(until);
    }
    if (left > 0) {
      // Loggers may be shut down by now.
      System.err.println(
          "oncelog: "
              + left
              + " records were not delivered: the JVM ended before Producer.close was called");
    }
  }
}

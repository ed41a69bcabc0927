package io.github.oncelog.client;

import java.util.ArrayDeque;

/** Batches that failed and that flush and close have not reported yet. */
final class Failures {
  private static final int MOST_KEPT = 1000;

  private final ArrayDeque<BatchDelivery> batches = new ArrayDeque<>();
  private long dropped; // records of batches that are no longer kept

  synchronized void add(BatchDelivery delivery) {
    batches.add(delivery);
    if (batches.size() > MOST_KEPT) {
      dropped += batches.remove().unlooked();
    }
  }

  /** Throws if there is a failed record that nobody has looked at. */
  synchronized void report() {
    long count = dropped;
    OncelogException first = null;
    for (BatchDelivery delivery : batches) {
      int unlooked = delivery.unlooked();
      count += unlooked;
      if (unlooked > 0 && first == null) {
        first = delivery.error;
      }
    }
    batches.clear();
    dropped = 0;
    if (count == 0) {
      return;
    }
    String text = count + " records were not delivered";
    OncelogException error =
        new OncelogException(
                ErrorKind.UNDELIVERED_RECORDS,
                "%s",
                first == null ? text : text + ", the first: " + first.getMessage())
            .with(new Detail().count(count));
    throw first == null
        ? error.with(OncelogException.Outcome.UNKNOWN)
        : error.with(first.outcome()).because(first);
  }
}

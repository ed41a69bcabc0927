package io.github.oncelog.client;

/**
 * The failed attempts of a call that is repeated until its time is over: which of their errors the
 * caller is told. The last attempt is cut short by the deadline, and its timeout must not hide a
 * node's refusal. For any thread.
 */
final class Attempts {
  private OncelogException last;
  private OncelogException telling; // the last one of those that tell the most
  private boolean inDoubt; // a node may have taken one of them

  synchronized void failed(OncelogException error) {
    last = error;
    inDoubt |= mayHaveBeenDone(error);
    if (telling == null || rank(error) >= rank(telling)) {
      telling = error;
    }
  }

  /** An attempt has succeeded. */
  synchronized void clear() {
    last = null;
    telling = null;
    inDoubt = false;
  }

  /** Whether a node may have taken one of them. */
  synchronized boolean inDoubt() {
    return inDoubt;
  }

  synchronized OncelogException last() {
    return last;
  }

  /** The last one of those that tell the most; null: no attempt has failed. */
  synchronized OncelogException telling() {
    return telling;
  }

  /** The most telling error. Its outcome is unknown if an attempt had no answer. */
  synchronized OncelogException error() {
    return withDoubt(telling);
  }

  /** The same behind this text: a timeout, if no node has said anything. */
  synchronized OncelogException late(String text) {
    if (telling == null) {
      return new OncelogException(ErrorKind.REQUEST_TIMEOUT, "%s", text);
    }
    String message = text + ": " + error().getMessage();
    OncelogException late =
        tells(telling)
            ? telling
            : new OncelogException(ErrorKind.REQUEST_TIMEOUT, "").because(telling);
    late = late.ofCall(message, inDoubt);
    return telling.isUnsent() ? late.unsent() : late;
  }

  /**
   * An answer that ends the call, with the doubt of an attempt that had none: that one may have
   * taken effect, and the answer speaks for the last attempt alone.
   */
  synchronized OncelogException finalAnswer(OncelogException error) {
    boolean answered = error.isTold() || error.kind() == ErrorKind.UNKNOWN_TOPIC_OR_PARTITION;
    return inDoubt && answered
        ? error.ofCall(
            error.getMessage() + "; an earlier attempt had no answer and may have taken effect",
            true)
        : error;
  }

  /** This error, with the last attempt's text if that tells less. */
  synchronized OncelogException withDoubt(OncelogException error) {
    String text = error.getMessage();
    if (!tells(last) && !last.getMessage().equals(text)) {
      text += "; the last attempt: " + last.getMessage();
    }
    return error.ofCall(text, inDoubt);
  }

  /** Whether a node may have executed a call that ended so. */
  static boolean mayHaveBeenDone(OncelogException error) {
    boolean lost =
        error.kind() == ErrorKind.REQUEST_TIMEOUT || error.kind() == ErrorKind.UNAVAILABLE;
    return lost && !error.isUnsent() || error.outcome() == OncelogException.Outcome.UNKNOWN;
  }

  /** Whether a node has said this: its refusal, or its view of the cluster. */
  static boolean tells(OncelogException error) {
    return rank(error) > 1;
  }

  private static int rank(OncelogException error) {
    if (error.isTold()) {
      return 2;
    }
    return switch (error.kind()) {
      case REQUEST_TIMEOUT -> 0;
      case UNAVAILABLE -> 1; // more than a deadline of our own
      default -> 2;
    };
  }
}

package io.github.oncelog.client;

import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;

/**
 * A place in the tree of errors. Each {@link OncelogException} has one; {@link OncelogException#is}
 * is true for it and for all above it. The names are the words that travel over the network, the
 * same in all languages.
 */
public enum ErrorKind {
  /** Above all calls that may succeed later, unchanged. */
  RETRIABLE(null),
  /** The node does not lead the partition; the leader is named if that is known. */
  NOT_LEADER(RETRIABLE),
  /** A new leader that has not caught up, or no leader at all, yet. */
  NOT_READY(RETRIABLE),
  /** The node cannot be reached, or has no quorum. */
  UNAVAILABLE(RETRIABLE),
  /** The node has too much to do, or a limit of it is reached. */
  THROTTLED(RETRIABLE),
  /** The node's disk is full; it takes writes again when there is room. */
  STORAGE_FULL(RETRIABLE),
  /** No answer in time; the call may still take effect. */
  REQUEST_TIMEOUT(RETRIABLE),
  /**
   * The node is of another founding than the cluster that this client began with; the call had no
   * effect there.
   */
  OTHER_CLUSTER(RETRIABLE),
  /** The buffer stayed full for {@link ProducerConfig#maxBlock()}; nothing was queued. */
  BUFFER_FULL(RETRIABLE),
  /**
   * No answer to a commit or an abort in time: the outcome is not known yet. Repeat the call: the
   * same transaction answers how it ended.
   */
  COMMIT_TIMEOUT(RETRIABLE),
  /** There is none, as far as the node knows. */
  UNKNOWN_TOPIC_OR_PARTITION(RETRIABLE),

  /** Above all calls that fail again if repeated. */
  FATAL(null),
  /** An argument is wrong; the field is named, and its limit. */
  INVALID_REQUEST(FATAL),
  /** A topic of this name exists. */
  TOPIC_ALREADY_EXISTS(FATAL),
  /** No producer holds, or held, the name. */
  PRODUCER_NAME_NOT_FOUND(FATAL),
  /** The node does not know the caller: no certificate or token, or one that is of no use. */
  UNAUTHENTICATED(FATAL),
  /**
   * The caller may not do this; the details name the missing permission, whether or not the object
   * exists.
   */
  NOT_AUTHORIZED(FATAL),
  /** The server, or this client, cannot do it. */
  NOT_SUPPORTED(FATAL),
  /** The group's members share its partitions; only they commit, or read on from its offsets. */
  GROUP_HAS_MEMBERS(FATAL),
  /**
   * The group has given the partition to another member, or goes on without this one. A commit that
   * was tried more than once may have been stored before that.
   */
  FENCED_MEMBER(FATAL),
  /** A bug or a broken invariant at the node; its log says more. */
  INTERNAL(FATAL),
  /** No record is there. */
  OFFSET_OUT_OF_RANGE(FATAL),
  /** Stored or fetched bytes are damaged. */
  CORRUPT_LOG(FATAL),
  /** The client was used after it was closed. */
  CLIENT_CLOSED(FATAL),
  /** Settings that are out of range or contradict each other. */
  INVALID_CONFIG(null),

  /** Above all of a record that is not known to be stored; the outcome says more. */
  DELIVERY_FAILED(FATAL),
  /** The batch itself is wrong; the message says how. */
  INVALID_BATCH(DELIVERY_FAILED),
  /** The batch or record is over the topic's limit, or the buffer's. */
  BATCH_TOO_LARGE(DELIVERY_FAILED),
  /** The expected offset is not the one that comes next. */
  OFFSET_MISMATCH(DELIVERY_FAILED),
  /** {@link ProducerConfig#deliveryTimeout()} is over. */
  DELIVERY_TIMEOUT(DELIVERY_FAILED),
  /** Records failed and nobody looked at it: thrown by flush and close. */
  UNDELIVERED_RECORDS(DELIVERY_FAILED),

  /** Above all after which the producer cannot go on: all its pending records have failed. */
  PRODUCER_FAILED(DELIVERY_FAILED),
  /** A producer with a higher epoch has taken over. */
  FENCED(PRODUCER_FAILED),
  /** The same sequences are stored with another content. */
  SEQUENCE_CONFLICT(PRODUCER_FAILED),
  /** The batch does not follow the last sequence that is stored. */
  OUT_OF_ORDER(PRODUCER_FAILED),
  /** The cluster never issued this producer id, or the partition does not know it. */
  UNKNOWN_PRODUCER(PRODUCER_FAILED),
  /** The lease of the producer id is over. */
  PRODUCER_EXPIRED(PRODUCER_FAILED),

  /** Above all of a transaction that did not become, or is not, as requested. */
  TRANSACTION_FAILED(DELIVERY_FAILED),
  /** It was aborted, the message says why: nothing of it is readable. */
  TRANSACTION_ABORTED(TRANSACTION_FAILED),
  /** It was committed before: nothing is undone. */
  TRANSACTION_COMMITTED(TRANSACTION_FAILED),
  /** It has ended; its commit, repeated, tells how. */
  TRANSACTION_ENDED(TRANSACTION_FAILED),
  /** Another transaction of the same producer name is open. */
  TRANSACTION_OPEN(TRANSACTION_FAILED),
  /** It was never begun, or ended so long ago that nobody knows how. */
  UNKNOWN_TRANSACTION(TRANSACTION_FAILED),
  /** The commit names other records than are staged; the transaction is still open. */
  COMMIT_INCOMPLETE(TRANSACTION_FAILED),
  /** It was committed with other records than this commit names. */
  COMMIT_DIFFERS(TRANSACTION_FAILED);

  private final ErrorKind parent;

  ErrorKind(ErrorKind parent) {
    this.parent = parent;
  }

  /** Whether this is {@code other} or below it. */
  public boolean is(ErrorKind other) {
    for (ErrorKind kind = this; kind != null; kind = kind.parent) {
      if (kind == other) {
        return true;
      }
    }
    return false;
  }

  // Those that no node says.
  private static final EnumSet<ErrorKind> OWN =
      EnumSet.of(
          RETRIABLE,
          BUFFER_FULL,
          FATAL,
          CLIENT_CLOSED,
          INVALID_CONFIG,
          DELIVERY_FAILED,
          DELIVERY_TIMEOUT,
          UNDELIVERED_RECORDS,
          PRODUCER_FAILED,
          TRANSACTION_FAILED,
          COMMIT_TIMEOUT);

  private static final Map<String, ErrorKind> TRAVELLING = new HashMap<>();

  static {
    for (ErrorKind kind : EnumSet.complementOf(OWN)) {
      TRAVELLING.put(kind.name(), kind);
    }
  }

  /** The kind that a node's word stands for; null: it is not known. */
  static ErrorKind of(String reason) {
    return TRAVELLING.get(reason);
  }
}

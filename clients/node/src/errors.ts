/** The tree of errors. The kinds are the words that travel over the network. */

const PARENTS = {
  /** Above all calls that may succeed later, unchanged. */
  RETRIABLE: undefined,
  /** The node does not lead the partition; the leader is named if that is known. */
  NOT_LEADER: "RETRIABLE",
  /** A new leader that has not caught up, or no leader at all, yet. */
  NOT_READY: "RETRIABLE",
  /** The node cannot be reached, or has no quorum. */
  UNAVAILABLE: "RETRIABLE",
  /** The node has too much to do, or a limit of it is reached. */
  THROTTLED: "RETRIABLE",
  /** The node's disk is full; it takes writes again when there is room. */
  STORAGE_FULL: "RETRIABLE",
  /** No answer in time; the call may still take effect. */
  REQUEST_TIMEOUT: "RETRIABLE",
  /**
   * The node is of another founding than the cluster that this client began with; the call had no
   * effect there.
   */
  OTHER_CLUSTER: "RETRIABLE",
  /** The buffer stayed full for `maxBlockMs`; nothing was queued. */
  BUFFER_FULL: "RETRIABLE",
  /**
   * No answer to a commit or an abort in time: the outcome is not known yet. Repeat the call: the
   * same transaction answers how it ended.
   */
  COMMIT_TIMEOUT: "RETRIABLE",
  /** There is none, as far as the node knows. */
  UNKNOWN_TOPIC_OR_PARTITION: "RETRIABLE",

  /** Above all calls that fail again if repeated. */
  FATAL: undefined,
  /** An argument is wrong; the field is named, and its limit. */
  INVALID_REQUEST: "FATAL",
  /** A topic of this name exists. */
  TOPIC_ALREADY_EXISTS: "FATAL",
  /** No producer holds, or held, the name. */
  PRODUCER_NAME_NOT_FOUND: "FATAL",
  /** The server, or this client, cannot do it. */
  NOT_SUPPORTED: "FATAL",
  /** The node does not know the caller: no certificate or token, or one that is of no use. */
  UNAUTHENTICATED: "FATAL",
  /** The caller may not do this; the message names the grant that is missing. */
  NOT_AUTHORIZED: "FATAL",
  /**
   * The group has given the partition to another member, or goes on without this one. A commit
   * that was tried more than once may have been stored before that.
   */
  FENCED_MEMBER: "FATAL",
  /** The group's members share its partitions; only they commit, or read on from its offsets. */
  GROUP_HAS_MEMBERS: "FATAL",
  /** A bug or a broken invariant at the node; its log says more. */
  INTERNAL: "FATAL",
  /** No record is there. */
  OFFSET_OUT_OF_RANGE: "FATAL",
  /** Stored or fetched bytes are damaged. */
  CORRUPT_LOG: "FATAL",
  /** The client was used after it was closed. */
  CLIENT_CLOSED: "FATAL",
  /** Settings that are out of range or contradict each other. */
  INVALID_CONFIG: undefined,

  /** Above all of a record that is not known to be stored; the outcome says more. */
  DELIVERY_FAILED: "FATAL",
  /** The batch itself is wrong; the message says how. */
  INVALID_BATCH: "DELIVERY_FAILED",
  /** The batch or record is over the topic's limit, or the buffer's. */
  BATCH_TOO_LARGE: "DELIVERY_FAILED",
  /** The expected offset is not the one that comes next. */
  OFFSET_MISMATCH: "DELIVERY_FAILED",
  /** `deliveryTimeoutMs` is over. */
  DELIVERY_TIMEOUT: "DELIVERY_FAILED",
  /** Records failed and nobody looked at it: thrown by flush and close. */
  UNDELIVERED_RECORDS: "DELIVERY_FAILED",

  /** Above all of a transaction that did not become, or is not, as requested. */
  TRANSACTION_FAILED: "DELIVERY_FAILED",
  /** Nothing of it is readable; the message says why. */
  TRANSACTION_ABORTED: "TRANSACTION_FAILED",
  /** It was committed before; nothing is undone. */
  TRANSACTION_COMMITTED: "TRANSACTION_FAILED",
  /** It has ended; repeat its commit to learn how. */
  TRANSACTION_ENDED: "TRANSACTION_FAILED",
  /** Another transaction of the same producer name is open. */
  TRANSACTION_OPEN: "TRANSACTION_FAILED",
  /** It was never begun, or ended so long ago that nobody knows how. */
  UNKNOWN_TRANSACTION: "TRANSACTION_FAILED",
  /** The commit names other batches than are staged; it is still open. */
  COMMIT_INCOMPLETE: "TRANSACTION_FAILED",
  /** It was committed with other batches than this commit names. */
  COMMIT_DIFFERS: "TRANSACTION_FAILED",

  /** Above all after which the producer cannot go on: all its pending records have failed. */
  PRODUCER_FAILED: "DELIVERY_FAILED",
  /** A producer with a higher epoch has taken over. */
  FENCED: "PRODUCER_FAILED",
  /** The same sequences are stored with another content. */
  SEQUENCE_CONFLICT: "PRODUCER_FAILED",
  /** The batch does not follow the last sequence that is stored. */
  OUT_OF_ORDER: "PRODUCER_FAILED",
  /** The cluster never issued this producer id, or the partition does not know it. */
  UNKNOWN_PRODUCER: "PRODUCER_FAILED",
  /** The lease of the producer id is over. */
  PRODUCER_EXPIRED: "PRODUCER_FAILED",
} as const;

/** A place in the tree of errors. */
export type ErrorKind = keyof typeof PARENTS;

/** Those that no node says. */
const OWN = new Set<string>([
  "RETRIABLE",
  "BUFFER_FULL",
  "FATAL",
  "CLIENT_CLOSED",
  "INVALID_CONFIG",
  "DELIVERY_FAILED",
  "DELIVERY_TIMEOUT",
  "UNDELIVERED_RECORDS",
  "PRODUCER_FAILED",
  "TRANSACTION_FAILED",
  "COMMIT_TIMEOUT",
]);

/** The kind that a node's word stands for. */
export function kindOf(reason: string): ErrorKind | undefined {
  return Object.hasOwn(PARENTS, reason) && !OWN.has(reason) ? (reason as ErrorKind) : undefined;
}

function below(kind: ErrorKind, other: ErrorKind): boolean {
  for (let at: ErrorKind | undefined = kind; at !== undefined; at = PARENTS[at]) {
    if (at === other) return true;
  }
  return false;
}

/**
 * Known outcome of a failed record: no node has seen it; a node refused it; it was sent and
 * may be stored now or a little later.
 */
export type Outcome = "never_sent" | "not_stored" | "unknown";

/**
 * Fields of an error beside its message. The fields that are set depend on its kind.
 *
 * A record's error names its batch: `Admin.resolveSequence` takes topic, partition, producerId, epoch
 * and sequence, and tells later whether the batch was stored. The last three are not set if it was
 * never sent, or without idempotence.
 */
export interface ErrorDetails {
  topic?: string;
  partition?: number;
  producerId?: bigint;
  epoch?: number;
  /** Of the batch's last record: a batch is stored whole or not at all. */
  sequence?: bigint;
  offset?: bigint;
  logStartOffset?: bigint;
  highWatermark?: bigint;
  nextOffset?: bigint;
  lastSequence?: bigint;
  currentEpoch?: number;
  leaderId?: number;
  leaderAddress?: string;
  producerName?: string;
  /** Of NOT_AUTHORIZED: the caller and the permission it would need. */
  principal?: string;
  operation?: string;
  kind?: string;
  name?: string;
  field?: string;
  limit?: string;
  count?: number;
}

/** Every error that this package makes. */
export class OncelogError extends Error {
  override readonly name = "OncelogError";
  /** Where the error is in the tree. */
  readonly kind: ErrorKind;
  /**
   * Set for errors of records. Of another retriable error it is "unknown" if an attempt of the call
   * had no answer: the call may take effect.
   */
  readonly outcome: Outcome | undefined;
  /** Fields of the error. */
  readonly details: ErrorDetails;

  constructor(
    kind: ErrorKind,
    message: string,
    details: ErrorDetails = {},
    outcome?: Outcome,
    cause?: unknown,
  ) {
    super(message || kind, cause === undefined ? undefined : { cause });
    this.kind = kind;
    this.details = details;
    const hasOutcome = kind === "COMMIT_TIMEOUT" || below(kind, "DELIVERY_FAILED");
    if (hasOutcome) this.outcome = outcome ?? "not_stored";
    else this.outcome = this.retriable ? outcome : undefined;
  }

  /** Whether the error's kind is this one or below it. */
  is(kind: ErrorKind): boolean {
    return below(this.kind, kind);
  }

  /** Whether the same call may succeed later. */
  get retriable(): boolean {
    return this.is("RETRIABLE");
  }

  /** The same error with this outcome, if it is of a record. */
  withOutcome(outcome: Outcome): OncelogError {
    return !this.is("DELIVERY_FAILED")
      ? this
      : new OncelogError(this.kind, this.message, this.details, outcome, this.cause);
  }
}

/** Told by a node, or of a call that was never sent. */
const MARKS = new WeakMap<OncelogError, "told" | "unsent">();

/** Notes that a node has said this. */
export function told(error: OncelogError): OncelogError {
  MARKS.set(error, "told");
  return error;
}

export function isTold(error: OncelogError): boolean {
  return MARKS.get(error) === "told";
}

/** Notes that the call was not sent: there was no connection. */
export function unsent(error: OncelogError): OncelogError {
  MARKS.set(error, "unsent");
  return error;
}

export function isUnsent(error: OncelogError): boolean {
  return MARKS.get(error) === "unsent";
}

/** The first error with the marks of the second one. */
export function markedAs(error: OncelogError, other: OncelogError): OncelogError {
  const mark = MARKS.get(other);
  if (mark !== undefined) MARKS.set(error, mark);
  return error;
}

/** Any error as one of ours. */
export function asError(error: unknown): OncelogError {
  return error instanceof OncelogError
    ? error
    : new OncelogError("INTERNAL", String(error), {}, "unknown", error);
}

/** Whether to try again. */
export function isRetriable(error: unknown): boolean {
  return error instanceof OncelogError && error.retriable;
}

/** An argument of the application is wrong. */
export function invalid(field: string, message: string): OncelogError {
  return new OncelogError("INVALID_REQUEST", message, { field });
}

/**
 * The failed attempts of a call that is repeated until its time is over: which of their errors the
 * caller is told. The last attempt is cut short by the deadline, and its timeout must not hide a
 * node's refusal.
 */

import { isTold, isUnsent, markedAs, OncelogError, unsent } from "./errors.js";

export class Attempts {
  #last: OncelogError | undefined;
  #telling: OncelogError | undefined;
  /** A node may have taken one of them. */
  #inDoubt = false;

  get inDoubt(): boolean {
    return this.#inDoubt;
  }

  failed(error: OncelogError): void {
    this.#last = error;
    this.#inDoubt ||= mayHaveBeenDone(error);
    if (this.#telling === undefined || rank(error) >= rank(this.#telling)) this.#telling = error;
  }

  /** An attempt has succeeded. */
  clear(): void {
    this.#last = undefined;
    this.#telling = undefined;
    this.#inDoubt = false;
  }

  get last(): OncelogError | undefined {
    return this.#last;
  }

  /** The last one of those that tell the most. */
  get telling(): OncelogError | undefined {
    return this.#telling;
  }

  /** The most telling error. Its outcome is unknown if an attempt had no answer. */
  error(): OncelogError {
    return this.withDoubt(this.#telling ?? new OncelogError("INTERNAL", "no attempt has failed"));
  }

  /** The same behind this text: a timeout, if no node has said anything. */
  late(text: string): OncelogError {
    if (this.#telling === undefined) return new OncelogError("REQUEST_TIMEOUT", text);
    const error = this.error();
    const kind = tells(this.#telling) ? error.kind : "REQUEST_TIMEOUT";
    const message = `${text}: ${error.message}`;
    const late = new OncelogError(kind, message, error.details, error.outcome, this.#telling);
    return isUnsent(this.#telling) ? unsent(late) : late;
  }

  /**
   * An answer that ends the call, with the doubt of an attempt that had none: that one may have taken
   * effect, and the answer speaks for the last attempt alone.
   */
  finalAnswer(e: unknown): unknown {
    const answered =
      e instanceof OncelogError && (isTold(e) || e.kind === "UNKNOWN_TOPIC_OR_PARTITION");
    if (!this.#inDoubt || !answered) return e;
    const message = `${e.message}; an earlier attempt had no answer and may have taken effect`;
    const outcome = e.retriable ? "unknown" : e.outcome;
    return markedAs(new OncelogError(e.kind, message, e.details, outcome, e), e);
  }

  /** This error, with the last attempt's text if that tells less. */
  withDoubt(error: OncelogError): OncelogError {
    const last = this.#last;
    const more = last !== undefined && !tells(last) && last.message !== error.message;
    const message = more ? `${error.message}; the last attempt: ${last.message}` : error.message;
    const outcome = this.#inDoubt && error.retriable ? "unknown" : error.outcome;
    const twin = new OncelogError(error.kind, message, error.details, outcome, error);
    return markedAs(twin, error);
  }
}

/** Whether a node may have executed a call that ended so. */
function mayHaveBeenDone(error: OncelogError): boolean {
  const lost = error.kind === "REQUEST_TIMEOUT" || error.kind === "UNAVAILABLE";
  return (lost && !isUnsent(error)) || error.outcome === "unknown";
}

/** Whether a node has said this: its refusal, or its view of the cluster. */
export function tells(error: OncelogError): boolean {
  return rank(error) > 1;
}

function rank(error: OncelogError): number {
  if (isTold(error)) return 2;
  if (error.kind === "REQUEST_TIMEOUT") return 0;
  return error.kind === "UNAVAILABLE" ? 1 : 2; // more than a deadline of our own
}

/**
 * Reasons why a partition's batches were not stored since the last success. A node's refusal is not
 * hidden by later failures: a lost connection, no answer.
 */
export class Obstacles {
  #refusal = "";
  #last = "";

  /** `told`: by a node. */
  met(text: string, told = false): void {
    if (told) this.#refusal = text;
    this.#last = text;
  }

  clear(): void {
    this.#refusal = "";
    this.#last = "";
  }

  toString(): string {
    const same = this.#refusal === "" || this.#refusal === this.#last;
    return same ? this.#last : `${this.#refusal}; ${this.#last}`;
  }
}

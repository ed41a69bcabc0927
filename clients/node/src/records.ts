/** A consumer's records, one after the other, for `for await`. */

import type { StoredRecord } from "./types.js";

/**
 * Not a generator: `return` of one waits for the `next` before it, which may wait for ever, and an
 * error would end it.
 */
export class Records implements AsyncIterableIterator<StoredRecord, undefined> {
  readonly #left = new AbortController();
  #last: Promise<unknown> = Promise.resolve();

  constructor(
    /** The consumer is closed. */
    readonly isOver: () => boolean,
    readonly poll: (signal: AbortSignal) => Promise<StoredRecord[]>,
  ) {}

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The next record; after that of the `next` before it. */
  next(): Promise<IteratorResult<StoredRecord, undefined>> {
    const turn = this.#last.then(() => this.#next());
    this.#last = turn.catch(() => {});
    return turn;
  }

  async #next(): Promise<IteratorResult<StoredRecord, undefined>> {
    const { signal } = this.#left;
    while (!signal.aborted && !this.isOver()) {
      try {
        const [value] = await this.poll(signal);
        if (value !== undefined) return { done: false, value };
      } catch (e) {
        if (!signal.aborted || e !== signal.reason) throw e;
      }
    }
    return { done: true, value: undefined };
  }

  /** Ends it, and a `next` that waits. */
  async return(): Promise<IteratorResult<StoredRecord, undefined>> {
    this.#left.abort();
    await this.#last;
    return { done: true, value: undefined };
  }
}

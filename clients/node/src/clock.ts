/** Times in ms of a clock that never goes back, pauses, and waiting. */

export const now = (): number => performance.now();

/** Pauses that double, up to a limit, 20 % more or less by chance. */
export class Backoff {
  constructor(
    readonly first: number,
    readonly most: number,
  ) {}

  delay(failures: number): number {
    if (failures <= 0) return 0;
    const pause = Math.min(this.first * 2 ** Math.min(failures - 1, 30), this.most);
    return pause * (0.8 + 0.4 * Math.random());
  }
}

/** Waits, or fails with the signal's reason. */
export function sleep(pause: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason);
      return;
    }
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", onAbort);
      resolve();
    }, pause);
    signal.addEventListener("abort", onAbort, { once: true });
  });
}

/** Whether the promise is fulfilled before this time. */
export async function within(promise: Promise<unknown>, until: number): Promise<boolean> {
  const left = until - now();
  if (left === Number.POSITIVE_INFINITY) {
    await promise;
    return true;
  }
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), Math.max(0, Math.min(left, 2 ** 31 - 1)));
  });
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * The promise; or the signal's reason, if it is aborted before. Then nobody waits for the promise any
 * more: the call it stands for goes on.
 */
export function unlessAborted<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const giveUp = () => reject(signal.reason);
    if (signal.aborted) giveUp();
    signal.addEventListener("abort", giveUp, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", giveUp));
  });
}

/** Wakes callers that wait for a change. */
export class Change {
  #waiting: (() => void)[] = [];

  /** When something has changed after this call; also at this time. */
  async next(until = Number.POSITIVE_INFINITY): Promise<boolean> {
    let wake = () => {};
    const changed = new Promise<void>((resolve) => {
      wake = resolve;
      this.#waiting.push(resolve);
    });
    const done = await within(changed, until);
    if (!done) this.#waiting = this.#waiting.filter((one) => one !== wake);
    return done;
  }

  notify(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  }
}

/** One after the other, in the order of their asking. */
export class Lock {
  #last: Promise<unknown> = Promise.resolve();

  hold<T>(task: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(task);
    this.#last = turn.catch(() => {});
    return turn;
  }
}

/**
 * Events that the client tells the program beside its errors: as warnings of the process, which
 * Node.js writes to stderr, and `process.on("warning")` hears.
 */

import { writeSync } from "node:fs";

export const WARNING = "OncelogWarning";

export function warn(text: string): void {
  process.emitWarning(text, WARNING);
}

/** Clients that may have something undelivered when the process ends. */
interface Undelivered {
  /** Records without a known outcome. */
  readonly pending: number;
}

const open = new Set<Undelivered>();

// Nothing asynchronous runs any more: all that can be done is to say so.
function sayAtExit(): void {
  const count = [...open].reduce((sum, one) => sum + one.pending, 0);
  if (count === 0) return;
  const text = `${count} records were not delivered: the process ended before Producer.close`;
  try {
    writeSync(2, `(oncelog) ${WARNING}: ${text}\n`);
  } catch {
    // nobody reads stderr
  }
}

/** Says at the end of the process which records were not delivered, until `closed`. */
export function watchAtExit(one: Undelivered): void {
  if (open.size === 0) process.on("exit", sayAtExit);
  open.add(one);
}

export function closed(one: Undelivered): void {
  open.delete(one);
  if (open.size === 0) process.off("exit", sayAtExit);
}

/** A warning when no node answers for a while, and one when a node does again. */

import { now } from "./clock.js";
import { warn } from "./warnings.js";

const MOST_PATIENCE = 5000;

/** How a client's connection to the cluster has been since its start. */
export interface ConnectionStats {
  /** How often no node answered for 5 s, or for `requestTimeoutMs` if that is shorter. */
  readonly outages: number;
  /** For how long that has been so by now; 0: a node answers. */
  readonly outageMs: number;
}

export class Reachability {
  readonly #patience: number;
  // A client calls seldom while it is idle: failures so far apart are not one outage.
  readonly #gap: number;
  #since: number | undefined; // the first failure after the last answer
  #last = 0;
  #warned = false;
  #outages = 0;

  constructor(requestTimeoutMs: number) {
    this.#patience = Math.min(MOST_PATIENCE, requestTimeoutMs);
    this.#gap = 2 * Math.max(MOST_PATIENCE, requestTimeoutMs);
  }

  answered(address: string): void {
    if (this.#since === undefined) return;
    if (this.#warned) {
      warn(`${address} answers again, after ${Math.round((now() - this.#since) / 1000)} s`);
    }
    this.#since = undefined;
    this.#warned = false;
  }

  /** A node did not answer, for a reason that names it. */
  failed(reason: string): void {
    const at = now();
    if (this.#since === undefined || at - this.#last > this.#gap) {
      this.#since = at;
      this.#warned = false;
    }
    this.#last = at;
    if (this.#warned || at - this.#since < this.#patience) return;
    this.#warned = true;
    this.#outages++;
    const seconds = Math.round((at - this.#since) / 1000);
    warn(`no node has answered for ${seconds} s, the client keeps trying: ${reason}`);
  }

  get stats(): ConnectionStats {
    const down = this.#warned && this.#since !== undefined;
    return { outages: this.#outages, outageMs: down ? now() - (this.#since ?? 0) : 0 };
  }
}

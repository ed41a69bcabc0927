/** The founding of the cluster that a client began with. */

import { Metadata } from "@grpc/grpc-js";
import { OncelogError } from "./errors.js";

const KEY = "oncelog-founding";

/**
 * The first founding that an answer names. It goes with each call, and a node of another founding
 * rejects the call.
 */
export class Founding {
  #known = ""; // no node has named one

  /** Of a call. */
  metadata(): Metadata {
    const metadata = new Metadata();
    if (this.#known !== "") metadata.set(KEY, this.#known);
    return metadata;
  }

  /** Keeps the first founding. Returns an error if this is another one. */
  learn(address: string, trailer: Metadata): OncelogError | undefined {
    const [named] = trailer.get(KEY);
    if (typeof named !== "string" || named === this.#known) return undefined; // an older release
    if (this.#known === "") {
      this.#known = named;
      return undefined;
    }
    const text =
      `${address} is of the cluster founded as ${named}, this client began with the one founded ` +
      `as ${this.#known}. Remove the address from the servers, or stop the node there`;
    return new OncelogError("OTHER_CLUSTER", text);
  }
}

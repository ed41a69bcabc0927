/** One ordered stream of batches to one node. */

import { create } from "@bufbuild/protobuf";
import type { ClientDuplexStream } from "@grpc/grpc-js";
import type { Cluster } from "./cluster.js";
import { isTold, type OncelogError } from "./errors.js";
import type { Batch } from "./gen/oncelog/v1/batch_pb.js";
import {
  type BatchResult,
  LogService,
  type ProduceRequest,
  ProduceRequestSchema,
  type ProduceResponse,
} from "./gen/oncelog/v1/log_pb.js";
import type { SealedBatch } from "./sealed.js";
import { fromStatus } from "./status.js";
import type { Window } from "./window.js";

// Several small batches share a message up to this size, and this number.
const MESSAGE_BYTES = 1 << 20;
const MESSAGE_BATCHES = 1000;
// No more is handed to the connection than this before it has taken the batches in hand: a batch
// that waits in the accumulator can still grow, one that waits here cannot.
const BACKLOG_BYTES = 4 << 20;

/** A stream's reports to the sender. */
export interface StreamEvents {
  opened(stream: ProduceStream): void;
  room(): void;
  results(stream: ProduceStream, results: BatchResult[]): void;
  closed(stream: ProduceStream, why: string): void;
}

/**
 * It connects before it reports itself open, so a batch that is handed over has somewhere to go; a
 * batch for a node that cannot be reached is never sealed.
 */
export class ProduceStream {
  readonly outstanding = new Map<bigint, { window: Window; batch: SealedBatch }>();
  #outbox: Batch[] = [];
  #backlog = 0;
  #blocked = false;
  #call: ClientDuplexStream<ProduceRequest, ProduceResponse> | undefined;
  #closed = false;
  #why = ""; // it was given up
  /** Why the node will take none of this, however often it is sent. */
  refused: OncelogError | undefined;
  /** A node has said why it ended. */
  told = false;

  constructor(
    readonly address: string,
    readonly cluster: Cluster,
    readonly timeoutMs: number,
    connectMs: number,
    readonly events: StreamEvents,
  ) {
    cluster.client(address).waitForReady(Date.now() + connectMs, (error) => {
      if (this.#closed) return;
      if (error !== undefined && error !== null) this.#end(error.message);
      else this.#open();
    });
  }

  get opened(): boolean {
    return this.#call !== undefined && !this.#closed;
  }

  get hasRoom(): boolean {
    return this.opened && this.#backlog < BACKLOG_BYTES;
  }

  #open(): void {
    const call = this.cluster.duplex(this.address, LogService.method.produceStream);
    this.#call = call;
    call.on("data", (response: ProduceResponse) => this.events.results(this, response.results));
    call.on("drain", () => {
      this.#blocked = false;
      this.write();
      this.events.room();
    });
    call.on("error", () => {}); // the status says the same
    call.on("status", (status) => {
      const error = fromStatus(this.address, status);
      this.told = isTold(error);
      if (error.kind === "NOT_AUTHORIZED" || error.kind === "UNAUTHENTICATED") this.refused = error;
      this.#end(this.#why || status.details);
    });
    this.events.opened(this);
  }

  #end(why: string): void {
    if (this.#closed) return;
    this.#closed = true;
    this.events.closed(this, why);
  }

  /** Gives the stream up; that it is closed is said soon. */
  close(why: string): void {
    this.#why = why;
    if (this.#call === undefined) this.#closed = true;
    else this.#call.cancel();
  }

  send(window: Window, batch: SealedBatch, attemptId: bigint): void {
    this.outstanding.set(attemptId, { window, batch });
    this.#outbox.push(batch.message(attemptId));
    this.#backlog += batch.size;
  }

  /** Hands over the batches that the connection takes now. */
  write(): void {
    while (this.#outbox.length > 0 && this.opened && !this.#blocked) {
      let size = 0;
      let count = 0;
      for (const batch of this.#outbox) {
        const more = batch.payload.length + batch.leaseToken.length + 100;
        if (count === MESSAGE_BATCHES || (count > 0 && size + more > MESSAGE_BYTES)) break;
        size += more;
        count++;
      }
      const batches = this.#outbox.splice(0, count);
      this.#backlog -= size;
      const { timeoutMs } = this;
      this.#blocked = !this.#call?.write(create(ProduceRequestSchema, { batches, timeoutMs }));
    }
  }
}

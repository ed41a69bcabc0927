/**
 * Reads stored records by a stream instead of question and answer. Where a poll's answer
 * was cut short because there is more, the partition is subscribed to, and polled again when all
 * that there was has come, or something happened that a poll deals with. So at the end of the log,
 * where a node may have nothing to say for long and lose its office meanwhile, there are only
 * polls.
 */

import type { ClientReadableStream } from "@grpc/grpc-js";
import type { FetchBuffer, Wanted } from "./buffer.js";
import type { Cluster } from "./cluster.js";
import type { ConsumerConfig } from "./config.js";
import { type FetchResponse, LogService, type PartitionRecords } from "./gen/oncelog/v1/log_pb.js";

// Enough that a message costs little beside its bytes, and no more, because a node sends one while
// it collects the next.
const SUBSCRIBE_BYTES = 2 << 20;
// Where there is more to read, silence is a reason to poll, which looks for the leader.
const SILENCE = 2000;

/** Whether a poll's answer was cut short because there is more. */
export function worthIt(config: ConsumerConfig, records: PartitionRecords): boolean {
  const size = records.batches.reduce((sum, stored) => sum + stored.payload.length, 0);
  const enough = Math.min(config.maxPartitionFetchBytes, config.fetchMaxBytes) / 2;
  return size > 0 && size >= enough && endOffset(records) < records.highWatermark;
}

/** The offset behind the last batch. */
export function endOffset(records: PartitionRecords): bigint {
  const last = records.batches.at(-1);
  return (last?.baseOffset ?? 0n) + BigInt(last?.header?.recordCount ?? 0);
}

export class CatchUp {
  #wanted: Wanted;
  #call: ClientReadableStream<FetchResponse> | undefined;
  #heardAt = 0;
  #waitsForRoom = false;
  #over = false;

  constructor(
    readonly config: ConsumerConfig,
    readonly cluster: Cluster,
    readonly buffer: FetchBuffer,
    readonly address: string,
    wanted: Wanted,
    /** The part still wanted when it ends, and the node's refusal, if there was one. */
    readonly ended: (stream: CatchUp, wanted: Wanted, refused?: PartitionRecords) => void,
  ) {
    this.#wanted = wanted;
  }

  get generation(): number {
    return this.#wanted.generation;
  }

  /** Reads on if there is room; ends if it is silent or nobody wants it any more. */
  work(at: number): void {
    if (this.#over) return;
    const room = this.buffer.room(this.#wanted);
    if (room === undefined) this.#end();
    else if (this.#call === undefined) {
      // The buffer was full, most likely: only a reader that continues gets a stream.
      if (room) this.#open(at);
    } else if (!room) {
      this.#waitsForRoom = true;
      this.#call.pause();
    } else if (this.#waitsForRoom) {
      this.#waitsForRoom = false;
      this.#heardAt = at;
      this.#call.resume();
    } else if (at - this.#heardAt > SILENCE) this.#end();
  }

  #open(at: number): void {
    const { topic, partition } = this.#wanted.tp;
    const { maxPartitionFetchBytes, fetchMaxBytes, anyReplica, rack } = this.config;
    this.#heardAt = at;
    this.#call = this.cluster.serverStream(this.address, LogService.method.subscribe, {
      partitions: [{ topic, partition, offset: this.#wanted.offset }],
      maxBytes: Math.min(maxPartitionFetchBytes, fetchMaxBytes, SUBSCRIBE_BYTES),
      anyReplica,
      near: rack !== null,
    });
    this.#call.on("data", (message: FetchResponse) => this.#take(message));
    this.#call.on("error", () => {}); // a poll will find out
    this.#call.on("status", () => this.#end());
  }

  #take(message: FetchResponse): void {
    for (const records of message.partitions) {
      if (this.#over) return;
      const added = this.buffer.add(this.#wanted, records);
      if (added === "refused") this.#end(records);
      else if (added !== "ok" || records.batches.length === 0)
        this.#end(); // a poll tells why
      else {
        this.#wanted = { ...this.#wanted, offset: endOffset(records) };
        if (this.#wanted.offset >= records.highWatermark) this.#end();
      }
    }
    const at = performance.now();
    this.#heardAt = at;
    this.work(at);
  }

  /** Gives it up; nobody hears of its end. */
  cancel(): void {
    this.#over = true;
    this.#call?.cancel();
  }

  #end(refused?: PartitionRecords): void {
    if (this.#over) return;
    this.cancel();
    this.ended(this, this.#wanted, refused);
  }
}

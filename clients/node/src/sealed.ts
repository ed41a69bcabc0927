/** Batches on their way. */

import { create } from "@bufbuild/protobuf";
import type { OpenBatch } from "./accumulator.js";
import { CODECS } from "./codecs.js";
import type { ProducerConfig } from "./config.js";
import {
  type Batch,
  type BatchHeader,
  BatchHeaderSchema,
  BatchSchema,
} from "./gen/oncelog/v1/batch_pb.js";
import type { Identity } from "./identities.js";
import { isSecured } from "./security.js";

/** A batch on its way. Sent batches never change; the rest is the state of its sending. */
export class SealedBatch {
  readonly lastSequence: bigint;
  readonly #header: BatchHeader;
  readonly #payload: Buffer;
  readonly #leaseToken: Uint8Array;
  attempts = 0;
  attemptId: bigint | undefined; // of the attempt with an awaited answer
  sentAt = 0;
  firstSentAt = 0;
  ambiguous = false; // some attempt ended without an answer that tells its outcome,
  unanswered = false; // or without any answer from the node in its time
  sentAsHead = false; // all before it was acknowledged when it was last sent
  refused = false; // answered OUT_OF_ORDER while an earlier batch was being retried
  acked = false;
  /** Its records have failed (delivery timeout), but it holds the chain for successors. */
  abandoned = false;

  /** Numbers a batch; prev is the last sequence before it. Throws if it cannot be encoded. */
  constructor(
    readonly batch: OpenBatch,
    identity: Identity,
    readonly prevSequence: bigint,
    public deadline: number,
    config: ProducerConfig,
  ) {
    const payload = batch.encode(config);
    const { producerId, epoch } = identity;
    const header = create(BatchHeaderSchema, {
      topic: batch.lane.tp.topic,
      partition: batch.lane.tp.partition,
      recordCount: batch.count,
      codec: CODECS[config.compressionType],
      crc32c: payload.crc,
      maxTimestampUs: payload.maxTimestamp,
    });
    if (batch.expectedOffset !== undefined) header.expectedOffset = batch.expectedOffset;
    let base = -1n;
    let last = -1n;
    if (producerId !== 0n) {
      base = batch.sequences?.[0] ?? prevSequence + 1n;
      last = batch.sequences?.at(-1) ?? prevSequence + BigInt(batch.count);
      header.producerId = producerId;
      header.epoch = epoch;
      header.baseSequence = base;
      if (last !== base + BigInt(batch.count) - 1n) header.lastSequence = last;
      if (prevSequence !== base - 1n) header.prevSequence = prevSequence;
    }
    const { transaction } = batch;
    if (transaction !== undefined) header.transactionId = transaction.id;
    const proves = producerId !== 0n && (prevSequence === -1n || isSecured(config));
    this.lastSequence = last;
    this.#header = header;
    this.#payload = payload.data;
    this.#leaseToken = proves ? identity.leaseToken : new Uint8Array();
    batch.delivery.stamp = { producerId, epoch, baseSequence: base };
  }

  get size(): number {
    return this.#payload.length + this.#leaseToken.length + 100;
  }

  /** An attempt to be sent: the same each time but for the id. */
  message(id: bigint): Batch {
    return create(BatchSchema, {
      header: this.#header,
      payload: this.#payload,
      id,
      leaseToken: this.#leaseToken,
    });
  }
}

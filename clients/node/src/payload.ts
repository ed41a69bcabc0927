/** A batch's payload, read: columns of which all is checked. docs/protocol.md has the layout. */

import { OncelogError } from "./errors.js";
import type { StoredRecord, TopicPartition } from "./types.js";

export const PREAMBLE_BYTES = 32;
export const MAX_PAYLOAD_BYTES = 64 << 20;
export const FLAG_VALUE_VALIDITY = 1;
export const FLAG_KEYS = 2;
export const FLAG_KEY_VALIDITY = 4;
export const FLAG_HEADERS = 8;
export const FLAG_HEADER_VALUE_VALIDITY = 16;
const ALL_FLAGS = 31;
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export function padded(size: number): number {
  return Math.ceil(size / 8) * 8;
}

function damaged(message: string): OncelogError {
  return new OncelogError("INVALID_BATCH", message);
}

class Column {
  constructor(
    readonly valid: Buffer | undefined,
    readonly ends: Buffer,
    readonly data: Buffer,
  ) {}

  isNull(row: number): boolean {
    return this.valid !== undefined && (((this.valid[row >> 3] ?? 0) >> (row & 7)) & 1) === 0;
  }

  at(row: number): Buffer | null {
    if (this.isNull(row)) return null;
    return this.data.subarray(this.ends.readInt32LE(4 * row), this.ends.readInt32LE(4 * row + 4));
  }
}

/** Cuts a payload into its buffers. */
class Cutter {
  at = PREAMBLE_BYTES;

  constructor(readonly payload: Buffer) {}

  /** The next buffer of so many bytes; goes on behind its padding. */
  take(size: number): Buffer {
    const begin = this.at;
    if (begin + padded(size) > this.payload.length) {
      throw damaged("the payload is shorter than its preamble asks for");
    }
    this.at = begin + padded(size);
    return this.payload.subarray(begin, begin + size);
  }

  column(name: string, rows: number, size: number, withNulls: boolean): Column {
    const valid = withNulls ? this.take((rows + 7) >> 3) : undefined;
    const ends = this.offsets(name, rows, size);
    return new Column(valid, ends, this.take(size));
  }

  /** n + 1 offsets, which must rise from 0 to end. */
  offsets(name: string, rows: number, end: number): Buffer {
    const raw = this.take(4 * (rows + 1));
    let before = 0;
    for (let row = 0; row <= rows; row++) {
      const offset = raw.readInt32LE(4 * row);
      if (offset < before || (row === 0 && offset !== 0)) {
        throw damaged(`${name} offsets do not rise from 0 to ${end}`);
      }
      before = offset;
    }
    if (before !== end) throw damaged(`${name} offsets do not rise from 0 to ${end}`);
    return raw;
  }
}

/** A payload's columns. */
export class Payload {
  readonly #values: Column;
  readonly #keys: Column | undefined;
  readonly #timestamps: Buffer;
  readonly #headerEnds: Buffer | undefined;
  readonly #headerNames: string[] = [];
  readonly #headerValues: Column | undefined;

  /** Refuses all but exactly a payload of `count` records. */
  constructor(payload: Buffer, count: number) {
    if (payload.length > MAX_PAYLOAD_BYTES) {
      throw damaged(`${payload.length} bytes are over the limit ${MAX_PAYLOAD_BYTES}`);
    }
    if (payload.length < PREAMBLE_BYTES || payload.toString("latin1", 0, 4) !== "OLB1") {
      throw damaged("the payload does not begin with a preamble");
    }
    const numbers = Array.from({ length: 7 }, (_, i) => payload.readUInt32LE(4 + 4 * i));
    const [flags = 0, n = 0, h = 0, values = 0, keys = 0, names = 0, headerValues = 0] = numbers;
    if (Math.max(...numbers) > MAX_PAYLOAD_BYTES) {
      throw damaged(`the preamble's numbers are over the limit ${MAX_PAYLOAD_BYTES}`);
    }
    if ((flags & ~ALL_FLAGS) !== 0) throw damaged(`unknown flags 0x${flags.toString(16)}`);
    if (n === 0) throw damaged("the payload holds no records");
    if (n !== count) throw damaged(`the payload holds ${n} records, its header says ${count}`);
    const has = (flag: number) => (flags & flag) !== 0;
    if (!has(FLAG_KEYS) && (keys > 0 || has(FLAG_KEY_VALIDITY))) {
      throw damaged("keys without the flag for keys");
    }
    const anyHeader = h + names + headerValues > 0 || has(FLAG_HEADER_VALUE_VALIDITY);
    if (!has(FLAG_HEADERS) && anyHeader) throw damaged("headers without the flag for headers");
    const cut = new Cutter(payload);
    this.#values = cut.column("value", n, values, has(FLAG_VALUE_VALIDITY));
    if (has(FLAG_KEYS)) this.#keys = cut.column("key", n, keys, has(FLAG_KEY_VALIDITY));
    this.#timestamps = cut.take(8 * n);
    if (has(FLAG_HEADERS)) {
      this.#headerEnds = cut.offsets("header", n, h);
      const all = cut.column("header key", h, names, false);
      for (let i = 0; i < h; i++) this.#headerNames.push(text(all.at(i)));
      const nulls = has(FLAG_HEADER_VALUE_VALIDITY);
      this.#headerValues = cut.column("header value", h, headerValues, nulls);
    }
    if (cut.at !== payload.length) {
      throw damaged(`the payload has ${payload.length - cut.at} bytes more than it should`);
    }
  }

  /** Whether compaction has removed the record, in a batch that it made. */
  isBlank(row: number): boolean {
    return this.#values.isNull(row) && (this.#keys?.isNull(row) ?? true);
  }

  record(tp: TopicPartition, offset: bigint, row: number): StoredRecord {
    return {
      topic: tp.topic,
      partition: tp.partition,
      offset,
      timestampUs: this.#timestamps.readBigInt64LE(8 * row),
      value: this.#values.at(row),
      key: this.#keys?.at(row) ?? null,
      headers: this.#headers(row),
    };
  }

  #headers(row: number): StoredRecord["headers"] {
    if (this.#headerEnds === undefined) return [];
    const headers = [];
    const end = this.#headerEnds.readInt32LE(4 * row + 4);
    for (let i = this.#headerEnds.readInt32LE(4 * row); i < end; i++) {
      headers.push({
        key: this.#headerNames[i] ?? "",
        value: this.#headerValues?.at(i) ?? null,
      });
    }
    return headers;
  }
}

function text(data: Buffer | null): string {
  try {
    return UTF8.decode(data ?? new Uint8Array());
  } catch {
    throw damaged("a header key is not UTF-8");
  }
}

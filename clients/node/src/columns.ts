/**
 * The records of a batch while it fills, as the columns that docs/protocol.md lays out, so that
 * encoding is little more than a copy.
 */

import { OncelogError } from "./errors.js";
import {
  FLAG_HEADER_VALUE_VALIDITY,
  FLAG_HEADERS,
  FLAG_KEY_VALIDITY,
  FLAG_KEYS,
  FLAG_VALUE_VALIDITY,
  MAX_PAYLOAD_BYTES,
  PREAMBLE_BYTES,
  padded,
} from "./payload.js";
import type { Content, Header } from "./types.js";

/**
 * Most bytes that one record adds beside its own bytes, headers left out: 4 + 4 of offsets, 8 of
 * timestamp, validity bits, and 4 of header offsets.
 */
export const RECORD_OVERHEAD = 21;
export const HEADER_OVERHEAD = 9;
/** Preamble, one more offset in each of five offset buffers, and all padding. */
export const BATCH_OVERHEAD = PREAMBLE_BYTES + 5 * 4 + 11 * 7;

/** How many bytes a content has. */
export function sizeOf(content: Content | undefined): number {
  if (content === null || content === undefined) return 0;
  return typeof content === "string" ? Buffer.byteLength(content) : content.length;
}

/** A column of byte strings, of which some may be null. */
class Column {
  rows = 0;
  ends = new Int32Array(16);
  data = Buffer.allocUnsafe(256);
  length = 0;
  nulls = 0;
  valid = new Uint8Array(0);

  add(item: Content): void {
    const row = this.rows;
    if (item === null) {
      if (this.nulls === 0) {
        this.valid = new Uint8Array((row >> 3) + 16);
        for (let i = 0; i < row; i++) this.#setValid(i);
      }
      this.nulls++;
    }
    if (this.nulls > 0) {
      if (row >> 3 >= this.valid.length) {
        const wider = new Uint8Array(this.valid.length * 2);
        wider.set(this.valid);
        this.valid = wider;
      }
      if (item !== null) this.#setValid(row);
    }
    if (item !== null) {
      const size = sizeOf(item);
      if (size > this.data.length - this.length) {
        const wider = Buffer.allocUnsafe(Math.max(this.data.length * 2, this.length + size));
        this.data.copy(wider, 0, 0, this.length);
        this.data = wider;
      }
      if (typeof item === "string") this.data.write(item, this.length);
      else this.data.set(item, this.length);
      this.length += size;
    }
    if (row === this.ends.length) this.ends = doubled(this.ends);
    this.ends[row] = this.length;
    this.rows = row + 1;
  }

  #setValid(row: number): void {
    this.valid[row >> 3] = (this.valid[row >> 3] ?? 0) | (1 << (row & 7));
  }

  get size(): number {
    const size = padded(4 * (this.rows + 1)) + padded(this.length);
    return this.nulls > 0 ? size + padded((this.rows + 7) >> 3) : size;
  }

  encode(out: Buffer, at: number): number {
    let to = at;
    if (this.nulls > 0) {
      const bytes = (this.rows + 7) >> 3;
      out.set(this.valid.subarray(0, bytes), to);
      to += padded(bytes);
    }
    to = putOffsets(out, to, this.ends, this.rows);
    this.data.copy(out, to, 0, this.length);
    return to + padded(this.length);
  }
}

function doubled(array: Int32Array): Int32Array<ArrayBuffer> {
  const wider = new Int32Array(array.length * 2);
  wider.set(array);
  return wider;
}

function putOffsets(out: Buffer, at: number, ends: Int32Array, rows: number): number {
  for (let row = 0; row < rows; row++) out.writeInt32LE(ends[row] ?? 0, at + 4 + 4 * row);
  return at + padded(4 * (rows + 1));
}

/** Columns that fill. */
export class Columns {
  count = 0;
  /** The highest timestamp, in microseconds. */
  maxTimestamp = -(2n ** 63n);
  readonly #values = new Column();
  #keys: Column | undefined; // undefined while all keys are null
  #timestamps = new BigInt64Array(16);
  #headerEnds: Int32Array<ArrayBuffer> | undefined; // undefined while there is no header
  readonly #headerKeys = new Column();
  readonly #headerValues = new Column();

  add(value: Content, key: Content, headers: readonly Header[], timestampUs: bigint): void {
    const row = this.count;
    this.#values.add(value);
    if (key !== null && this.#keys === undefined) {
      this.#keys = new Column();
      for (let i = 0; i < row; i++) this.#keys.add(null);
    }
    this.#keys?.add(key);
    if (headers.length > 0) this.#headerEnds ??= new Int32Array(Math.max(16, row * 2));
    if (this.#headerEnds !== undefined) {
      for (const header of headers) {
        this.#headerKeys.add(header.key);
        this.#headerValues.add(header.value);
      }
      if (row === this.#headerEnds.length) this.#headerEnds = doubled(this.#headerEnds);
      this.#headerEnds[row] = this.#headerKeys.rows;
    }
    if (row === this.#timestamps.length) {
      const wider = new BigInt64Array(row * 2);
      wider.set(this.#timestamps);
      this.#timestamps = wider;
    }
    this.#timestamps[row] = timestampUs;
    if (timestampUs > this.maxTimestamp) this.maxTimestamp = timestampUs;
    this.count = row + 1;
  }

  /** The payload. */
  encode(): Buffer {
    const { count } = this;
    let flags = this.#values.nulls > 0 ? FLAG_VALUE_VALIDITY : 0;
    let size = PREAMBLE_BYTES + this.#values.size + 8 * count;
    if (this.#keys !== undefined) {
      flags |= FLAG_KEYS | (this.#keys.nulls > 0 ? FLAG_KEY_VALIDITY : 0);
      size += this.#keys.size;
    }
    const hasHeaders = this.#headerKeys.rows > 0;
    if (hasHeaders) {
      flags |= FLAG_HEADERS | (this.#headerValues.nulls > 0 ? FLAG_HEADER_VALUE_VALIDITY : 0);
      size += padded(4 * (count + 1)) + this.#headerKeys.size + this.#headerValues.size;
    }
    if (size > MAX_PAYLOAD_BYTES) {
      throw new OncelogError(
        "INVALID_BATCH",
        `${size} bytes are over the limit ${MAX_PAYLOAD_BYTES}`,
      );
    }
    const out = Buffer.alloc(size);
    out.write("OLB1");
    const numbers = [
      flags,
      count,
      this.#headerKeys.rows,
      this.#values.length,
      this.#keys?.length ?? 0,
      this.#headerKeys.length,
      this.#headerValues.length,
    ];
    for (const [i, value] of numbers.entries()) out.writeUInt32LE(value, 4 + 4 * i);
    let at = this.#values.encode(out, PREAMBLE_BYTES);
    if (this.#keys !== undefined) at = this.#keys.encode(out, at);
    for (let row = 0; row < count; row++, at += 8) {
      out.writeBigInt64LE(this.#timestamps[row] ?? 0n, at);
    }
    if (hasHeaders) {
      at = putOffsets(out, at, this.#headerEnds ?? new Int32Array(0), count);
      at = this.#headerKeys.encode(out, at);
      at = this.#headerValues.encode(out, at);
    }
    if (at !== size) throw new Error(`a payload of ${at} bytes was to have ${size}`);
    return out;
  }
}

/**
 * A record batch of Kafka's protocol (v2), as a payload of columns. It is stored from its byte 21 on:
 * 40 bytes of attributes, counts, timestamps and producer, big-endian, then the records, compressed
 * together. Lengths and deltas are zigzag varints.
 */

import { gunzipSync } from "node:zlib";
import { Columns } from "./columns.js";
import { Codec } from "./gen/oncelog/v1/batch_pb.js";
import { MAX_PAYLOAD_BYTES } from "./payload.js";
import type { Header } from "./types.js";

const HEAD = 40;
const CODEC = 7;
const XERIAL = Buffer.from("\x82SNAPPY\x00", "latin1");
const XERIAL_HEAD = 16; // its magic, and two versions
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The batch's records as a payload. `unpack`: for the codecs that payloads have, too. */
export function kafkaColumns(
  payload: Buffer,
  unpack: (codec: Codec, data: Buffer) => Buffer,
): Buffer {
  if (payload.length < HEAD) throw new Error(`its head has ${HEAD} bytes, it has less`);
  const base = payload.readBigInt64BE(6);
  const count = payload.readInt32BE(36);
  const reader = new Reader(
    unpacked(payload.readUInt16BE(0) & CODEC, payload.subarray(HEAD), unpack),
  );
  const columns = new Columns();
  for (let number = 0; number < count; number++) record(reader, columns, number, base);
  if (reader.left > 0) throw new Error(`${reader.left} bytes follow its records`);
  if (columns.count === 0) throw new Error("it holds no records");
  return columns.encode();
}

function record(all: Reader, columns: Columns, number: number, base: bigint): void {
  const one = new Reader(all.take(all.int()));
  one.take(1); // its attributes
  const time = base + one.long();
  const delta = one.int();
  if (delta !== number) throw new Error(`record ${number} says it is number ${delta}`);
  const key = one.bytes();
  const value = one.bytes();
  const count = one.int();
  if (count < 0 || count > one.left) throw new Error(`record ${number} has ${count} headers`);
  const headers: Header[] = [];
  for (let i = 0; i < count; i++) {
    headers.push({ key: name(one.bytes() ?? Buffer.alloc(0)), value: one.bytes() });
  }
  if (one.left > 0) throw new Error(`record ${number} is not as long as it says`);
  columns.add(value, key, headers, time * 1000n);
}

function name(key: Buffer): string {
  try {
    return UTF8.decode(key);
  } catch {
    throw new Error(`the header key 0x${key.toString("hex")} is not UTF-8`);
  }
}

class Reader {
  #at = 0;

  constructor(readonly data: Buffer) {}

  get left(): number {
    return this.data.length - this.#at;
  }

  take(length: number): Buffer {
    if (length < 0 || length > this.left) throw new Error("a record ends too early");
    this.#at += length;
    return this.data.subarray(this.#at - length, this.#at);
  }

  int(): number {
    const first = this.data[this.#at];
    if (first === undefined || first > 0x7f) return Number(this.long());
    this.#at++;
    return (first >> 1) ^ -(first & 1);
  }

  long(): bigint {
    let number = 0n;
    for (let shift = 0n; shift < 64n; shift += 7n) {
      const [byte = 0] = this.take(1);
      number |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return (number >> 1n) ^ -(number & 1n);
    }
    throw new Error("a number has more than 64 bits");
  }

  bytes(): Buffer | null {
    const length = this.int();
    return length < 0 ? null : this.take(length);
  }
}

// --- codecs --------------------------------------------------------------------------

function unpacked(
  codec: number,
  data: Buffer,
  unpack: (codec: Codec, data: Buffer) => Buffer,
): Buffer {
  switch (codec) {
    case 0:
      return data;
    case 1:
      return gunzipSync(data, { maxOutputLength: MAX_PAYLOAD_BYTES });
    case 2:
      return unsnappy(data);
    case 3:
      return unpack(Codec.LZ4, data);
    case 4:
      return unpack(Codec.ZSTD, data);
    default:
      throw new Error(`its compression type ${codec} is unknown`);
  }
}

/** Blocks as Java's client frames them (xerial), or the one raw block of others. */
export function unsnappy(data: Buffer): Buffer {
  if (!data.subarray(0, XERIAL.length).equals(XERIAL)) return snappyBlock(data, MAX_PAYLOAD_BYTES);
  const reader = new Reader(data);
  reader.take(XERIAL_HEAD);
  const blocks: Buffer[] = [];
  let room = MAX_PAYLOAD_BYTES;
  while (reader.left > 0) {
    const block = snappyBlock(reader.take(reader.take(4).readInt32BE(0)), room);
    room -= block.length;
    blocks.push(block);
  }
  return Buffer.concat(blocks);
}

/** A raw block (github.com/google/snappy, format_description.txt). */
function snappyBlock(data: Buffer, room: number): Buffer {
  let at = 0;
  const byte = (): number => {
    const found = data[at++];
    if (found === undefined) throw new Error("its snappy records end too early");
    return found;
  };
  const number = (width: number): number => {
    let sum = 0;
    for (let i = 0; i < width; i++) sum += byte() * 256 ** i;
    return sum;
  };
  let size = 0;
  for (let shift = 0, more = true; more; shift += 7) {
    const next = byte();
    size += (next & 0x7f) * 2 ** shift;
    more = next > 0x7f && shift < 28;
  }
  if (size > room) throw new Error(`it unpacks to more than the limit ${MAX_PAYLOAD_BYTES}`);
  const out = Buffer.alloc(size);
  let end = 0;
  while (at < data.length) {
    const tag = byte();
    if ((tag & 3) === 0) {
      const length = (tag >> 2 > 59 ? number((tag >> 2) - 59) : tag >> 2) + 1;
      if (at + length > data.length || end + length > size) throw notItsSize(size);
      data.copy(out, end, at, at + length);
      at += length;
      end += length;
      continue;
    }
    const near = (tag & 3) === 1;
    const length = near ? ((tag >> 2) & 7) + 4 : (tag >> 2) + 1;
    const back = near ? ((tag >> 5) << 8) + byte() : number((tag & 3) === 2 ? 2 : 4);
    if (back === 0 || back > end || end + length > size) throw notItsSize(size);
    // Byte by byte: it may repeat itself.
    for (let i = 0; i < length; i++, end++) out[end] = out[end - back] ?? 0;
  }
  if (end !== size) throw notItsSize(size);
  return out;
}

function notItsSize(size: number): Error {
  return new Error(`its snappy records are not the ${size} bytes that they say`);
}

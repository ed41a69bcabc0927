/** Codecs and checksum of payloads. */

import * as wasm from "@bokuweb/zstd-wasm";
import { crc32c } from "@node-rs/crc32";
import { compressFrameSync, decompressFrameSync } from "lz4-napi";
import type { Compression } from "./config.js";
import { OncelogError } from "./errors.js";
import { Codec } from "./gen/oncelog/v1/batch_pb.js";
import { kafkaColumns } from "./kafkabatch.js";
import { MAX_PAYLOAD_BYTES } from "./payload.js";

await wasm.init();

const ZSTD_DEFAULT_LEVEL = 3;

export const CODECS: Record<Compression, Codec> = {
  none: Codec.NONE,
  zstd: Codec.ZSTD,
  lz4: Codec.LZ4,
};

/** CRC-32C. */
export function checksum(payload: Buffer): number {
  return crc32c(payload);
}

export function compress(codec: Compression, level: number | null, payload: Buffer): Buffer {
  switch (codec) {
    case "zstd":
      return viewOf(wasm.compress(payload, level ?? ZSTD_DEFAULT_LEVEL));
    case "lz4":
      return compressFrameSync(payload);
    default:
      return payload;
  }
}

export function viewOf(data: Uint8Array): Buffer {
  return Buffer.from(data.buffer, data.byteOffset, data.byteLength);
}

/** The payload; allocates no more than the limit of a payload, even if a frame claims more. */
export function decompress(codec: Codec, data: Buffer): Buffer {
  try {
    switch (codec) {
      case Codec.NONE:
        return data;
      case Codec.ZSTD:
        return unzstd(data);
      case Codec.LZ4:
        refuseAbove(lz4FrameSize(data));
        return decompressFrameSync(data);
      case Codec.KAFKA_V2:
        return kafkaColumns(data, decompress);
      default:
        throw new Error(`unknown codec ${codec}`);
    }
  } catch (e) {
    const text = e instanceof Error ? e.message : String(e);
    throw new OncelogError("INVALID_BATCH", `${Codec[codec]} payload is damaged: ${text}`);
  }
}

function refuseAbove(size: number): void {
  if (size > MAX_PAYLOAD_BYTES) {
    throw new Error(`it unpacks to more than the limit ${MAX_PAYLOAD_BYTES}`);
  }
}

/** Where the content's size is not said, there is room for the largest payload, and no more. */
function unzstd(data: Buffer): Buffer {
  refuseAbove(zstdContentSize(data) ?? 0);
  return viewOf(wasm.decompress(data, { defaultHeapSize: MAX_PAYLOAD_BYTES }));
}

/** Size in a frame's header (RFC 8878, 3.1.1.1); undefined: it does not. */
function zstdContentSize(data: Buffer): number | undefined {
  if (data.length < 6 || data.readUInt32LE(0) !== 0xfd2fb528) throw new Error("it is no frame");
  const descriptor = data.readUInt8(4);
  const single = ((descriptor >> 5) & 1) === 1;
  const dictionary = [0, 1, 2, 4][descriptor & 3] ?? 0;
  const at = 5 + (single ? 0 : 1) + dictionary;
  switch (descriptor >> 6) {
    case 0:
      return single ? data.readUInt8(at) : undefined;
    case 1:
      return data.readUInt16LE(at) + 256;
    case 2:
      return data.readUInt32LE(at);
    default:
      return Number(data.readBigUInt64LE(at));
  }
}

/**
 * Unpacked size of an LZ4 frame, by its blocks' own tokens. The decoder has no limit, and a frame
 * of 16 MiB can hold 4 GiB. Refuses all but exactly one frame.
 */
export function lz4FrameSize(data: Buffer): number {
  if (data.readUInt32LE(0) !== 0x184d2204) throw new Error("it is no frame");
  const flags = data.readUInt8(4);
  const has = (bit: number) => ((flags >> bit) & 1) === 1;
  let at = 4 + 2 + (has(3) ? 8 : 0) + (has(0) ? 4 : 0) + 1;
  let size = 0;
  while (true) {
    const word = data.readUInt32LE(at);
    at += 4;
    if (word === 0) break;
    const length = word & 0x7fffffff;
    if (at + length > data.length) throw new Error("it ends in a block");
    size += word >>> 31 === 1 ? length : lz4BlockSize(data, at, at + length);
    if (size > MAX_PAYLOAD_BYTES) return size;
    at += length + (has(4) ? 4 : 0);
  }
  if (at + (has(2) ? 4 : 0) !== data.length) throw new Error("it is not exactly one frame");
  return size;
}

function lz4BlockSize(data: Buffer, begin: number, end: number): number {
  let at = begin;
  let size = 0;
  const length = (first: number): number => {
    let sum = first;
    if (first === 15) {
      let more: number;
      do {
        more = data.readUInt8(at++);
        sum += more;
      } while (more === 255);
    }
    return sum;
  };
  while (at < end) {
    const token = data.readUInt8(at++);
    const literals = length(token >> 4);
    at += literals;
    size += literals;
    if (at >= end) break; // the last sequence has literals only
    at += 2;
    size += length(token & 15) + 4;
  }
  return size;
}

/** The payload against tests/vectors, which another writer has made. */

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { checksum, compress, decompress } from "../codecs.js";
import { Columns } from "../columns.js";
import { OncelogError } from "../errors.js";
import { Codec } from "../gen/oncelog/v1/batch_pb.js";
import { keyPartition, murmur2 } from "../murmur2.js";
import { MAX_PAYLOAD_BYTES, Payload } from "../payload.js";

const VECTORS = new URL("../../../../tests/vectors/", import.meta.url);
const NINE = "06-nine-records";

interface Vector {
  crc32c: string;
  records: {
    value: string | null;
    key: string | null;
    timestamp_us: number;
    headers: [string, string | null][];
  }[];
}

const text = (name: string) => readFileSync(new URL(name, VECTORS), "utf8");
const hex = (digits: string) => Buffer.from(digits.replace(/\s/g, ""), "hex");
const orNull = (digits: string | null) => (digits === null ? null : hex(digits));

/** Numbers beyond 2^53 must stay unchanged. */
function vector(name: string): Vector {
  const raw = text(`${name}.json`).replace(/("timestamp_us": )(-?\d+)/g, '$1"$2"');
  return JSON.parse(raw) as Vector;
}

const names = readdirSync(VECTORS)
  .filter((name) => name.endsWith(".json"))
  .map((name) => name.slice(0, -".json".length));

for (const name of names) {
  test(`writes and reads ${name}`, () => {
    const { crc32c, records } = vector(name);
    const columns = new Columns();
    const wanted = records.map((r, offset) => ({
      topic: "t",
      partition: 0,
      offset: BigInt(offset),
      timestampUs: BigInt(r.timestamp_us),
      value: orNull(r.value),
      key: orNull(r.key),
      headers: r.headers.map(([key, value]) => ({ key, value: orNull(value) })),
    }));
    for (const r of wanted) columns.add(r.value, r.key, r.headers, r.timestampUs);
    const payload = columns.encode();
    assert.deepEqual(payload, hex(text(`${name}.hex`)));
    assert.equal(checksum(payload).toString(16).padStart(8, "0"), crc32c);
    const read = new Payload(payload, records.length);
    const tp = { topic: "t", partition: 0 };
    assert.deepEqual(
      wanted.map((_, row) => read.record(tp, BigInt(row), row)),
      wanted,
    );
  });
}

test("reads what others have compressed", () => {
  const plain = hex(text(`${NINE}.hex`));
  assert.deepEqual(decompress(Codec.LZ4, hex(text(`${NINE}.lz4.hex`))), plain);
  assert.deepEqual(decompress(Codec.ZSTD, hex(text(`${NINE}.zstd.hex`))), plain);
  assert.deepEqual(decompress(Codec.ZSTD, hex(text(`${NINE}.zstd-stream.hex`))), plain);
});

const refused = (error: unknown) => error instanceof OncelogError && error.is("INVALID_BATCH");

for (const codec of ["zstd", "lz4"] as const) {
  const number = codec === "zstd" ? Codec.ZSTD : Codec.LZ4;

  test(`what ${codec} compressed comes back`, () => {
    const payload = Buffer.from("over and over again ".repeat(50_000));
    assert.deepEqual(decompress(number, compress(codec, null, payload)), payload);
  });

  test(`${codec} refuses damage and too much`, () => {
    const large = compress(codec, null, Buffer.alloc(MAX_PAYLOAD_BYTES + 1));
    assert.throws(() => decompress(number, large), refused);
    const data = compress(codec, null, Buffer.alloc(100_000));
    assert.throws(() => decompress(number, data.subarray(0, data.length - 9)), refused);
  });
}

test("refuses what is not exactly a payload", () => {
  const all = JSON.parse(text("refused/payloads.json")) as { why: string; payload: string }[];
  for (const { why, payload } of all) {
    const data = hex(payload);
    const count = data.length < 12 ? 1 : Math.max(1, data.readUInt32LE(8));
    assert.throws(() => new Payload(data, count), refused, why);
  }
  assert.throws(() => new Payload(hex(text("01-one-value.hex")), 2), refused);
});

test("places keys as Kafka does", () => {
  assert.equal(murmur2(Buffer.from("foobar")), -790332482);
  assert.equal(keyPartition(Buffer.from("foobar"), 6), 0);
});

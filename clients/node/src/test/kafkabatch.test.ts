/** Record batches of Kafka's clients, and damaged ones. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { decompress } from "../codecs.js";
import { Codec } from "../gen/oncelog/v1/batch_pb.js";
import { unsnappy } from "../kafkabatch.js";
import { Payload } from "../payload.js";

const HEAD = 21;
const {
  records,
  batches,
  snappy_block: block,
} = JSON.parse(
  readFileSync(new URL("../../../../tests/vectors/kafka/batches.json", import.meta.url), "utf8"),
) as {
  records: {
    timestamp_ms: number;
    key: string | null;
    value: string | null;
    headers: [string, string | null][];
  }[];
  batches: { client: string; codec: string; batch: string }[];
  snappy_block: { block: string; plain: string };
};
const hex = (digits: string) => Buffer.from(digits, "hex");
const orNull = (digits: string | null) => (digits === null ? null : hex(digits));

for (const { client, codec, batch } of batches) {
  test(`reads a batch of ${client}, ${codec}`, () => {
    const stored = hex(batch).subarray(HEAD);
    const payload = new Payload(decompress(Codec.KAFKA_V2, stored), records.length);
    for (const [row, r] of records.entries()) {
      assert.deepEqual(payload.record({ topic: "t", partition: 0 }, BigInt(row), row), {
        topic: "t",
        partition: 0,
        offset: BigInt(row),
        timestampUs: BigInt(r.timestamp_ms) * 1000n,
        value: orNull(r.value),
        key: orNull(r.key),
        headers: r.headers.map(([key, value]) => ({ key, value: orNull(value) })),
      });
    }
    for (let size = 0; size < stored.length; size++) {
      assert.throws(() => decompress(Codec.KAFKA_V2, stored.subarray(0, size)), `${size} bytes`);
    }
  });
}

test("reads a snappy block as librdkafka sends it", () => {
  assert.deepEqual(unsnappy(hex(block.block)), hex(block.plain));
});

test("refuses a header key that is not UTF-8", () => {
  const head = Buffer.alloc(40);
  head.writeInt32BE(1, 36);
  // Length, attributes, two deltas, null key, null value, one header: the key ff, a null.
  const batch = Buffer.concat([head, Buffer.from([18, 0, 0, 0, 1, 1, 2, 2, 0xff, 1])]);
  assert.throws(() => decompress(Codec.KAFKA_V2, batch), /not UTF-8/);
});

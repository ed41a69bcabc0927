/** Order of records, errors and seeks in a consumer's buffer. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { FetchBuffer, UNKNOWN_POSITION, type Wanted } from "../buffer.js";
import { Cluster } from "../cluster.js";
import { consumerConfig } from "../config.js";
import { OncelogError } from "../errors.js";
import { Fetcher } from "../fetcher.js";
import { PartitionError, PartitionRecordsSchema } from "../gen/oncelog/v1/log_pb.js";
import type { TopicPartition } from "../types.js";

const A = { topic: "t", partition: 0 };
const B = { topic: "t", partition: 1 };
const GONE = new OncelogError("UNKNOWN_TOPIC_OR_PARTITION", "gone");

function rig(...tps: TopicPartition[]) {
  const rooms = { count: 0 };
  const buffer = new FetchBuffer(1000, () => rooms.count++);
  buffer.assign(tps);
  for (const tp of tps) buffer.seek(tp, 0n);
  rooms.count = 0;
  return { buffer, rooms };
}

function wanted(buffer: FetchBuffer, tp: TopicPartition): Wanted {
  const found = buffer.wanted().find((w) => w.tp.partition === tp.partition);
  assert.ok(found);
  return found;
}

function stored(baseOffset: bigint, recordCount: number) {
  const batches = [{ baseOffset, header: { recordCount }, payload: new Uint8Array(10) }];
  return create(PartitionRecordsSchema, { batches });
}

const outOfRange = create(PartitionRecordsSchema, {
  error: PartitionError.OFFSET_OUT_OF_RANGE,
  logStartOffset: 9n,
});

/** Takes the next chunk. */
function take(buffer: FetchBuffer): [number, bigint] {
  const chunk = buffer.peek(true);
  assert.ok(chunk);
  chunk.next = chunk.end;
  buffer.advance(chunk);
  return [chunk.tp.partition, chunk.base];
}

test("a fetch ahead out of range is asked again when the records before it are taken", () => {
  const { buffer, rooms } = rig(A);
  assert.equal(buffer.add(wanted(buffer, A), stored(0n, 2)), "ok");
  assert.equal(buffer.add(wanted(buffer, A), stored(2n, 1)), "ok");
  const ahead = wanted(buffer, A);
  assert.equal(buffer.add(ahead, outOfRange), "stale");
  assert.deepEqual(buffer.wanted(), []);
  assert.deepEqual(take(buffer), [0, 0n]);
  assert.deepEqual([buffer.wanted(), rooms.count], [[], 0]);
  assert.deepEqual(take(buffer), [0, 2n]);
  assert.deepEqual([buffer.wanted(), rooms.count], [[ahead], 1], "the fetcher is told");
  assert.equal(buffer.add(ahead, outOfRange), "refused");
  assert.equal(buffer.add(ahead, stored(3n, 1)), "ok");
  assert.equal(wanted(buffer, A).offset, 4n, "nothing is held up later");
});

test("records come before an error behind them, and hide no error of another partition", () => {
  const { buffer } = rig(A, B);
  const [a, b] = [wanted(buffer, A), wanted(buffer, B)];
  buffer.add(a, stored(0n, 2));
  buffer.fail(A, a.generation, GONE);
  assert.deepEqual(take(buffer), [0, 0n]);
  buffer.add(b, stored(0n, 1));
  assert.equal(buffer.peek(false)?.tp.partition, 1, "an error waits for the next call");
  assert.throws(() => buffer.peek(true), GONE);
  assert.deepEqual(take(buffer), [1, 0n]);
});

test("partitions fail in turn", () => {
  const { buffer } = rig(A, B);
  const other = new OncelogError("UNKNOWN_TOPIC_OR_PARTITION", "gone, too");
  buffer.fail(A, buffer.generation(A), GONE);
  buffer.fail(B, buffer.generation(B), other);
  assert.throws(() => buffer.peek(true), GONE);
  buffer.fail(A, buffer.generation(A), GONE);
  assert.throws(() => buffer.peek(true), other);
  assert.throws(() => buffer.peek(true), GONE);
});

test("a seek while the end of the log is looked up wins", async () => {
  const config = consumerConfig({ bootstrapServers: "127.0.0.1:1" });
  const cluster = new Cluster(config);
  const fetcher = new Fetcher(config, cluster);
  const { buffer, positions } = fetcher;
  try {
    buffer.assign([A, B]);
    buffer.seek(A, 0n);
    buffer.seek(B, 0n);
    let answer = () => {};
    const asked = new Promise<void>((begun) => {
      positions.search = async (queries, search) => {
        begun();
        await new Promise<void>((done) => {
          answer = done;
        });
        for (const tp of queries.keys()) search.take(tp, 9n);
      };
    });
    const sought = fetcher.seekAll([A, B], "latest");
    await asked;
    assert.equal(buffer.place(B), UNKNOWN_POSITION);
    buffer.seek(A, 5n);
    answer();
    await sought;
    assert.deepEqual([buffer.place(A), buffer.place(B)], [5n, 9n]);
  } finally {
    fetcher.stop();
    cluster.close();
  }
});

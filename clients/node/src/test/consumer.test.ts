/** Uses of a consumer by the application that need no node. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { FetchBuffer } from "../buffer.js";
import type { ConsumerConfig } from "../config.js";
import { Consumer, OncelogError, Producer, type StoredRecord } from "../index.js";
import type { Change, GroupMember } from "../member.js";
import { Rebalance } from "../rebalance.js";
import { Records } from "../records.js";
import { PartitionMap, type TopicPartition } from "../types.js";

const A = { topic: "t", partition: 0 };
const B = { topic: "t", partition: 1 };
const NOBODY = "127.0.0.1:1";

const refused = (field: string) => (e: unknown) =>
  e instanceof OncelogError && e.kind === "INVALID_REQUEST" && e.details.field === field;

test("numbers that the wire does not take are refused in the call", async () => {
  await using consumer = new Consumer({
    bootstrapServers: NOBODY,
    groupId: "g",
    membership: "manual",
  });
  for (const offset of [-1n, 2n ** 63n, 1.5, 2 ** 53, Number.NaN, "1", null, undefined]) {
    assert.throws(() => consumer.seek(A, offset as bigint), refused("offset"), String(offset));
    const commit = consumer.commit([{ ...A, offset: offset as bigint }]);
    await assert.rejects(commit, refused("offset"), String(offset));
  }
  // A number that is exact is as good as a bigint.
  assert.throws(() => consumer.seek(A, 5 as unknown as bigint), refused("partition"));
  await assert.rejects(consumer.poll(Number.NaN), refused("timeout_ms"));
  await assert.rejects(consumer.poll(1, Number.NaN), refused("limit"));
  await assert.rejects(consumer.poll(1, 0), refused("limit"));
  await assert.rejects(consumer.offsetsForTime([A], new Date("no")), refused("at"));
  await using producer = new Producer({ bootstrapServers: NOBODY });
  const message = { topic: "t", value: "v" };
  await assert.rejects(producer.send({ ...message, value: 5 as never }), refused("value"));
  await assert.rejects(producer.send({ ...message, timestamp: 2n ** 63n }), refused("timestamp"));
  await assert.rejects(producer.send(message, { sequence: 0.5 as never }), refused("sequences"));
  const expected = producer.send(message, { expectedOffset: 2n ** 63n });
  await assert.rejects(expected, refused("expected_offset"));
});

test("a second poll while one waits is refused; the first one can be given up", async () => {
  await using consumer = new Consumer({ bootstrapServers: NOBODY });
  const giveUp = new AbortController();
  const first = consumer.poll(60_000, 1, giveUp.signal);
  await assert.rejects(consumer.poll(0), refused("consumer"));
  giveUp.abort(new Error("enough"));
  await assert.rejects(first, /enough/);
  assert.deepEqual(await consumer.poll(0), []);
});

function records(...answers: (bigint | Error | Promise<StoredRecord[]>)[]): Records {
  return new Records(
    () => answers.length === 0,
    async (signal) => {
      const answer = answers.shift();
      if (answer instanceof Error) throw answer;
      if (typeof answer === "bigint") return [{ offset: answer } as StoredRecord];
      return Promise.race([
        answer ?? [],
        new Promise<never>((_, reject) => {
          signal.addEventListener("abort", () => reject(signal.reason));
        }),
      ]);
    },
  );
}

test("an iterator lives on after an error, and gives records in order", async () => {
  const all = records(1n, new Error("once"), 2n, 3n);
  assert.equal((await all.next()).value?.offset, 1n);
  await assert.rejects(all.next(), /once/);
  const two = [all.next(), all.next(), all.next()];
  const [second, third, end] = await Promise.all(two);
  assert.deepEqual([second?.value?.offset, third?.value?.offset], [2n, 3n]);
  assert.equal(end?.done, true);
});

test("leaving an iterator ends the next that waits", async () => {
  const all = records(new Promise(() => {}), 1n);
  const waits = all.next();
  assert.equal((await all.return()).done, true);
  assert.equal((await waits).done, true);
  assert.equal((await all.next()).done, true);
});

test("a callback that throws loses no change of the partitions", async () => {
  const buffer = new FetchBuffer(1000, () => {});
  const failing = () => {
    throw new Error("a bug of the application's");
  };
  const config = { autoCommitIntervalMs: 5000, onAssigned: failing } as unknown as ConsumerConfig;
  const member = {
    stillOwned: (numbers: PartitionMap<bigint>) => [...numbers],
  } as unknown as GroupMember;
  const rebalance = new Rebalance(config, buffer, member, () => {});
  for (const tp of [A, B]) buffer.interrupt(given(tp));
  await assert.rejects(rebalance.follow(), /a bug/);
  await rebalance.follow();
  assert.deepEqual(buffer.assignment, [A, B]);
});

function given(tp: TopicPartition): Change {
  const assigned = new PartitionMap<bigint>();
  assigned.set(tp, 1n);
  const step = { lost: [], revoked: [], assigned };
  return { connection: 1n, step, deadline: 0, ended: false };
}

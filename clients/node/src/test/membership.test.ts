import assert from "node:assert/strict";
import { test } from "node:test";
import { FetchBuffer } from "../buffer.js";
import { Membership } from "../membership.js";
import { PartitionMap, type TopicPartition } from "../types.js";

const A = { topic: "t", partition: 0 };
const B = { topic: "t", partition: 1 };

function numbers(...given: [TopicPartition, bigint][]): PartitionMap<bigint> {
  const all = new PartitionMap<bigint>();
  for (const [tp, number] of given) all.set(tp, number);
  return all;
}

test("what an assignment means", () => {
  const machine = new Membership();
  const one = machine.connect();
  assert.equal(machine.assignment(one, 2n, numbers([A, 5n], [B, 5n]), []).assigned.size, 2);
  const step = machine.assignment(one, 3n, numbers([A, 9n]), [B]);
  assert.deepEqual(step.lost, [A], "another number is another ownership");
  assert.deepEqual(step.revoked, [B]);
  assert.equal(step.assigned.get(A), 9n);
  assert.deepEqual(machine.assignment(one, 4n, numbers([A, 9n]), [B]).revoked, [], "known by now");
});

test("what was asked back on an older connection is asked again on the new one", () => {
  const machine = new Membership();
  const one = machine.connect();
  machine.assignment(one, 2n, numbers([A, 5n]), []);
  machine.assignment(one, 3n, numbers(), [A]);
  const two = machine.connect();
  assert.equal(machine.released(one, [A]), false);
  assert.ok(machine.owned.has(A));
  assert.deepEqual(machine.assignment(two, 3n, numbers(), [A]).revoked, [A]);
  assert.equal(machine.released(two, [A]), true);
  assert.equal(machine.owned.size, 0);
});

test("who is fenced has lost all", () => {
  const machine = new Membership();
  machine.assignment(machine.connect(), 2n, numbers([A, 5n]), []);
  assert.deepEqual(machine.fenced(), [A]);
  assert.equal(machine.epoch, 0n);
});

test("an answer to an earlier ownership's question is thrown away", () => {
  const buffer = new FetchBuffer(1000, () => {});
  buffer.assign([A]);
  const [before] = buffer.withoutPosition();
  buffer.assign([]);
  buffer.assign([A]);
  buffer.found(A, before?.generation ?? -1, 5n);
  assert.equal(buffer.withoutPosition().length, 1);
});

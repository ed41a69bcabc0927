import assert from "node:assert/strict";
import { test } from "node:test";
import { Accumulator, type Addition } from "../accumulator.js";
import { BATCH_OVERHEAD } from "../columns.js";
import type { ProducerConfig } from "../config.js";
import type { TopicPartition } from "../types.js";

const T0 = { topic: "t", partition: 0 };
const T1 = { topic: "t", partition: 1 };

function accumulator(
  config: Partial<ProducerConfig> = {},
  isAvailable: (tp: TopicPartition) => boolean = () => true,
): Accumulator {
  const usual = { batchSize: 1000, bufferMemory: 10_000, lingerMs: 0, deliveryTimeoutMs: 60_000 };
  return new Accumulator({ ...usual, ...config } as ProducerConfig, () => {}, isAvailable);
}

function addition(tp: TopicPartition, sticky: boolean): Addition {
  return {
    ...{ tp, sticky, records: [{ topic: "t", value: "v" }], size: 10, maxBatchBytes: 1000 },
    ...{ sequences: undefined, expectedOffset: undefined, whole: false },
  };
}

test("a batch that waits for a leader attracts no records without a key", () => {
  let away = -1;
  const queued = accumulator({}, ({ partition }) => partition !== away);
  const at = (tp: TopicPartition) => queued.append(addition(tp, true))?.batch.tp.partition;
  assert.deepEqual([at(T0), at(T1)], [0, 0], "they stick together");
  away = 0;
  queued.leaveUnavailable();
  assert.deepEqual([at(T1), at(T0)], [1, 1]);
  away = 1;
  queued.leaveUnavailable();
  assert.deepEqual([at(T1), at(T0)], [1, 0], "where no other one is");
});

test("a record is given its own time, not what is left of an old batch's", () => {
  const queued = accumulator({ deliveryTimeoutMs: 1_000_000 });
  const old = queued.append(addition(T0, false));
  queued.expire(performance.now() + 200_000);
  assert.equal(queued.append(addition(T0, false))?.batch, old?.batch);
  queued.expire(performance.now() + 300_000);
  assert.notEqual(queued.append(addition(T0, false))?.batch, old?.batch);
});

test("time in which the process stood still does not count", () => {
  const queued = accumulator({ deliveryTimeoutMs: 1_000_000 });
  queued.append(addition(T0, false));
  const later = performance.now() + 5_000_000;
  queued.putOff(4_900_000, later);
  assert.equal(queued.expire(later).length, 0);
  queued.putOff(60_000_000, later);
  assert.equal(queued.expire(later + 1_000_000).length, 1, "but for its whole time from then on");
});

test("messages without a key leave a full batch, also while the sender takes nothing", () => {
  const config = { batchSize: BATCH_OVERHEAD + 10, bufferMemory: 1000, lingerMs: 0 };
  const queued = accumulator(config);
  const at = [0, 1].map((partition) => {
    const tp = { topic: "t", partition };
    const add: Addition = {
      ...{ tp, sticky: true, records: [{ topic: "t", value: "v" }], size: 10, maxBatchBytes: 1000 },
      ...{ sequences: undefined, expectedOffset: undefined, whole: false },
    };
    return queued.append(add);
  });
  assert.deepEqual(
    at.map((delivery) => delivery?.batch.tp.partition),
    [0, 1],
  );
});

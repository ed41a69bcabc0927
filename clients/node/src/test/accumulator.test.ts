import assert from "node:assert/strict";
import { test } from "node:test";
import { Accumulator, type Addition } from "../accumulator.js";
import { BATCH_OVERHEAD } from "../columns.js";
import type { ProducerConfig } from "../config.js";

test("messages without a key leave a full batch, also while the sender takes nothing", () => {
  const config = { batchSize: BATCH_OVERHEAD + 10, bufferMemory: 1000, lingerMs: 0 };
  const queued = new Accumulator(config as ProducerConfig, () => {});
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

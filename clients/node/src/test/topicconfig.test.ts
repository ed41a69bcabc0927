/** Settings of topics on their way to nodes and back. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { fits, topicConfig, topicInfo } from "../adminmessages.js";
import type { TopicConfig } from "../admintypes.js";
import { TopicInfoSchema } from "../gen/oncelog/v1/cluster_pb.js";

const ALL: Required<TopicConfig> = {
  retentionMs: -1n,
  retentionBytes: 2n,
  maxBatchBytes: 3000,
  expectedOffsets: "required",
  formats: "both",
  cleanupPolicy: "compact",
  minCompactionLagMs: 4n,
  maxCompactionLagMs: 5n,
  deleteRetentionMs: 6n,
  minCleanableDirtyRatio: 0.25,
};

const OTHER: TopicConfig = {
  retentionMs: 1n,
  retentionBytes: 1n,
  maxBatchBytes: 1000,
  expectedOffsets: "checked",
  formats: "columnar",
  cleanupPolicy: "delete",
  minCompactionLagMs: 0n,
  maxCompactionLagMs: -1n,
  deleteRetentionMs: 1n,
  minCleanableDirtyRatio: 0.5,
};

test("each setting goes to a node and comes back", () => {
  const message = create(TopicInfoSchema, { config: topicConfig(ALL) });
  assert.deepEqual(topicInfo(message).config, ALL);
});

test("each setting that a call gives tells its topic from another's", () => {
  assert.ok(fits({}, OTHER));
  for (const [setting, value] of Object.entries(ALL)) {
    assert.ok(fits({ [setting]: value }, ALL), setting);
    assert.ok(!fits({ [setting]: value }, OTHER), setting);
  }
  assert.ok(fits({ retentionMs: -1n }, {}), "a node may omit a default");
});

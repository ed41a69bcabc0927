/** Places for records, and errors when nobody answers. */

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { DescribeTopicsResponseSchema } from "../gen/oncelog/v1/cluster_pb.js";
import { Leaders, type TopicView } from "../leaders.js";
import { Reachability } from "../reachability.js";
import { WARNING } from "../warnings.js";

function leaders(...nodeIds: number[]): Leaders {
  const known = new Leaders();
  const nodes = [1, 2].map((nodeId) => ({ nodeId, address: `node${nodeId}:1` }));
  const partitions = nodeIds.map((leaderId, partition) => ({ partition, leaderId, term: 1n }));
  const topics = [{ name: "t", topicId: 1n, partitions }];
  known.update(create(DescribeTopicsResponseSchema, { nodes, topics }));
  return known;
}

/** Which partitions are chosen, of many tries. */
function chosen(known: Leaders): number[] {
  return [
    ...new Set(
      Array.from({ length: 200 }, () => known.anyPartition(known.topics.get("t") as TopicView)),
    ),
  ].sort();
}

test("records without a key go where there is a leader that can be reached", () => {
  const known = leaders(1, 0, 2, 1);
  assert.deepEqual(chosen(known), [0, 2, 3]);
  known.unreachable.add("node1:1");
  known.unreachable.add("nobody:1");
  assert.deepEqual(chosen(known), [2]);
  assert.deepEqual(known.lacking(), { topics: ["t"], addresses: ["node1:1"] });
  known.unreachable.add("node2:1");
  assert.deepEqual(chosen(known), [0, 1, 2, 3], "any, where none is available");
  known.unreachable.clear();
  known.hint({ topic: "t", partition: 1 }, 2, "node2:1");
  assert.deepEqual(chosen(known), [0, 1, 2, 3]);
  assert.deepEqual(known.lacking(), { topics: [], addresses: [] });
});

test("an answer that names nobody counts, unless it is of an older term", () => {
  const known = leaders(1);
  const told = (term: bigint) => {
    const topics = [{ name: "t", topicId: 1n, partitions: [{ leaderId: 0, term }] }];
    known.update(create(DescribeTopicsResponseSchema, { topics }));
    return known.isAvailable({ topic: "t", partition: 0 });
  };
  assert.equal(told(0n), true);
  assert.equal(told(1n), false);
  assert.equal(known.address({ topic: "t", partition: 0 }), "node1:1", "it may be there yet");
});

test("one warning when nobody answers, and one when somebody does again", async () => {
  const said: string[] = [];
  const hear = (warning: Error) => void (warning.name === WARNING && said.push(warning.message));
  process.on("warning", hear);
  const one = new Reachability(1);
  one.failed("a:1: refused");
  await new Promise((resolve) => setTimeout(resolve, 2));
  one.failed("b:1: refused");
  one.failed("a:1: refused");
  assert.equal(one.stats.outages, 1);
  assert.ok(one.stats.outageMs > 0);
  one.answered("a:1");
  assert.equal(one.stats.outageMs, 0);
  one.answered("a:1");
  while (said.length < 2) await once(process, "warning");
  process.off("warning", hear);
  assert.match(said[0] ?? "", /no node has answered .* b:1: refused/);
  assert.match(said[1] ?? "", /a:1 answers again/);
});

const INDEX = new URL("../index.js", import.meta.url).href;
const WARNINGS = new URL("../warnings.js", import.meta.url).href;

test("a process that ends says what was not delivered", () => {
  const program = `
    import { closed, watchAtExit } from "${WARNINGS}";
    watchAtExit({ pending: 3 });
    const done = { pending: 2 };
    watchAtExit(done);
    closed(done);
    process.exit(7);`;
  const ended = spawnSync(process.execPath, ["--input-type=module", "--eval", program]);
  assert.equal(ended.status, 7);
  assert.match(ended.stderr.toString(), /^\(oncelog\).*: 3 records were not delivered: .*close\n$/);
});

test("a proxy for HTTP is not used", () => {
  // A server of any kind that a connection reaches, and a proxy that nobody is.
  const program = `
    import { createServer } from "node:net";
    import { Admin } from "${INDEX}";
    const server = createServer(() => { console.log("reached"); process.exit(0); });
    server.listen(0, "127.0.0.1", () => {
      const bootstrapServers = "127.0.0.1:" + server.address().port;
      const admin = new Admin({ bootstrapServers, requestTimeoutMs: 5000 });
      admin.describeCluster().catch((e) => { console.log(e.message); process.exit(1); });
    });`;
  const proxy = "http://127.0.0.1:9";
  const said = execFileSync(process.execPath, ["--input-type=module", "--eval", program], {
    env: { ...process.env, http_proxy: proxy, https_proxy: proxy, no_proxy: "", grpc_proxy: "" },
  });
  assert.equal(said.toString(), "reached\n");
});

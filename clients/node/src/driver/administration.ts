/** The driver's verbs for nodes, moves, permissions, quotas and sinks' committed batches. */

import type { Admin, GroupLag, SinkInfo } from "../index.js";
import { big, Fault, type Json, table } from "./json.js";

function sink(found: SinkInfo): Json {
  return {
    ...table(found),
    committed: found.committed.map(({ first, last }) => [first, last]),
    before: found.before && [found.before.query, found.before.batch, found.before.recordCount],
  };
}

export async function administer(c: Json, admin: Admin): Promise<Json> {
  switch (c.verb) {
    case "describe_cluster": {
      const { settings: _, ...info } = await admin.describeCluster();
      return table(info);
    }
    case "list_nodes":
      return { nodes: table(await admin.listNodes()) };
    case "change_node": {
      const { node_id, action, dry_run: dryRun, accept_loss: acceptLoss } = c;
      const name = action === "keep" ? "cancelNodeRemoval" : `${action}Node`;
      const change = { dryRun, acceptLoss, directoryId: big(c.directory_id ?? 0) };
      return { effects: await (admin as Json)[name](node_id, change) };
    }
    case "balance":
      return table(await (admin as Json)[`${c.action ?? "describe"}Balance`]());
    case "reassign_partition": {
      const { topic, partition } = c;
      const info = await admin.reassignPartition({ topic, partition }, c.replicas);
      const found = info.partitions[partition];
      return { replicas: found?.replicas, target: found?.target };
    }
    case "alter_permissions":
      return admin.alterPermissions(c.add, c.remove);
    case "list_permissions":
      return table(await admin.listPermissions(c.principal));
    case "check_permission": {
      const { operation, kind, name, principal } = c;
      return { allowed: await admin.checkPermission(operation, kind, name, principal) };
    }
    case "alter_quotas": {
      const quotas = c.set?.map((one: Json) => ({ ...one, value: big(one.value) }));
      await admin.alterQuotas(quotas, c.remove);
      return {};
    }
    case "list_quotas":
      return { quotas: table(await admin.listQuotas(c.principal)) };
    case "group_lag":
      return lag(await admin.groupLag(c.group));
    case "delete_group":
      return { existed: await admin.deleteGroup(c.group) };
    case "list_sinks":
      return { sinks: (await admin.listSinks()).map(sink) };
    case "describe_sink":
      return sink(await admin.describeSink(c.sink));
    case "reset_sink":
      await admin.resetSink(c.sink);
      return {};
  }
  throw new Fault("NOT_OFFERED", `no verb ${c.verb}`);
}

function lag(found: GroupLag): Json {
  const partitions = found.partitions.map((one) => ({
    topic: one.topic,
    partition: one.partition,
    committed: one.committed?.offset ?? null,
    log_start_offset: one.logStartOffset ?? null,
    high_watermark: one.highWatermark ?? null,
    lag: one.lag ?? null,
    error: one.error?.kind ?? null,
  }));
  return { lag: found.lag, partitions };
}

/**
 * Lets the conformance kit drive this client: commands come as JSON lines on standard input,
 * answers go to standard output. conformance/DRIVER.md describes them.
 */

import { createInterface } from "node:readline";
import {
  Admin,
  type CommittedTransaction,
  Consumer,
  type Delivery,
  type ErrorDetails,
  type Message,
  OncelogError,
  Producer,
  type SendOptions,
  type StoredRecord,
  type TopicConfig,
  type TopicPartition,
  type Transaction,
  type TransactionInfo,
  VERSION,
} from "../index.js";
import { administer } from "./administration.js";
import { big, camel, Fault, given, type Json, parse, snake, stringify, table } from "./json.js";

function bytes(digits: Json): Buffer | null {
  return given(digits) ? Buffer.from(digits, "hex") : null;
}

function digits(data: Uint8Array | null): string | null {
  return data === null ? null : Buffer.from(data).toString("hex");
}

// --- errors --------------------------------------------------------------------------

const BATCH: (keyof ErrorDetails)[] = ["topic", "partition", "producerId", "epoch", "sequence"];
const DETAILS: Record<string, (keyof ErrorDetails)[]> = {
  NOT_LEADER: ["leaderId", "leaderAddress"],
  UNKNOWN_TOPIC_OR_PARTITION: ["topic", "partition"],
  INVALID_REQUEST: ["field", "limit"],
  TOPIC_ALREADY_EXISTS: ["topic"],
  PRODUCER_NAME_NOT_FOUND: ["producerName"],
  NOT_AUTHORIZED: ["principal", "operation", "kind", "name"],
  OFFSET_OUT_OF_RANGE: ["topic", "partition", "offset", "logStartOffset", "highWatermark"],
  CORRUPT_LOG: ["topic", "partition", "offset"],
  OFFSET_MISMATCH: ["nextOffset"],
  FENCED: ["currentEpoch"],
  OUT_OF_ORDER: ["lastSequence"],
};

function errorOf(e: unknown): Json {
  if (e instanceof OncelogError) {
    const names = [...(DETAILS[e.kind] ?? []), ...(e.is("DELIVERY_FAILED") ? BATCH : [])];
    const details = names.map((name) => [snake(name), e.details[name] ?? null]);
    return {
      reason: e.kind,
      retriable: e.retriable,
      message: e.message,
      details: Object.fromEntries(details),
      ...(e.outcome === undefined ? {} : { outcome: e.outcome }),
    };
  }
  const reason = e instanceof Fault ? e.reason : "DRIVER_FAULT";
  return { reason, retriable: false, message: e instanceof Error ? (e.stack ?? "") : String(e) };
}

// --- settings ------------------------------------------------------------------------

/** The client's own defaults; it knows offered settings by their names. */
async function defaultsOf(kind: "producer" | "consumer"): Promise<Json> {
  const made = kind === "producer" ? new Producer() : new Consumer();
  await made.close();
  return made.config;
}

async function configOf(given: Json, kind: "producer" | "consumer" | "admin"): Promise<Json> {
  const known = await defaultsOf(kind === "admin" ? "consumer" : kind);
  const config: Json = {};
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(known, camel(name))) throw new Fault("NOT_OFFERED", `no setting ${name}`);
    if (value !== null) config[camel(name)] = name === "resume_from" ? identity(value) : value;
  }
  if (kind === "consumer") config.membership ??= "manual";
  return config;
}

function identity(initial: Json): Json {
  return {
    producerId: big(initial.producer_id),
    epoch: initial.epoch ?? 0,
    leaseToken: bytes(initial.lease_token) ?? Buffer.alloc(0),
    nextSequences: (initial.next_sequences ?? []).map((one: Json) => ({
      topic: one.topic,
      partition: one.partition,
      sequence: big(one.sequence),
    })),
  };
}

const MEMBER =
  "membership group_instance_id assignor session_timeout_ms revoke_timeout_ms processing_timeout_ms enable_auto_commit auto_commit_interval_ms".split(
    " ",
  );

async function defaults(): Promise<Json> {
  const all: Json = {};
  for (const kind of ["producer", "consumer"] as const) {
    const { clientId: _, partitioner: __, ...config } = await defaultsOf(kind);
    const snakes = Object.entries(config).map(([k, v]): [string, Json] => [snake(k), v]);
    all[kind] = Object.fromEntries(snakes.filter(([k]) => !/^(tls|token|on_)/.test(k)));
  }
  all.member = {};
  for (const name of MEMBER) {
    all.member[name] = all.consumer[name];
    delete all.consumer[name];
  }
  return all;
}

// --- verbs ---------------------------------------------------------------------------

interface Sending {
  producer: Producer;
  sent: Map<string, Delivery>;
  transaction?: Transaction; // the newest one
}

const producers = new Map<string, Sending>();
const consumers = new Map<string, Consumer>();
const admins = new Map<string, Admin>();
const warnings: string[] = []; // of the client
const told = new Map<string, string[]>(); // which callbacks of a member were called

/** Gives up where it is told: by a signal, where the call takes one, and by waiting no longer. */
async function until(c: Json): Promise<Json> {
  if (!given(c.give_up_ms)) return carryOut(c);
  const signal = AbortSignal.timeout(c.give_up_ms);
  const late = new Promise<never>((_, reject) => {
    signal.addEventListener("abort", () => reject(new Fault("CANCELLED", "given up")));
  });
  return Promise.race([carryOut({ ...c, signal }), late]);
}

async function carryOut(c: Json): Promise<Json> {
  switch (c.verb) {
    case "hello":
      return {
        client: "oncelog-node",
        version: VERSION,
        protocol: 1,
        features: [
          ..."zstd lz4 no_idempotence send_batch names resume_from own_sequences".split(" "),
          ..."expected_offset resolve read any_replica rack offsets admin tls tokens".split(" "),
          ..."transactions members cancel warnings".split(" "),
        ],
      };
    case "defaults":
      return defaults();
    case "reset":
      await reset();
      return {};
    case "warnings":
      return { warnings };
    case "exit":
      return {};
    case "open_producer": {
      const config = await configOf(c.config, "producer");
      producers.set(c.handle, { producer: new Producer(config), sent: new Map() });
      return {};
    }
    case "open_consumer": {
      const config = await configOf(c.config, "consumer");
      if (config.membership === "assigned") Object.assign(config, callbacks(c));
      consumers.set(c.handle, new Consumer(config));
      return {};
    }
    case "open_admin": {
      const config = await configOf(c.config, "admin");
      admins.set(c.handle, new Admin(config));
      return {};
    }
  }
  const sending = producers.get(c.handle);
  if (sending !== undefined) return produce(c, sending);
  const consumer = consumers.get(c.handle);
  if (consumer !== undefined) return consume(c, consumer);
  const admin = admins.get(c.handle);
  if (admin !== undefined) return manage(c, admin);
  throw new Fault("DRIVER_FAULT", `no handle "${c.handle}"`);
}

/** They note that they were called; one fails the first time if it is to. */
function callbacks(c: Json): Json {
  const calls: string[] = [];
  told.set(c.handle, calls);
  const note = (word: string) => () => {
    const isFirst = !calls.includes(word);
    calls.push(word);
    if (isFirst && word === c.failing)
      throw new Fault("DRIVER_FAULT", `the callback for what is ${word} fails`);
  };
  return { onAssigned: note("assigned"), onRevoked: note("revoked"), onLost: note("lost") };
}

async function reset(): Promise<void> {
  for (const { producer } of producers.values()) await undelivered(producer.close(0));
  for (const consumer of consumers.values()) await consumer.close();
  for (const admin of admins.values()) admin.close();
  warnings.splice(0);
  producers.clear();
  consumers.clear();
  admins.clear();
}

/** Whether all is known; failures of records are no error here. */
async function undelivered(ending: Promise<void>): Promise<boolean> {
  try {
    await ending;
    return true;
  } catch (e) {
    if (e instanceof OncelogError && e.kind === "UNDELIVERED_RECORDS") return true;
    if (e instanceof OncelogError && e.kind === "REQUEST_TIMEOUT") return false;
    throw e;
  }
}

const pairs = (tps: TopicPartition[]): Json =>
  tps.map(({ topic, partition }) => [topic, partition]).sort();
const limitOf = (c: Json): number => c.timeout_ms ?? 60_000;
const tpOf = (c: Json): TopicPartition => ({ topic: c.topic, partition: c.partition ?? 0 });

function message(c: Json): Omit<Message, "topic"> {
  const made: Omit<Message, "topic"> = {
    value: bytes(c.value),
    key: bytes(c.key),
    headers: (c.headers ?? []).map(([key, value]: Json) => ({ key, value: bytes(value) })),
  };
  if (given(c.timestamp_us)) made.timestamp = big(c.timestamp_us);
  if (given(c.timestamp_ms)) made.timestamp = big(c.timestamp_ms) * 1000n;
  return made;
}

async function produce(c: Json, sending: Sending): Promise<Json> {
  const { producer, sent } = sending;
  switch (c.verb) {
    case "begin":
      sending.transaction = await producer.begin({
        idleTimeoutMs: c.idle_timeout_ms ?? 0,
        totalTimeoutMs: c.total_timeout_ms ?? 0,
        ...(c.signal && { signal: c.signal }),
      });
      return { transaction_id: sending.transaction.id };
    case "commit_transaction":
      return committed(await transactionOf(sending).commit(c.signal));
    case "abort_transaction":
      await transactionOf(sending).abort(c.signal);
      return {};
    case "send_offsets": {
      const consumer = consumers.get(c.consumer);
      if (consumer === undefined) throw new Fault("DRIVER_FAULT", `no consumer "${c.consumer}"`);
      await transactionOf(sending).commitOffsets(consumer, undefined, c.signal);
      return {};
    }
    case "send": {
      const options: SendOptions = {};
      if (given(c.partition)) options.partition = c.partition;
      if (given(c.sequence)) options.sequence = big(c.sequence);
      if (given(c.expected_offset)) options.expectedOffset = big(c.expected_offset);
      sent.set(c.tag, await producer.send({ topic: c.topic, ...message(c) }, options));
      return {};
    }
    case "send_batch": {
      const delivery = await producer.sendBatch(tpOf(c), c.records.map(message), {
        ...(given(c.sequences) ? { sequences: c.sequences.map(big) } : {}),
        ...(given(c.expected_offset) ? { expectedOffset: big(c.expected_offset) } : {}),
      });
      sent.set(c.tag, delivery);
      return {};
    }
    case "await": {
      await undelivered(producer.flush(limitOf(c)));
      const results: Json = {};
      for (const tag of c.tags ?? sent.keys()) results[tag] = await resultOf(sent.get(tag));
      return { results };
    }
    case "flush":
      return { settled: await undelivered(producer.flush(limitOf(c))) };
    case "last_sequence":
      return { last_sequence: await producer.position(c.topic, c.partition) };
    case "resolve": {
      const { resolution, offset } = await producer.resolve(sent.get(c.tag) as Delivery);
      return { resolution, offset };
    }
    case "close":
      await undelivered(producer.close(limitOf(c)));
      return {};
  }
  throw new Fault("NOT_OFFERED", `no verb ${c.verb}`);
}

function transactionOf({ transaction }: Sending): Transaction {
  if (transaction === undefined) throw new Fault("DRIVER_FAULT", "no transaction was begun");
  return transaction;
}

function committed({ transactionId, runs }: CommittedTransaction): Json {
  return {
    transaction_id: transactionId,
    runs: runs
      .toSorted((a, b) => a.topic.localeCompare(b.topic) || a.partition - b.partition)
      .map(table),
  };
}

async function resultOf(delivery: Delivery | undefined): Promise<Json> {
  if (delivery === undefined) throw new Fault("DRIVER_FAULT", "no such tag");
  if (!delivery.isDone) return { pending: true };
  try {
    return { ok: table(await delivery.result()) };
  } catch (e) {
    return { error: errorOf(e) };
  }
}

async function consume(c: Json, consumer: Consumer): Promise<Json> {
  switch (c.verb) {
    case "subscribe":
      await consumer.subscribe(...c.topics);
      return {};
    case "unsubscribe":
      await consumer.unsubscribe();
      return {};
    case "subscription":
      return { topics: consumer.subscription };
    case "assignment":
      return { partitions: pairs(consumer.assignment) };
    case "pause":
      consumer.pause([tpOf(c)]);
      return {};
    case "resume":
      consumer.resume([tpOf(c)]);
      return {};
    case "paused":
      return { partitions: pairs(consumer.paused) };
    case "assign":
      await consumer.assign(c.partitions.map(([topic, partition]: Json) => ({ topic, partition })));
      return {};
    case "poll": {
      const most = c.max_records ?? consumer.config.maxPollRecords;
      return { records: (await consumer.poll(limitOf(c), most, c.signal)).map(recordOf) };
    }
    case "seek":
      if (c.offset === "beginning") await consumer.seekToBeginning([tpOf(c)]);
      else if (c.offset === "end") await consumer.seekToEnd([tpOf(c)]);
      else consumer.seek(tpOf(c), big(c.offset));
      return {};
    case "lag":
      return { lag: await consumer.lag(tpOf(c)) };
    case "position":
      return { offset: await consumer.position(tpOf(c)) };
    case "list_offset": {
      const tps = [tpOf(c)];
      const found =
        c.at === "earliest"
          ? await consumer.beginningOffsets(tps)
          : c.at === "latest"
            ? await consumer.endOffsets(tps)
            : await consumer.offsetsForTime(tps, new Date(Number(c.at)));
      return { offset: found[0]?.offset };
    }
    case "commit":
      await consumer.commit(c.offsets?.map(commitOf));
      return {};
    case "committed": {
      const found = await consumer.committed(tpOf(c));
      if (found === null) return { offset: null };
      const { offset, metadata, producerId, epoch, sequence } = found;
      return { offset, metadata, producer_id: producerId, epoch, sequence };
    }
    case "told":
      return { calls: told.get(c.handle) };
    case "close":
      await consumer.close();
      return {};
    case "abandon":
      await consumer.abandon();
      return {};
  }
  throw new Fault("NOT_OFFERED", `no verb ${c.verb}`);
}

function commitOf(one: Json) {
  return {
    ...tpOf(one),
    offset: big(one.offset),
    metadata: one.metadata ?? "",
    producerId: big(one.producer_id ?? 0),
    epoch: one.epoch ?? 0,
    sequence: big(one.sequence ?? 0),
  };
}

function recordOf(r: StoredRecord): Json {
  return {
    topic: r.topic,
    partition: r.partition,
    offset: r.offset,
    timestamp_us: r.timestampUs,
    key: digits(r.key),
    value: digits(r.value),
    headers: r.headers.map(({ key, value }) => [key, digits(value)]),
  };
}

function described(found: TransactionInfo): Json {
  return {
    transaction_id: found.transactionId,
    state: found.state,
    reason: found.reason,
    producer_name: found.producerName,
    partitions: found.partitions.map(({ topic, partition }) => [topic, partition]),
  };
}

async function manage(c: Json, admin: Admin): Promise<Json> {
  switch (c.verb) {
    case "create_topic": {
      const config: TopicConfig = {};
      if (given(c.max_batch_bytes)) config.maxBatchBytes = c.max_batch_bytes;
      if (given(c.cleanup_policy)) config.cleanupPolicy = c.cleanup_policy;
      if (given(c.min_compaction_lag_ms))
        config.minCompactionLagMs = BigInt(c.min_compaction_lag_ms);
      if (given(c.max_compaction_lag_ms))
        config.maxCompactionLagMs = BigInt(c.max_compaction_lag_ms);
      if (given(c.delete_retention_ms)) config.deleteRetentionMs = BigInt(c.delete_retention_ms);
      if (given(c.min_cleanable_dirty_ratio))
        config.minCleanableDirtyRatio = c.min_cleanable_dirty_ratio;
      await admin.createTopic(c.topic, c.partitions ?? 0, c.replicas ?? 0, config, c.timeout_ms);
      return {};
    }
    case "delete_topic":
      await admin.deleteTopic(c.topic);
      return {};
    case "describe_topic": {
      const [info] = await admin.describeTopics(c.topic);
      return {
        topic_id: info?.topicId,
        max_batch_bytes: info?.config.maxBatchBytes,
        cleanup_policy: info?.config.cleanupPolicy,
        min_compaction_lag_ms: info?.config.minCompactionLagMs,
        max_compaction_lag_ms: info?.config.maxCompactionLagMs,
        delete_retention_ms: info?.config.deleteRetentionMs,
        min_cleanable_dirty_ratio: info?.config.minCleanableDirtyRatio,
        partitions: info?.partitions.map(({ partition, leaderId, term }) => ({
          partition,
          leader_id: leaderId,
          term,
        })),
      };
    }
    case "resize_topic": {
      const { topic, count } = await admin.resizeTopic(c.topic, {
        partitions: c.partitions,
        dryRun: c.dry_run ?? false,
      });
      return { partitions: topic.partitions.length, moves: count };
    }
    case "list_transactions": {
      const found = await admin.listTransactions(c.producer_name ?? "");
      return { transactions: found.map(described) };
    }
    case "describe_transaction":
      return described(await admin.describeTransaction(big(c.transaction_id)));
    case "end_transaction":
      await admin.abortTransaction(big(c.transaction_id));
      return {};
    case "fence_producer": {
      const { producerId, epoch } = await admin.fenceProducer(c.producer_name);
      return { producer_id: producerId, epoch };
    }
    case "close":
      admin.close();
      return {};
  }
  return administer(c, admin);
}

process.on("warning", (warning) => {
  if (warning.name === "OncelogWarning") warnings.push(warning.message);
});

for await (const line of createInterface({ input: process.stdin })) {
  const command = parse(line);
  let reply: Json;
  try {
    reply = { id: command.id, ok: await until(command) };
  } catch (e) {
    reply = { id: command.id, error: errorOf(e) };
  }
  process.stdout.write(`${stringify(reply)}\n`);
  if (command.verb === "exit") break;
}
process.exit(0); // all that is still open

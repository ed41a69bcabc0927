/** Settings, their defaults and their limits. */

import { BATCH_OVERHEAD } from "./columns.js";
import { OncelogError } from "./errors.js";
import { MAX_PAYLOAD_BYTES } from "./payload.js";
import { checkSecurity } from "./security.js";
import type { ProducerIdentity, TopicPartition } from "./types.js";

/** The settings that all clients share. */
export interface ClientConfig {
  /**
   * The nodes to begin with, as "host:port,..." or a list; others are learned from them. The default
   * is the list in the environment variable ONCELOG_BOOTSTRAP, or a node at 127.0.0.1:7001.
   */
  bootstrapServers: string | readonly string[];
  /** Names the client to the nodes. */
  clientId: string;
  /** How long one request may take before it is tried again elsewhere. */
  requestTimeoutMs: number;
  /** The first pause before a retry; it doubles up to `retryBackoffMaxMs`. */
  retryBackoffMs: number;
  /** The longest pause before a retry. */
  retryBackoffMaxMs: number;
  /** After how long leaders are asked for anew, without a reason. */
  metadataMaxAgeMs: number;
  /**
   * Speaks TLS; so does a client with a file of it. Without `tlsCaFile` it trusts the authorities
   * that Node.js knows. Files are read again when they have changed: certificates for new
   * connections, a token for the next call.
   */
  tls: boolean;
  /** The authorities of the nodes, PEM. */
  tlsCaFile: string | null;
  /** This client's certificate, PEM; with `tlsKeyFile`. */
  tlsCertFile: string | null;
  /** Its key, PEM. */
  tlsKeyFile: string | null;
  /** A file with a token with the client's identity. Sent over TLS only. */
  tokenFile: string | null;
  /** The token itself. */
  token: string | null;
}

/** How payloads are compressed on their way and in the log. */
export type Compression = "none" | "zstd" | "lz4";

/** Says which partition a message goes to; the key is null for a message without one. */
export type Partitioner = (topic: string, key: Uint8Array | null, partitions: number) => number;

/** The settings of a producer. */
export interface ProducerConfig extends ClientConfig {
  /** A stable name: a restart with the same name fences the instance before it. */
  producerName: string | null;
  /** A producer id to start with instead of a leased one. */
  resumeFrom: ProducerIdentity | null;
  /** Makes retries harmless. Without it a retry may store a record again. */
  enableIdempotence: boolean;
  /** How long a batch that is not full waits for more records. */
  lingerMs: number;
  /** Closes a batch when its payload, before compression, has this many bytes. */
  batchSize: number;
  /** Bounds the records that wait in this process, sent and not yet acknowledged included. */
  bufferMemory: number;
  /** How long a send may wait for room in the buffer or for a topic's metadata. */
  maxBlockMs: number;
  /** Is applied to whole batches. */
  compressionType: Compression;
  /** Of zstd, 1 to 22; null: its default. lz4 has one level only. */
  compressionLevel: number | null;
  /** After how long a record without an acknowledgement is given up. */
  deliveryTimeoutMs: number;
  /**
   * How many batches of one partition are on their way at the same time. Up to 5 the cluster knows
   * the offset of a repeated batch without looking it up.
   */
  maxInFlight: number;
  /**
   * Places messages that name no partition; null: by key as Kafka does, and without a key on one
   * partition until its batch is closed.
   */
  partitioner: Partitioner | null;
}

/** Where to start without a position, or go on when it is gone. `none`: an error instead. */
export type OffsetReset = "earliest" | "latest" | "none";

/**
 * The part of a group in its consumers' work. `assigned`: the nodes share topics out among the
 * group's members; `manual`: the group only keeps offsets, and each consumer reads the partitions
 * it is given.
 */
export type Membership = "assigned" | "manual";

/**
 * How a group shares partitions out: `uniform`, all topics together, and partitions stay where
 * they are; `range`: a member gets the same stretch of each topic.
 */
export type Assignor = "uniform" | "range";

/** Is told which partitions come or go. `poll` throws its error, when all is done. */
export type OnPartitions = (partitions: readonly TopicPartition[]) => void | Promise<void>;

/** The same, with the time until which the records that were read can be finished and committed. */
export type OnRevoked = (
  partitions: readonly TopicPartition[],
  until: AbortSignal,
) => void | Promise<void>;

/** The settings of a consumer. */
export interface ConsumerConfig extends ClientConfig {
  /** Names the group that keeps the committed offsets. */
  groupId: string | null;
  /** Moot without a `groupId`. */
  membership: Membership;
  /**
   * A name that outlives the process: one that comes back within a session goes on as it was.
   */
  groupInstanceId: string | null;
  /** The group's first member decides on this and the next three. */
  assignor: Assignor;
  /** After so long without a word a member is none any more. */
  sessionTimeoutMs: number;
  /** For so long it may keep a partition that is asked back. */
  revokeTimeoutMs: number;
  /** So soon it has to come back for more records. */
  processingTimeoutMs: number;
  /**
   * Commits the records returned before the last `poll`, each `autoCommitIntervalMs` and before
   * partitions are given back.
   */
  enableAutoCommit: boolean;
  autoCommitIntervalMs: number;
  /** Partitions have come. This and the next two are called by `poll` and `close`. */
  onAssigned: OnPartitions | null;
  /** Partitions are asked back: their records that were read can be finished and committed. */
  onRevoked: OnRevoked | null;
  /** Partitions are gone: nothing of them can be committed. */
  onLost: OnPartitions | null;
  /** Says where to start without a position. */
  autoOffsetReset: OffsetReset;
  /** Size that a node waits for, at most `fetchMaxWaitMs`. */
  fetchMinBytes: number;
  /** How long a node waits for `fetchMinBytes`. */
  fetchMaxWaitMs: number;
  /** Bounds one answer. */
  fetchMaxBytes: number;
  /** Bounds a partition's part of one answer. */
  maxPartitionFetchBytes: number;
  /** Bounds the records of one poll. */
  maxPollRecords: number;
  /** Compares each batch with its checksum. */
  checkCrcs: boolean;
  /** Reads from any replica up to its own high watermark, not only from leaders. */
  anyReplica: boolean;
  /** Reads from this replica only. Needs `anyReplica`. */
  replicaNodeId: number | null;
  /**
   * Reads from a replica in this rack that keeps up with its leader; where there is none, from the
   * leader. null: always from the leader.
   */
  rack: string | null;
}

const CLIENT: ClientConfig = {
  bootstrapServers: "127.0.0.1:7001",
  clientId: "oncelog-node",
  requestTimeoutMs: 10_000,
  retryBackoffMs: 50,
  retryBackoffMaxMs: 1000,
  metadataMaxAgeMs: 300_000,
  tls: false,
  tlsCaFile: null,
  tlsCertFile: null,
  tlsKeyFile: null,
  tokenFile: null,
  token: null,
};

const PRODUCER: ProducerConfig = {
  ...CLIENT,
  producerName: null,
  resumeFrom: null,
  enableIdempotence: true,
  lingerMs: 5,
  batchSize: 1 << 20,
  bufferMemory: 64 << 20,
  maxBlockMs: 60_000,
  compressionType: "none",
  compressionLevel: null,
  deliveryTimeoutMs: 120_000,
  maxInFlight: 5,
  partitioner: null,
};

const CONSUMER: ConsumerConfig = {
  ...CLIENT,
  groupId: null,
  membership: "assigned",
  groupInstanceId: null,
  assignor: "uniform",
  sessionTimeoutMs: 10_000,
  revokeTimeoutMs: 60_000,
  processingTimeoutMs: 300_000,
  enableAutoCommit: false,
  autoCommitIntervalMs: 5000,
  onAssigned: null,
  onRevoked: null,
  onLost: null,
  autoOffsetReset: "latest",
  fetchMinBytes: 1,
  fetchMaxWaitMs: 500,
  fetchMaxBytes: 16 << 20,
  maxPartitionFetchBytes: 4 << 20,
  maxPollRecords: 10_000,
  checkCrcs: true,
  anyReplica: false,
  replicaNodeId: null,
  rack: null,
};

const MAX_INT32 = 2 ** 31 - 1;
const MAX_NAME_CHARS = 249;

function bad(message: string): OncelogError {
  return new OncelogError("INVALID_CONFIG", message);
}

function number(name: string, value: number, low: number, high: number): void {
  if (!Number.isSafeInteger(value) || value < low || value > high) {
    throw bad(`${name} must be a whole number from ${low} to ${high}, got ${value}`);
  }
}

function name(setting: string, value: string): void {
  if ([...value].length > MAX_NAME_CHARS) {
    throw bad(`${setting} has ${[...value].length} characters, limit ${MAX_NAME_CHARS}`);
  }
  if (!/^[A-Za-z0-9._:/@=+ -]+$/.test(value)) {
    throw bad(`${setting} "${value}" has a character outside A-Z a-z 0-9 ._:/@=+-`);
  }
}

/** Settings over defaults; one that is not known is an error. */
function over<C extends ClientConfig>(defaults: C, given: Partial<C>): C {
  const all = { ...defaults };
  const servers = process.env.ONCELOG_BOOTSTRAP;
  if (servers) all.bootstrapServers = servers;
  for (const [key, value] of Object.entries(given)) {
    if (!Object.hasOwn(defaults, key)) throw bad(`there is no setting ${key}`);
    if (value !== undefined) Object.assign(all, { [key]: value });
  }
  return all;
}

/** The nodes to begin with, from "host:port,..." or a list. */
export function checkServers(servers: string | readonly string[]): string[] {
  const given = typeof servers === "string" ? servers.split(",") : servers;
  const all = [...new Set(given.map((address) => address.trim()))].filter((a) => a !== "");
  for (const address of all) {
    const [, port] = /^.+:(\d+)$/.exec(address) ?? [];
    if (port === undefined || Number(port) < 1 || Number(port) > 65535) {
      throw bad(`bootstrapServers: "${address}" is not host:port`);
    }
  }
  if (all.length === 0) {
    throw bad("bootstrapServers is empty: name at least one node as host:port");
  }
  return all;
}

function checkClient(c: ClientConfig): void {
  c.bootstrapServers = checkServers(c.bootstrapServers);
  number("requestTimeoutMs", c.requestTimeoutMs, 1, MAX_INT32);
  number("retryBackoffMs", c.retryBackoffMs, 1, MAX_INT32);
  number("retryBackoffMaxMs", c.retryBackoffMaxMs, 1, MAX_INT32);
  number("metadataMaxAgeMs", c.metadataMaxAgeMs, 100, MAX_INT32);
  checkSecurity(c);
  if (c.retryBackoffMaxMs < c.retryBackoffMs) {
    throw bad(
      `retryBackoffMaxMs=${c.retryBackoffMaxMs} is below retryBackoffMs=${c.retryBackoffMs}`,
    );
  }
}

/** All settings of an admin client. Throws for those that are out of range. */
export function clientConfig(given: Partial<ClientConfig>): ClientConfig {
  const c = over(CLIENT, given);
  checkClient(c);
  return c;
}

/** All settings of a producer. Throws for those out of range, or that contradict each other. */
export function producerConfig(given: Partial<ProducerConfig>): ProducerConfig {
  const c = over(PRODUCER, given);
  checkClient(c);
  number("lingerMs", c.lingerMs, 0, MAX_INT32);
  number("batchSize", c.batchSize, BATCH_OVERHEAD, MAX_PAYLOAD_BYTES);
  number("bufferMemory", c.bufferMemory, 1, Number.MAX_SAFE_INTEGER);
  number("maxBlockMs", c.maxBlockMs, 0, MAX_INT32);
  number("deliveryTimeoutMs", c.deliveryTimeoutMs, 1, MAX_INT32);
  number("maxInFlight", c.maxInFlight, 1, 1000);
  if (!["none", "zstd", "lz4"].includes(c.compressionType)) {
    throw bad(`compressionType must be none, zstd or lz4, got "${c.compressionType}"`);
  }
  if (c.compressionLevel !== null) {
    number("compressionLevel", c.compressionLevel, -131_072, 22);
    if (c.compressionType === "none") {
      throw bad(`compressionLevel=${c.compressionLevel} contradicts compressionType=none`);
    }
  }
  if (c.batchSize > c.bufferMemory) {
    throw bad(`batchSize=${c.batchSize} does not fit into bufferMemory=${c.bufferMemory}`);
  }
  if (c.deliveryTimeoutMs < c.lingerMs + c.requestTimeoutMs) {
    throw bad(
      `deliveryTimeoutMs=${c.deliveryTimeoutMs} is below lingerMs=${c.lingerMs} + ` +
        `requestTimeoutMs=${c.requestTimeoutMs}: a record would be given up while it waits for ` +
        "its first answer",
    );
  }
  if (c.producerName !== null) {
    name("producerName", c.producerName);
    if (!c.enableIdempotence) {
      throw bad(`producerName="${c.producerName}" contradicts enableIdempotence=false`);
    }
  }
  if (c.resumeFrom !== null) checkResumeFrom(c, c.resumeFrom);
  return c;
}

function checkResumeFrom(c: ProducerConfig, resumeFrom: ProducerIdentity): void {
  if (!c.enableIdempotence) throw bad("resumeFrom contradicts enableIdempotence=false");
  if (c.producerName !== null) {
    throw bad("resumeFrom contradicts producerName: a name has its own producer id");
  }
  if (resumeFrom.producerId < 1n) {
    throw bad(`resumeFrom.producerId must be from 1, got ${resumeFrom.producerId}`);
  }
  number("resumeFrom.epoch", resumeFrom.epoch ?? 0, 0, MAX_INT32);
  for (const next of resumeFrom.nextSequences ?? []) {
    if (next.sequence < 0n) {
      throw bad(`resumeFrom.nextSequences must be from 0, got ${next.sequence}`);
    }
  }
}

/** All settings of a consumer. Throws for those out of range, or that contradict each other. */
export function consumerConfig(given: Partial<ConsumerConfig>): ConsumerConfig {
  const c = over(CONSUMER, given);
  checkClient(c);
  if (!["earliest", "latest", "none"].includes(c.autoOffsetReset)) {
    throw bad(`autoOffsetReset must be earliest, latest or none, got "${c.autoOffsetReset}"`);
  }
  number("fetchMinBytes", c.fetchMinBytes, 0, MAX_INT32);
  number("fetchMaxWaitMs", c.fetchMaxWaitMs, 0, MAX_INT32);
  number("fetchMaxBytes", c.fetchMaxBytes, 1, MAX_INT32);
  number("maxPartitionFetchBytes", c.maxPartitionFetchBytes, 1, MAX_INT32);
  number("maxPollRecords", c.maxPollRecords, 1, MAX_INT32);
  checkGroup(c);
  if (c.fetchMaxWaitMs >= c.requestTimeoutMs) {
    throw bad(
      `fetchMaxWaitMs=${c.fetchMaxWaitMs} must be below requestTimeoutMs=${c.requestTimeoutMs}`,
    );
  }
  if (c.replicaNodeId !== null) {
    number("replicaNodeId", c.replicaNodeId, 1, MAX_INT32);
    if (!c.anyReplica) throw bad("replicaNodeId needs anyReplica=true");
  }
  if (c.rack !== null) {
    name("rack", c.rack);
    if (c.anyReplica) throw bad("rack excludes anyReplica");
  }
  return c;
}

/** Whether it shares its group's partitions with others. */
export function isMember(c: ConsumerConfig): boolean {
  return c.groupId !== null && c.membership === "assigned";
}

function checkGroup(c: ConsumerConfig): void {
  if (c.groupId !== null) name("groupId", c.groupId);
  if (c.groupInstanceId !== null) name("groupInstanceId", c.groupInstanceId);
  if (!["assigned", "manual"].includes(c.membership)) {
    throw bad(`membership must be assigned or manual, got "${c.membership}"`);
  }
  if (!["uniform", "range"].includes(c.assignor)) {
    throw bad(`assignor must be uniform or range, got "${c.assignor}"`);
  }
  number("sessionTimeoutMs", c.sessionTimeoutMs, 1000, 30 * 60_000);
  number("revokeTimeoutMs", c.revokeTimeoutMs, 1000, 60 * 60_000);
  number("processingTimeoutMs", c.processingTimeoutMs, 1000, 24 * 60 * 60_000);
  number("autoCommitIntervalMs", c.autoCommitIntervalMs, 1, MAX_INT32);
  if (isMember(c)) return;
  const own = ["groupInstanceId", "enableAutoCommit", "onAssigned", "onRevoked", "onLost"] as const;
  for (const setting of own) {
    if (c[setting]) {
      const text = `${setting} is for members of a group: it needs a groupId`;
      throw bad(`${text}, and membership=assigned`);
    }
  }
}

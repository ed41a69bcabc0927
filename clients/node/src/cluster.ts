/**
 * The cluster as one thing to call: connections to its nodes, and calls that find a node that
 * answers.
 */

import {
  create,
  type DescMessage,
  type DescMethodBiDiStreaming,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import * as grpc from "@grpc/grpc-js";
import { Attempts } from "./attempts.js";
import { Backoff, now, sleep } from "./clock.js";
import { viewOf } from "./codecs.js";
import { type ClientConfig, checkServers } from "./config.js";
import { asError, isRetriable, OncelogError } from "./errors.js";
import { Founding } from "./founding.js";
import { ClusterService } from "./gen/oncelog/v1/cluster_pb.js";
import { Leaders } from "./leaders.js";
import { Reachability } from "./reachability.js";
import { Credentials } from "./security.js";
import { fromStatus, isAnswer } from "./status.js";
import { keyOf, type TopicPartition } from "./types.js";

const MAX_MESSAGE = 128 << 20;
/** How long a topic that was created elsewhere may take to be known everywhere. */
const UNKNOWN_TOPIC_GRACE = 2000;
/**
 * After so many failures in a row to reach the leader that one node names, another node is asked
 * for it: a node that is cut off from the others tells of a leader that is long gone.
 */
export const MAX_LEADER_FAILURES = 4;
/** A node that hangs must not hold up the answers of another. */
export const CONNECT_TIMEOUT = 2000;

/** How long to try, and how long once; left out: the request timeout. */
export interface CallLimits {
  total?: number;
  attempt?: number;
  onRetry?: (error: OncelogError) => void;
  /** The node to begin with; left out or "": any. */
  first?: string;
}

export function noPartition(tp: TopicPartition): OncelogError {
  const text = `topic "${tp.topic}" has no partition ${tp.partition}`;
  return new OncelogError("UNKNOWN_TOPIC_OR_PARTITION", text, { ...tp });
}

export class Cluster {
  readonly leaders = new Leaders();
  readonly backoff: Backoff;
  readonly reachability: Reachability;
  readonly #founding = new Founding();
  /** Aborted with CLIENT_CLOSED. */
  readonly closing = new AbortController();
  readonly #credentials: Credentials;
  readonly #channels = new Map<string, grpc.Client>();
  readonly #calls = new Set<grpc.Call>();
  readonly servers: readonly string[];
  #preferred: string;
  // Nodes that others are asked before, the one avoided last at the end.
  #avoided: string[] = [];
  // Topics of which the last node that was asked knew nothing: perhaps deleted.
  readonly #unknown = new Set<string>();

  constructor(readonly config: ClientConfig) {
    this.servers = checkServers(config.bootstrapServers);
    this.#credentials = new Credentials(config);
    this.backoff = new Backoff(config.retryBackoffMs, config.retryBackoffMaxMs);
    this.reachability = new Reachability(config.requestTimeoutMs);
    this.#preferred = this.servers[Math.floor(Math.random() * this.servers.length)] ?? "";
  }

  get signal(): AbortSignal {
    return this.closing.signal;
  }

  client(address: string): grpc.Client {
    this.signal.throwIfAborted();
    if (this.#credentials.haveChanged()) {
      // New connections with the files' present content; calls under way end on the old ones.
      for (const old of this.#channels.values()) old.close();
      this.#channels.clear();
    }
    let client = this.#channels.get(address);
    if (client === undefined) {
      const soonest = Math.max(100, this.config.retryBackoffMs);
      client = new grpc.Client(address, this.#credentials.ofChannel(), {
        "grpc.primary_user_agent": this.config.clientId,
        "grpc.max_receive_message_length": MAX_MESSAGE,
        "grpc.max_send_message_length": MAX_MESSAGE,
        // A restarted node must be found again soon, not after two minutes.
        "grpc.initial_reconnect_backoff_ms": soonest,
        "grpc.min_reconnect_backoff_ms": soonest,
        "grpc.max_reconnect_backoff_ms": Math.max(soonest, this.config.retryBackoffMaxMs),
        "grpc.enable_retries": 0,
        // That of other programs' HTTP is not meant for this; grpc_proxy asks for one.
        "grpc.enable_http_proxy": process.env.grpc_proxy ? 1 : 0,
        "grpc.use_local_subchannel_pool": 1,
        "grpc-node.flow_control_window": 8 << 20,
      });
      this.#channels.set(address, client);
    }
    return client;
  }

  close(): void {
    this.closing.abort(new OncelogError("CLIENT_CLOSED", "the client is closed"));
    for (const call of this.#calls) call.cancel();
    for (const client of this.#channels.values()) client.close();
  }

  /** Runs work that nobody waits for. It ends when the client is closed; its errors are its own. */
  spawn(task: () => Promise<void>): void {
    task().catch((e: unknown) => {
      if (!this.signal.aborted) throw e; // a bug: it is not hidden
    });
  }

  // --- which node --------------------------------------------------------------------

  /**
   * All known nodes: the one that answered last, the others in random order, and avoided nodes at
   * the end.
   */
  addresses(): string[] {
    const known = new Set([...this.leaders.nodes.values(), ...this.servers]);
    const others = [...known]
      .filter((a) => a !== this.#preferred && !this.#avoided.includes(a))
      .map((address) => ({ address, at: Math.random() }))
      .sort((a, b) => a.at - b.at)
      .map(({ address }) => address);
    const last = this.#avoided.filter((a) => a !== this.#preferred && known.has(a));
    return [this.#preferred, ...others, ...last];
  }

  /** Has the other nodes asked first, until they are avoided, too. */
  avoid(address: string): void {
    if (address === "") return;
    this.#avoided = [...this.#avoided.filter((a) => a !== address), address];
    if (this.#preferred === address) this.#preferred = this.addresses()[1] ?? address;
  }

  /** The node that was asked first knows too little; begin with another next time. */
  preferAnother(): void {
    this.avoid(this.#preferred);
  }

  /** A node did not serve as the leader that it was said to be, so often in a row. */
  leaderFailed(address: string, failures: number): void {
    this.avoid(address);
    if (failures % MAX_LEADER_FAILURES === 0) this.preferAnother();
  }

  // --- calls -------------------------------------------------------------------------

  /** Calls one node, once. */
  callAt<I extends DescMessage, O extends DescMessage>(
    address: string,
    limit: number,
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    signal?: AbortSignal,
  ): Promise<MessageShape<O>> {
    return new Promise((resolve, reject) => {
      const client = this.client(address);
      const onAbort = () => call.cancel();
      let error: grpc.ServiceError | null = null;
      let answer: MessageShape<O> | undefined;
      const call = client.makeUnaryRequest(
        path(method),
        (message: MessageShape<I>) => viewOf(toBinary(method.input, message)),
        (data: Buffer) => fromBinary(method.output, data),
        create(method.input, request),
        this.#founding.metadata(),
        { deadline: Date.now() + Math.max(limit, 50) },
        (problem, message) => {
          [error, answer] = [problem, message];
        },
      );
      // Right after the callback, with its missing records: the trailing metadata of a success.
      call.once("status", ({ metadata }) => {
        this.#calls.delete(call);
        signal?.removeEventListener("abort", onAbort);
        if (this.signal.aborted && error !== null) return reject(this.signal.reason);
        const other = error === null ? this.#founding.learn(address, metadata) : undefined;
        if (!signal?.aborted) this.#heard(address, error);
        if (error === null && answer !== undefined && other === undefined) resolve(answer);
        else reject(other ?? fromStatus(address, error ?? {}));
      });
      this.#calls.add(call);
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  }

  #heard(address: string, error: grpc.ServiceError | null): void {
    if (error === null || isAnswer(error)) this.reachability.answered(address);
    else this.reachability.failed(`${address}: ${error.details}`);
  }

  /** Begins a stream of requests and answers. */
  duplex<I extends DescMessage, O extends DescMessage>(
    address: string,
    method: DescMethodBiDiStreaming<I, O>,
  ): grpc.ClientDuplexStream<MessageShape<I>, MessageShape<O>> {
    const call = this.client(address).makeBidiStreamRequest(
      path(method),
      (message: MessageShape<I>) => viewOf(toBinary(method.input, message)),
      (data: Buffer) => fromBinary(method.output, data),
      this.#founding.metadata(),
    );
    this.#track(call);
    return call;
  }

  /** Begins a stream of answers. */
  serverStream<I extends DescMessage, O extends DescMessage>(
    address: string,
    method: DescMethodServerStreaming<I, O>,
    request: MessageInitShape<I>,
  ): grpc.ClientReadableStream<MessageShape<O>> {
    const call = this.client(address).makeServerStreamRequest(
      path(method),
      (message: MessageShape<I>) => viewOf(toBinary(method.input, message)),
      (data: Buffer) => fromBinary(method.output, data),
      create(method.input, request),
      this.#founding.metadata(),
    );
    this.#track(call);
    return call;
  }

  #track(call: grpc.ClientReadableStream<unknown>): void {
    this.#calls.add(call);
    call.once("status", () => this.#calls.delete(call));
  }

  /**
   * Calls any node that answers, until it succeeds, fails for good, or time is up: the error is
   * then the last one from a node, not that another attempt had no answer. It fails at once if no
   * node of the client's own cluster answers, and one of another does.
   */
  async call<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
    limits: CallLimits = {},
  ): Promise<MessageShape<O>> {
    const total = limits.total ?? this.config.requestTimeoutMs;
    const attempt = limits.attempt ?? this.config.requestTimeoutMs;
    const deadline = now() + total;
    const attempts = new Attempts();
    for (let failures = 1; ; failures++) {
      let other: OncelogError | undefined;
      const { first = "" } = limits;
      const addresses = this.addresses();
      if (failures === 1 && addresses.includes(first)) addresses.unshift(first);
      for (const address of new Set(addresses)) {
        try {
          const left = Math.min(attempt, deadline - now());
          const answer = await this.callAt(address, left, method, request);
          if (address !== first) this.#preferred = address;
          return answer;
        } catch (e) {
          if (!isRetriable(e) || isUnknownTopic(e)) throw attempts.finalAnswer(e);
          attempts.failed(asError(e));
          if (isOtherCluster(e)) other = e;
          limits.onRetry?.(asError(e));
          if (now() >= deadline) throw attempts.error();
        }
      }
      if (other !== undefined) throw attempts.withDoubt(other);
      const pause = this.backoff.delay(failures);
      if (now() + pause >= deadline) throw attempts.error();
      await sleep(pause, this.signal);
    }
  }

  /** Calls a partition's leader, following it where it goes. */
  async callLeader<I extends DescMessage, O extends DescMessage>(
    tp: TopicPartition,
    method: DescMethodUnary<I, O>,
    request: MessageInitShape<I>,
  ): Promise<MessageShape<O>> {
    const deadline = now() + this.config.requestTimeoutMs;
    await this.requireTopic(tp.topic, this.config.requestTimeoutMs);
    if (this.leaders.leader(tp) === undefined) throw noPartition(tp);
    const attempts = new Attempts();
    for (let failures = 1; ; failures++) {
      const address = this.leaders.address(tp);
      let problem = new OncelogError("NOT_READY", `${keyOf(tp)} has no leader`);
      if (address !== "") {
        try {
          return await this.callAt(address, deadline - now(), method, request);
        } catch (e) {
          if (!(e instanceof OncelogError) || !e.retriable) throw attempts.finalAnswer(e);
          problem = e;
        }
      }
      attempts.failed(problem);
      const { leaderAddress = "", leaderId = 0 } = problem.details;
      const hinted = problem.kind === "NOT_LEADER" && leaderAddress !== "";
      if (hinted) this.leaders.hint(tp, leaderId, leaderAddress);
      else this.leaders.suspect(tp);
      this.leaderFailed(address, failures);
      const pause = hinted && failures === 1 ? 0 : this.backoff.delay(failures);
      if (now() + pause >= deadline) throw attempts.error();
      await sleep(pause, this.signal);
      if (failures > 1 || !hinted) {
        try {
          await this.requireTopic(tp.topic, Math.max(50, deadline - now()));
        } catch (e) {
          if (!isRetriable(e) || isUnknownTopic(e)) throw attempts.finalAnswer(e);
          attempts.failed(asError(e));
          throw attempts.error();
        }
      }
    }
  }

  // --- topics ------------------------------------------------------------------------

  /** Asks for topics' leaders. A topic that does not exist is left out of the answer. */
  async refresh(topics: string[], total = this.config.requestTimeoutMs): Promise<void> {
    try {
      const limits = { total, attempt: Math.min(1000, total) };
      const request = { names: topics };
      this.leaders.update(await this.call(ClusterService.method.describeTopics, request, limits));
      for (const topic of topics) this.#unknown.delete(topic);
    } catch (e) {
      if (!isUnknownTopic(e)) throw e;
      // The node may be behind, or cut off from the others: they are asked next.
      this.preferAnother();
      if (topics.length === 1) for (const topic of topics) this.#unknown.add(topic);
      else for (const topic of topics) await this.refresh([topic], total);
    }
  }

  /** The same, where no answer is no error: it is asked again. */
  async tryRefresh(topics: string[]): Promise<OncelogError | undefined> {
    try {
      await this.refresh(topics);
      return undefined;
    } catch (e) {
      if (!(e instanceof OncelogError)) throw e;
      return e;
    }
  }

  /** Takes over this node's view of a topic. */
  async refreshAt(address: string, topic: string): Promise<void> {
    const limit = Math.min(1000, this.config.requestTimeoutMs);
    const request = { names: [topic] };
    this.leaders.update(
      await this.callAt(address, limit, ClusterService.method.describeTopics, request),
    );
  }

  /**
   * Waits until the topic's metadata is known. A topic that does not exist is asked for again for
   * a short while: it may have been created a moment ago at another node.
   */
  async requireTopic(topic: string, limit: number): Promise<void> {
    const begin = now();
    const attempts = new Attempts();
    for (let failures = 1; ; failures++) {
      let problem: OncelogError | undefined;
      try {
        const left = Math.max(50, begin + limit - now());
        await this.refresh([topic], Math.min(left, this.config.requestTimeoutMs));
      } catch (e) {
        if (!(e instanceof OncelogError) || !e.retriable) throw e;
        problem = e;
        attempts.failed(e);
      }
      const passed = now() - begin;
      if (problem !== undefined && passed >= limit) {
        throw attempts.late(`no metadata of topic "${topic}" within ${limit} ms`);
      }
      if (this.leaders.topics.has(topic) && !this.#unknown.has(topic)) return;
      if (problem === undefined && passed >= Math.min(limit, UNKNOWN_TOPIC_GRACE)) {
        const text = `topic "${topic}" does not exist: oncelog topic create ${topic}`;
        throw new OncelogError("UNKNOWN_TOPIC_OR_PARTITION", text, { topic, partition: -1 });
      }
      const pause = this.backoff.delay(Math.min(failures, 4));
      await sleep(Math.max(0, Math.min(pause, begin + limit - now())), this.signal);
    }
  }
}

function path(method: { parent: { typeName: string }; name: string }): string {
  return `/${method.parent.typeName}/${method.name}`;
}

export function isOtherCluster(e: unknown): e is OncelogError {
  return e instanceof OncelogError && e.kind === "OTHER_CLUSTER";
}

export function isUnknownTopic(e: unknown): boolean {
  return e instanceof OncelogError && e.kind === "UNKNOWN_TOPIC_OR_PARTITION";
}

/**
 * A consumer's place in its group: a stream that brings assignments, and calls that answer.
 *
 *     coordinator --JoinGroup stream--> GroupMember --> Membership --Change--> FetchBuffer
 *     coordinator <--GroupHeartbeat---- GroupMember <-- Rebalance, when the user polls
 *
 * Changes are put before the user as an interruption; nothing of the user's changes without
 * him. All but the hello goes by calls, not by the stream: an answer shows that the coordinator
 * still has this member, and while none comes for a session's length nothing is given out.
 */

import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { FetchBuffer } from "./buffer.js";
import { now, sleep, within } from "./clock.js";
import type { Cluster } from "./cluster.js";
import type { ConsumerConfig } from "./config.js";
import { asError, isRetriable, OncelogError } from "./errors.js";
import {
  type GroupAssignment,
  GroupService,
  JoinGroupRequestSchema,
  type JoinGroupResponse,
} from "./gen/oncelog/v1/group_pb.js";
import { type CommitTerms, GROUP_ATTEMPT, type Groups } from "./groups.js";
import { Membership, type Step } from "./membership.js";
import { fromStatus } from "./status.js";
import { keyOf, PartitionMap, type TopicPartition } from "./types.js";

const { joinGroup, groupHeartbeat } = GroupService.method;

/** Work of the user's polls. */
export interface Change {
  readonly connection: bigint;
  readonly step: Step;
  /** Of the revoked partitions. */
  readonly deadline: number;
  /** The membership has: the user has to come back before another begins. */
  readonly ended: boolean;
}

type Saying = NonNullable<MessageInitShape<typeof JoinGroupRequestSchema>["message"]>;
/** Why a connection ends: an error, or another one is to follow at once. */
type End = OncelogError | "again";

/** One consumer in its group, over all connections and memberships, until it leaves. */
export class GroupMember {
  readonly group: string;
  readonly id = randomUUID();
  readonly machine = new Membership();
  /** For good. */
  error: OncelogError | undefined;
  #topics: readonly string[];
  #claim = 0n;
  #wasMember = false;
  #isIn = false; // an assignment came over the present connection
  #address = ""; // of the coordinator, while connected
  #whyNot: unknown = "no answer"; // it has not joined yet
  #pingMs: number;
  #outbox: (Saying | "again")[] = [];
  #rouse = () => {};
  #tellJoined = () => {};
  readonly #joined: Promise<void>;
  #cameBack: Promise<void> = Promise.resolve();
  #tellCameBack = () => {};
  readonly #ended = new AbortController();
  readonly #left = aborted(this.#ended.signal);
  readonly #running: Promise<void>;

  constructor(
    readonly config: ConsumerConfig,
    readonly cluster: Cluster,
    readonly groups: Groups,
    readonly buffer: FetchBuffer,
    topics: readonly string[],
  ) {
    this.group = config.groupId ?? "";
    this.#topics = topics;
    this.#pingMs = config.sessionTimeoutMs / 3;
    this.#joined = new Promise((resolve) => {
      this.#tellJoined = resolve;
    });
    this.#running = this.#run().catch((e: unknown) => {
      if (!this.#ended.signal.aborted && !cluster.signal.aborted) this.#fail(asError(e));
    });
  }

  // --- the user's questions ------------------------------------------------------------

  /** Waits until the group has answered. Throws the error in the way. */
  async joined(): Promise<void> {
    const { requestTimeoutMs } = this.config;
    if (!(await within(this.#joined, now() + requestTimeoutMs))) {
      const why = this.#whyNot instanceof Error ? this.#whyNot.message : this.#whyNot;
      const text = `group ${this.group} not joined within ${requestTimeoutMs} ms: ${why}`;
      throw new OncelogError("REQUEST_TIMEOUT", text);
    }
    if (this.error !== undefined) throw this.error;
  }

  /** Other topics from now on. */
  subscribe(topics: readonly string[]): void {
    this.#topics = topics;
    this.#send("again");
  }

  /** Those of the revoked that still have to be given back on this connection. */
  askedBack(change: Change): TopicPartition[] {
    // Else they are asked again on the new one, if at all.
    if (change.connection !== this.machine.connection) return [];
    return change.step.revoked.filter((tp) => this.machine.isAskedBack(tp));
  }

  /** Gives back finished and committed partitions; returns the partitions that are kept all the
   * same. */
  release(change: Change, tps: readonly TopicPartition[]): TopicPartition[] {
    this.#answer(change.connection, tps);
    return tps.filter((tp) => this.machine.owned.has(tp));
  }

  /** Those that are owned under the same number. */
  stillOwned(numbers: PartitionMap<bigint>): [TopicPartition, bigint][] {
    return [...numbers].filter(([tp, number]) => this.machine.owned.get(tp) === number);
  }

  /** The member's part of a look at the offset to go on from. */
  terms(): CommitTerms {
    return { memberId: this.id, number: 0n, ownerships: this.machine.owned };
  }

  /** The member's part of the next commit, for records read under ownerships of these numbers. */
  commitTerms(tps: readonly TopicPartition[], numbers: PartitionMap<bigint>): CommitTerms {
    for (const tp of tps) {
      const owned = this.machine.owned.get(tp);
      if (owned === undefined || owned !== numbers.get(tp)) {
        const text = "offset not committed: it is not part of this consumer's assignment";
        throw new OncelogError("FENCED_MEMBER", `${keyOf(tp)}: ${text}`);
      }
    }
    const ownerships = new PartitionMap<bigint>();
    for (const [tp, number] of numbers) ownerships.set(tp, number);
    return { memberId: this.id, number: this.machine.nextCommit(), ownerships };
  }

  /** The user knows that the membership has ended: another one may begin. */
  comesBack(): void {
    this.#tellCameBack();
  }

  /** Ends the membership; that of a named instance ends with its session only. */
  async leave(): Promise<void> {
    if (this.#address !== "" && this.config.groupInstanceId === null) {
      try {
        await this.#say({ case: "leave", value: {} });
      } catch (e) {
        if (!(e instanceof OncelogError)) throw e; // else its session will end
      }
    }
    this.#ended.abort(new OncelogError("CLIENT_CLOSED", "the consumer has left its group"));
    this.#rouse();
    await this.#running;
  }

  // --- connections -----------------------------------------------------------------------

  async #run(): Promise<void> {
    const { signal } = this.#ended;
    for (let failures = 0; this.error === undefined && !signal.aborted; ) {
      // One that is stuck would only be given partitions that nobody reads then.
      await Promise.race([this.#cameBack, this.#left]);
      if (signal.aborted) return;
      const address = this.groups.coordinator(this.group);
      const end = await this.#connection(address);
      const wasIn = this.#isIn;
      this.#address = "";
      this.#isIn = false;
      if (signal.aborted) return;
      if (end === "again") {
        failures = 0;
        continue;
      }
      this.#whyNot = end;
      if (!isRetriable(end)) {
        this.#fail(end);
        return;
      }
      failures = wasIn ? 1 : failures + 1;
      await sleep(this.groups.failed(this.group, address, end, failures), signal);
    }
  }

  /** Until the coordinator, or this member, wants another one. */
  async #connection(address: string): Promise<End> {
    const connection = this.machine.connect();
    this.#outbox = [];
    const sent = now();
    const call = this.cluster.duplex(address, joinGroup);
    let beat: Promise<void> | undefined;
    const over = new AbortController();
    const ended = new Promise<End>((resolve) => {
      const take = (answer: JoinGroupResponse) => {
        const end = this.#takeOver(connection, answer);
        if (end !== undefined) resolve(end);
      };
      const overdue = setTimeout(() => {
        resolve(new OncelogError("UNAVAILABLE", `${address}: no answer to a hello`));
      }, GROUP_ATTEMPT);
      call.on("data", (answer: JoinGroupResponse) => {
        if (over.signal.aborted) return;
        if (beat === undefined) {
          clearTimeout(overdue);
          this.groups.answered(this.group, address);
          this.#address = address;
          this.#pingMs = Math.max(answer.pingIntervalMs, 100);
          this.#confirmed(sent);
          beat = this.#beat(connection, over.signal, take).catch((e: unknown) => {
            resolve(asError(e));
          });
        }
        take(answer);
      });
      call.on("error", () => {}); // the status says the same
      call.on("status", (status) => {
        clearTimeout(overdue);
        const text = "the coordinator has ended the stream";
        resolve(
          status.code === 0 ? new OncelogError("NOT_LEADER", text) : fromStatus(address, status),
        );
      });
      this.#left.then(() => {
        clearTimeout(overdue);
        resolve("again");
      });
    });
    call.write(create(JoinGroupRequestSchema, { message: this.#hello(connection) }));
    const end = await ended;
    over.abort();
    this.#rouse();
    call.cancel();
    await beat;
    return end;
  }

  #hello(connection: bigint): Saying {
    const { config, machine } = this;
    return {
      case: "hello",
      value: {
        group: this.group,
        memberId: this.id,
        connection,
        topics: [...this.#topics],
        instanceId: config.groupInstanceId ?? "",
        epoch: machine.epoch,
        claim: this.#claim,
        owned: machine.owned.keys(),
        assignor: config.assignor,
        sessionTimeoutMs: config.sessionTimeoutMs,
        revokeTimeoutMs: config.revokeTimeoutMs,
        processingTimeoutMs: config.processingTimeoutMs,
        clientHost: `${config.clientId}@${hostname()}`.slice(0, 255),
      },
    };
  }

  /** Sends the next message, or a sign of life; throws the error that ends the connection. */
  async #beat(
    connection: bigint,
    over: AbortSignal,
    take: (answer: JoinGroupResponse) => void,
  ): Promise<void> {
    while (!over.aborted) {
      if (this.#outbox.length === 0) {
        const roused = new Promise<void>((resolve) => {
          this.#rouse = resolve;
        });
        await within(roused, now() + this.#pingMs);
        if (over.aborted) return;
      }
      const ping: Saying = {
        case: "ping",
        value: { idleMs: BigInt(Math.round(this.buffer.idle)) },
      };
      const request = this.#outbox.shift() ?? ping;
      if (request === "again") {
        take(create(GroupService.method.joinGroup.output, { connection: -1n }));
        return;
      }
      const sent = now();
      const answer = await this.#say(request);
      if (over.aborted) return;
      if (answer.connection !== connection) {
        throw new OncelogError("NOT_LEADER", "the coordinator does not know this connection");
      }
      if (answer.message.case === "fenced") {
        take(answer);
        return;
      }
      this.#confirmed(sent);
    }
  }

  #say(message: Saying): Promise<JoinGroupResponse> {
    const limit = Math.min(GROUP_ATTEMPT, Math.max(this.#pingMs, 500));
    return this.cluster.callAt(this.#address, limit, groupHeartbeat, {
      group: this.group,
      memberId: this.id,
      connection: this.machine.connection,
      request: { message },
    });
  }

  /** Tells which partitions are still held, without these. */
  #answer(connection: bigint, tps: readonly TopicPartition[]): void {
    if (!this.machine.released(connection, tps)) return;
    const { epoch, owned } = this.machine;
    this.#send({ case: "owned", value: { epoch, partitions: owned.keys() } });
  }

  #send(request: Saying | "again"): void {
    this.#outbox.push(request);
    this.#rouse();
  }

  /** The coordinator had this member when it answered the messages of that time. */
  #confirmed(sent: number): void {
    this.buffer.holdFrom(sent + 3 * this.#pingMs);
  }

  // --- messages that come -------------------------------------------------------------------

  /** Takes note of a message; returns why another connection is needed, if one is. */
  #takeOver(connection: bigint, answer: JoinGroupResponse): End | undefined {
    if (answer.connection < 0n) return "again";
    const { message } = answer;
    switch (message.case) {
      case "assignment":
        this.#assigned(connection, message.value);
        return undefined;
      case "fenced":
        return this.#fenced(message.value.reason);
      case "instanceHeld":
        this.#claim = message.value.claim;
        if (this.#wasMember) this.#fail(this.#taken());
        return "again";
    }
    return undefined;
  }

  #assigned(connection: bigint, answer: GroupAssignment): void {
    const numbers = new PartitionMap<bigint>();
    for (const { topic, partition, ownership } of answer.partitions) {
      numbers.set({ topic, partition }, ownership);
    }
    const revoke = answer.revoke.map(({ topic, partition }) => ({ topic, partition }));
    const step = this.machine.assignment(connection, answer.epoch, numbers, revoke);
    this.#claim = 0n;
    this.#wasMember = true;
    this.#isIn = true;
    if (step.lost.length + step.revoked.length + step.assigned.size > 0) {
      const deadline = now() + this.config.revokeTimeoutMs;
      this.buffer.interrupt({ connection, step, deadline, ended: false });
    }
    // Given and asked back before this member heard of it: only the newest assignment is sent.
    // There is nothing to finish.
    if (revoke.some((tp) => !this.machine.owned.has(tp))) this.#answer(connection, []);
    this.#tellJoined();
  }

  #fenced(reason: string): End {
    if (reason === "GROUP_FULL") {
      const text = `group ${this.group} has as many members as it may`;
      return new OncelogError("THROTTLED", text);
    }
    if (reason === "INSTANCE_TAKEN") this.#fail(this.#taken());
    else {
      this.#cameBack = new Promise((resolve) => {
        this.#tellCameBack = resolve;
      });
      this.#loseAll();
    }
    return "again";
  }

  #loseAll(): void {
    const lost = this.machine.fenced();
    const step = { lost, revoked: [], assigned: new PartitionMap<bigint>() };
    this.buffer.interrupt({ connection: 0n, step, deadline: 0, ended: true });
  }

  #taken(): OncelogError {
    const text = `another process goes by groupInstanceId "${this.config.groupInstanceId}"`;
    return new OncelogError("FENCED_MEMBER", text);
  }

  #fail(error: OncelogError): void {
    this.error = error;
    this.#loseAll();
    this.#tellJoined();
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}

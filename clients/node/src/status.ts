/** Meaning of statuses and verdicts of nodes. */

import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { type Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { type ErrorDetails, type ErrorKind, kindOf, OncelogError, told, unsent } from "./errors.js";
import { type BatchResult, Verdict } from "./gen/oncelog/v1/log_pb.js";
import { keyOf, type TopicPartition } from "./types.js";

/**
 * Meaning of a status without our ErrorInfo: it comes from gRPC itself, or from something in
 * between.
 */
const PLAIN = new Map<number, ErrorKind>([
  [status.UNAVAILABLE, "UNAVAILABLE"],
  [status.CANCELLED, "UNAVAILABLE"],
  [status.DEADLINE_EXCEEDED, "REQUEST_TIMEOUT"],
  // A message beyond a limit, most often: the same again would end the same way.
  [status.RESOURCE_EXHAUSTED, "INVALID_REQUEST"],
  [status.INVALID_ARGUMENT, "INVALID_REQUEST"],
  [status.OUT_OF_RANGE, "INVALID_REQUEST"],
  [status.UNIMPLEMENTED, "NOT_SUPPORTED"],
  [status.DATA_LOSS, "CORRUPT_LOG"],
]);

/** Begins gRPC's text of a call that was not sent; it has nothing else for it. */
const NO_CONNECTION = "No connection established";

/** Whether a node of this cluster has said so: not gRPC itself, or something in between. */
export function isAnswer(failure: Partial<ServiceError>): boolean {
  const info = readInfo(failure.metadata);
  if (info?.domain === "oncelog") return info.reason !== "OTHER_CLUSTER";
  const kind = PLAIN.get(failure.code ?? status.UNKNOWN);
  return kind !== "UNAVAILABLE" && kind !== "REQUEST_TIMEOUT";
}

/** The error that a failed call to a node stands for. */
export function fromStatus(address: string, failure: Partial<ServiceError>): OncelogError {
  const text = failure.details ?? "";
  const info = readInfo(failure.metadata);
  if (info?.domain === "oncelog") return told(fromInfo(info, text));
  const kind = PLAIN.get(failure.code ?? status.UNKNOWN);
  if (kind === undefined) {
    return new OncelogError("INTERNAL", `${address}: ${failure.code}: ${text}`);
  }
  const error = new OncelogError(kind, `${address}: ${text}`);
  return text.startsWith(NO_CONNECTION) ? unsent(error) : error;
}

interface Info {
  reason: string;
  domain: string;
  metadata: Map<string, string>;
}

/** Fields with a length, by number; the others are left out. */
function fields(data: Uint8Array): [number, Uint8Array][] {
  const reader = new BinaryReader(data);
  const found: [number, Uint8Array][] = [];
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (wire === WireType.LengthDelimited) found.push([field, reader.bytes()]);
    else reader.skip(wire, field);
  }
  return found;
}

const TEXT = new TextDecoder();

function text(all: [number, Uint8Array][], field: number): string {
  return TEXT.decode(all.find(([number]) => number === field)?.[1] ?? new Uint8Array());
}

/** The google.rpc.ErrorInfo in a google.rpc.Status, if there is one. */
function readInfo(metadata: Metadata | undefined): Info | undefined {
  const [details] = metadata?.get("grpc-status-details-bin") ?? [];
  if (!(details instanceof Uint8Array)) return undefined;
  try {
    for (const [field, detail] of fields(details)) {
      if (field !== 3) continue;
      const any = fields(detail);
      if (text(any, 1) !== "type.googleapis.com/google.rpc.ErrorInfo") continue;
      const info = fields(any.find(([number]) => number === 2)?.[1] ?? new Uint8Array());
      const entries = info.filter(([number]) => number === 3).map(([, entry]) => fields(entry));
      return {
        reason: text(info, 1),
        domain: text(info, 2),
        metadata: new Map(entries.map((entry) => [text(entry, 1), text(entry, 2)])),
      };
    }
  } catch {
    // not from a node of ours
  }
  return undefined;
}

function fromInfo(info: Info, message: string): OncelogError {
  const { metadata } = info;
  const kind = kindOf(info.reason);
  if (kind === undefined) {
    // A newer server: its own word says whether to retry.
    const retriable = metadata.get("retriable") === "true";
    return new OncelogError(retriable ? "UNAVAILABLE" : "INTERNAL", `${info.reason}: ${message}`);
  }
  const number = (name: string) => {
    const value = metadata.get(name) ?? "";
    return /^-?\d+$/.test(value) ? BigInt(value) : -1n;
  };
  const details: ErrorDetails = {
    partition: Number(number("partition")),
    offset: number("offset"),
    logStartOffset: number("log_start_offset"),
    highWatermark: number("high_watermark"),
    nextOffset: number("next_offset"),
    lastSequence: number("last_sequence"),
    currentEpoch: Number(number("current_epoch")),
    leaderId: Math.max(0, Number(number("leader_id"))),
    leaderAddress: metadata.get("leader_address") ?? "",
    topic: metadata.get("topic") ?? "",
    producerName: metadata.get("producer_name") ?? "",
    principal: metadata.get("principal") ?? "",
    operation: metadata.get("operation") ?? "",
    kind: metadata.get("kind") ?? "",
    name: metadata.get("name") ?? "",
    field: metadata.get("field") ?? "",
    limit: metadata.get("limit") ?? "",
  };
  return new OncelogError(kind, message, details);
}

/** The kind of a final verdict, by its name; undefined: this client does not know it. */
export function kindOfVerdict(verdict: Verdict): ErrorKind | undefined {
  return kindOf(Verdict[verdict] ?? "");
}

/** Whether it is a success: a verdict's number gives its class. */
export function isStored(verdict: Verdict): boolean {
  return verdict in Verdict && 0 < verdict && verdict < 10;
}

export function isRetriableVerdict(verdict: Verdict): boolean {
  return verdict in Verdict && verdict >= 30;
}

/** The verdict, and the node's message. */
export function answerText(result: BatchResult): string {
  const name = Verdict[result.verdict] ?? `verdict ${result.verdict}`;
  return result.message === "" ? name : `${name}: ${result.message}`;
}

/**
 * The error of a verdict that is neither a success nor retriable. One that this client does not
 * know counts as an invalid batch: it must not be repeated blindly.
 */
export function fromVerdict(result: BatchResult, tp: TopicPartition): OncelogError {
  const kind = kindOfVerdict(result.verdict) ?? "INVALID_BATCH";
  let said = result.message || `verdict ${result.verdict}`;
  if (kind === "FENCED") {
    said += ` (current epoch ${result.currentEpoch}): another producer has taken over`;
  } else if (kind === "OUT_OF_ORDER") said += ` (last stored sequence ${result.lastSequence})`;
  else if (kind === "OFFSET_MISMATCH") said += ` (next offset ${result.nextOffset})`;
  const { currentEpoch, lastSequence, nextOffset } = result;
  return new OncelogError(kind, `${keyOf(tp)}: ${said}`, {
    ...tp,
    currentEpoch,
    lastSequence,
    nextOffset,
  });
}

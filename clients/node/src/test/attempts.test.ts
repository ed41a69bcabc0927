import assert from "node:assert/strict";
import { test } from "node:test";
import { status } from "@grpc/grpc-js";
import { Attempts, Obstacles } from "../attempts.js";
import { OncelogError, told } from "../errors.js";
import { fromStatus } from "../status.js";

function failed(...errors: OncelogError[]): Attempts {
  const attempts = new Attempts();
  for (const error of errors) attempts.failed(error);
  return attempts;
}

const timeout = new OncelogError("REQUEST_TIMEOUT", "n1: too late");

test("a timeout hides no refusal", () => {
  const refusal = told(new OncelogError("NOT_LEADER", "not here", { leaderId: 2 }));
  const error = failed(refusal, timeout).error();
  assert.equal(error.kind, "NOT_LEADER");
  assert.equal(error.details.leaderId, 2);
  assert.equal(error.message, "not here; the last attempt: n1: too late");
  assert.equal(error.outcome, "unknown");
  assert.equal(refusal.outcome, undefined);

  const wait = told(new OncelogError("NOT_READY", "wait"));
  const earlier = failed(timeout, wait).error();
  assert.deepEqual([earlier.kind, earlier.message], ["NOT_READY", "wait"]);
  assert.equal(earlier.outcome, "unknown", "the first attempt is in doubt");
  assert.equal(failed(refusal, wait).error().outcome, undefined);
});

test("a final answer speaks for the last attempt alone", () => {
  const gone = told(new OncelogError("UNKNOWN_TOPIC_OR_PARTITION", "no such topic"));
  const wait = told(new OncelogError("NOT_READY", "wait"));
  assert.equal(failed(wait).finalAnswer(gone), gone);
  const doubted = failed(timeout).finalAnswer(gone) as OncelogError;
  assert.equal(doubted.outcome, "unknown", "an earlier attempt may have deleted it");
  assert.equal(gone.outcome, undefined);

  const exists = told(new OncelogError("TOPIC_ALREADY_EXISTS", "there is one"));
  const error = failed(timeout).finalAnswer(exists) as OncelogError;
  assert.equal(error.kind, "TOPIC_ALREADY_EXISTS");
  const text = "there is one; an earlier attempt had no answer and may have taken effect";
  assert.equal(error.message, text);
  const own = new OncelogError("CLIENT_CLOSED", "closed");
  assert.equal(failed(timeout).finalAnswer(own), own);
});

test("a call that was not sent leaves no doubt", () => {
  const text = "No connection established. Last error: refused";
  const refused = failed(fromStatus("n1:1", { code: status.UNAVAILABLE, details: text }));
  assert.equal(refused.inDoubt, false);
  assert.equal(failed(refused.late("no metadata")).inDoubt, false);
  const other = new OncelogError("UNAVAILABLE", `a proxy: ${text}`);
  assert.equal(failed(other).inDoubt, true, "a text that tells of another connection");
});

test("a lost connection tells more than a timeout", () => {
  const lost = new OncelogError("UNAVAILABLE", "n1: refused");
  assert.equal(failed(lost, timeout).error().kind, "UNAVAILABLE");
  assert.equal(failed(lost, timeout).late("no metadata").kind, "REQUEST_TIMEOUT");
  const majority = told(new OncelogError("UNAVAILABLE", "no majority"));
  const late = failed(majority, lost, timeout).late("no metadata");
  assert.equal(late.kind, "UNAVAILABLE");
  assert.equal(late.message, "no metadata: no majority; the last attempt: n1: too late");
  assert.equal(new Attempts().late("no").kind, "REQUEST_TIMEOUT");
});

test("a record is told the refusal and what came after it", () => {
  const obstacles = new Obstacles();
  obstacles.met("n1: no answer yet");
  obstacles.met("n1: STORAGE_FULL", true);
  assert.equal(`${obstacles}`, "n1: STORAGE_FULL");
  obstacles.met("n1: gone");
  assert.equal(`${obstacles}`, "n1: STORAGE_FULL; n1: gone");
});

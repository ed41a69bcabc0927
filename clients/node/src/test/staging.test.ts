import assert from "node:assert/strict";
import { test } from "node:test";
import { type ErrorKind, OncelogError } from "../errors.js";
import { type EndCall, ProducerTransaction, type TransactionState } from "../staging.js";

const begun = () => new ProducerTransaction(7n, 1n, 0, 60_000);
const error = (kind: ErrorKind) => new OncelogError(kind, kind);

interface Case {
  first: EndCall;
  answers: [ErrorKind | undefined, EndCall | undefined][];
  state: TransactionState;
  kind?: ErrorKind;
  outcome?: string;
}

const CASES: Record<string, Case> = {
  "it is committed": { first: "commit", answers: [[undefined, undefined]], state: "committed" },
  "an answer was lost": {
    first: "commit",
    answers: [
      ["UNAVAILABLE", "commit"],
      [undefined, undefined],
    ],
    state: "committed",
  },
  "refused, and an abort tells that it was decided": {
    first: "commit",
    answers: [
      ["UNAVAILABLE", "commit"],
      ["COMMIT_INCOMPLETE", "abort"],
      ["TRANSACTION_COMMITTED", "commit"],
      [undefined, undefined],
    ],
    state: "committed",
  },
  "it is refused": {
    first: "commit",
    answers: [
      ["COMMIT_INCOMPLETE", "abort"],
      [undefined, undefined],
    ],
    state: "aborted",
    kind: "COMMIT_INCOMPLETE",
    outcome: "not_stored",
  },
  "nobody knows it, and no call had a chance": {
    first: "commit",
    answers: [["UNKNOWN_TRANSACTION", undefined]],
    state: "aborted",
    kind: "TRANSACTION_ABORTED",
    outcome: "not_stored",
  },
  "nobody knows it any more": {
    first: "commit",
    answers: [
      ["UNAVAILABLE", "commit"],
      ["UNKNOWN_TRANSACTION", undefined],
    ],
    state: "unknown",
    kind: "UNKNOWN_TRANSACTION",
    outcome: "unknown",
  },
};

for (const [name, { first, answers, state, kind, outcome }] of Object.entries(CASES)) {
  test(`a transaction: ${name}`, () => {
    const transaction = begun();
    let call: EndCall | undefined = transaction.end(first);
    for (const [answer, next] of answers) {
      call = transaction.answered(call as EndCall, answer && error(answer));
      assert.equal(call, next);
    }
    assert.equal(transaction.state, state);
    if (kind !== undefined) {
      assert.equal(transaction.error.kind, kind);
      assert.equal(transaction.error.outcome, outcome);
    }
  });
}

test("of a transaction that has failed the first failure counts", () => {
  const transaction = begun();
  transaction.fail(error("INVALID_BATCH"));
  transaction.fail(error("BATCH_TOO_LARGE"));
  assert.throws(
    () => transaction.checkOpen(),
    (e) =>
      e instanceof OncelogError &&
      e.kind === "TRANSACTION_ABORTED" &&
      e.cause === transaction.failure,
  );
  assert.equal(transaction.failure?.kind, "INVALID_BATCH");
});

test("what ended the producer comes as itself", () => {
  const transaction = begun();
  transaction.fail(error("FENCED"));
  transaction.answered(transaction.end("abort"), undefined);
  assert.equal(transaction.error.kind, "FENCED");
});

"""Runner of cases: a broker for each, one driver process for many, several at a time.

Case --> Play: steps --> Driver (the client) --gRPC--> Broker
                  '----> Broker: changes of the cluster
     --> expectations of the case, rules of the judge --> Outcome
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from conformance.broker.server import Broker
from conformance.cases import Case
from conformance.driver import Driver, DriverError
from conformance.judge import MAX_IN_FLIGHT, Evidence, Sent, Staging, contents, judge
from conformance.matching import ANY, mismatch
from conformance.vectors import BAD_HEADER, KAFKA_V2, ROOT, Vector

COMMAND_S = 25.0  # the longest that a driver may take for one command
LONGEST_S = 30.0  # longest wait of a step for expected events
TIMESTAMP_US = 1_700_000_000_000_000
# Verbs that end a transaction -> its outcome.
ENDS: Mapping[str, str] = {"commit_transaction": "committed", "abort_transaction": "aborted"}
EXPECTATIONS = ("verb", "expect", "expect_error", "count")
DEFAULTS = ROOT / "docs" / "client-defaults.json"

# Short times, so that the kit does not wait long for retries.
COMMON = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 100}
TOKEN = "<token>"  # of a sink's newest refusal
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "open_producer": {**COMMON, "linger_ms": 0, "delivery_timeout_ms": 12_000},
    "open_sink": {"delivery_timeout_ms": 12_000},
    "open_consumer": {**COMMON, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 200},
    # Without a connection at once, an attempt has an unknown outcome, and "exists" may be the
    # caller's own doing: some clients wait for a connection only as long as a pause.
    "open_admin": {"retry_backoff_ms": 1000, "retry_backoff_max_ms": 1000},
}

Status = Literal["passed", "failed", "not offered"]


class Unmet(Exception):
    """An expectation of the case was not met."""


class NotOffered(Exception):
    """The client lacks a feature of the case."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one case."""

    case: Case
    status: Status
    faults: tuple[str, ...]
    seconds: float


class Play:
    """One case while it runs."""

    def __init__(self, case: Case, broker: Broker, driver: Driver, longest_s: float) -> None:
        self._case = case
        self._longest_s = longest_s
        self._broker = broker
        self._driver = driver
        self._sent: dict[tuple[str, str], Sent] = {}
        self._staging: dict[str, Staging] = {}
        self._max_in_flight = 0
        self._leases: dict[str, dict[str, Any]] = {}
        self._token = ""  # of the newest refusal of a sink

    async def run(self) -> list[str]:
        """Plays the case; returns the faults. Raises Unmet, NotOffered, DriverError."""
        for step in self._case.steps:
            await self._step(step)
        evidence = Evidence(
            self._broker.journal,
            self._broker.cluster,
            list(self._sent.values()),
            self._max_in_flight or MAX_IN_FLIGHT,
        )
        faults = [*self._not_seen(), *self._not_stored(), *judge(evidence, self._case.allow)]
        untold = [lie for lie in self._broker.script.lies if not lie.told]
        never = [f"the lie at {lie.at} {dict(lie.where)} was never told" for lie in untold]
        return [*faults, *never]

    async def _step(self, step: Mapping[str, Any]) -> None:
        if "cluster" in step:
            await self._broker.act(step)
        elif "until" in step:
            await self._until(step)
        elif "seen" in step:
            for fault in self._amiss(step["seen"], step):
                raise Unmet(fault)
        elif "pause_ms" in step:
            await asyncio.sleep(step["pause_ms"] / 1000)  # nothing else ages a lease
        elif "freeze_ms" in step:
            await self._driver.freeze(step["freeze_ms"] / 1000)
        elif "vector" in step:
            self._put_vector(step)
        elif step["verb"] == "poll" and "count" in step:
            await self._poll(step)
        elif step["verb"] == "warnings" and "count" in step:
            await self._warned(step)
        elif step["verb"] in ("send", "send_batch") and "expect_error" in step:
            await self._refused(step)
        elif step["verb"] == "defaults":
            await self._compare_defaults(step.get("of", ["producer", "consumer"]))
        else:
            await self._verb(step)

    @property
    def _longest_ms(self) -> int:
        return int(self._longest_s * 1000)

    async def _until(self, step: Mapping[str, Any]) -> None:
        where, count = step.get("where", {}), step.get("count", 1)
        try:
            async with asyncio.timeout(self._longest_s):
                await self._broker.journal.reached(step["until"], where, count)
        except TimeoutError:
            seen = self._broker.journal.count(step["until"], where)
            raise Unmet(f"{step['until']} {where}: seen {seen} times, not {count}") from None

    def _put_vector(self, step: Mapping[str, Any]) -> None:
        if step["vector"] == "kafka/bad-header":
            self._broker.cluster.append_payload(
                "t", 0, BAD_HEADER, timestamp_us=0, codec=KAFKA_V2, count=1
            )
            return
        vector, codec = Vector.load(step["vector"]), step.get("codec", "none")
        self._broker.cluster.append_payload(
            step.get("topic", "t"),
            0,
            vector.stored(codec),
            timestamp_us=vector.max_timestamp_us,
            codec=vector.codec_number(codec),
            count=len(vector.records),
        )

    # --- verbs -------------------------------------------------------------------------

    async def _verb(self, step: Mapping[str, Any]) -> dict[str, Any]:
        verb = step["verb"]
        fields = {name: value for name, value in step.items() if name not in EXPECTATIONS}
        if verb.startswith("open_"):
            fields["config"] = self._config(verb, step.get("config", {}))
        if verb in ("send", "send_batch"):
            fields = self._sending(verb, fields)
        if verb == "stage_batch":
            values = [text.encode().hex() for text in step["values"]]
            fields = {"topic": "t", "partition": 0, **fields, "values": values}
        if fields.get("reset") == TOKEN:
            fields["reset"] = self._token
        if verb in ("await", "poll"):
            fields.setdefault("timeout_ms", self._longest_ms)
        answer = await self._ask(verb, fields)
        if verb in ("begin", *ENDS):
            self._note_transaction(step["handle"], verb, answer)
        if verb == "await" and "ok" in answer:
            self._take_results(step["handle"], answer["ok"])
        self._compare(step, answer)
        if verb == "exit" and (code := await self._driver.ended()):
            raise Unmet(f"the driver ended with the exit code {code}")
        return answer

    async def _ask(self, verb: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._driver.command(verb, **fields)
        error = answer.get("error")
        if error is not None and "sinkReset=" in error.get("message", ""):
            self._token = error["message"].split("sinkReset=")[1].split()[0]
        if error is not None and error.get("reason") == "NOT_OFFERED":
            raise NotOffered(f"{verb}: {error.get('message', '')}")
        return answer

    def _config(self, verb: str, given: Mapping[str, Any]) -> dict[str, Any]:
        times = {"request_timeout_ms": self._case.request_timeout_ms}
        config = {**times, **CONFIGS[verb], **given}
        if self._case.security:
            config |= self._broker.secured.settings(config.pop("security", "good"))
        addresses = self._broker.cluster.addresses
        nodes = config.pop("bootstrap", list(addresses))
        config["bootstrap_servers"] = [addresses[node] for node in nodes]
        self._max_in_flight = max(self._max_in_flight, config.get("max_in_flight", 0))
        if "resume_from" in config:
            config["resume_from"] = self._resume_from(config["resume_from"])
        return config

    def _resume_from(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Identity to start with: a lease under the case's own name for it."""
        cluster = self._broker.cluster
        lease = self._leases.get(given["lease"])
        if lease is None:
            producer_id = cluster.new_id()
            token = cluster.token(producer_id, 0).hex()
            lease = {"producer_id": producer_id, "epoch": 0, "lease_token": token}
            self._leases[given["lease"]] = lease
        return {**lease, **{name: value for name, value in given.items() if name != "lease"}}

    def _sending(self, verb: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Prepares the command's fields, and notes the records for the judge."""
        fields.setdefault("topic", "t")
        if "vector" in fields.get("records", {}):
            records = Vector.load(fields["records"]["vector"]).records
            values = [_bytes(record["value"]) for record in records]
            fields["records"] = records
        elif verb == "send_batch":
            texts = fields.pop("values")
            values = [text.encode() for text in texts]
            fields["records"] = [
                {"value": text.encode().hex(), "timestamp_us": TIMESTAMP_US} for text in texts
            ]
        else:
            fields["value"] = _sized(fields["value"], fields.pop("size", 0))
            values = [_bytes(fields["value"])]
            if fields.get("key") is not None:
                fields["key"] = fields["key"].encode().hex()
        key = (fields["handle"], fields["tag"])
        assert key not in self._sent, f"the tag {key} stands twice in {self._case.name}"
        staging = self._staging.get(fields["handle"])
        self._sent[key] = Sent(*key, fields["topic"], fields.get("partition"), values)
        if staging is not None and staging.outcome == "open":
            self._sent[key].staging = staging
        return fields

    def _note_transaction(self, handle: str, verb: str, answer: Mapping[str, Any]) -> None:
        """Notes the driver's claim about its transaction, for the judge."""
        if verb == "begin":
            if "ok" in answer:
                self._staging[handle] = Staging()
            return
        staging = self._staging.get(handle)
        if staging is None:
            return
        if "ok" in answer:
            staging.outcome = ENDS[verb]
        elif staging.outcome in ("open", "unknown"):
            sure = answer["error"].get("outcome") == "not_stored"
            staging.outcome = "aborted" if sure else "unknown"

    def _take_results(self, handle: str, ok: Mapping[str, Any]) -> None:
        results = ok.get("results")
        if not isinstance(results, dict):
            raise DriverError(f"await: `results` is no object: {ok}")
        for tag, result in results.items():
            if (handle, tag) not in self._sent:
                raise DriverError(f"await: nothing was sent with the tag {tag!r}")
            self._sent[handle, tag].result = result

    def _compare(self, step: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        if "expect_error" in step:
            if "error" not in answer:
                raise Unmet(f"{_short(step)}: no error, but {dict(answer)}")
            fault = mismatch(step["expect_error"], answer["error"])
        elif "error" in answer:
            raise Unmet(f"{_short(step)}: {answer['error']}")
        elif step["verb"] == "await":
            fault = self._compare_results(step, answer["ok"]["results"])
        else:
            fault = mismatch(step.get("expect", {}), _texts(answer["ok"]))
        if fault:
            raise Unmet(f"{_short(step)}: {fault}")

    async def _refused(self, step: Mapping[str, Any]) -> None:
        """Sends a record that must fail: at once or a little later, as the client does it.

        With `repeat`, one of that many records must fail; earlier ones may succeed.
        """
        for number in range(step.get("repeat", 1)):
            tag = f"{step['tag']}{number or ''}"
            fields = {k: v for k, v in step.items() if k not in (*EXPECTATIONS, "repeat")}
            sent = self._sending(step["verb"], {**fields, "tag": tag})
            answer = await self._ask(step["verb"], sent)
            if "error" not in answer:
                wait = {"handle": step["handle"], "tags": [tag], "timeout_ms": self._longest_ms}
                answer = (await self._ask("await", wait))["ok"]["results"][tag]
                self._sent[step["handle"], tag].result = answer
            else:
                del self._sent[step["handle"], tag]
            if "error" in answer or number + 1 == step.get("repeat", 1):
                self._compare({"verb": step["verb"], "expect_error": step["expect_error"]}, answer)
                return

    @staticmethod
    def _compare_results(step: Mapping[str, Any], results: Mapping[str, Any]) -> str:
        """Compares results; without an expectation each record must be stored."""
        if "expect" in step:
            return mismatch(step["expect"], results)
        failed = {tag: result for tag, result in results.items() if "ok" not in result}
        return f"these were not stored: {failed}" if failed else ""

    async def _poll(self, step: Mapping[str, Any]) -> None:
        """Polls until enough records have come, or an expected error."""
        deadline = time.monotonic() + self._longest_s
        records: list[Any] = []
        fields = {"handle": step["handle"], "timeout_ms": 500}
        if "max_records" in step:
            fields["max_records"] = step["max_records"]
        while len(records) < step["count"] or "expect_error" in step:
            answer = await self._ask("poll", fields)
            if "error" in answer:
                expected = {key: step[key] for key in ("verb", "expect_error") if key in step}
                self._compare(expected, answer)
                break
            records += answer["ok"]["records"]
            if len(records) > step["count"] or time.monotonic() > deadline:
                raise Unmet(
                    f"{_short(step)}: {len(records)} records, where {step['count']} were to come"
                )
        if "expect" in step:
            wanted = step["expect"].get("records", ANY)
            if "vector" in step["expect"]:
                wanted = Vector.load(step["expect"]["vector"]).records
            else:
                records = _texts(records)
            fault = mismatch(wanted, records)
            if fault:
                raise Unmet(f"{_short(step)}: {fault}")
        if len(records) != step["count"]:
            raise Unmet(f"{_short(step)}: {len(records)} records instead of {step['count']}")

    async def _warned(self, step: Mapping[str, Any]) -> None:
        """Waits until the client has logged at least this many warnings."""
        deadline = time.monotonic() + self._longest_s
        while True:
            answer = await self._ask("warnings", {})
            said = answer["ok"]["warnings"] if "ok" in answer else []
            if len(said) >= step["count"] or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.05)
        if len(said) != step["count"]:
            raise Unmet(f"{len(said)} warnings instead of {step['count']}: {said}")
        self._compare(step, answer)

    async def _compare_defaults(self, kinds: Sequence[str]) -> None:
        answer = await self._ask("defaults", {})
        if "ok" not in answer:
            raise Unmet(f"defaults: {answer['error']}")
        wanted = json.loads(DEFAULTS.read_text(encoding="utf-8"))
        for kind in kinds:
            fault = mismatch(wanted[kind], answer["ok"].get(kind))
            if fault:
                raise Unmet(f"defaults of a {kind}: {fault}")

    # --- at the end --------------------------------------------------------------------

    def _not_seen(self) -> Iterable[str]:
        for seen in self._case.sees:
            yield from self._amiss(seen["call"], seen)

    def _amiss(self, call: str, seen: Mapping[str, Any]) -> Iterable[str]:
        """Compares the number of matching events with `count`, `at_least`, `at_most`."""
        where = seen.get("where", {})
        count = self._broker.journal.count(call, where)
        least = seen.get("count", seen.get("at_least", 0))
        most = seen.get("count", seen.get("at_most", count))
        if not least <= count <= most:
            bounds = f"{least} or more" if "at_most" not in seen else f"{least} to {most}"
            wanted = str(seen["count"]) if "count" in seen else bounds
            yield f"{call} {dict(where)}: seen {count} times, not {wanted}"

    def _not_stored(self) -> Iterable[str]:
        for name, wanted in self._case.log.items():
            topic, _, number = name.rpartition("/")
            partition = self._broker.cluster.partitions[topic, int(number)]
            values = [(value or b"").decode() for _, value in contents(partition)]
            if values != list(wanted):
                yield f"the log of {name} is {values}, not {list(wanted)}"


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else bytes.fromhex(value)


def _sized(value: str | None, size: int) -> str | None:
    """Converts a value to hexadecimal, padded to `size` bytes."""
    return None if value is None else value.encode().ljust(size, b".").hex()


def _texts(value: Any) -> Any:
    """Converts the bytes of an answer's records to texts, as cases have them."""
    match value:
        case {"value": _, "offset": _}:
            return {
                name: _text(inner) if name in ("value", "key") else inner
                for name, inner in value.items()
            }
        case dict():
            return {name: _texts(inner) for name, inner in value.items()}
        case list():
            return [_texts(inner) for inner in value]
    return value


def _text(value: Any) -> Any:
    return value if value is None else bytes.fromhex(value).decode("utf-8", "backslashreplace")


def _short(step: Mapping[str, Any]) -> str:
    return " ".join(str(step[key]) for key in ("verb", "handle", "tag") if key in step)


class Runner:
    """Runner of cases with one client. `jobs`: drivers at a time.

    `longest_s`: limit of a step for expected events; `command_s`: limit of one answer.
    """

    def __init__(
        self,
        command: str,
        jobs: int,
        report: Callable[[Outcome], None],
        longest_s: float = LONGEST_S,
        command_s: float = COMMAND_S,
    ) -> None:
        self._longest_s = longest_s
        self._command_s = command_s
        self._command = command
        self._jobs = jobs
        self._report = report

    async def run(self, cases: Sequence[Case]) -> list[Outcome]:
        """Runs the cases; outcomes are in their order. Raises DriverError if no driver starts."""
        left = list(enumerate(cases))[::-1]
        outcomes: dict[int, Outcome] = {}
        jobs = min(self._jobs, len(cases))
        # Starting programs take the processors: no case begins before all have started.
        ready = asyncio.Barrier(jobs)

        async def work() -> None:
            driver: Driver | None = None
            try:
                driver = await self._started()
                await self._greet(driver)
                await ready.wait()
                while left:
                    number, case = left.pop()
                    # A line of the case before may come late.
                    alone = case.environment or "warnings" in case.needs
                    if driver is not None and (alone or not driver.running):
                        await driver.end()
                        driver = None
                    driver = driver or await self._started(case.environment)
                    outcomes[number], sound = await self._one(case, driver)
                    self._report(outcomes[number])
                    if alone or not sound:
                        await driver.end()
            finally:
                if driver is not None:
                    await driver.end()

        async with asyncio.TaskGroup() as group:
            for _ in range(jobs):
                group.create_task(work())
        return [outcomes[number] for number in range(len(cases))]

    async def _started(self, environment: Mapping[str, str] | None = None) -> Driver:
        driver = Driver(self._command, limit_s=self._command_s, environment=environment)
        await driver.start()
        return driver

    @staticmethod
    async def _greet(driver: Driver) -> None:
        """Waits for the first answer. A driver without one fails its first case."""
        try:
            await driver.command("hello")
        except DriverError:
            await driver.end()

    async def _one(self, case: Case, driver: Driver) -> tuple[Outcome, bool]:
        """Runs one case; returns its outcome, and whether the driver can continue."""
        began = time.monotonic()
        status: Status = "passed"
        faults: list[str] = []
        sound = True
        try:
            features = (await driver.command("hello")).get("ok", {}).get("features", [])
            missing = [feature for feature in case.needs if feature not in features]
            if missing:
                raise NotOffered(", ".join(missing))
            async with Broker(
                case.nodes, case.new_lies(), case.lifetime_ms, case.security, case.racks
            ) as broker:
                for topic, settings in case.topics.items():
                    broker.create_topic(topic, **settings)
                try:
                    faults = await Play(case, broker, driver, self._longest_s).run()
                except Unmet as unmet:
                    faults = [str(unmet), *broker.journal.newest()]
                    faults += [f"stderr: {line}" for line in driver.said()]
                if driver.running:  # the case may have ended it
                    await driver.command("reset")
        except NotOffered as missing_one:
            status, faults = "not offered", [str(missing_one)]
        except DriverError as error:
            sound = False
            faults = [str(error), *(f"stderr: {line}" for line in driver.said())]
        if faults and status == "passed":
            status = "failed"
        return Outcome(case, status, tuple(faults), time.monotonic() - began), sound

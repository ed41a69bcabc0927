"""Driver of the Python client with deliberate faults: `... wrong_driver --fault NAME`.

For features that the small client lacks: names, sequences, windows, groups. Each fault loses or
alters one thing on its way, and the cases for it must notice (tests/integration).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from conformance.drivers.python_driver import Driver

Fields = dict[str, Any]


def _without(name: str) -> Callable[[Fields], None]:
    def bend(fields: Fields) -> None:
        fields.pop(name, None)

    return bend


def _configured(**settings: Any) -> Callable[[Fields], None]:
    def bend(fields: Fields) -> None:
        fields["config"] = {**fields["config"], **settings}

    return bend


def _another_name(fields: Fields) -> None:
    if "producer_name" in fields["config"]:
        fields["config"]["producer_name"] += f"-{fields['handle']}"


def _another_query(fields: Fields) -> None:
    if "query" in fields:
        fields["query"] += fields["handle"]


def _always(**given: Any) -> Callable[[Fields], None]:
    return lambda fields: fields.update(given)


def _one_further(fields: Fields) -> None:
    for offset in fields.get("offsets", ()):
        offset["offset"] += 1


def _without_metadata(fields: Fields) -> None:
    for offset in fields.get("offsets", ()):
        offset.pop("metadata", None)


def _as(verb: str) -> Callable[[Fields], None]:
    """Carries out another verb."""

    def bend(fields: Fields) -> None:
        fields["verb"] = verb

    return bend


def _committed_beside(fields: Fields) -> None:
    fields.update(verb="commit", handle=fields.pop("consumer"))


_SECURITY = ("tls_ca_file", "tls_cert_file", "tls_key_file", "token_file", "token")


def _in_the_clear(fields: Fields) -> None:
    for name in _SECURITY:
        fields["config"].pop(name, None)


def _token_once(fields: Fields) -> None:
    """Reads the token file once, when the client is made."""
    path = fields["config"].pop("token_file", None)
    if path is not None:
        fields["config"]["token"] = Path(path).read_text().strip()


def _certain(ok: Fields) -> None:
    for result in ok["results"].values():
        if "error" in result:
            result["error"]["outcome"] = "not_stored"


def _all_stored(ok: Fields) -> None:
    stored = {"topic": "t", "partition": 0, "offset": 0, "sequence": 0, "duplicate": False}
    for result in ok["results"].values():
        if result.pop("error", None) is not None:
            result["ok"] = dict(stored)


def _with_blanks(ok: Fields) -> None:
    for record in ok["records"][:1]:
        blank = {**record, "offset": record["offset"] - 1, "key": None, "value": None}
        ok["records"] = [blank, *ok["records"]]


def _without_nulls(ok: Fields) -> None:
    ok["records"] = [record for record in ok["records"] if record["value"] is not None]


# Fault -> verb -> change of its fields before it is carried out.
COMMANDS: Mapping[str, Mapping[str, Callable[[Fields], None]]] = {
    "window-of-ten": {"open_producer": _configured(max_in_flight=10)},
    "no-idempotence": {"open_producer": _configured(enable_idempotence=False)},
    "another-name-each-time": {"open_producer": _another_name},
    "loses-sequences": {"send": _without("sequence"), "send_batch": _without("sequences")},
    "loses-expected-offsets": {
        "send": _without("expected_offset"),
        "send_batch": _without("expected_offset"),
    },
    "loses-headers": {"send": _without("headers")},
    "loses-timestamps": {"send": _without("timestamp_ms")},
    "never-compresses": {"open_producer": _configured(compression_type="none")},
    "commits-one-further": {"commit": _one_further},
    "loses-metadata-of-commits": {"commit": _without_metadata},
    "reads-from-leaders-only": {
        "open_consumer": _configured(any_replica=False, replica_node_id=None)
    },
    "begins-at-the-end": {"open_consumer": _configured(auto_offset_reset="latest")},
    "does-not-check": {"open_consumer": _configured(check_crcs=False)},
    "aborts-by-committing": {"abort_transaction": _as("commit_transaction")},
    "commits-by-aborting": {"commit_transaction": _as("abort_transaction")},
    "begins-nothing": {"begin": _as("hello")},
    "stages-no-offsets": {"send_offsets": _as("hello")},
    "commits-beside-the-transaction": {"send_offsets": _committed_beside},
    "abandons-by-closing": {"abandon": _as("close")},
    "speaks-in-the-clear": {"open_producer": _in_the_clear, "open_admin": _in_the_clear},
    "reads-a-token-once": {"open_producer": _token_once, "open_admin": _token_once},
    "another-query-each-time": {"open_sink": _another_query},
    "loses-the-token": {"open_sink": _without("reset")},
    "takes-no-notice-of-gaps": {"stage_batch": _always(batch=0)},
    "tasks-in-any-order": {"stage_batch": _always(task=0)},
    "ends-nothing": {"end_batch": _as("hello")},
    "aborts-no-batch": {"abort_batch": _as("hello")},
    "one-partition-topics": {"create_topic": _without("partitions")},
    "does-what-it-shall-only-plan": {"change_node": _without("dry_run")},
    "removes-no-quota": {"alter_quotas": _without("remove")},
}
# Fault -> verb -> change of its answer.
ANSWERS: Mapping[str, Mapping[str, Callable[[Fields], None]]] = {
    "gives-out-blanks": {"poll": _with_blanks},
    "takes-tombstones-for-blanks": {"poll": _without_nulls},
    "everything-is-committed": {"resolve": lambda ok: ok.update(resolution="committed")},
    "sequences-begin-anew": {"last_sequence": lambda ok: ok.update(last_sequence=-1)},
    "forgets-outcomes": {"await": _certain},
    "acknowledges-what-failed": {"await": _all_stored},
}
FAULTS = frozenset({*COMMANDS, *ANSWERS})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", required=True, choices=sorted(FAULTS))
    fault = parser.parse_args().fault
    driver = Driver()
    for line in sys.stdin:
        command = json.loads(line)
        verb = command["verb"]
        if bend := COMMANDS.get(fault, {}).get(verb):
            bend(command)
        answer = dict(driver.answer(command))
        if (bend := ANSWERS.get(fault, {}).get(verb)) and "ok" in answer:
            bend(answer["ok"])
        print(json.dumps({"id": command["id"], **answer}), flush=True)


if __name__ == "__main__":
    main()

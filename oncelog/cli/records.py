"""Commands `oncelog topic produce` and `oncelog topic consume`."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NoReturn

import click

from oncelog import (
    Admin,
    Consumer,
    FencedMemberError,
    OncelogError,
    Producer,
    Record,
    RecordMetadata,
    TopicPartition,
)
from oncelog.cli.options import PARTITION, common
from oncelog.cli.output import print_json, text
from oncelog.views.words import plural

INTERRUPTED_S = 0.5  # for records in flight after Ctrl-C
MAX_LINE_BYTES = 128 * 1024 * 1024  # longer than any record; the rest would be another one
SHOWN_BYTES = 100


@click.command()
@click.argument("topic")
@click.argument("values", nargs=-1)
@click.option("--key-separator", "-k", help="Split each line at its first separator: KEY, VALUE.")
@click.option(
    "--partition", "-p", type=PARTITION, help="Partition number; default: by key, or sticky."
)
@click.option("--producer-name", help="Stable name; fences its previous producer.")
@click.option("--no-idempotence", is_flag=True, help="Allow retries to store records twice.")
@click.option(
    "--compression", type=click.Choice(["none", "zstd", "lz4"]), default="none", show_default=True
)
@common
def produce(
    topic: str,
    values: tuple[str, ...],
    key_separator: str | None,
    partition: int | None,
    producer_name: str | None,
    no_idempotence: bool,
    compression: Any,
    bootstrap: tuple[str, ...],
    as_json: bool,
) -> None:
    """Send records to a topic.

    Each VALUE is a record. Without any, each line of standard input is one.
    """
    lines: Iterable[bytes] = map(os.fsencode, values) if values else _stdin_lines()
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    report, what = _Report(), "value" if values else "line"
    # Records that arrive slowly, from a terminal or a pipe, need not wait for others.
    with Producer(
        bootstrap_servers=bootstrap,
        producer_name=producer_name,
        enable_idempotence=not no_idempotence,
        compression_type=compression,
    ) as producer:
        try:
            for report.number, line in enumerate(lines, 1):
                key, value = _split(line, key_separator)
                producer.send(topic, value, key, partition=partition, on_delivery=report.delivered)
        except (OncelogError, click.ClickException) as error:
            if not report.number:
                raise
            report.refused = f"{what} {report.number}: {_said(error)}"
        except KeyboardInterrupt:
            _interrupted(producer, report)
        try:
            producer.flush()
        except KeyboardInterrupt:
            _interrupted(producer, report)
    if report.refused or report.error is not None:
        raise click.ClickException(report.why())
    if as_json:
        print_json({"topic": topic, "stored": report.stored, "duplicates": report.duplicates})
    else:
        click.echo(f"stored {plural(report.stored, 'record')} in {topic}", err=True)


class _Report:
    """Counts the outcomes of the records. Called on the client's thread."""

    def __init__(self) -> None:
        self.stored = self.failed = self.duplicates = 0
        self.number = 0  # of the value or line that was read last
        self.error: OncelogError | None = None
        self.refused = ""  # why nothing more was sent

    def delivered(self, metadata: RecordMetadata | None, error: OncelogError | None) -> None:
        if metadata is not None:
            self.stored += 1
            self.duplicates += metadata.duplicate
        else:
            self.failed += 1
            self.error = self.error or error

    def why(self) -> str:
        """Report the records that were not stored, and the number stored."""
        said = [self.refused] if self.refused else []
        if self.error is not None:
            count = f"{self.failed} of {self.failed + self.stored} records were not stored"
            said.append(f"{count}: {_said(self.error)}")
        else:
            said.append(f"{plural(self.stored, 'record')} before it were stored")
        return "; ".join(said)


def _said(error: Exception) -> str:
    return f"{error.reason}: {error}" if isinstance(error, OncelogError) else str(error)


def _interrupted(producer: Producer, report: _Report) -> NoReturn:
    """Handle Ctrl-C: records in flight get a moment, the rest is reported."""
    with suppress(OncelogError):
        producer.close(timeout_ms=1000 * INTERRUPTED_S)
    left = report.number - report.stored
    click.echo(
        f"interrupted: {plural(report.stored, 'record')} stored, of {left} more it is not known",
        err=True,
    )
    raise click.Abort


def _stdin_lines() -> Iterator[bytes]:
    while True:
        try:
            line = sys.stdin.buffer.readline(MAX_LINE_BYTES)
        except OSError as error:
            text = f"standard input: {error.strerror or error}; give VALUEs, or lines to read"
            raise click.ClickException(text) from None
        if not line:
            return
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    wanted = os.fsencode(separator)
    key, found, value = line.partition(wanted)
    if not found:
        shown = line if len(line) <= SHOWN_BYTES else line[:SHOWN_BYTES] + b"..."
        raise click.ClickException(f"no '{text(wanted)}' in '{text(shown)}'")
    return key, value


@click.command()
@click.argument("topic")
@click.option("--partition", "-p", "partitions", type=PARTITION, multiple=True)
@click.option(
    "--from",
    "start",
    default="end",
    show_default=True,
    help="Where to begin: start, end, or an offset.",
)
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the present end.")
@click.option(
    "-n", "--max-records", type=click.IntRange(min=1), help="Stop after this many records."
)
@click.option("--group", "-g", help="Read as a member of this group; commits offsets.")
@click.option("--print-key", is_flag=True, help="Print the key and a tab before the value.")
@click.option("--any-replica", is_flag=True, help="Read from any replica, not only leaders.")
@common
def consume(
    topic: str,
    partitions: tuple[int, ...],
    start: str,
    exit_at_end: bool,
    max_records: int | None,
    group: str | None,
    print_key: bool,
    any_replica: bool,
    bootstrap: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print the records of TOPIC and follow it.

    Values that are not UTF-8 are printed with escapes.
    """
    if start not in ("start", "end") and not start.isdecimal():
        raise click.UsageError(f"--from must be start, end or an offset, got {start!r}")
    write = _json_writer() if as_json else _text_writer(print_key)
    if group is not None:
        if partitions or exit_at_end or start.isdecimal():
            raise click.UsageError(
                "--group: the group chooses partitions and offsets; "
                "leave out --partition and --exit-at-end, and give --from only start or end"
            )
        _consume_as_member(topic, group, start, max_records, any_replica, bootstrap, write)
        return
    with Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest" if start == "start" else "latest",
        any_replica=any_replica,
    ) as consumer:
        consumer.subscribe([topic])
        if partitions:
            consumer.assign([(topic, partition) for partition in sorted(set(partitions))])
        leaderless: set[TopicPartition] = set()
        if not any_replica:
            leaderless = _leaderless(bootstrap, topic).intersection(consumer.assignment())
        led = sorted(consumer.assignment() - leaderless)
        for tp in sorted(leaderless):
            until = "" if exit_at_end else " until it has one"
            click.echo(f"{tp} has no leader: it is not read{until}", err=True)
        ends = consumer.end_offsets(led) if start.isdecimal() or exit_at_end else {}
        if start.isdecimal():
            begins = consumer.beginning_offsets(led)
            _check_start(start, ends)
            for tp in led:
                # A partition that is shorter, or that has lost its head, begins nearby.
                consumer.seek(tp, min(max(int(start), begins[tp]), ends[tp]))
            for tp in leaderless:
                consumer.seek(tp, int(start))
        if exit_at_end:
            consumer.pause(*leaderless)
        for record in _records(consumer, ends if exit_at_end else None, max_records):
            write(record)
        if exit_at_end and leaderless:
            names = ", ".join(map(str, sorted(leaderless)))
            raise click.ClickException(f"{names}: not read without a leader; try again later")


def _leaderless(bootstrap: tuple[str, ...], topic: str) -> set[TopicPartition]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        partitions = admin.describe_topic(topic).partitions
    return {TopicPartition(topic, one.partition) for one in partitions if not one.leader_id}


def _consume_as_member(
    topic: str,
    group: str,
    start: str,
    left: int | None,
    any_replica: bool,
    bootstrap: tuple[str, ...],
    write: Callable[[Record], None],
) -> None:
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest" if start == "start" else "latest",
        any_replica=any_replica,
    ) as consumer:
        while left is None or left > 0:
            found = consumer.getmany(timeout_ms=500, max_records=left)
            for records in found.values():
                for record in records:
                    write(record)
                left = None if left is None else left - len(records)
            sys.stdout.flush()
            try:
                if found:
                    consumer.commit({tp: some[-1].offset + 1 for tp, some in found.items()})
            except FencedMemberError as error:
                click.echo(f"another member has these records, too: {error}", err=True)


def _check_start(start: str, ends: dict[TopicPartition, int]) -> None:
    if start.isdecimal() and all(int(start) > end for end in ends.values()):
        raise click.ClickException(
            f"offset {start} is beyond the end of every partition, the highest is "
            f"{max(ends.values())}"
        )


def _records(
    consumer: Consumer, ends: dict[TopicPartition, int] | None, left: int | None
) -> Iterator[Record]:
    open_ends = dict(ends) if ends is not None else None
    while left is None or left > 0:
        if open_ends is not None:
            for tp in [tp for tp, end in open_ends.items() if consumer.position(tp) >= end]:
                consumer.pause(tp)
                del open_ends[tp]
            if not open_ends:
                return
        for tp, records in consumer.getmany(
            timeout_ms=500, max_records=1 if left == 1 else 1000
        ).items():
            end = None if ends is None else ends[tp]
            for record in records:
                if end is not None and record.offset >= end:
                    break
                if left is not None:
                    if left == 0:
                        return
                    left -= 1
                yield record
        sys.stdout.flush()


def _text_writer(print_key: bool) -> Any:
    def write(record: Record) -> None:
        key = (text(record.key) or "") + "\t" if print_key else ""
        sys.stdout.write(f"{key}{text(record.value) or ''}\n")

    return write


def _json_writer() -> Any:
    def write(record: Record) -> None:
        print_json(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp_us": record.timestamp_us,
                "key": _json_bytes(record.key),
                "value": _json_bytes(record.value),
                "headers": [[name, _json_bytes(value)] for name, value in record.headers],
            }
        )

    return write


def _json_bytes(data: bytes | None) -> object:
    """Return text for UTF-8, else {"base64": ...}, so that nothing is lost."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


__all__ = ["consume", "produce"]

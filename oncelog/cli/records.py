"""Commands `oncelog topic produce` and `oncelog topic consume`."""

from __future__ import annotations

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
from oncelog.cli.names import group_names, topic_names
from oncelog.cli.options import PARTITION, common
from oncelog.cli.output import print_json, text
from oncelog.cli.record_choice import now_ms, time_of, usage_errors
from oncelog.cli.record_formats import RecordToSend, formatter, json_object, read_json
from oncelog.views.record_choice import choice, parse_header, parse_start, seek
from oncelog.views.words import plural

INTERRUPTED_S = 0.5  # for records in flight after Ctrl-C
MAX_LINE_BYTES = 128 * 1024 * 1024  # longer than any record; the rest would be another one
SHOWN_BYTES = 100


@click.command()
@click.argument("topic", shell_complete=topic_names)
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
@click.option("--header", "-H", "headers", multiple=True, help="NAME=VALUE, for each record.")
@click.option("--timestamp", help="Time of each record, in ISO 8601, or 2h: so long ago.")
@click.option(
    "--input",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json: lines as `topic consume --format json` prints them.",
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
    headers: tuple[str, ...],
    timestamp: str | None,
    form: str,
    bootstrap: tuple[str, ...],
    as_json: bool,
) -> None:
    """Send records to a topic.

    Each VALUE is a record. Without any, each line of standard input is one. With --input json a
    line is a record with its key, headers and time, to the millisecond: `topic consume --format
    json` prints such lines, so a pipe copies a topic.
    """
    read = _reader(form, key_separator, headers, timestamp)
    lines: Iterable[bytes] = map(os.fsencode, values) if values else _stdin_lines()
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
                record = read(line)
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    headers=record.headers,
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                    on_delivery=report.delivered,
                )
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


def _reader(
    form: str, separator: str | None, headers: tuple[str, ...], timestamp: str | None
) -> Callable[[bytes], RecordToSend]:
    """Return the function that makes a record of a line. Raises click.UsageError."""
    if separator == "":
        raise click.UsageError("--key-separator must not be empty")
    if form == "json":
        if separator is not None or headers or timestamp is not None:
            raise click.UsageError(
                "--input json: the lines have keys, headers and times; leave out --key-separator, "
                "--header and --timestamp"
            )
        return read_json
    with usage_errors():
        named = tuple(parse_header(given) for given in headers)
    time_ms = time_of("--timestamp", timestamp)

    def read(line: bytes) -> RecordToSend:
        key, value = _split(line, separator)
        return RecordToSend(value, key, named, time_ms)

    return read


class _Report:
    """Counts the outcomes of the records. Called on the client's thread."""

    def __init__(self) -> None:
        self.stored = self.failed = self.unknown = self.duplicates = 0
        self.number = 0  # of the value or line that was read last
        self.error: OncelogError | None = None
        self.refused = ""  # why nothing more was sent

    def delivered(self, metadata: RecordMetadata | None, error: OncelogError | None) -> None:
        if metadata is not None:
            self.stored += 1
            self.duplicates += metadata.duplicate
        else:
            is_unknown = error is not None and error.outcome == "unknown"
            self.unknown += is_unknown
            self.failed += not is_unknown
            self.error = self.error or error

    def why(self) -> str:
        """Report the records that were not stored, or may not be, and the number stored."""
        said = [self.refused] if self.refused else []
        if self.error is not None:
            counts = {"were not stored": self.failed, "may be stored or not": self.unknown}
            of = f"of {self.failed + self.unknown + self.stored} records"
            told = [f"{count} {of} {what}" for what, count in counts.items() if count]
            said.append(f"{' and '.join(told)}: {_said(self.error)}")
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
@click.argument("topic", shell_complete=topic_names)
@click.option("--partition", "-p", "partitions", type=PARTITION, multiple=True)
@click.option(
    "--from",
    "start",
    default="end",
    show_default=True,
    help="start, end, an offset, -10: newest 10 a partition, 2h: last 2 hours, or a time.",
)
@click.option("--until", help="Only older records: a time, or 2h; stops at the present end.")
@click.option("--key", help="Only records with this key.")
@click.option("--header", "headers", multiple=True, help="Only records with it: NAME=VALUE.")
@click.option("--grep", "pattern", help="Only records with a match in the value.")
@click.option("-f", "form", help="Line of each record: '%k %v %o %p %t %T %h', \\n, \\t.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the present end.")
@click.option(
    "-n", "--max-records", type=click.IntRange(min=1), help="Stop after this many records."
)
@click.option(
    "--group",
    "-g",
    shell_complete=group_names,
    help="Read as a member of this group; commits offsets.",
)
@click.option("--print-key", is_flag=True, help="Print the key and a tab before the value.")
@click.option("--any-replica", is_flag=True, help="Read from any replica, not only leaders.")
@click.option("--rack", help="Read from replicas in this rack, where there are some.")
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
    rack: str | None,
    until: str | None,
    key: str | None,
    headers: tuple[str, ...],
    pattern: str | None,
    form: str | None,
    bootstrap: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print the records of TOPIC and follow it.

    Values that are not UTF-8 are printed with escapes. -f prints keys (%k), values (%v), offsets
    (%o), partitions (%p), topics (%t), times in milliseconds (%T) and headers (%h).
    """
    until_ms = time_of("--until", until)
    with usage_errors():
        begin = parse_start(start, now_ms())
        wanted = choice(key, headers, pattern, begin.time_ms, until_ms)
    exit_at_end = exit_at_end or until is not None
    write = _writer(form, print_key, as_json)
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "auto_offset_reset": "earliest" if begin.at_start else "latest",
        "any_replica": any_replica,
        "rack": rack,
    }
    if group is not None:
        if partitions or exit_at_end or begin.seeks:
            raise click.UsageError(
                "--group: the group chooses partitions and offsets; "
                "leave out --partition and --exit-at-end, and give --from only start or end"
            )
        _consume_as_member(topic, group, max_records, settings, write, wanted)
        return
    with Consumer(**settings) as consumer:
        consumer.subscribe([topic])
        if partitions:
            consumer.assign([(topic, partition) for partition in sorted(set(partitions))])
        leaderless: set[TopicPartition] = set()
        if not any_replica:
            leaderless = _leaderless(bootstrap, topic).intersection(consumer.assignment())
        led = sorted(consumer.assignment() - leaderless)
        for tp in sorted(leaderless):
            lasts = "" if exit_at_end else " until it has one"
            click.echo(f"{tp} has no leader: it is not read{lasts}", err=True)
        ends = consumer.end_offsets(led) if begin.seeks or exit_at_end else {}
        if begin.seeks:
            seek(consumer, begin, ends)
            for tp in leaderless if begin.offset is not None and begin.offset >= 0 else ():
                consumer.seek(tp, begin.offset or 0)
        if exit_at_end:
            consumer.pause(*leaderless)
        for record in _records(consumer, ends if exit_at_end else None, max_records, wanted):
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
    left: int | None,
    settings: dict[str, Any],
    write: Callable[[Record], None],
    wanted: Callable[[Record], bool],
) -> None:
    with Consumer(topic, group_id=group, **settings) as consumer:
        while left is None or left > 0:
            found = consumer.getmany(timeout_ms=500, max_records=left)
            for records in found.values():
                for record in filter(wanted, records):
                    write(record)
                left = None if left is None else left - len(records)
            sys.stdout.flush()
            try:
                if found:
                    consumer.commit()
            except FencedMemberError as error:
                click.echo(f"another member has these records, too: {error}", err=True)


def _records(
    consumer: Consumer,
    ends: dict[TopicPartition, int] | None,
    left: int | None,
    wanted: Callable[[Record], bool],
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
                if not wanted(record):
                    continue
                if left is not None:
                    if left == 0:
                        return
                    left -= 1
                yield record
        sys.stdout.flush()


def _writer(form: str | None, print_key: bool, as_json: bool) -> Callable[[Record], None]:
    """Return the function that prints a record. Raises click.UsageError."""
    if form is not None and (as_json or print_key):
        raise click.UsageError("-f excludes --format json and --print-key")
    if as_json:
        return lambda record: print_json(json_object(record))
    line = formatter(form or ("%k\t%v" if print_key else "%v"))

    def write(record: Record) -> None:
        sys.stdout.write(line(record) + "\n")

    return write

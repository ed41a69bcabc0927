"""Commands `oncelog bench produce|producers|consume|latency|failover|partitions|restart`.

Loads on any running cluster, and trials of it. The figures are those of one client process, as a
table or JSON. `scripts/bench` of the source tree runs them beside other systems, on its own nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from oncelog.cli import load, trials
from oncelog.cli.names import node_ids, topic_names
from oncelog.cli.options import common
from oncelog.cli.output import print_facts, print_json

_MAX_RECORD = 64 * 1024 * 1024


@click.group()
def bench() -> None:
    """Measure a running cluster.

    The topic must exist. The figures are those of this machine's client.
    """


def _settings(context: Any, parameter: Any, given: tuple[str, ...]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for one in given:
        name, found, value = one.partition("=")
        if not found:
            raise click.BadParameter(f"{one!r} is not NAME=VALUE")
        settings[name] = value
    return settings


def _load_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all loads that send."""
    for option in (
        click.option(
            "--setting",
            "settings",
            multiple=True,
            callback=_settings,
            metavar="NAME=VALUE",
            help="A producer setting, for instance linger.ms=0; any number of times.",
        ),
        click.option(
            "--seconds", type=click.FloatRange(min=0.001), default=10.0, show_default=True
        ),
        click.option(
            "--record-size",
            "size",
            type=click.IntRange(1, _MAX_RECORD),
            default=1024,
            show_default=True,
            help="Bytes in each record's value.",
        ),
    ):
        command = option(command)
    return command


@bench.command()
@click.argument("topic", shell_complete=topic_names)
@_load_options
@click.option(
    "--batch-bytes",
    type=click.IntRange(min=1),
    help="Send whole batches of this size by send_batch.",
)
@click.option("--arrow", is_flag=True, help="With --batch-bytes: Arrow batches, not lists.")
@click.option(
    "--total-mb", type=click.IntRange(min=1), help="With --batch-bytes: stop after these megabytes."
)
@click.option("--spread", type=click.IntRange(min=1), help="Send to this many partitions in turn.")
@common
def produce(
    topic: str,
    settings: dict[str, str],
    seconds: float,
    size: int,
    batch_bytes: int | None,
    arrow: bool,
    total_mb: int | None,
    spread: int | None,
    bootstrap: tuple[str, ...],
    as_json: bool,
) -> None:
    """Send records to TOPIC as fast as possible.

    The figures count acknowledged records.
    """
    if batch_bytes and spread:
        raise click.UsageError("--batch-bytes and --spread exclude each other")
    if (arrow or total_mb) and not batch_bytes:
        raise click.UsageError("--arrow and --total-mb need --batch-bytes")
    with load.producer(bootstrap, settings) as client:
        if batch_bytes:
            figures = load.produce_batches(
                client, topic, size=size, batch_bytes=batch_bytes, seconds=seconds,
                total_bytes=(total_mb or 0) * 1_000_000, arrow=arrow,
            )  # fmt: skip
        else:
            figures = load.produce(client, topic, size=size, seconds=seconds, spread=spread or 0)
    _print(figures, as_json)


@bench.command()
@click.argument("topic", shell_complete=topic_names)
@_load_options
@click.option("--count", type=click.IntRange(1, 1000), default=64, show_default=True)
@click.option(
    "--depth", type=click.IntRange(min=1), default=1, help="Records in flight per producer."
)
@common
def producers(
    topic: str,
    settings: dict[str, str],
    seconds: float,
    size: int,
    count: int,
    depth: int,
    bootstrap: tuple[str, ...],
    as_json: bool,
) -> None:
    """Send from many producers in one process.

    Each producer sends record by record; linger.ms is 0.
    """
    figures = load.many_producers(
        bootstrap, {"linger.ms": "0", **settings}, topic,
        size=size, seconds=seconds, producers=count, depth=depth,
    )  # fmt: skip
    _print(figures, as_json)


@bench.command()
@click.argument("topic", shell_complete=topic_names)
@_load_options
@click.option(
    "--rate", type=click.FloatRange(min=1), help="Records per second; default: one at a time."
)
@common
def latency(
    topic: str,
    settings: dict[str, str],
    seconds: float,
    size: int,
    rate: float | None,
    bootstrap: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure the time from send to acknowledgement.

    Without --rate one record is in flight at a time and linger.ms is 0.
    """
    if rate is None:
        settings = {"linger.ms": "0", **settings}
    with load.producer(bootstrap, settings) as client:
        if rate is None:
            figures = load.latency(client, topic, size=size, seconds=seconds)
        else:
            figures = load.latency_at_rate(client, topic, size=size, seconds=seconds, rate=rate)
    _print(figures, as_json)


@bench.command()
@click.argument("topic", shell_complete=topic_names)
@click.option("--seconds", type=click.FloatRange(min=0.001), default=60.0, show_default=True)
@click.option("--records", is_flag=True, help="Read Record objects instead of Arrow batches.")
@common
def consume(
    topic: str, seconds: float, records: bool, bootstrap: tuple[str, ...], as_json: bool
) -> None:
    """Read the present records of TOPIC.

    Reads from the start of the topic.
    """
    _print(load.consume(bootstrap, topic, seconds=seconds, records=records), as_json)


def _power_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the commands that stop and start nodes."""
    for name, does in (("start", "starts"), ("kill", "ends")):
        command = click.option(
            f"--{name}",
            metavar="COMMAND",
            help=f"Command that {does} a node; {{node}} is its id: 'docker {name} node{{node}}'.",
        )(command)
    return click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True)(
        command
    )


@bench.command()
@click.argument("topic", shell_complete=topic_names)
@_power_options
@click.option("--times", type=click.IntRange(1, 100_000), default=10, show_default=True)
@common
def failover(
    topic: str,
    partition: int,
    kill: str | None,
    start: str | None,
    times: int,
    bootstrap: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure the outage after a leader is lost.

    The outage ends with the next acknowledgement. With --kill and --start these commands stop
    and start its node, else leadership is transferred.
    """
    if (kill is None) != (start is None):
        raise click.UsageError("--kill and --start belong together")
    power = trials.Power(kill, start) if kill is not None and start is not None else None
    figures = trials.failover(bootstrap, topic, partition=partition, times=times, power=power)
    _print(figures, as_json)


@bench.command()
@click.argument("topic", shell_complete=topic_names)
@click.argument("node", type=click.IntRange(min=1), shell_complete=node_ids)
@_power_options
@common
def restart(
    topic: str,
    node: int,
    partition: int,
    kill: str | None,
    start: str | None,
    bootstrap: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure the restart of NODE.

    Stops and starts NODE. Measures until its replica of TOPIC serves, and until it has all records.
    """
    if kill is None or start is None:
        raise click.UsageError("--kill and --start are needed")
    power = trials.Power(kill, start)
    _print(trials.restart(bootstrap, topic, partition=partition, node=node, power=power), as_json)


@bench.command()
@click.option("--count", type=click.IntRange(106, 100_000), default=1000, show_default=True)
@click.option("--replicas", type=click.IntRange(1, 7), default=3, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=0.001), default=10.0, show_default=True)
@click.option("--record-size", "size", type=click.IntRange(1, _MAX_RECORD), default=1024)
@common
def partitions(
    count: int, replicas: int, seconds: float, size: int, bootstrap: tuple[str, ...], as_json: bool
) -> None:
    """Measure writes to many partitions.

    Creates many partitions, writes to 6 and to 100 of them, and deletes them.
    """
    figures = trials.partitions(
        bootstrap, count=count, replicas=replicas, seconds=seconds, size=size
    )
    _print(figures, as_json)


def _print(figures: load.Figures, as_json: bool) -> None:
    if as_json:
        print_json(figures)
    else:
        print_facts([(name.replace("_", " "), _rounded(value)) for name, value in figures.items()])


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3f}"

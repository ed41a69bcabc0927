"""`oncelog bench produce|consume|latency`: loads on any running cluster.

What needs nodes that it may kill or fill (failover, many partitions, restart) is part of
the source tree: `scripts/bench`. The figures are one client process's; a table or JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from oncelog.cli import load
from oncelog.cli.options import common
from oncelog.cli.output import print_facts, print_json

_MAX_RECORD = 64 * 1024 * 1024


@click.group()
def bench() -> None:
    """Measure a running cluster with this machine's client; the topic must exist."""


def _settings(context: Any, parameter: Any, given: tuple[str, ...]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for one in given:
        name, found, value = one.partition("=")
        if not found:
            raise click.BadParameter(f"{one!r} is not NAME=VALUE")
        settings[name] = value
    return settings


def _load_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What all loads that send share."""
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
@click.argument("topic")
@_load_options
@click.option("--batch-bytes", type=click.IntRange(min=1), help="Whole batches by send_batch.")
@click.option("--arrow", is_flag=True, help="With --batch-bytes: Arrow batches, not lists.")
@click.option("--total-mb", type=click.IntRange(min=1), help="With --batch-bytes: stop after.")
@click.option("--spread", type=click.IntRange(min=1), help="This many partitions, in turn.")
@click.option("--producers", type=click.IntRange(min=1), help="So many at once, record by record.")
@click.option("--depth", type=click.IntRange(min=1), default=1, help="Records under way in each.")
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
    producers: int | None,
    depth: int,
    bootstrap: tuple[str, ...],
    as_json: bool,
) -> None:
    """Send records to TOPIC as fast as they are taken; count what is acknowledged."""
    chosen = [name for name, value in (
        ("--batch-bytes", batch_bytes), ("--spread", spread), ("--producers", producers)
    ) if value]  # fmt: skip
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other")
    if (arrow or total_mb) and not batch_bytes:
        raise click.UsageError("--arrow and --total-mb need --batch-bytes")
    if producers:
        figures = load.many_producers(
            bootstrap, settings, topic,
            size=size, seconds=seconds, producers=producers, depth=depth,
        )  # fmt: skip
    else:
        with load.producer(bootstrap, settings) as client:
            if batch_bytes:
                figures = load.produce_batches(
                    client, topic, size=size, batch_bytes=batch_bytes, seconds=seconds,
                    total_bytes=(total_mb or 0) * 1_000_000, arrow=arrow,
                )  # fmt: skip
            else:
                figures = load.produce(
                    client, topic, size=size, seconds=seconds, spread=spread or 0
                )
    _print(figures, as_json)


@bench.command()
@click.argument("topic")
@_load_options
@click.option("--rate", type=click.FloatRange(min=1), help="Records per second; default: singly.")
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
    """Measure the time from a send to its acknowledgement.

    Without --rate one record is under way at a time and linger.ms is 0.
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
@click.argument("topic")
@click.option("--seconds", type=click.FloatRange(min=0.001), default=60.0, show_default=True)
@click.option("--records", is_flag=True, help="As Record objects, not as Arrow batches.")
@common
def consume(
    topic: str, seconds: float, records: bool, bootstrap: tuple[str, ...], as_json: bool
) -> None:
    """Read what TOPIC holds now, from its start."""
    _print(load.consume(bootstrap, topic, seconds=seconds, records=records), as_json)


def _print(figures: load.Figures, as_json: bool) -> None:
    if as_json:
        print_json(figures)
    else:
        print_facts([(name.replace("_", " "), _rounded(value)) for name, value in figures.items()])


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3f}"


__all__ = ["bench"]

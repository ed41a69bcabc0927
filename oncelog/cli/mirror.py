"""`oncelog mirror`: copies a topic, within a cluster or across."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from oncelog.cli.options import Bootstrap, common
from oncelog.cli.output import print_json
from oncelog.mirror import Mirror


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--to", "target_bootstrap", type=Bootstrap(), help="Cluster of TARGET: the same.")
@click.option("--name", help="Beginning of the producers' names, if the default must not be.")
@click.option("--partition", "-p", "partitions", type=click.IntRange(min=0), multiple=True)
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at what is the end now.")
@click.option("--skip-deleted", is_flag=True, help="Go on behind what retention has deleted.")
@click.option(
    "--compression", type=click.Choice(["none", "zstd", "lz4"]), default="none", show_default=True
)
@common
def mirror(
    source: str,
    target: str,
    target_bootstrap: tuple[str, ...] | None,
    name: str | None,
    partitions: tuple[int, ...],
    exit_at_end: bool,
    skip_deleted: bool,
    compression: Any,
    bootstrap: tuple[str, ...],
    as_json: bool,
) -> None:
    """Copy topic SOURCE into topic TARGET, each record once, and go on with what comes.

    Started again it goes on where it stopped; started twice, the later one takes over and
    the earlier one ends with FENCED.
    """
    with Mirror(
        bootstrap,
        source,
        target_bootstrap or bootstrap,
        target,
        name=name,
        partitions=partitions or None,
        compression_type=compression,
        skip_deleted=skip_deleted,
    ) as copy:
        progress = copy.run(exit_at_end=exit_at_end).values()
    if as_json:
        print_json([asdict(one) for one in progress])
    else:
        count = sum(one.copied for one in progress)
        click.echo(f"copied {count} records from {source} to {target}", err=True)

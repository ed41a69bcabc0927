"""Command `oncelog mirror`: copies a topic, within a cluster or across."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from oncelog.admin import Admin
from oncelog.cli.names import topic_names
from oncelog.cli.options import PARTITION, Bootstrap, common, complete_profile, security
from oncelog.cli.output import print_json
from oncelog.cli.profiles import Profile, load_profile
from oncelog.cli.streams import progress
from oncelog.config import SECURITY_SETTINGS, AdminConfig
from oncelog.errors import FencedError, MissingExtraError
from oncelog.mirror import Mirror, Progress, default_name
from oncelog.views.words import plural

# Tasks fenced by another attempt are tried again.
_MASTER = "local[*,4]"


@click.command()
@click.argument("source", shell_complete=topic_names)
@click.argument("target", shell_complete=topic_names)
@click.option(
    "--to",
    "target_bootstrap",
    type=Bootstrap(),
    help="Target cluster; default: the source cluster.",
)
@click.option(
    "--to-profile",
    metavar="NAME",
    shell_complete=complete_profile,
    help="Connection settings of the target cluster; --to replaces its nodes.",
)
@click.option("--name", help="Prefix of the producer names.")
@click.option("--partition", "-p", "partitions", type=PARTITION, multiple=True)
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the present end.")
@click.option("--skip-deleted", is_flag=True, help="Skip records deleted by retention.")
@click.option(
    "--start",
    "starts",
    metavar="PARTITION:OFFSET",
    multiple=True,
    help="Start offset in SOURCE if TARGET has records of other writers.",
)
@click.option(
    "--compression", type=click.Choice(["none", "zstd", "lz4"]), default="none", show_default=True
)
@click.option(
    "--engine", type=click.Choice(["client", "spark"]), default="client", show_default=True
)
@click.option("--master", help=f"Spark master; default: {_MASTER}, or that of spark-submit.")
@click.option("--checkpoint", help="Spark's checkpoint directory; not needed.")
@common
def mirror(
    source: str,
    target: str,
    target_bootstrap: tuple[str, ...] | None,
    to_profile: str | None,
    name: str | None,
    partitions: tuple[int, ...],
    exit_at_end: bool,
    skip_deleted: bool,
    starts: tuple[str, ...],
    compression: Any,
    engine: str,
    master: str | None,
    checkpoint: str | None,
    bootstrap: tuple[str, ...],
    as_json: bool,
) -> None:
    """Copy topic SOURCE into topic TARGET.

    Copies each record once, and follows new ones. A restarted mirror goes on where it stopped. If
    you start it twice, the later one takes over and the earlier one ends with FENCED. Stop a Spark
    mirror before you go on with the client.
    """
    profile = load_profile(to_profile) if to_profile else None
    there = target_bootstrap or (profile.bootstrap_servers if profile else bootstrap)
    settings: dict[str, Any] = {
        "name": name,
        "compression_type": compression,
        "skip_deleted": skip_deleted,
        "starting_offsets": dict(_start(text) for text in starts),
    }
    if engine == "spark":
        if profile:
            text = "--to-profile is not for --engine spark, whose tasks have one identity"
            raise click.UsageError(f"{text}; leave out --engine")
        if partitions:
            raise click.UsageError("--partition is not for --engine spark, which copies all")
        done = _with_spark(
            bootstrap, source, there, target, settings, exit_at_end, master, checkpoint
        )
    else:
        if master or checkpoint:
            raise click.UsageError("--master and --checkpoint are for --engine spark")
        with (
            _identities(profile) as identities,
            Mirror(
                source,
                target,
                bootstrap_servers=bootstrap,
                target_bootstrap_servers=there,
                partitions=partitions or None,
                **identities,
                **settings,
            ) as copy,
            progress(lambda: _copied(copy.progress.values())),
        ):
            done = list(copy.run(exit_at_end=exit_at_end).values())
    if as_json:
        print_json([asdict(one) for one in done])
    else:
        click.echo(f"{_copied(done)} from {source} to {target}", err=True)


@contextmanager
def _identities(target: Profile | None) -> Iterator[dict[str, Any]]:
    """Return a mirror's settings of two identities: the command's, and that of a profile.

    A client without security settings takes those of the environment, so inside it has none.
    """
    if target is None:
        yield {}
        return
    own = AdminConfig()
    nobody: dict[str, Any] = dict.fromkeys(SECURITY_SETTINGS)
    given = {name: getattr(own, name) for name in nobody}
    with security({}, Profile("", (), nobody)):
        yield {
            "source_settings": given,
            "target_settings": {**target.security, "tls": bool(target.security["tls"])},
        }


def _copied(partitions: Iterable[Progress]) -> str:
    return f"copied {plural(sum(one.copied for one in [*partitions]), 'record')}"


def _start(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise click.UsageError(f"--start {text!r} is not PARTITION:OFFSET")
    return int(partition), int(offset)


def _with_spark(
    bootstrap: tuple[str, ...],
    source: str,
    there: tuple[str, ...],
    target: str,
    settings: dict[str, Any],
    exit_at_end: bool,
    master: str | None,
    checkpoint: str | None,
) -> list[Progress]:
    try:
        from pyspark.errors import StreamingQueryException
    except ImportError:
        raise MissingExtraError("--engine spark", "pyspark", "spark") from None
    from oncelog import spark as oncelog_spark

    session = _session(master)
    try:
        query = oncelog_spark.mirror(
            session,
            source=source,
            target=target,
            bootstrap_servers=bootstrap,
            target_bootstrap_servers=there,
            trigger={"availableNow": True} if exit_at_end else None,
            checkpoint=checkpoint,
            **settings,
        )
        query.awaitTermination()
    except StreamingQueryException as error:
        raise _short(str(error)) from None
    finally:
        session.stop()
    with Admin(bootstrap_servers=bootstrap) as admin:
        name = default_name(admin.describe_cluster().cluster_id, source, target)
    return _progress(there, target, settings["name"] or name)


def _session(master: str | None) -> Any:
    from pyspark.sql import SparkSession

    from oncelog.spark import ensure_java

    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("oncelog mirror")
    # spark-submit passes its settings to the JVM that it started.
    if master or "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master(master or _MASTER).config("spark.ui.showConsoleProgress", "false")
    return builder.getOrCreate()


def _short(text: str) -> Exception:
    """Return the important line of a Java exception around a Python traceback."""
    lines = re.findall(r"^(?:oncelog\.\S*\.)?(\w+Error: .+)$", text, re.M)
    line = lines[-1] if lines else text.partition("\n")[0]
    if line.startswith("FencedError: "):
        return FencedError(line.removeprefix("FencedError: "))
    return click.ClickException(line)


def _progress(there: tuple[str, ...], target: str, name: str) -> list[Progress]:
    """Return each partition's progress, as the target reports it."""
    found = []
    with Admin(bootstrap_servers=there) as admin:
        for tp, begun in sorted(admin.describe_group(name).offsets.items()):
            states = admin.describe_producers(target, tp.partition, begun.producer_id, 1)
            position = states[0].last_sequence if states else -1
            copied = max(0, position + 1 - begun.offset)
            found.append(Progress(tp.partition, begun.offset, copied, position))
    return found

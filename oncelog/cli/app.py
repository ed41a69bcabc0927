"""Command tree, and the one place where errors become exit codes."""

from __future__ import annotations

import logging
import sys

import click

from oncelog import __version__
from oncelog.cli.acl import acl
from oncelog.cli.balance import balance
from oncelog.cli.bench import bench
from oncelog.cli.certs import certs
from oncelog.cli.cluster import cluster
from oncelog.cli.events import events
from oncelog.cli.groups import group
from oncelog.cli.mirror import mirror
from oncelog.cli.nodes import node
from oncelog.cli.producers import producer
from oncelog.cli.quota import quota
from oncelog.cli.records import consume, produce
from oncelog.cli.server import server
from oncelog.cli.sinks import sink
from oncelog.cli.streams import discard, prepare
from oncelog.cli.table import table
from oncelog.cli.topics import topic
from oncelog.cli.transactions import txn
from oncelog.errors import OncelogError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="oncelog")
def cli() -> None:
    """Manage an Oncelog cluster, and read and write its topics."""


cli.add_command(server)
cli.add_command(topic)
cli.add_command(cluster)
cli.add_command(node)
cli.add_command(producer)
cli.add_command(group)
cli.add_command(txn)
cli.add_command(mirror)
cli.add_command(table)
cli.add_command(sink)
cli.add_command(bench)
cli.add_command(certs)
cli.add_command(acl)
cli.add_command(quota)
cli.add_command(events)
cluster.add_command(balance)
topic.add_command(produce)
topic.add_command(consume)


def _quiet_log() -> None:
    """The command prints its own errors; the client's log adds only that no node answers."""
    log = logging.getLogger("oncelog")
    if log.handlers:
        return
    log.addHandler(logging.NullHandler())
    shown = logging.StreamHandler()
    shown.setFormatter(logging.Formatter("oncelog: %(message)s"))
    logging.getLogger("oncelog.client").addHandler(shown)


def run(arguments: list[str] | None = None) -> None:
    """Run a command; exits 0 if done, 1 on an error, 2 on wrong usage, 130 on Ctrl-C."""
    prepare()
    _quiet_log()
    try:
        code = _code(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has gone: not our error, but the output is incomplete.
        discard()
        code = 1
    except OSError as error:
        discard()
        code = _fail(f"{error.filename or 'standard output'}: {error.strerror or error}", 1)
    raise SystemExit(code)


def _code(arguments: list[str] | None) -> int:
    try:
        code: object = cli.main(arguments, prog_name="oncelog", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return 2
    except click.UsageError as error:
        # One line; click's own form has three.
        command = error.ctx.command_path if error.ctx else "oncelog"
        return _fail(f"{error.format_message()} (see '{command} --help')", 2)
    except click.ClickException as error:
        return _fail(error.format_message(), 1)
    except click.Abort:
        return 130
    except OncelogError as error:
        return _fail(f"{error.reason}: {' '.join(str(error).split())}", 1)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    print(f"oncelog: {message}", file=sys.stderr)
    return code


__all__ = ["cli", "run"]

"""Command tree, and the one place where errors become exit codes."""

from __future__ import annotations

import logging
import sys

import click

from oncelog.cli.lazy import LazyGroup
from oncelog.cli.options import profile_option
from oncelog.cli.streams import discard, prepare
from oncelog.errors import OncelogError
from oncelog.version import __version__

COMMANDS = {
    "acl": "acl:acl",
    "bench": "bench:bench",
    "certs": "certs:certs",
    "cluster": "cluster:cluster",
    "completion": "completion:completion",
    "console": "console:console",
    "events": "events:events",
    "group": "groups:group",
    "mirror": "mirror:mirror",
    "node": "nodes:node",
    "producer": "producers:producer",
    "quota": "quota:quota",
    "server": "server:server",
    "sink": "sinks:sink",
    "table": "table:table",
    "top": "top:top",
    "topic": "topics:topic",
    "txn": "transactions:txn",
}


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="oncelog")
@profile_option
def cli(profile: str | None) -> None:
    """Manage an Oncelog cluster, and read and write its topics."""


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

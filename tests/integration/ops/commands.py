"""Commands that pages of the console name."""

from __future__ import annotations

import shlex
from contextlib import suppress

import click

from oncelog.cli.app import cli


def exists(line: str) -> None:
    """Assert that a command exists, and takes these options and arguments."""
    program, *words = shlex.split(line)
    command: click.Command = cli
    while isinstance(command, click.Group) and words != ["--help"]:
        name = words.pop(0) if words else ""
        found = command.get_command(click.Context(command), name)
        assert found is not None, line
        command = found
    assert program == "oncelog"
    if words != ["--help"]:
        with suppress(click.MissingParameter):  # of a form that is not filled in yet
            command.make_context(line, words)

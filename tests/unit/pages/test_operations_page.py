"""Each `oncelog` command line of the pages for operators is one that the CLI takes."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from harness.node_process import ROOT
from oncelog.cli.app import cli

PAGES = [(ROOT / "docs" / page).read_text() for page in ("operations.md", "kubernetes.md")]


def command_lines() -> list[str]:
    text = "\n".join(PAGES).replace("\\\n", " ")
    shell = r"^\$ (?:kubectl .* exec \S+ -- )?(oncelog .*?)(?:  +#.*)?$"
    typed = re.findall(shell, text, re.MULTILINE)
    named = re.findall(r"`(oncelog [a-z]+ [^`]*)`", text)
    return sorted({*typed, *(" ".join(one.split()) for one in named)})


def test_there_are_some() -> None:
    assert len(command_lines()) > 30


@pytest.mark.parametrize("line", command_lines())
def test_the_cli_takes_it(line: str) -> None:
    words = shlex.split(line)[1:]
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words:
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, f"{name} is no command"
        command, context = found, click.Context(found, parent=context, info_name=name)
    if words or not isinstance(command, click.Group):
        needs_more = not words  # a command that is only named
        try:
            command.make_context("oncelog", words, resilient_parsing=needs_more)
        except click.exceptions.Exit:  # --help
            assert "--help" in line

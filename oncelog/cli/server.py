"""Command `oncelog server`: starts a node in place of this process.

The node's packages, `cluster` and `storage`, have names too general for site-packages. The
distribution oncelog-server keeps them in a folder of its own; a source tree has them beside this
package.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import click

import oncelog
from oncelog.errors import MissingExtraError


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("settings", nargs=-1, type=click.UNPROCESSED)
def server(settings: tuple[str, ...]) -> None:
    """Start a node. See its --help for settings."""
    environment = dict(os.environ)
    known = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([str(node_code()), *([known] if known else [])])
    # -P: a user's folder called `cluster` is not taken for the node.
    command = [sys.executable, "-P", "-m", "cluster", "--next-steps", *settings]
    if {"-h", "--help"} & {*settings}:
        shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        click.echo(shown.stdout, nl=False)
        return
    sys.stdout.flush()
    os.execve(sys.executable, command, environment)


def node_code() -> Path:
    """Return the folder with the node's packages. Raises MissingExtraError."""
    tree = Path(oncelog.__file__).parent.parent
    if (tree / "cluster" / "__main__.py").is_file():
        return tree
    found = importlib.util.find_spec("oncelog_server")
    if found is None or found.origin is None:
        raise MissingExtraError("oncelog server", "oncelog-server", "server")
    return Path(found.origin).parent / "private"

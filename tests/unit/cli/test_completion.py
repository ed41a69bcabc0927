"""Shell completion without a cluster: scripts, and silence if no node answers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from oncelog.cli.app import cli
from oncelog.cli.names import plain_words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell], prog_name="oncelog")
    assert done.exit_code == 0
    assert f"_ONCELOG_COMPLETE={shell}_complete" in done.output


def complete(words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Ask for what follows the words, as the script of bash does."""
    return subprocess.run(
        [sys.executable, "-m", "oncelog.cli"],
        env={
            **os.environ,
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
            "_ONCELOG_COMPLETE": "bash_complete",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_commands_are_completed() -> None:
    done = complete("oncelog top")
    assert (done.returncode, done.stdout.split(), done.stderr) == (
        0,
        ["plain,top", "plain,topic"],
        "",
    )


@pytest.mark.parametrize(
    "words",
    [
        "oncelog topic describe ",
        "oncelog --profile absent group describe -b 127.0.0.1:1 ",
        "oncelog node drain --tls-ca-file /absent ",
    ],
)
def test_without_a_cluster_it_completes_nothing_and_prints_nothing(words: str) -> None:
    done = complete(words, ONCELOG_BOOTSTRAP="127.0.0.1:1")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_a_name_that_a_shell_would_run_is_not_completed() -> None:
    """Kafka's clients choose the names of groups."""
    hostile = ["a$(reboot)", "a;reboot", "a`reboot`", "a|b", "a b", "a\nplain,b", "a*", "a'"]
    hostile += ["-a", "~a", ""]
    assert plain_words([*hostile, "a/b:c@d", "a-1", "b"], "a") == ["a-1", "a/b:c@d"]
    assert plain_words(hostile, "") == []

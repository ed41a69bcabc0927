"""Command `oncelog completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell's completion script.

    It completes commands, options, and names that it asks the cluster for: topics, groups, nodes.

    \b
    bash, in ~/.bashrc:  eval "$(oncelog completion bash)"
    zsh, in ~/.zshrc:    eval "$(oncelog completion zsh)"
    fish:                oncelog completion fish > ~/.config/fish/completions/oncelog.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "oncelog", "_ONCELOG_COMPLETE").source())

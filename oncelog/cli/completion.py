"""Command `oncelog completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell's completion script.

    It completes commands, options, and the names of topics, groups and nodes, which it asks the
    cluster for. For bash, add this line to ~/.bashrc: eval "$(oncelog completion bash)". For zsh,
    add eval "$(oncelog completion zsh)" to ~/.zshrc, after compinit. For fish: oncelog completion
    fish > ~/.config/fish/completions/oncelog.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "oncelog", "_ONCELOG_COMPLETE").source())


__all__ = ["completion"]

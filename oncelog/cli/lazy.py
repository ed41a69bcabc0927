"""Groups of commands whose modules are imported when a command is called.

Place in the flow: `app` and `topics` name their commands here as "module:attribute", so that a
call pays for its own imports only.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """A group that imports a command of `lazy` when it is asked for."""

    def __init__(self, *args: Any, lazy: Mapping[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._lazy.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, attribute = place.split(":")
        command: click.Command = getattr(import_module(f"oncelog.cli.{module}"), attribute)
        return command

"""Options of all commands: `--bootstrap`, TLS, `--format`, clients, parameter types."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from oncelog import Admin
from oncelog.cli.streams import check_text
from oncelog.config import (
    BOOTSTRAP_ENV,
    DEFAULT_BOOTSTRAP,
    ENV_PREFIX,
    MAX_INT32,
    MAX_INT64,
    SECURITY_SETTINGS,
    parse_bootstrap,
)
from oncelog.errors import ConfigError

# Arguments that are sent byte for byte.
BINARY = ("values", "key_separator")


class Bootstrap(click.ParamType[Any]):
    name = "host:port,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        try:
            return parse_bootstrap(value)
        except ConfigError as error:
            self.fail(error.message.removeprefix("bootstrap_servers: "), param, ctx)


class Whole(click.ParamType[int]):
    """A whole number that fits the protocol; the node checks its range."""

    name = "integer"

    def __init__(self, most: int) -> None:
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = int(click.INT.convert(value, param, ctx))
        if not -self._most <= number <= self._most:
            self.fail(f"{number} is not in {-self._most}..{self._most}", param, ctx)
        return number


INT32, INT64 = Whole(MAX_INT32), Whole(MAX_INT64)
PARTITION = click.IntRange(0, MAX_INT32)
_FILE = click.Path(exists=True, dir_okay=False)


yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


@contextmanager
def _security(given: dict[str, Any]) -> Iterator[None]:
    """Set the flags' environment variables inside, for all clients of the command."""
    wanted = {ENV_PREFIX + name.upper(): value for name, value in given.items() if value}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update({n: "true" if value is True else value for n, value in wanted.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--bootstrap` and `--format`, as `bootstrap` and `as_json`."""

    @click.option(
        "--bootstrap",
        "-b",
        envvar=BOOTSTRAP_ENV,
        type=Bootstrap(),
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        help=f"Nodes to start from (or {BOOTSTRAP_ENV}).",
    )
    @click.option("--tls", is_flag=True, help="Use TLS (or ONCELOG_CLIENT_TLS=true).")
    @click.option("--tls-ca-file", type=_FILE, help="CAs of the nodes; implies --tls.")
    @click.option("--tls-cert-file", type=_FILE, help="This client's certificate.")
    @click.option("--tls-key-file", type=_FILE, help="Its key.")
    @click.option(
        "--token-file", type=_FILE, help="File with a token; each file has its ONCELOG_CLIENT_*."
    )
    @click.option(
        "--format",
        "output_format",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="Output format.",
    )
    @functools.wraps(command)
    def wrapped(*args: Any, output_format: str, **kwargs: Any) -> Any:
        flags = {name: kwargs.pop(name) for name in SECURITY_SETTINGS if name in kwargs}
        with _security(flags):
            check_text(kwargs, BINARY)
            return command(*args, as_json=output_format == "json", **kwargs)

    return wrapped


def with_admin(command: Callable[..., Any]) -> Callable[..., Any]:
    """Apply `common`, with an open Admin as first argument in place of `bootstrap`."""

    @common
    @click.option(
        "--request-timeout-ms",
        type=click.IntRange(1, MAX_INT32),
        default=10_000,
        show_default=True,
        help="Longest wait for a node that answers.",
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any, bootstrap: tuple[str, ...], request_timeout_ms: int, **kwargs: Any
    ) -> Any:
        with Admin(bootstrap_servers=bootstrap, request_timeout_ms=request_timeout_ms) as admin:
            return command(admin, *args, **kwargs)

    return wrapped

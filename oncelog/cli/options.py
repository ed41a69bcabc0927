"""Options of all commands: profile, nodes, TLS, format, clients; parameter types."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from oncelog.cli.streams import PROTECTED, check_text
from oncelog.config import (
    BOOTSTRAP_ENV,
    DEFAULT_BOOTSTRAP,
    ENV_PREFIX,
    MAX_INT32,
    MAX_INT64,
    SECURITY_SETTINGS,
    default_bootstrap,
    parse_bootstrap,
)
from oncelog.errors import ConfigError, OncelogError

if TYPE_CHECKING:
    from oncelog import Admin
    from oncelog.cli.profiles import Profile

PROFILE_ENV = "ONCELOG_PROFILE"
# Arguments that are sent byte for byte.
BINARY = ("values", "key_separator")
# Commands that only read: without an answer nothing may have changed.
READS = frozenset(
    {"check", "describe", "events", "get", "health", "info", "list", "resolve", "top"}
)

ADMIN_READS = ("describe_", "list_", "check_", "plan_", "follow_", "resolve_", "group_lag")


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


def complete_profile(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from oncelog.cli.profiles import profile_names

    try:
        return [name for name in profile_names() if name.startswith(incomplete)]
    except ConfigError:
        return []


profile_option = click.option(
    "--profile",
    metavar="NAME",
    shell_complete=complete_profile,
    help=f"Connection settings of a profile (or {PROFILE_ENV}).",
)
match_option = click.option(
    "--match",
    "patterns",
    metavar="PATTERN",
    multiple=True,
    help='Only names like "orders-*"; may be repeated.',
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def chosen_profile(ctx: click.Context) -> Profile | None:
    """Load the profile of the command's --profile, of `oncelog --profile`, or of the environment.

    Raises ConfigError.
    """
    name = ctx.params.get("profile") or ctx.find_root().params.get("profile")
    name = name or os.environ.get(PROFILE_ENV)
    if not name:
        return None
    from oncelog.cli.profiles import load_profile

    return load_profile(name)


@contextmanager
def security(given: dict[str, Any], profile: Profile | None) -> Iterator[None]:
    """Set the environment's variables inside, for all clients of the command.

    A profile unsets the variables that neither it nor a flag has: they are for another cluster.
    """
    flags = {name: value for name, value in given.items() if value}
    wanted: dict[str, Any] = flags
    if profile is not None:
        wanted = {**profile.security, **flags}
        if "token_file" in flags:
            wanted["token"] = None
    before = {name: os.environ.get(ENV_PREFIX + name.upper()) for name in wanted}
    _set_environment({n: "true" if value is True else value for n, value in wanted.items()})
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        if value:
            os.environ[ENV_PREFIX + name.upper()] = value
        else:
            os.environ.pop(ENV_PREFIX + name.upper(), None)


def bootstrap_in(ctx: click.Context, profile: Profile | None) -> tuple[str, ...]:
    """Return the nodes to start from: the flag's, the profile's, or the environment's."""
    by_flag = ctx.get_parameter_source("bootstrap") is ParameterSource.COMMANDLINE
    if profile is not None and not by_flag:
        return profile.bootstrap_servers
    given: tuple[str, ...] | None = ctx.params.get("bootstrap")
    return given or default_bootstrap()


def open_admin(bootstrap: tuple[str, ...], request_timeout_ms: int) -> Admin:
    from oncelog import Admin  # a command that needs no node does without gRPC

    return Admin(bootstrap_servers=bootstrap, request_timeout_ms=request_timeout_ms)


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
    @profile_option
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
    def wrapped(*args: Any, output_format: str, profile: str | None, **kwargs: Any) -> Any:
        ctx = click.get_current_context()
        chosen = chosen_profile(ctx)
        ctx.meta[PROTECTED] = chosen.name if chosen is not None and chosen.protected else None
        flags = {name: kwargs.pop(name) for name in SECURITY_SETTINGS if name in kwargs}
        kwargs["bootstrap"] = bootstrap_in(ctx, chosen)
        with security(flags, chosen):
            check_text(kwargs, BINARY)
            return command(*args, as_json=output_format == "json", **kwargs)

    return wrapped


class _WatchedAdmin:
    """An Admin that notes whether it was asked for a change: a failed read changed nothing."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self.asked_to_change = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._admin, name)
        if name.startswith(ADMIN_READS) or not callable(found):
            return found

        @functools.wraps(found)
        def noted(*args: Any, **kwargs: Any) -> Any:
            self.asked_to_change |= not kwargs.get("dry_run")
            return found(*args, **kwargs)

        return noted


def _changes(ctx: click.Context) -> bool:
    """Tell whether the command was called to change something."""
    given = ctx.params
    only_looks = given.get("dry_run") or given.get("status") or not given.get("finalize", True)
    return ctx.info_name not in READS and not only_looks


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
        with open_admin(bootstrap, request_timeout_ms) as opened:
            admin = _WatchedAdmin(opened)
            try:
                return command(admin, *args, **kwargs)
            except OncelogError as error:
                if admin.asked_to_change and _changes(click.get_current_context()):
                    from oncelog.views.changes import doubt  # only here: a start is to be quick

                    error.args = (f"{error.message}. {doubt(error)}".removesuffix(". "),)
                raise

    return wrapped

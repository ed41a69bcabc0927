"""Names for shell completion: topics, groups and nodes, asked from the cluster.

Place in the flow: arguments of commands name these as `shell_complete`. A cluster that does not
answer in time completes nothing, and prints nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from oncelog.cli.options import bootstrap_in, chosen_profile, open_admin, security
from oncelog.config import SECURITY_SETTINGS
from oncelog.errors import OncelogError

if TYPE_CHECKING:
    from oncelog import Admin

LIMIT_MS = 300
_PLAIN = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@%+=:,/-]*")


def topic_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _matching(ctx, incomplete, lambda admin: admin.list_topics())


def group_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _matching(ctx, incomplete, lambda admin: [one.group for one in admin.list_groups()])


def node_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return _matching(
        ctx, incomplete, lambda admin: [str(one.node_id) for one in admin.list_nodes()]
    )


def plain_words(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the names that begin so, without those that a shell would take for more than a word.

    bash puts a completion on the line as it is: a client may have named a group "$(...)".
    """
    return sorted(name for name in names if name.startswith(incomplete) and _PLAIN.fullmatch(name))


def _matching(
    ctx: click.Context, incomplete: str, ask: Callable[[Admin], Iterable[str]]
) -> list[str]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # the shell would show the line in the middle of its own
    flags = {name: ctx.params.get(name) for name in SECURITY_SETTINGS}
    try:
        profile = chosen_profile(ctx)
        with (
            security(flags, profile),
            open_admin(bootstrap_in(ctx, profile), LIMIT_MS) as admin,
        ):
            return plain_words(ask(admin), incomplete)
    except OncelogError:
        return []
    finally:
        logging.disable(before)

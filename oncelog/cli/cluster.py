"""Commands `oncelog cluster info|health|upgrade` and `oncelog cluster config get|set`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict

import click

from oncelog import Admin, ClusterInfo, OncelogError, TopicInfo
from oncelog.cli.lazy import LazyGroup
from oncelog.cli.options import INT64, with_admin, yes_option
from oncelog.cli.output import print_facts, print_json, print_table
from oncelog.cli.streams import confirm
from oncelog.views.cluster import check_health, describe_pending, needs_topics


@click.group(cls=LazyGroup, lazy={"balance": "balance:balance"})
def cluster() -> None:
    """Show, check and configure the cluster."""


@cluster.command()
@with_admin
def info(admin: Admin, as_json: bool) -> None:
    """Show nodes, controller, topics and partitions.

    Topics and partitions are counted.
    """
    facts = admin.describe_cluster()
    if as_json:
        print_json({**asdict(facts), "healthy": facts.healthy})
        return
    print_facts(
        [
            ("cluster", facts.cluster_id),
            ("founding", facts.founding or None),
            ("controller", facts.controller_id or None),
            ("topics", facts.topics),
            ("partitions", facts.partitions),
            ("without leader", facts.leaderless_partitions),
            ("under-replicated", facts.under_replicated_partitions),
            ("version", facts.upgrade.cluster_version),
        ]
    )
    click.echo()
    print_table(
        ("node", "address", "alive"),
        [(node.node_id, node.address, node.alive) for node in facts.nodes],
    )


@cluster.command()
@with_admin
def health(admin: Admin, as_json: bool) -> int:
    """Check the cluster. Exits with 0 only if it is healthy."""
    facts = admin.describe_cluster()
    topics: list[TopicInfo] = []
    if needs_topics(facts):
        with suppress(OncelogError):  # callers that may not describe topics get no note of them
            topics = admin.describe_topics()
    found = check_health(facts, topics)
    if as_json:
        print_json(
            {"healthy": not found.problems, "problems": found.problems, "notes": found.notes}
        )
        return 1 if found.problems else 0
    if found.problems:
        click.echo(f"oncelog: {found.sentence}", err=True)
    else:
        click.echo(found.sentence)
    for note in found.notes:
        click.echo(note)
    return 1 if found.problems else 0


@cluster.command()
@with_admin
@click.option("--dry-run", is_flag=True, help="Exit with 0 if --finalize would succeed now.")
@click.option(
    "--finalize", is_flag=True, help="Enable the newer release's features; cannot be undone."
)
@yes_option
def upgrade(admin: Admin, as_json: bool, dry_run: bool, finalize: bool, yes: bool) -> int:
    """Show releases, and finalize an upgrade.

    Shows the release of each node, and the finalized version of the cluster. After all nodes run a
    newer release, --finalize enables its features. Until then each node can go back to the release
    before; afterwards none can.
    """
    if dry_run and finalize:
        raise click.UsageError("--dry-run and --finalize exclude each other")
    if finalize:
        confirm("Enable the newer features? No node can go back to an older release then.", yes)
        admin.finalize_upgrade()
    facts = admin.describe_cluster()
    state = facts.upgrade
    if as_json:
        nodes = [asdict(node) for node in facts.nodes]
        print_json({**asdict(state), "pending": state.pending, "nodes": nodes})
    else:
        _print_upgrade(facts)
    return 1 if dry_run and state.hindered_by else 0


@cluster.group()
def config() -> None:
    """Show and change settings of all nodes."""


@config.command("get")
@click.argument("name", required=False)
@with_admin
def get_setting(admin: Admin, as_json: bool, name: str | None) -> int:
    """Show cluster settings, or one of them.

    These settings apply to all nodes.
    """
    settings = admin.describe_cluster().settings
    if name is not None and name not in settings:
        names = ", ".join(settings) or "no settings yet"
        click.echo(f"oncelog: {name} is not a setting; the cluster has {names}", err=True)
        return 1
    _print_settings({name: settings[name]} if name is not None else settings, as_json)
    return 0


@config.command("set")
@click.argument("name")
@click.argument("value", type=INT64)
@with_admin
def set_setting(admin: Admin, as_json: bool, name: str, value: int) -> None:
    """Change a setting of all nodes.

    A node configured with another value does not start again: remove the setting from its
    configuration.
    """
    _print_settings(admin.set_cluster_setting(name, value), as_json)


def _print_settings(settings: Mapping[str, int], as_json: bool) -> None:
    if as_json:
        print_json(dict(settings))
    elif settings:
        print_facts(list(settings.items()))


def _print_upgrade(facts: ClusterInfo) -> None:
    state = facts.upgrade
    print_table(
        ("node", "release", "versions", "features"),
        [
            (
                node.node_id,
                node.release or None,
                "{} to {}".format(*node.cluster_versions) if all(node.cluster_versions) else None,
                node.features or None,
            )
            for node in facts.nodes
        ],
    )
    click.echo()
    print_facts([("version", state.cluster_version), ("features", state.features or None)])
    click.echo(describe_pending(state) if state.pending else "nothing to finalize")
    for line in state.hindered_by:
        click.echo(f"hindered by {line}")

"""`oncelog cluster info|health`."""

from __future__ import annotations

from dataclasses import asdict

import click

from oncelog import Admin, ClusterInfo
from oncelog.cli.options import with_admin
from oncelog.cli.output import print_facts, print_json, print_table


@click.group()
def cluster() -> None:
    """The cluster and its nodes."""


@cluster.command()
@with_admin
def info(admin: Admin, as_json: bool) -> None:
    """Show nodes, controller, and how many topics and partitions there are."""
    facts = admin.describe_cluster()
    if as_json:
        print_json({**asdict(facts), "healthy": facts.healthy})
        return
    print_facts(
        [
            ("cluster", facts.cluster_id),
            ("controller", facts.controller_id or None),
            ("topics", facts.topics),
            ("partitions", facts.partitions),
            ("without leader", facts.leaderless_partitions),
            ("under-replicated", facts.under_replicated_partitions),
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
    """Exit with 0 only if everything is as it should be."""
    facts = admin.describe_cluster()
    problems, warnings = find_problems(facts), find_warnings(facts)
    if not as_json:
        for warning in warnings:
            click.echo(f"oncelog: warning: {warning}", err=True)
    if as_json:
        print_json({"healthy": not problems, "problems": problems, "warnings": warnings})
    elif problems:
        click.echo("oncelog: not healthy: " + "; ".join(problems), err=True)
    else:
        click.echo("healthy")
    return 1 if problems else 0


def find_warnings(facts: ClusterInfo) -> list[str]:
    """What somebody has chosen, and others should know."""
    return [
        f"node {node.node_id} is insecure: it listens without TLS beyond its machine"
        for node in facts.nodes
        if node.insecure
    ]


def find_problems(facts: ClusterInfo) -> list[str]:
    problems = [f"node {node.node_id} is down" for node in facts.nodes if not node.alive]
    problems += [
        f"node {node.node_id}: its clock is not the one a majority agrees on"
        for node in facts.nodes
        if node.clock_disagrees
    ]
    if not facts.controller_id:
        problems.append("no controller")
    if facts.leaderless_partitions:
        problems.append(f"{facts.leaderless_partitions} partitions without a leader")
    if facts.under_replicated_partitions:
        problems.append(f"{facts.under_replicated_partitions} partitions under-replicated")
    return problems

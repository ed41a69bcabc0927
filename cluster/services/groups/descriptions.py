"""Descriptions of groups with members, for people.

running group --described--> members, epoch, assignor of DescribeGroup's answer
"""

from __future__ import annotations

from typing import Any

from cluster.groups.consumer_protocol import assigned_partitions
from cluster.services.groups.classic_groups import RunningClassicGroup
from cluster.services.groups.member_streams import named, owned_partitions
from cluster.services.groups.running_groups import AnyGroup, RunningGroup
from oncelog.v1 import group_pb2 as pb

# Protocols of a group's members.
OURS, KAFKAS = "oncelog", "kafka"


def protocol_of(running: AnyGroup | None) -> str:
    """Return the protocol of the members; empty: there are none."""
    if running is None or not running.size:
        return ""
    return KAFKAS if isinstance(running, RunningClassicGroup) else OURS


def described(running: AnyGroup | None) -> dict[str, Any]:
    """Describe a group with members; nothing for one without."""
    if running is None:
        return {}
    if isinstance(running, RunningClassicGroup):
        return _described_classic(running)
    return {**_described_ours(running), "protocol": protocol_of(running)}


def _described_classic(running: RunningClassicGroup) -> dict[str, Any]:
    """Describe a group of Kafka's clients. The generation stands for epoch and ownerships."""
    coordinator = running.coordinator
    members = [
        pb.GroupMember(
            member_id=one.member,
            instance_id=one.instance,
            client_host=one.client_host,
            owned=[
                pb.OwnedPartition(topic=topic, partition=number, ownership=coordinator.generation)
                for topic, numbers in sorted((assigned_partitions(one.assignment) or {}).items())
                for number in sorted(numbers)
            ],
            connected=True,
        )
        for one in coordinator.members()
    ]
    return {
        "members": members,
        "epoch": coordinator.generation,
        "assignor": coordinator.protocol,
        "protocol": protocol_of(running),
    }


def _described_ours(running: RunningGroup) -> dict[str, Any]:
    """Describe a group with members, from the log and from the members that came back."""
    facts, views = running.facts(), {one.member: one for one in running.coordinator.members()}
    instances = {one.member: name for name, one in facts.instances.items()}
    members = [
        pb.GroupMember(
            member_id=member,
            instance_id=instances.get(member, ""),
            client_host=running.host(member),
            owned=owned_partitions(running, facts.partitions_of(member)),
            revoking=named(running, views[member].revoking) if member in views else (),
            idle_ms=round(views[member].idle * 1000) if member in views else 0,
            connected=member in views,
        )
        for member in sorted(views.keys() | set(facts.members()))
    ]
    assignor = running.coordinator.settings.assignor if members else ""
    return {"members": members, "epoch": running.coordinator.epoch, "assignor": assignor}

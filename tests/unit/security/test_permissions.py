"""Rules and their evaluation: against a model that shares no code, and as metadata."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from cluster.features import CLUSTER_VERSIONS, FEATURES, THIS_RELEASE
from cluster.metadata.state import MetadataCorruptError, MetadataState
from cluster.security.permissions import ALL, OPERATIONS, Authorizer, Need, Rule, fault, tidy
from cluster.v1 import metadata_pb2 as meta
from oncelog.v1.security_pb2 import PermissionRule

ALICE, BOB = "dns:alice", "dns:bob"


def allow(principal: str, operations: str, kind: str, name: str = "", **more: bool) -> Rule:
    return tidy(Rule(principal, kind, name, tuple(operations.split(",")), **more))


def deny(principal: str, operations: str, kind: str, name: str = "", **more: bool) -> Rule:
    return allow(principal, operations, kind, name, deny=True, **more)


def may(rules: list[Rule], principal: str, operation: str, kind: str, name: str = "") -> bool:
    return Authorizer(lambda: rules).allows(principal, Need(operation, kind, name))


def test_nothing_is_allowed_without_a_rule() -> None:
    for operation in OPERATIONS:
        assert not may([], ALICE, operation, "topic", "orders")


def test_a_name_is_exact_and_a_prefix_is_how_names_begin() -> None:
    exact = [allow(ALICE, "read", "topic", "orders")]
    assert may(exact, ALICE, "read", "topic", "orders")
    for other in ("Orders", "orders2", "order", "", "orders\0", ALL):
        assert not may(exact, ALICE, "read", "topic", other), other
    assert not may(exact, BOB, "read", "topic", "orders")
    assert not may(exact, "dns:Alice", "read", "topic", "orders")
    assert not may(exact, "jwt:alice", "read", "topic", "orders")
    assert not may(exact, ALICE, "read", "group", "orders")
    assert not may(exact, ALICE, "write", "topic", "orders")
    prefix = [allow(ALICE, "read", "topic", "ord", prefix=True)]
    assert may(prefix, ALICE, "read", "topic", "orders")
    assert not may(prefix, ALICE, "read", "topic", "or")
    # Only a rule for all names gives a right to all of them.
    assert not may(prefix, ALICE, "read", "topic", ALL)
    assert may([allow(ALICE, "read", "topic", ALL)], ALICE, "read", "topic", ALL)


def test_denial_stands_above_every_allowance() -> None:
    rules = [
        allow(ALICE, "*", "topic", ALL),
        allow(ALICE, "*", "topic", "secret"),
        deny(ALL, "read", "topic", "secret"),
    ]
    assert not may(rules, ALICE, "read", "topic", "secret")
    assert may(rules, ALICE, "write", "topic", "secret")
    assert may(rules, ALICE, "read", "topic", "open")
    # A caller denied one of them may not read all of them.
    assert not may(rules, ALICE, "read", "topic", ALL)


def test_who_may_do_anything_may_describe() -> None:
    rules = [allow(ALICE, "write", "topic", "orders")]
    assert may(rules, ALICE, "describe", "topic", "orders")
    assert not may([*rules, deny(ALICE, "describe", "topic", "orders")],
                   ALICE, "describe", "topic", "orders")  # fmt: skip
    # A denied read does not hide that the topic is there.
    assert may([*rules, deny(ALICE, "read", "topic", "orders")],
               ALICE, "describe", "topic", "orders")  # fmt: skip


def test_superusers_cannot_shut_themselves_out() -> None:
    rules = [deny(ALL, "*", "cluster")]
    permissions = Authorizer(lambda: rules, [ALICE])
    assert permissions.allows(ALICE, Need("alter", "cluster"))
    assert not permissions.allows(BOB, Need("alter", "cluster"))


def test_a_change_is_seen_with_the_next_question() -> None:
    held = [(allow(ALICE, "read", "topic", "t"),), ()]
    permissions = Authorizer(lambda: held[0])
    assert permissions.allows(ALICE, Need("read", "topic", "t"))
    held[0] = held[1]
    assert not permissions.allows(ALICE, Need("read", "topic", "t"))


def expected(rules: list[Rule], principal: str, need: Need) -> bool:
    """The decision by the words of the page, with all names written out."""
    names = ["a", "ab", "b"] if need.name == ALL else [need.name]

    def speaks(rule: Rule, name: str, operations: set[str]) -> bool:
        return (
            rule.principal in (principal, "*")
            and rule.kind == need.kind
            and (name.startswith(rule.name) if rule.prefix else rule.name in (name, "*"))
            and bool(operations & {*rule.operations})
        )

    wanted = {need.operation, "*"}
    if any(rule.deny and speaks(rule, name, wanted) for rule in rules for name in names):
        return False
    if need.operation == "describe":
        wanted |= set(OPERATIONS)
    allowing = [rule for rule in rules if not rule.deny]
    if need.name == ALL:
        return any(rule.name == ALL and speaks(rule, "a", wanted) for rule in allowing)
    return any(speaks(rule, need.name, wanted) for rule in allowing)


def test_random_rules_against_the_model() -> None:
    rng = random.Random(7)
    seen = {True: 0, False: 0}
    for _ in range(3000):
        rules = [
            tidy(
                Rule(
                    rng.choice([ALICE, BOB, ALL]), "topic", rng.choice(["a", "ab", "b", ALL]),
                    tuple(rng.sample(["read", "write", "describe", ALL], rng.randint(1, 2))),
                    prefix=False, deny=rng.random() < 0.3,
                )
            )
            for _ in range(rng.randint(0, 5))
        ]  # fmt: skip
        rules = [
            tidy(Rule(r.principal, r.kind, "a", r.operations, True, r.deny))
            if r.name == "ab" and rng.random() < 0.5 else r for r in rules
        ]  # fmt: skip
        for operation, name in itertools.product(["read", "describe"], ["a", "ab", "b", ALL]):
            need = Need(operation, "topic", name)
            answer = may(rules, ALICE, operation, "topic", name)
            assert answer == expected(rules, ALICE, need), (rules, need)
            seen[answer] += 1
    assert min(seen.values()) > 1000


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (Rule("", "topic", "t", ("read",)), "principal: "),
        (Rule("a\0", "topic", "t", ("read",)), "principal: "),
        (Rule("a", "topics", "t", ("read",)), "kind: 'topics'"),
        (Rule("a", "topic", "", ("read",)), "name: must have 1"),
        (Rule("a", "cluster", "x", ("alter",)), "name: the cluster has none"),
        (Rule("a", "topic", "t\n", ("read",)), "name: must not have control"),
        (Rule("a", "topic", "t", ()), "operations: none"),
        (Rule("a", "topic", "t", ("reed",)), "operations: 'reed'"),
    ],
)
def test_faults_are_named(rule: Rule, says: str) -> None:
    assert fault(rule).startswith(says)


# -- as metadata ----------------------------------------------------------------------------


def alter(**change: list[PermissionRule]) -> bytes:
    command = meta.AlterPermissions(**change)
    return meta.MetadataCommand(alter_permissions=command).SerializeToString()


def upgraded() -> MetadataState:
    state = MetadataState()
    node = meta.NodeRelease(
        node_id=1, oldest_version=1, newest_version=CLUSTER_VERSIONS.newest, features=FEATURES
    )
    command = meta.FinalizeUpgrade(
        version=CLUSTER_VERSIONS.newest, features=sorted(THIS_RELEASE.features), nodes=[node]
    )
    raw = meta.MetadataCommand(finalize_upgrade=command).SerializeToString()
    assert not meta.MetadataResult.FromString(state.apply(1, raw, upgrade=True)).error
    return state


def rule(**fields: Any) -> PermissionRule:
    sound: dict[str, Any] = {
        "principal": ALICE, "kind": "topic", "name": "t", "operations": ["read"],
    }  # fmt: skip
    return PermissionRule(**(sound | fields))


def test_rules_are_replicated_and_part_of_the_snapshot() -> None:
    state = upgraded()
    state.apply(2, alter(add=[rule(operations=["write", "read", "read"]), rule(name="a")]))
    assert [str(one) for one in state.rules] == [
        "allow dns:alice read topic a", "allow dns:alice read,write topic t",
    ]  # fmt: skip
    before = state.rules
    state.apply(3, alter(add=[rule(name="a")]))
    assert state.rules is before
    copy = MetadataState()
    copy.load(state.dump(), 3)
    assert copy.rules == state.rules
    assert copy.dump() == state.dump()
    state.apply(4, alter(remove=[rule(name="a")], add=[rule(name="b")]))
    assert [one.name for one in state.rules] == ["b", "t"]


def test_what_was_allowed_by_rules_that_have_changed_since_is_rejected() -> None:
    """Looked at by one node, and while its command was on the way another took the right away."""

    def created(state: MetadataState, name: str, version: int) -> str:
        topic = meta.CreateTopic(name=name, placements=[meta.Placement(replicas=[1])])
        command = meta.MetadataCommand(create_topic=topic, rules_version=version)
        raw = state.apply(state.applied_index + 1, command.SerializeToString())
        return meta.MetadataResult.FromString(raw).error

    state = upgraded()
    node = meta.RegisterNode(node_id=1, address="a:1")
    state.apply(2, meta.MetadataCommand(register_node=node).SerializeToString())
    state.apply(3, alter(add=[rule(kind="topic", name="*", operations=["create"])]))
    allowed = state.rules_version
    assert allowed == 1 and not created(state, "early", allowed)
    state.apply(state.applied_index + 1, alter(remove=[rule(name="nobody-has-it")]))
    assert state.rules_version == allowed, "nothing was changed"
    state.apply(
        state.applied_index + 1,
        alter(remove=[rule(kind="topic", name="*", operations=["create"])]),
    )
    assert created(state, "late", allowed) == "NOT_READY" and state.topic("late") is None
    assert not created(state, "late", 0), "with the check off"
    copy = MetadataState()
    copy.load(state.dump(), state.applied_index)
    assert copy.rules_version == state.rules_version == allowed + 1


def test_a_bad_rule_changes_nothing() -> None:
    state = upgraded()
    raw = state.apply(2, alter(add=[rule(), rule(kind="x")]))
    result = meta.MetadataResult.FromString(raw)
    assert result.error == "INVALID_REQUEST"
    assert state.rules == ()
    snapshot = meta.MetadataSnapshot.FromString(state.dump())
    snapshot.rules.append(rule(operations=[]))
    with pytest.raises(MetadataCorruptError, match="a rule's operations: none is given"):
        state.load(snapshot.SerializeToString())


def test_rules_wait_for_all_nodes_to_know_them() -> None:
    state = MetadataState()
    result = meta.MetadataResult.FromString(state.apply(1, alter(add=[rule()])))
    assert result.error == "NOT_SUPPORTED"
    assert state.rules == ()

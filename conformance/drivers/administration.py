"""Driver verbs for nodes, moves, permissions, quotas and the commits of sinks.

Place in the flow: `python_driver` -> `AdminVerbs` -> `oncelog.Admin`, or its asyncio twin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from oncelog import PermissionRule, Quota

Fields = Mapping[str, Any]


class AdminVerbs:
    """Verbs of administration. `clients`: open ones by their handles."""

    def __init__(self, clients: Mapping[str, Any]) -> None:
        self._clients = clients
        self.verbs: dict[str, Callable[[Fields], Fields]] = {
            "list_nodes": self._list_nodes,
            "change_node": self._change_node,
            "balance": self._balance,
            "reassign_partition": self._reassign_partition,
            "alter_permissions": self._alter_permissions,
            "list_permissions": self._list_permissions,
            "check_permission": self._check_permission,
            "alter_quotas": self._alter_quotas,
            "list_quotas": self._list_quotas,
            "group_lag": self._group_lag,
            "delete_group": self._delete_group,
            "list_sinks": self._list_sinks,
            "describe_sink": self._describe_sink,
            "reset_sink": self._reset_sink,
        }

    def _admin(self, fields: Fields) -> Any:
        return self._clients[fields["handle"]]

    def _group_lag(self, fields: Fields) -> Fields:
        found = self._admin(fields).group_lag(fields["group"])
        return {
            "lag": found.lag,
            "partitions": [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "committed": None if one.committed is None else one.committed.offset,
                    "log_start_offset": one.log_start_offset,
                    "high_watermark": one.high_watermark,
                    "lag": one.lag,
                    "error": None if one.error is None else one.error.reason,
                }
                for tp, one in sorted(found.partitions.items())
            ],
        }

    def _delete_group(self, fields: Fields) -> Fields:
        return {"existed": self._admin(fields).delete_group(fields["group"])}

    def _list_nodes(self, fields: Fields) -> Fields:
        return {"nodes": _tables(self._admin(fields).list_nodes())}

    def _change_node(self, fields: Fields) -> Fields:
        admin, action = self._admin(fields), fields["action"]
        name = "cancel_node_removal" if action == "keep" else f"{action}_node"
        given = _given(fields, "dry_run", "accept_loss", "directory_id")
        return {"effects": getattr(admin, name)(fields["node_id"], **given)}

    def _balance(self, fields: Fields) -> Fields:
        action = fields.get("action") or "describe"
        return _table(getattr(self._admin(fields), f"{action}_balance")())

    def _reassign_partition(self, fields: Fields) -> Fields:
        number = fields["partition"]
        topic = self._admin(fields).reassign_partition(fields["topic"], number, fields["replicas"])
        found = topic.partitions[number]
        return {"replicas": found.replicas, "target": found.target}

    def _alter_permissions(self, fields: Fields) -> Fields:
        add, remove = _rules(fields, "add"), _rules(fields, "remove")
        return _table(self._admin(fields).alter_permissions(add, remove))

    def _list_permissions(self, fields: Fields) -> Fields:
        return _table(self._admin(fields).list_permissions(**_given(fields, "principal")))

    def _check_permission(self, fields: Fields) -> Fields:
        allowed = self._admin(fields).check_permission(
            fields["operation"], fields["kind"], **_given(fields, "name", "principal")
        )
        return {"allowed": allowed}

    def _alter_quotas(self, fields: Fields) -> Fields:
        self._admin(fields).alter_quotas(
            [Quota(**one) for one in fields.get("set") or ()],
            [(one["principal"], one["name"]) for one in fields.get("remove") or ()],
        )
        return {}

    def _list_quotas(self, fields: Fields) -> Fields:
        return {"quotas": _tables(self._admin(fields).list_quotas(**_given(fields, "principal")))}

    def _list_sinks(self, fields: Fields) -> Fields:
        return {"sinks": _tables(self._admin(fields).list_sinks())}

    def _describe_sink(self, fields: Fields) -> Fields:
        return _table(self._admin(fields).describe_sink(fields["sink"]))

    def _reset_sink(self, fields: Fields) -> Fields:
        self._admin(fields).reset_sink(fields["sink"])
        return {}


def _given(fields: Fields, *names: str) -> dict[str, Any]:
    return {name: fields[name] for name in names if fields.get(name) is not None}


def _rules(fields: Fields, name: str) -> list[PermissionRule]:
    return [PermissionRule(**one) for one in fields.get(name) or ()]


def _table(found: Any) -> dict[str, Any]:
    return dataclasses.asdict(found)


def _tables(found: list[Any]) -> list[dict[str, Any]]:
    return [_table(one) for one in found]

"""Effects of a change, told before it is made, as sentences. Pure.

Place in the flow: the command line's dry runs and the console's confirmations show these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from oncelog.errors import OncelogError, TransactionCommittedError
from oncelog.moves import PartitionMove, Resized
from oncelog.permissions import PermissionRule
from oncelog.types import CleanupPolicy, TopicConfig, TopicFormats, TopicInfo, TopicPartition
from oncelog.views.tables import Listing
from oncelog.views.topics import settings_of
from oncelog.views.words import plural

FOR_EVER = -1
CLEANUP = {
    CleanupPolicy.DELETE: "records beyond the limits of retention are deleted",
    CleanupPolicy.COMPACT: "records of a key are removed, except the newest",
    CleanupPolicy.COMPACT_DELETE: "records of a key are removed, except the newest, and all beyond "
    "the limits of retention",
}
KEYS_MOVE = (
    "KEYS MOVE: with another number of partitions, new records of most keys go to another "
    "partition. Stored records stay in their partition, so a reader of single partitions loses the "
    "order of a key's records across the change. A program that numbers its own records must "
    "settle all of them first. The number of partitions cannot be reduced again."
)


class Effects(NamedTuple):
    """Sentences. undoable: giving the former values again restores everything."""

    lines: list[str]
    undoable: bool = True


def doubt(error: OncelogError) -> str:
    """Return the sentence about a failed change of unknown outcome; empty: the outcome is known."""
    # Of a committed transaction it is known that no abort was done.
    if error.outcome != "unknown" or isinstance(error, TransactionCommittedError):
        return ""
    return "The change may have been made: look before you repeat it."


def effects_of_settings(info: TopicInfo, wanted: TopicConfig) -> Effects:
    """Return the effects of an `alter_topic`: only settings that get another value."""
    before, lines, undoable = settings_of(info.config), [], True
    for name, value in settings_of(wanted).items():
        old = before.get(name)
        if value is None or value == old:
            continue
        lines.append(f"{name}: {_told(old)} becomes {_told(value)}")
        if name.startswith("retention_") and _is_less(value, old):
            lines.append(f"records beyond {name} {value} are deleted")
            undoable = False
        if name == "cleanup_policy":
            lines.append(CLEANUP[CleanupPolicy(str(value))])
            undoable = False
        undoable = undoable and value is not TopicFormats.BOTH
    return Effects(lines, undoable)


def _told(value: object) -> str:
    return "the cluster's default" if value is None else str(value)


def _is_less(new: object, old: object) -> bool:
    """Tell whether a limit of retention keeps less than before, or may: a default is not known."""
    if not isinstance(new, int) or new == FOR_EVER:
        return False
    return not isinstance(old, int) or old == FOR_EVER or new < old


def effects_of_resize(name: str, found: Resized, partitions: int | None, done: bool) -> str:
    """Return the effect of a `resize_topic`. partitions: new number; None: of its replicas."""
    if not found.count:
        return f"nothing to do: {name} has them, or is on its way there"
    if partitions is not None:
        verb = "has got" if done else "would get"
        return f"{name} {verb} {found.count} more partitions, {partitions} in all"
    copies = sum(move.bytes for move in found.moves)
    return f"{found.count} partitions {'' if done else 'would '}move, copying {copies} bytes"


def move_rows(moves: Iterable[PartitionMove]) -> Listing:
    return Listing(
        ("partition", "replicas", "goes to"),
        [(f"{m.topic}-{m.partition}", m.replicas or None, m.target) for m in moves],
    )


def effects_of_seek(
    group: str, before: Mapping[TopicPartition, int], wanted: Mapping[TopicPartition, int]
) -> list[str]:
    """Return a sentence for each partition. before: of those with a committed offset."""
    lines = []
    for tp, at in wanted.items():
        if tp not in before:
            lines.append(f"{tp}: {group} gets the offset {at}; it has none now")
        elif at == before[tp]:
            lines.append(f"{tp}: {group} stays at {at}")
        else:
            step = at - before[tp]
            word = "skips" if step > 0 else "reads again"
            records = plural(abs(step), "record")
            lines.append(f"{tp}: {group} goes from {before[tp]} to {at} and {word} {records}")
    return lines


def told_rule(rule: PermissionRule) -> str:
    verb = "may not" if rule.deny else "may"
    name = f"each {rule.kind}" if rule.name == "*" else f"{rule.kind} {rule.name}".strip()
    if rule.prefix:
        name = f"each {rule.kind} whose name begins with {rule.name!r}"
    who = "every authenticated caller" if rule.principal == "*" else rule.principal
    operations = ["do everything with" if one == "*" else one for one in rule.operations]
    return f"{who} {verb} {', '.join(operations)} {name}"

"""Quotas as part of the metadata: read from the wire, altered, written. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.metadata.topics import INVALID_REQUEST, Rejected, invalid
from cluster.security.quotas import MAX_QUOTAS, NAMES, QuotaRow, fault
from cluster.v1 import metadata_pb2 as pb
from oncelog.v1 import security_pb2 as spb


def altered_quotas(quotas: tuple[QuotaRow, ...], change: pb.AlterQuotas) -> tuple[QuotaRow, ...]:
    """Returns the altered quotas; the same object if nothing changed. Raises Rejected."""
    left = {(one.principal, one.name): one for one in quotas}
    for key in change.remove:
        for name in (key.name,) if key.name else NAMES:
            left.pop((key.principal, name), None)
    for raw in change.set:
        quota = read_quota(raw)
        if wrong := fault(quota):
            raise Rejected(INVALID_REQUEST, wrong)
        left[quota.principal, quota.name] = quota
    if len(left) > MAX_QUOTAS:
        raise invalid("set", f"there would be {len(left)} quotas, the limit is {MAX_QUOTAS}")
    after = tuple(sorted(left.values()))
    return quotas if after == quotas else after


def read_quota(raw: spb.Quota) -> QuotaRow:
    return QuotaRow(raw.principal, raw.name, raw.value)


def write_quota(quota: QuotaRow) -> spb.Quota:
    return spb.Quota(principal=quota.principal, name=quota.name, value=quota.value)


def read_quotas(raw: Sequence[spb.Quota]) -> tuple[QuotaRow, ...]:
    """Reads the quotas of a snapshot. Raises ValueError."""
    quotas = tuple(map(read_quota, raw))
    for quota in quotas:
        if wrong := fault(quota):
            raise ValueError(f"a quota's {wrong}")
    keys = [(quota.principal, quota.name) for quota in quotas]
    if keys != sorted(set(keys)) or len(quotas) > MAX_QUOTAS:
        raise ValueError(f"{len(quotas)} quotas that do not rise")
    return quotas

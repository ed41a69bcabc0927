"""Commands of docs/kubernetes.md name objects of the chart."""

from __future__ import annotations

import re

import pytest

from harness.node_process import ROOT

PAGE = (ROOT / "docs/kubernetes.md").read_text()
MADE = (ROOT / "tests/deploy/golden/default.yaml").read_text()
SECURED = (ROOT / "tests/deploy/golden/full.yaml").read_text()


def named(pattern: str) -> list[str]:
    """Return the names in the page's commands by the pattern, at least one."""
    typed = "\n".join(re.findall(r"^\$ kubectl .*", PAGE.replace("\\\n", " "), re.MULTILINE))
    found = sorted({*re.findall(pattern, typed)})
    assert found, f"no command of the page has {pattern}"
    return found


def objects(kind: str) -> list[str]:
    return re.findall(rf"^kind: {kind}\nmetadata:\n  name: (\S+)", MADE, re.MULTILINE)


def test_statefulset_and_pods() -> None:
    (name,) = objects("StatefulSet")
    assert named(r"statefulset[ /](\S+)") == [name]
    pods = named(r"(?:exec|delete pod|logs logs) (\S+)")
    assert {pod.rpartition("-")[0] for pod in pods} == {name}


def test_volumes() -> None:
    (claim,) = re.findall(r"volumeClaimTemplates:\n(?:.*\n){3}\s+name: (\S+)", MADE)
    (name,) = objects("StatefulSet")
    assert {one.rpartition("-")[0] for one in named(r"pvc (\S+)")} == {f"{claim}-{name}"}


def test_secrets() -> None:
    mounted = re.findall(r"secret:\n\s+name: (\S+)", SECURED)
    for secret in named(r"secret generic (\S+)"):
        assert secret in mounted


@pytest.mark.parametrize(
    "host", sorted({*re.findall(r"oncelog[-a-z0-9.]*\.svc\.[a-z.]+[a-z]", PAGE)})
)
def test_addresses(host: str) -> None:
    services = objects("Service")
    service = host.removesuffix(".logs.svc.cluster.local").rpartition(".")[2]
    assert service in services

"""The chart's objects before a real kube-apiserver, in a namespace that is *restricted*.

    cases/NAME.yaml --helm--> objects --dry run--> kube-apiserver --StatefulSet with defaults-->
    its pod --dry run--> kube-apiserver

Each check first finds a planted fault.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tests.deploy import charts
from tests.deploy.kubernetes import Refused, Server, make_namespace
from tests.deploy.tools import operators_resources
from tests.integration.waiting import eventually

NAMESPACE = "checked"
KINDS = ("prometheusrules", "servicemonitors")
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
# Faults planted in the objects of the case `full`, each with a part of the server's reason.
PLANTED = {
    ("podManagementPolicy: Parallel", "podManagementPolicy: Serial"): "must be 'OrderedReady'",
    ("minReadySeconds: 5", "minReadySecond: 5"): "unknown field",
    ("drop: [ALL]", "drop: [KILL]"): "violates PodSecurity",
    ("runAsNonRoot: true", "runAsNonRoot: false"): "violates PodSecurity",
    ("maxUnavailable: 1", "maxUnavailable: [1]"): "maxUnavailable",
    ("interval: 30s", "interval: soon"): "spec.endpoints[0].interval",
    ("severity: critical}", "severity: 1}"): "must be of type string",
    ("policyTypes: [Ingress]", "policyTypes: [Inside]"): "supported values",
}


def faults(server: Server) -> Iterator[str]:
    """Check the objects of all cases."""
    make_namespace(server, NAMESPACE)
    _define_operators(server)
    sound = charts.rendered(charts.FULL, NAMESPACE)
    for (old, new), reason in PLANTED.items():
        assert old in sound, f"{old} is not in the chart: plant another fault"
        refused = list(_refusals(server, sound.replace(old, new, 1)))
        if not any(reason in one for one in refused):
            yield f"the planted {new!r} is not refused with {reason!r}: {refused}"
    for case in charts.cases():
        server.warnings.clear()
        for fault in [*_refusals(server, charts.rendered(case, NAMESPACE)), *server.warnings]:
            yield f"{case.name}: {fault}"


def _refusals(server: Server, text: str) -> Iterator[str]:
    for body in text.split("\n---\n"):
        try:
            made = server.dry_run(NAMESPACE, body)
            if made["kind"] == "StatefulSet":
                server.ask(f"{PODS}?dryRun=All&fieldValidation=Strict", _pod(made))
        except Refused as error:
            yield f"{body.splitlines()[0]}: {error}"


def _pod(made: Any) -> Any:
    """Return the first pod, as the controller of StatefulSets makes it."""
    pod = copy.deepcopy(made["spec"]["template"])
    name = f"{made['metadata']['name']}-1"
    pod["metadata"] |= {"name": name}
    pod["metadata"]["labels"] |= {"apps.kubernetes.io/pod-index": "1"}
    claims = made["spec"]["volumeClaimTemplates"]
    pod["spec"]["volumes"] += [
        {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}"}}
        for claim in (one["metadata"]["name"] for one in claims)
    ]
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def _define_operators(server: Server) -> None:
    priority = {"metadata": {"name": "important"}, "value": 1000}  # of the case `full`
    server.ask("/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for path in operators_resources():
        if path.stem.endswith(KINDS):
            server.ask(definitions, path.read_text(encoding="utf-8"))
    for kind in KINDS:
        at = f"/apis/monitoring.coreos.com/v1/namespaces/default/{kind}"
        eventually(lambda at=at: _is_served(server, at), f"{at} is served")  # type: ignore[misc]


def _is_served(server: Server, path: str) -> bool:
    try:
        server.ask(path)
    except Refused:
        return False
    return True

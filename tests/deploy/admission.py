"""The chart's objects before a real kube-apiserver, in a namespace that is *restricted*.

    golden/NAME.yaml --dry run--> kube-apiserver --StatefulSet with defaults--> its pod --dry run-->

Each check first finds a planted fault.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

from harness.local_cluster import LOOK_AGAIN
from tests.deploy import charts
from tests.deploy.kubernetes import TIMEOUT, Refused, Server, apiserver
from tests.deploy.tools import operators_resources

NAMESPACE = charts.NAMESPACE
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


def faults() -> Iterator[str]:
    """Check the objects of all cases."""
    with apiserver() as server:
        _prepare(server)
        sound = charts.rendered(charts.FULL)
        for (old, new), reason in PLANTED.items():
            assert old in sound, f"{old} is not in the chart: plant another fault"
            refused = list(_refusals(server, sound.replace(old, new, 1)))
            if not any(reason in one for one in refused):
                yield f"the planted {new!r} is not refused with {reason!r}: {refused}"
        for case in charts.cases():
            server.warnings.clear()
            for fault in [*_refusals(server, charts.rendered(case)), *server.warnings]:
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


def _prepare(server: Server) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted",
              "pod-security.kubernetes.io/warn": "restricted"}  # fmt: skip
    namespace = {"metadata": {"name": NAMESPACE, "labels": labels}}
    server.ask("/api/v1/namespaces", namespace)
    # No controller makes it here.
    account = {"metadata": {"name": "default"}}
    server.ask(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
    priority = {"metadata": {"name": "important"}, "value": 1000}  # of the case `full`
    server.ask("/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for path in operators_resources():
        server.ask(definitions, path.read_text(encoding="utf-8"))
    served = "/apis/monitoring.coreos.com/v1/namespaces/default/prometheusrules"
    for each in (served, served.replace("prometheusrules", "servicemonitors")):
        _until(lambda each=each: server.ask(each), f"{each} is served")  # type: ignore[misc]


def _until(ask: Callable[[], object], what: str) -> None:
    """Ask until it is not refused. Raises RuntimeError."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        try:
            ask()
        except Refused:
            time.sleep(LOOK_AGAIN)
        else:
            return
    raise RuntimeError(f"not so after {TIMEOUT} s: {what}")

"""A real kube-apiserver over a real etcd, on loopback, without kubelets.

etcd <-- kube-apiserver <--objects in YAML or JSON-- Server --> what it stores
"""

from __future__ import annotations

import json
import re
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from harness.local_cluster import LOOK_AGAIN
from harness.ports import free_ports
from tests.deploy.tools import tool

TOKEN = "tests"
TIMEOUT = 120.0  # seconds until it serves, on a busy machine
_FIELD = re.compile(r"^(apiVersion|kind): (\S+)$", re.MULTILINE)
# Paths of the kinds that a chart of ours has, below the namespace.
PLURALS = {
    "NetworkPolicy": "networkpolicies",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "PrometheusRule": "prometheusrules",
    "Service": "services",
    "ServiceMonitor": "servicemonitors",
    "StatefulSet": "statefulsets",
}


class Refused(Exception):
    """The server's reason."""


class Server:
    """Client of the server, which lets everybody do everything."""

    def __init__(self, address: str, certificate: Path) -> None:
        self.address = address
        self.certificate = certificate
        self.warnings: list[str] = []
        self._context = ssl.create_default_context(cafile=str(certificate))

    def ask(
        self,
        path: str,
        body: str | Mapping[str, Any] | None = None,
        *,
        method: str | None = None,
        kind: str = "",
    ) -> Any:
        """Get a path, or post an object there. Raises Refused, OSError.

        kind: media type of the body, if it is neither YAML text nor JSON.
        """
        text = body if isinstance(body, str) else json.dumps(body)
        headers = {
            "Content-Type": kind or f"application/{'yaml' if body is text else 'json'}",
            "Accept": "application/json",
            "Authorization": f"Bearer {TOKEN}",
        }
        data = None if body is None else text.encode()
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=TIMEOUT) as answer:
                self.warnings += answer.headers.get_all("Warning") or []
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise Refused(error.read().decode()) from error

    def dry_run(self, namespace: str, body: str) -> Any:
        """Have the server check an object without storing it; returns it with its defaults."""
        found = dict(_FIELD.findall(body))
        version, plural = found["apiVersion"], PLURALS[found["kind"]]
        group = f"/apis/{version}" if "/" in version else f"/api/{version}"
        path = f"{group}/namespaces/{namespace}/{plural}"
        return self.ask(f"{path}?dryRun=All&fieldValidation=Strict", body)


def make_namespace(server: Server, name: str) -> None:
    """Make a *restricted* namespace, with the account that a controller makes elsewhere."""
    level = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    server.ask("/api/v1/namespaces", {"metadata": {"name": name, "labels": level}})
    account = {"metadata": {"name": "default"}}
    server.ask(f"/api/v1/namespaces/{name}/serviceaccounts", account)


@contextmanager
def apiserver() -> Iterator[Server]:
    """Run both for the body."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        clients, peers, port = free_ports(3)
        stored = f"http://127.0.0.1:{clients}"
        others = f"http://127.0.0.1:{peers}"
        etcd = [
            tool("etcd"), "--data-dir", folder / "etcd",
            "--listen-client-urls", stored, "--advertise-client-urls", stored,
            "--listen-peer-urls", others, "--initial-advertise-peer-urls", others,
            "--initial-cluster", f"default={others}",
        ]  # fmt: skip
        key = folder / "accounts.key"
        pem = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
        )
        key.write_bytes(pem)
        tokens = folder / "tokens.csv"
        tokens.write_text(f"{TOKEN},tester,1\n")
        server = [
            tool("kube-apiserver"), "--etcd-servers", stored,
            "--bind-address", "127.0.0.1", "--secure-port", str(port),
            "--cert-dir", folder / "certs", "--endpoint-reconciler-type", "none",
            "--authorization-mode", "AlwaysAllow", "--token-auth-file", tokens,
            "--service-cluster-ip-range", "10.0.0.0/24", "--service-account-issuer", "https://oncelog",
            "--service-account-key-file", key, "--service-account-signing-key-file", key,
        ]  # fmt: skip
        logs = [folder / "etcd.log", folder / "apiserver.log"]
        processes = []
        for command, log in zip((etcd, server), logs, strict=True):
            with log.open("wb") as output:
                words = [str(word) for word in command]
                process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        yield _ready(processes[1], f"https://127.0.0.1:{port}", folder / "certs", logs[1])


def _ready(process: subprocess.Popen[bytes], address: str, certs: Path, log: Path) -> Server:
    """Wait until the server serves. Raises RuntimeError with the end of its log."""
    end = time.monotonic() + TIMEOUT
    certificate = certs / "apiserver.crt"
    while process.poll() is None and time.monotonic() < end:
        if certificate.exists():
            try:
                server = Server(address, certificate)
                server.ask("/api/v1/namespaces/default")
            except (OSError, Refused):
                pass  # it starts
            else:
                return server
        time.sleep(LOOK_AGAIN)
    raise RuntimeError(f"kube-apiserver does not serve\n{log.read_text()[-3000:]}")

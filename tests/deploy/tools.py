"""Programs of the tests of the Helm chart, built from Go modules once for all trees of a user.

tests/deploy/go/go.mod --go build--> helm, etcd, kube-apiserver, controller-gen --> CRDs
    tests/deploy/go/controller ------> the controller of StatefulSets
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

MODULE = Path(__file__).parent / "go"
PACKAGES = {
    "helm": "helm.sh/helm/v4/cmd/helm",
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "controller": "./controller",
    "controller-gen": "sigs.k8s.io/controller-tools/cmd/controller-gen",
}
OPERATOR = "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
# Compiling takes longer than running: no optimisation, no facts for a debugger, no collection of
# garbage by the compiler. It takes a fifth less time of the processor.
CHEAP = "-gcflags=all=-N -l -dwarf=false"
ENVIRONMENT = {"CGO_ENABLED": "0", "GOGC": "off", "GOMEMLIMIT": "2GiB"}
MISSING = 77  # exit code if a program cannot be built: no Go, say, or no registry


def all_are_built() -> bool:
    """Tell whether nothing has to be compiled."""
    return all((_folder() / name).exists() for name in (*PACKAGES, "crds"))


def build_all() -> None:
    """Build what is not built. Ends the run with MISSING if it cannot be."""
    for name in PACKAGES:
        tool(name)
    operators_resources()


def tool(name: str) -> Path:
    """Return the program. Ends the run with MISSING if it cannot be built."""
    path = _folder() / name
    if not path.exists():
        if shutil.which("go") is None:
            print("deploy-test: missing: go", file=sys.stderr)
            sys.exit(MISSING)
        print(f"builds {name}, once", flush=True)
        new = path.with_suffix(f".{os.getpid()}")
        flags = (CHEAP, f"-ldflags=-s -w {_version()}")
        run("go", "build", "-trimpath", *flags, "-o", new, PACKAGES[name])
        new.replace(path)
    return path


def operators_resources() -> list[Path]:
    """Return the definitions of ServiceMonitor, PrometheusRule and others, from their types."""
    folder = _folder() / "crds"
    if not folder.exists():
        new = folder.with_suffix(f".{os.getpid()}")
        run(tool("controller-gen"), "crd", f"paths={OPERATOR}", f"output:crd:dir={new}")
        try:
            new.replace(folder)
        except OSError:
            if not folder.exists():
                raise
            shutil.rmtree(new)  # another run was faster
    return sorted(folder.glob("*.yaml"))


def _version() -> str:
    """Return the linker's flag for Kubernetes' version: a release build sets it, and charts ask."""
    found = re.search(r"k8s\.io/kubernetes (v\S+)", (MODULE / "go.mod").read_text())
    assert found is not None
    return f"-X k8s.io/component-base/version.gitVersion={found[1]}"


def _folder() -> Path:
    sources = [MODULE / one for one in ("go.mod", "go.sum", "controller/main.go")]
    flags = repr((PACKAGES, OPERATOR, CHEAP, ENVIRONMENT)).encode()
    built_from = b"".join((*(one.read_bytes() for one in sources), flags))
    versions = hashlib.sha256(built_from).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "oncelog" / "deploy-tools" / versions
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(*command: str | Path) -> None:
    """Run one step of a build. Ends the run with MISSING if it fails."""
    words = [str(word) for word in command]
    env = {**os.environ, **ENVIRONMENT}
    if subprocess.run(words, cwd=MODULE, env=env, check=False).returncode:
        print(f"deploy-test: {' '.join(words)} failed", file=sys.stderr)
        sys.exit(MISSING)

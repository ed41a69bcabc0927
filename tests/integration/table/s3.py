"""S3 server in a process of its own, behind a front that can lose an answer or refuse a request.

    python -m tests.integration.table.s3 FOLDER

prints the front's port. The server is versitygw where `scripts/s3-server` has built it, else moto,
which takes one request at a time. FOLDER/fault holds "lose" or "refuse" and a regular expression.
The first request with a matching "METHOD path" removes it. A lost one is carried out and gets 503,
a refused one is not and gets 403. Some calls of the tables' library keep Python from running, so
the server cannot be a thread.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from harness.local_cluster import LOOK_AGAIN
from harness.node_process import ROOT
from harness.ports import free_ports

BUCKET = "tables"
KEY, SECRET = "tests", "secret-of-the-tests"
MODULE, VERSION = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"
PROGRAM = ROOT / "data" / f"versitygw-{VERSION}" / "versitygw"
MISSING = 77  # exit code of a build without Go
START_S = 60.0


class S3Server:
    """The process. `environment`: variables by which every client finds it."""

    def __init__(self, folder: Path) -> None:
        self._fault = folder / "fault"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.table.s3", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def close(self) -> None:
        self._process.communicate()  # it ends with its input

    def lose(self, pattern: str) -> None:
        """Lose the answer to the next request that matches."""
        self._fault.write_text(f"lose {pattern}")

    def refuse(self, pattern: str) -> None:
        """Refuse the next request that matches, as after a change of permissions."""
        self._fault.write_text(f"refuse {pattern}")

    @property
    def has_failed(self) -> bool:
        return not self._fault.exists()


class Answer(NamedTuple):
    status: str
    headers: list[tuple[str, str]]
    body: bytes


Handler = Callable[[dict[str, Any]], Answer]


class _Front:
    def __init__(self, fault: Path, handler: Handler) -> None:
        self._fault = fault
        self._handler = handler
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        kind = self._due(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        answer = Answer("403 Forbidden", [("Content-Length", "0")], b"")
        if kind != "refuse":
            answer = self._handler(environ)
        if kind == "lose":
            answer = Answer("503 Service Unavailable", [("Content-Length", "0")], b"")
        start_response(answer.status, answer.headers)
        return [answer.body]

    def _due(self, request: str) -> str:
        with self._lock:
            if self._fault.exists():
                kind, pattern = self._fault.read_text().split(" ", 1)
                if re.search(pattern, request):
                    self._fault.unlink()
                    return kind
        return ""


@contextmanager
def _moto() -> Iterator[Handler]:
    import moto.s3.models
    import moto.server
    from moto.core import DEFAULT_ACCOUNT_ID

    app = moto.server.DomainDispatcherApplication(moto.server.create_backend_app)
    moto.s3.models.s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(BUCKET, "us-east-1")
    lock = threading.Lock()  # it looks, and puts then: two steps

    def handle(environ: dict[str, Any]) -> Answer:
        said: list[Any] = []
        with lock:
            body = b"".join(app(environ, lambda *head: said.append(head)))
        status, headers = said[0][:2]
        return Answer(status, headers, body)

    yield handle


@contextmanager
def _versitygw(folder: Path) -> Iterator[Handler]:
    objects, sidecar = folder / "objects", folder / "sidecar"
    (objects / BUCKET).mkdir(parents=True)
    sidecar.mkdir()
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [PROGRAM, "--port", f"127.0.0.1:{port}", "posix", "--sidecar", sidecar, objects],
        env={**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )

    def handle(environ: dict[str, Any]) -> Answer:
        names = {name: name.removeprefix("HTTP_").replace("_", "-") for name in environ}
        headers = {names[n]: v for n, v in environ.items() if n.startswith(("HTTP_", "CONTENT_"))}
        # Without a length it comes in chunks, which end by themselves.
        chunked = headers.pop("TRANSFER-ENCODING", None) is not None
        length = -1 if chunked else int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        headers.pop("EXPECT", None)  # the body is here
        with closing(HTTPConnection("127.0.0.1", port, timeout=START_S)) as connection:
            uri = environ["REQUEST_URI"]
            connection.request(environ["REQUEST_METHOD"], uri, body or None, headers)
            got = connection.getresponse()
            kept = [one for one in got.getheaders() if one[0] not in ("Transfer-Encoding", "Date")]
            return Answer(f"{got.status} {got.reason}", kept, got.read())

    try:
        _wait_for(port, process)
        yield handle
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with socket.socket() as trial:
            if not trial.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(LOOK_AGAIN)
    raise SystemExit(f"versitygw ended with exit code {process.returncode}")


def serve(folder: Path) -> None:
    from werkzeug.serving import make_server

    with _versitygw(folder) if PROGRAM.exists() else _moto() as handler:
        server = make_server("127.0.0.1", 0, _Front(folder / "fault", handler), threaded=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.port, flush=True)
        sys.stdin.read()  # until the test has gone


def build() -> int:
    """Build versitygw, once."""
    if shutil.which("go") is None:
        print("s3-server: missing: go; the tests take moto", file=sys.stderr)
        return MISSING
    if not PROGRAM.exists():
        PROGRAM.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=PROGRAM.parent) as folder:
            command = ["go", "install", f"{MODULE}@{VERSION}"]
            subprocess.run(command, env={**os.environ, "GOBIN": folder}, check=True)
            (Path(folder) / PROGRAM.name).rename(PROGRAM)
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--build":
        sys.exit(build())
    serve(Path(sys.argv[1]))

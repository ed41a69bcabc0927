"""S3 server in a process of its own: moto behind HTTP, one request at a time, with answers to lose.

    python -m tests.integration.table.s3 FILE

prints its port. FILE holds a regular expression. The first request with a matching "METHOD path" is
carried out, gets 503 as its only answer, and removes FILE. Some calls of the tables' library keep
Python from running, so the server cannot be a thread.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BUCKET = "tables"


class S3Server:
    """The process. `environment`: variables by which every client finds it."""

    def __init__(self, lose: Path) -> None:
        self._lose = lose
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.table.s3", str(lose)],
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
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def lose(self, pattern: str) -> None:
        """Lose the answer to the next request that matches."""
        self._lose.write_text(pattern)

    @property
    def has_lost(self) -> bool:
        return not self._lose.exists()


class _App:
    def __init__(self, lose: Path) -> None:
        import moto.server

        self._app = moto.server.DomainDispatcherApplication(moto.server.create_backend_app)
        self._lose = lose
        self._lock = threading.Lock()  # moto looks, and puts then: two steps

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        said: list[Any] = []
        with self._lock:
            body = b"".join(self._app(environ, lambda *head: said.append(head)))
            request = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"
            if self._lose.exists() and re.search(self._lose.read_text(), request):
                self._lose.unlink()
                start_response("503 Service Unavailable", [("Content-Length", "0")])
                return [b""]
        start_response(*said[0][:2])
        return [body]


def main() -> None:
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, _App(Path(sys.argv[1])), threaded=True)
    print(server.port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()  # until the test has gone


if __name__ == "__main__":
    main()

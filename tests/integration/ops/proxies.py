"""A real nginx with TLS in front of a console, set up as the docs say."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.ops.packages import installed

DOCS = Path(__file__).parents[3] / "docs" / "console.md"
PATIENCE = 60.0


@contextmanager
def proxy(root: Path, port: int, console: int, certificates: Path) -> Iterator[None]:
    """Serve https://127.0.0.1:PORT from a console's port on loopback."""
    root.mkdir()
    (server,) = re.findall("```nginx\n(.*?)```", DOCS.read_text(), re.DOTALL)
    for given, here in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/nginx/console.crt", str(certificates / "tls.crt")),
        ("/etc/nginx/console.key", str(certificates / "tls.key")),
        ("http://127.0.0.1:8470", f"http://127.0.0.1:{console}"),
    ):
        assert given in server
        server = server.replace(given, here)
    config, pid = root / "nginx.conf", root / "pid"
    config.write_text(
        f"pid {pid};\nerror_log {root}/errors;\nevents {{}}\n"
        f"http {{\naccess_log off;\nclient_body_temp_path {root}/body;\n{server}}}\n"
    )
    command = [installed("nginx", "nginx-light"), "-p", str(root), "-c", str(config)]
    subprocess.run(command, check=True, timeout=PATIENCE)  # it listens when this has ended
    try:
        yield
    finally:
        subprocess.run([*command, "-s", "stop"], check=True, timeout=PATIENCE)

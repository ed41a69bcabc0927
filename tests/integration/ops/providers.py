"""A real OpenID provider, the npm package oidc-provider, in a process of its own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

from tests.integration.ops.consoles import Answer, Person
from tests.integration.ops.packages import INSTALL_S, installed

PATIENCE = 60.0
FILES = Path(__file__).parent / "provider"
INSTALLED = Path(__file__).parents[3] / "build" / "test-provider"


def script() -> Path:
    """Return the provider's script beside its packages; installs them the first time."""
    npm = installed("npm", "npm")
    INSTALLED.mkdir(parents=True, exist_ok=True)
    stamp, lock = INSTALLED / "installed.json", (FILES / "package-lock.json").read_text()
    for file in FILES.iterdir():
        shutil.copy(file, INSTALLED)
    if not stamp.exists() or stamp.read_text() != lock:
        command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        subprocess.run(command, cwd=INSTALLED, check=True, timeout=INSTALL_S)
        stamp.write_text(lock)
    return INSTALLED / "provider.mjs"


class Provider:
    """One provider; `register` tells it the consoles that it serves."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.issuer = self._line()

    def register(self, links: Mapping[str, str], lives: Mapping[str, int]) -> None:
        """Make each console a client. Names that end in "-once" get no refresh token."""
        clients = []
        for name, link in links.items():
            origin = "{0.scheme}://{0.netloc}".format(urlsplit(link))
            refreshes = [] if name.endswith("-once") else ["refresh_token"]
            secret = SECRETS.get(name)
            clients.append({
                "client_id": name,
                "redirect_uris": [f"{origin}/oidc/callback"],
                "post_logout_redirect_uris": [f"{origin}/enter"],
                "grant_types": ["authorization_code", *refreshes],
                "token_endpoint_auth_method": "client_secret_basic" if secret else "none",
                **({"client_secret": secret} if secret else {}),
            })  # fmt: skip
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"clients": clients, "lives": lives}) + "\n")
        self._process.stdin.flush()
        assert self._line() == "ready"

    def granted(self, kind: str, client: str) -> int:
        """Return how often it has granted tokens of this kind."""
        return int(self.get("/granted").get(f"{kind} {client}", 0))

    def get(self, path: str) -> dict[str, Any]:
        with urlopen(self.issuer + path, timeout=PATIENCE) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


# Of clients that have one. Its letters must be quoted where they are sent.
SECRETS = {"console": "a secret: with %+/ letters, and thirty-two of them"}


@contextmanager
def provider() -> Iterator[Provider]:
    command = ["node", str(script())]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield Provider(process)
    finally:
        process.terminate()
        process.wait(PATIENCE)


def submit(person: Person, page: Answer, **fields: str) -> Answer:
    """Send the form of a provider's page."""
    action = re.findall(r'<form[^>]* action="([^"]+)"', page.html)
    assert len(action) == 1, page.html
    hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.html))
    return person.post(urljoin(page.url, action[0]), **{**hidden, **fields})


def consented(person: Person, name: str, start: str = "/oidc/login") -> Answer:
    """Log in at the provider and consent; return the page after that."""
    return submit(person, submit(person, person.get(start), login=name, password="any"))

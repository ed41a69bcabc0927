"""Fuzzed proofs of identity: certificates and tokens, as anybody may send them."""

from __future__ import annotations

import asyncio
import json
import tempfile
from functools import cache
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from cluster.security.identities import Identities, UnknownCallerError
from cluster.security.jwks import FileKeys
from cluster.security.jwts import Jwts
from cluster.security.names import NamelessError, nodes_of, principal_of
from cluster.security.tokens import StaticTokens
from harness.certificates import Authority, dns, uri


def _says_why(error: Exception) -> None:
    assert str(error)


def certificate(data: bytes) -> None:
    """Checks the name in a certificate: it is matched byte for byte, so it is printable ASCII."""
    try:
        name = principal_of(data)
        assert name.isascii() and name.isprintable() and not name.startswith("oncelog:")
    except NamelessError as error:
        _says_why(error)
    try:
        assert min(nodes_of(data, "c")) > 0
    except NamelessError as error:
        _says_why(error)


@cache
def certificates() -> list[bytes]:
    authority = Authority()
    names = [[uri("oncelog://c/node/1")], [uri("spiffe://example.org/a")], [dns("a.b")], []]
    return [authority.issue(some).der for some in names]


@cache
def _known() -> tuple[Identities, str]:
    """Builds the checker of tokens, and a sound token."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = jwt.get_algorithm_by_name("ES256").to_jwk(key.public_key(), as_dict=True)
    with tempfile.TemporaryDirectory() as directory:
        keys, tokens = Path(directory) / "keys", Path(directory) / "tokens"
        keys.write_text(json.dumps({"keys": [{**public, "kid": "k"}]}))
        tokens.write_text("")
        known = Identities(StaticTokens(tokens), Jwts(FileKeys(keys), "i", "a"))
    claims = {"iss": "i", "aud": "a", "sub": "s", "exp": 10**10}
    return known, jwt.encode(claims, key, "ES256", headers={"kid": "k"})


def known() -> Identities:
    """Identities of a provider and of no static token."""
    return _known()[0]


def token(data: bytes) -> None:
    """Checks that only the sound token is accepted, in any spelling of its own."""
    known, sound = _known()
    text = data.decode("latin-1")
    try:
        caller = asyncio.run(known.caller(text, b""))
    except UnknownCallerError as error:
        _says_why(error)
    else:
        assert caller.principal == "jwt:s"
        head, claims, _ = text[len("Bearer ") :].strip().split(".")
        assert sound.startswith(f"{head}.{claims}.")


def tokens() -> list[bytes]:
    sound = _known()[1]
    return [f"Bearer {sound}".encode(), b"Bearer oncelog.a.b", b"Bearer a.b.c", b"Basic eA=="]

"""Identities: names in certificates, static tokens, JWTs; and look-alikes of each."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cluster.errors import ConfigError
from cluster.security import tokens
from cluster.security.identities import Identities, UnknownCallerError
from cluster.security.jwks import FileKeys
from cluster.security.jwts import Jwts
from cluster.security.names import NamelessError, principal_of
from cluster.security.tokens import StaticTokens, TokenError
from harness.certificates import Authority, dns, uri

ISSUER, AUDIENCE = "https://issuer.test", "oncelog"

# -- names ----------------------------------------------------------------------------------

AUTHORITY = Authority()


@pytest.mark.parametrize(
    ("names", "principal"),
    [
        ([uri("spiffe://example.org/billing")], "spiffe://example.org/billing"),
        ([dns("billing.example.org")], "dns:billing.example.org"),
        ([uri("spiffe://example.org/a"), dns("billing")], "spiffe://example.org/a"),
    ],
)
def test_a_name_is_the_principal(names: list[x509.GeneralName], principal: str) -> None:
    assert principal_of(AUTHORITY.issue(names).der) == principal


LOOK_ALIKES: dict[str, list[x509.GeneralName]] = {
    "only a common name": [],
    "a wildcard": [dns("*.example.org")],
    "upper case": [dns("Billing.example.org")],
    "a NUL": [dns("billing\0.evil.org")],
    "a NUL in a URI": [uri("spiffe://example.org/billing\0")],
    "a percent sign": [uri("spiffe://example.org/%62illing")],
    "a user in the URI": [uri("spiffe://example.org@evil.org/billing")],
    "an upper-case scheme": [uri("SPIFFE://example.org/billing")],
    "two URIs": [uri("spiffe://example.org/a"), uri("spiffe://example.org/billing")],
    "two hosts": [dns("a"), dns("billing")],
    "a node": [uri("oncelog://c/node/1")],
    "an address": [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))],
    "a mail address": [x509.RFC822Name("billing@example.org")],
    "a long name": [uri("spiffe://example.org/" + "a" * 300)],
}


@pytest.mark.parametrize("what", LOOK_ALIKES)
def test_what_only_looks_like_a_name_is_nobodys(what: str) -> None:
    certificate = AUTHORITY.issue(LOOK_ALIKES[what], common_name="spiffe://example.org/billing")
    with pytest.raises(NamelessError):
        principal_of(certificate.der)


# -- static tokens --------------------------------------------------------------------------


def line(name: str, secret: str, n: int = 4096) -> str:
    digest = hashlib.scrypt(secret.encode(), salt=b"s" * 16, n=n, r=8, p=1, dklen=32)
    return f"{name} scrypt:{n}:8:1:{(b's' * 16).hex()}:{digest.hex()}\n"


async def test_static_tokens_are_their_names(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("# comment\n" + line("billing", "secret") + line("other", "word"))
    known = Identities(StaticTokens(path), None)
    for _ in range(2):  # the second time it is remembered
        caller = await known.caller("Bearer oncelog.billing.secret", b"")
        assert caller.principal == "token:billing"
    for wrong in ("oncelog.billing.word", "oncelog.other.secret", "oncelog.billing.",
                  "oncelog.nobody.secret", "oncelog.billing", "oncelog..secret"):  # fmt: skip
        with pytest.raises(UnknownCallerError, match="the token is not known"):
            await known.caller(f"Bearer {wrong}", b"")
    (tmp_path / "new").write_text(line("other", "word"))
    (tmp_path / "new").replace(path)
    with pytest.raises(UnknownCallerError, match="the token is not known"):
        await known.caller("Bearer oncelog.billing.secret", b"")
    path.write_text("nonsense")  # being replaced: the old keys stay
    assert (await known.caller("bearer oncelog.other.word", b"")).principal == "token:other"


async def test_a_clients_first_calls_are_one_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, each was one, and beyond eight of them the client was told to wait."""
    path = tmp_path / "tokens"
    path.write_text(line("billing", "secret"))
    checked: list[bytes] = []
    scrypt = tokens._scrypt

    def counted(secret: bytes, stored: Any) -> bytes:
        checked.append(secret)
        return scrypt(secret, stored)

    monkeypatch.setattr(tokens, "_scrypt", counted)
    known = StaticTokens(path)
    calls = [known.principal("oncelog.billing.secret") for _ in range(100)]
    assert set(await asyncio.gather(*calls)) == {"token:billing"}
    wrong = [known.principal("oncelog.billing.word") for _ in range(100)]
    refused = await asyncio.gather(*wrong, return_exceptions=True)
    assert {type(one) for one in refused} == {TokenError}
    assert checked == [b"secret", b"word"]


@pytest.mark.parametrize(
    "text", ["billing secret", line("a", "b") * 2, line("a", "b").replace("4096", "16"),
             line("a", "b").replace("4096", "5000"), "billing plain:secret"],
)  # fmt: skip
def test_a_file_of_tokens_that_is_of_no_use_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(ConfigError, match="tokens_file: ") as raised:
        StaticTokens(path)
    assert "secret" not in str(raised.value)


async def test_a_token_that_is_of_no_use_is_not_forgiven_for_a_certificate(tmp_path: Path) -> None:
    certificate = AUTHORITY.issue([dns("billing")]).certificate
    known = Identities(None, None)
    assert (await known.caller("", certificate)).principal == "dns:billing"
    for header in ("Bearer oncelog.a.b", "Basic YTpi", "Bearer ", "x", "Bearer " + "a" * 9000):
        with pytest.raises(UnknownCallerError):
            await known.caller(header, certificate)
    with pytest.raises(UnknownCallerError, match="is needed"):
        await known.caller("", b"")
    with pytest.raises(UnknownCallerError, match="has 0 names"):
        await known.caller("", AUTHORITY.issue([x509.RFC822Name("a@b")]).certificate)


# -- JWT ------------------------------------------------------------------------------------


class Issuer:
    """Keys of several kinds, and any tokens a test wants of them."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[Any, str]] = {
            "ec": (ec.generate_private_key(ec.SECP256R1()), "ES256"),
            "rsa": (rsa.generate_private_key(65537, 2048), "RS256"),
            "ed": (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
        }

    def jwks(self) -> dict[str, Any]:
        listed = []
        for key_id, (key, algorithm) in self.keys.items():
            made = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
            listed.append({**made, "kid": key_id, "use": "sig"})
        return {"keys": listed}

    def claims(self, **claims: Any) -> dict[str, Any]:
        sound = {
            "iss": ISSUER, "aud": AUDIENCE, "sub": "billing", "exp": time.time() + 600,
        }  # fmt: skip
        return {name: value for name, value in (sound | claims).items() if value is not None}

    def token(self, kid: str = "ec", **claims: Any) -> str:
        key, algorithm = self.keys[kid]
        return jwt.encode(self.claims(**claims), key, algorithm, headers={"kid": kid})


ISSUED = Issuer()


@pytest.fixture
def jwts(tmp_path: Path) -> Jwts:
    path = tmp_path / "jwks"
    path.write_text(json.dumps(ISSUED.jwks()))
    return Jwts(FileKeys(path), ISSUER, AUDIENCE)


@pytest.mark.parametrize("kid", ["ec", "rsa", "ed"])
async def test_a_sound_token_is_its_subject(jwts: Jwts, kid: str) -> None:
    token = ISSUED.token(kid)
    caller = await Identities(None, jwts).caller(f"Bearer {token}", b"")
    assert await jwts.caller(token) is caller, "it is remembered"
    assert caller.principal == "jwt:billing"
    assert 600 < caller.expires - time.time() < 620
    assert (await jwts.caller(ISSUED.token(aud=["other", AUDIENCE]))).principal == "jwt:billing"


def handmade(header: dict[str, Any], claims: dict[str, Any], key: bytes) -> str:
    """Signed by HMAC, which no library here would do with a public key."""
    parts = [json.dumps(part).encode() for part in (header, claims)]
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    mac = base64.urlsafe_b64encode(hmac.digest(key, text, "sha256")).rstrip(b"=")
    return (text + b"." + mac).decode()


def public_pem(kid: str) -> bytes:
    key: Any = ISSUED.keys[kid][0].public_key()
    return bytes(key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


FORGED = {
    "no algorithm": lambda: jwt.encode(ISSUED.claims(), "", "none", headers={"kid": "ec"}),
    "HS256 with the public key": lambda: handmade(
        {"alg": "HS256", "typ": "JWT", "kid": "rsa"}, ISSUED.claims(), public_pem("rsa")
    ),
    "a key of the token's own": lambda: jwt.encode(
        ISSUED.claims(), ec.generate_private_key(ec.SECP256R1()), "ES256", headers={"kid": "ec"}
    ),
    "a key of another issuer": lambda: jwt.encode(
        ISSUED.claims(), ISSUED.keys["ec"][0], "ES256", headers={"kid": "theirs"}
    ),
    "no key named": lambda: jwt.encode(ISSUED.claims(), ISSUED.keys["ec"][0], "ES256"),
    "another key's name": lambda: jwt.encode(
        ISSUED.claims(), ISSUED.keys["ec"][0], "ES256", headers={"kid": "rsa"}
    ),
    "a key in the header": lambda: jwt.encode(
        ISSUED.claims(), ISSUED.keys["ec"][0], "ES256",
        headers={"kid": "x", "jwk": ISSUED.jwks()["keys"][0]},
    ),
    "a URL of keys in the header": lambda: jwt.encode(
        ISSUED.claims(), ISSUED.keys["ec"][0], "ES256",
        headers={"kid": "x", "jku": "file:///etc/passwd", "x5u": "http://127.0.0.1:1/"},
    ),
    "expired": lambda: ISSUED.token(exp=time.time() - 60),
    "not yet valid": lambda: ISSUED.token(nbf=time.time() + 60),
    "never expires": lambda: ISSUED.token(exp=None),
    "for somebody else": lambda: ISSUED.token(aud="other"),
    "for nobody": lambda: ISSUED.token(aud=None),
    "of another issuer": lambda: ISSUED.token(iss="https://evil.test"),
    "of no issuer": lambda: ISSUED.token(iss=None),
    "without a subject": lambda: ISSUED.token(sub=None),
    "an empty subject": lambda: ISSUED.token(sub=""),
    "a subject with a NUL": lambda: ISSUED.token(sub="billing\0"),
    "no token": lambda: "a.b.c",
    "a changed subject": lambda: _changed(ISSUED.token(sub="mallory")),
}  # fmt: skip


def _changed(token: str) -> str:
    head, _, mac = token.split(".")
    claims = base64.urlsafe_b64encode(json.dumps(ISSUED.claims()).encode()).rstrip(b"=").decode()
    return f"{head}.{claims}.{mac}"


@pytest.mark.parametrize("what", FORGED)
async def test_forged_tokens_are_nobodys(jwts: Jwts, what: str) -> None:
    with pytest.raises(UnknownCallerError, match="authorization: "):
        await Identities(None, jwts).caller(f"Bearer {FORGED[what]()}", b"")


def test_the_check_is_what_refuses_them() -> None:
    """The attacks are real: without checks a library takes them all."""
    taken = 0
    for make in FORGED.values():
        try:
            jwt.decode(make(), options={"verify_signature": False})
            taken += 1
        except jwt.PyJWTError:
            pass
    assert taken >= len(FORGED) - 3


async def test_keys_are_replaced_while_the_node_runs(jwts: Jwts, tmp_path: Path) -> None:
    old, new = ISSUED.token("rsa"), Issuer()
    assert (await jwts.caller(old)).principal == "jwt:billing"
    (tmp_path / "new").write_text(json.dumps({"keys": new.jwks()["keys"][:1]}))
    (tmp_path / "new").replace(tmp_path / "jwks")
    with pytest.raises(TokenError, match="not one of the issuer's"):
        await jwts.caller(old)
    assert (await jwts.caller(new.token("ec"))).principal == "jwt:billing"
    unnamed = jwt.encode(new.claims(), new.keys["ec"][0], "ES256")
    assert (await jwts.caller(unnamed)).principal == "jwt:billing", "one key needs no name"


@pytest.mark.parametrize(
    "keys",
    [
        "nonsense", "{}", '{"keys": []}', '{"keys": [1]}', '{"keys": 1}',
        '{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "a"}]}',
        '{"keys": [{"kty": "RSA", "alg": "HS256", "kid": "a"}]}',
    ],
)  # fmt: skip
def test_a_set_of_keys_that_is_of_no_use_is_refused(tmp_path: Path, keys: str) -> None:
    path = tmp_path / "jwks"
    path.write_text(keys)
    with pytest.raises(ConfigError, match="jwt_keys: "):
        FileKeys(path)

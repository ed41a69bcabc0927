"""Bytes of SASL: the token in a client's first and only message. Pure.

    Login --mechanism, bytes--> read --> a token, or SaslError

    PLAIN          RFC 4616: [authzid] NUL "token" NUL the token
    OAUTHBEARER    RFC 7628: n,[a=authzid], ^A auth=Bearer the token ^A ^A

Both carry a token of `cluster/security/identities.py`, so a mechanism is a form of bytes and not
another identity. A client's bytes are anybody's: nothing of them is in an error.
"""

from __future__ import annotations

from typing import NamedTuple

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MECHANISMS = (OAUTHBEARER, PLAIN)
USER = "token"  # of PLAIN: the password says who it is
_SEPARATOR = "\x01"
_AUTH = "auth="


class SaslError(Exception):
    """Bytes that are no message of their mechanism; the text gives the reason."""


class Proof(NamedTuple):
    """authorization: as in HTTP's header. authzid: the principal that it must be; empty: any."""

    authorization: str
    authzid: str


def read(mechanism: str, data: bytes) -> Proof:
    """Read a client's message. Raises SaslError."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise SaslError(f"{mechanism}: the message is not UTF-8") from None
    return _plain(text) if mechanism == PLAIN else _oauthbearer(text)


def _plain(text: str) -> Proof:
    parts = text.split("\0")
    if len(parts) != 3:
        raise SaslError("PLAIN: the message is not [authzid] NUL user NUL password")
    authzid, user, password = parts
    if user != USER or authzid not in ("", USER):
        raise SaslError(f"PLAIN: the user must be {USER!r}, and the password a token")
    return Proof(f"Bearer {password}", "")


def _oauthbearer(text: str) -> Proof:
    head, *pairs = text.split(_SEPARATOR)
    parts = head.split(",")
    # The header is n (or y), an authzid, and a comma; the pairs end with an empty one.
    if len(parts) != 3 or parts[0] not in ("n", "y") or parts[2] or pairs[-2:] != ["", ""]:
        raise SaslError("OAUTHBEARER: the message is not n,[a=authzid], and pairs that end in ^A")
    name, _, authzid = parts[1].partition("=")
    if parts[1] and (name != "a" or not authzid):
        raise SaslError("OAUTHBEARER: the header names something else than an authzid")
    found = [pair.removeprefix(_AUTH) for pair in pairs if pair.startswith(_AUTH)]
    if len(found) != 1:
        raise SaslError(f"OAUTHBEARER: {len(found)} pairs are auth, and one must be")
    return Proof(found[0], authzid.replace("=2C", ",").replace("=3D", "="))

"""The bytes of SASL: sound messages, and look-alikes."""

from __future__ import annotations

import pytest

from cluster.kafka.sasl import OAUTHBEARER, PLAIN, SaslError, read

SOUND = [
    (PLAIN, b"\0token\0a.b.c", ("Bearer a.b.c", "")),
    (PLAIN, b"token\0token\0a.b.c", ("Bearer a.b.c", "")),
    (OAUTHBEARER, b"n,,\x01auth=Bearer a.b.c\x01\x01", ("Bearer a.b.c", "")),
    (OAUTHBEARER, b"y,,\x01auth=bearer a.b.c\x01\x01", ("bearer a.b.c", "")),
    (OAUTHBEARER, b"n,a=jwt:me,\x01auth=Bearer a\x01\x01", ("Bearer a", "jwt:me")),
    (OAUTHBEARER, b"n,a=x=2Cy=3Dz,\x01auth=Bearer a\x01\x01", ("Bearer a", "x,y=z")),
    (OAUTHBEARER, b"n,,\x01host=h\x01auth=Bearer a\x01traceId=7\x01\x01", ("Bearer a", "")),
]
UNSOUND = [
    (PLAIN, b""),
    (PLAIN, b"token\0secret"),
    (PLAIN, b"\0token\0a\0b"),
    (PLAIN, b"\0alice\0a.b.c"),
    (PLAIN, b"alice\0token\0a.b.c"),
    (PLAIN, b"\0token\0\xff"),
    (OAUTHBEARER, b""),
    (OAUTHBEARER, b"\x01"),
    (OAUTHBEARER, b"n,,\x01auth=Bearer a"),
    (OAUTHBEARER, b"n,,\x01auth=Bearer a\x01"),
    (OAUTHBEARER, b"n,,\x01\x01"),
    (OAUTHBEARER, b"n,,auth=Bearer a\x01\x01"),
    (OAUTHBEARER, b"p=tls-unique,,\x01auth=Bearer a\x01\x01"),
    (OAUTHBEARER, b"n,b=c,\x01auth=Bearer a\x01\x01"),
    (OAUTHBEARER, b"n,a=,\x01auth=Bearer a\x01\x01"),
    (OAUTHBEARER, b"n,,x\x01auth=Bearer a\x01\x01"),
    (OAUTHBEARER, b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01"),
    (OAUTHBEARER, b"\0token\0a.b.c"),
]


@pytest.mark.parametrize(("mechanism", "data", "wanted"), SOUND)
def test_a_token_is_found(mechanism: str, data: bytes, wanted: tuple[str, str]) -> None:
    assert tuple(read(mechanism, data)) == wanted


@pytest.mark.parametrize(("mechanism", "data"), UNSOUND)
def test_other_bytes_are_refused_and_not_repeated(mechanism: str, data: bytes) -> None:
    with pytest.raises(SaslError) as raised:
        read(mechanism, data)
    assert mechanism in str(raised.value)
    assert "a.b.c" not in str(raised.value) and "Bearer" not in str(raised.value)

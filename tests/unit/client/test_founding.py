"""A client keeps the first founding that an answer names."""

from __future__ import annotations

import pytest

from oncelog._engine.net.founding import ClientFounding
from oncelog.errors import OtherClusterError
from oncelog.wire.foundings import KEY, founding_text, named_founding


def test_the_first_founding_counts() -> None:
    """Two first calls may be on their way at once, to nodes of two clusters."""
    founding = ClientFounding()
    founding.learn("old:7001", ())
    assert not founding.metadata
    first, second = ((KEY, founding_text(number)) for number in (7, 2**63 - 1))
    founding.learn("a:7001", [("other", "x"), first])
    founding.learn("a:7001", [first])
    with pytest.raises(OtherClusterError, match=rf"b:7001 .*{second[1]}.*{first[1]}"):
        founding.learn("b:7001", [second])
    assert founding.known == named_founding(founding.metadata) == first[1]

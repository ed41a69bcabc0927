"""Values of topics' settings under Kafka's names."""

from __future__ import annotations

import pytest

from cluster.kafka import configs
from cluster.kafka.errors import InvalidConfigError


@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes", "max.message.bytes"])
@pytest.mark.parametrize("value", [str(2**64), str(-(2**64)), "9" * 5000, "1.5", ""])
def test_a_value_out_of_range_is_an_error_of_the_setting(name: str, value: str) -> None:
    """Anything else ends the client's connection."""
    with pytest.raises(InvalidConfigError, match=f"^{name}: "):
        configs.created({name: value})

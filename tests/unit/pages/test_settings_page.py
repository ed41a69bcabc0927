"""Settings: each has a text in its class's docstring, and the page shows these texts."""

from __future__ import annotations

import pydoc

import pytest

from oncelog.config import ClientConfig
from oncelog.settings import ClientSettings, ConsumerSettings, ProducerSettings
from tests.unit.pages.settings_page import PAGE, TITLES, entries, own_fields, page

ARGUMENTS = dict(zip(TITLES, (ClientSettings, ProducerSettings, ConsumerSettings), strict=True))


@pytest.mark.parametrize("config", TITLES)
def test_each_setting_has_a_text_that_help_shows(config: type[ClientConfig]) -> None:
    names = [field.name for field in own_fields(config)]
    assert list(entries(config)) == names
    assert set(names) <= ARGUMENTS[config].__annotations__.keys()
    shown = pydoc.plain(pydoc.render_doc(config))
    assert all(f"{name}: {text[:20]}" in shown for name, text in entries(config).items())


def test_the_page_is_made_from_these_texts() -> None:
    assert PAGE.read_text() == page(), "python -m tests.unit.pages.settings_page writes it"

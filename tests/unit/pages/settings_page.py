"""The page docs/settings.md, made from the docstrings of the settings.

python -m tests.unit.pages.settings_page    # writes it
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

from oncelog.config import ClientConfig, ConsumerConfig, ProducerConfig

PAGE = Path(__file__).parents[3] / "docs/settings.md"
TITLES = {ClientConfig: "All clients", ProducerConfig: "Producer", ConsumerConfig: "Consumer"}
HEAD = """# Settings of the Python clients

`Producer`, `Consumer` and `Admin` take these settings as keyword arguments, in `oncelog` and in
`oncelog.aio`; `help(oncelog.ProducerConfig)` shows the same text. `from_config` takes Kafka's
dotted names (`linger.ms`). An unknown name, a value out of range and a contradiction raise
`ConfigError`. The clients of other languages have the same settings in the style of their
language, with the same [defaults](client-defaults.json).

A client without TLS and token settings takes them from the environment: `ONCELOG_CLIENT_TLS`,
`ONCELOG_CLIENT_TOKEN_FILE` and so on. Node settings are in [operations](operations.md).
"""


def entries(config: type[ClientConfig]) -> dict[str, str]:
    """Return the settings that a class's docstring explains, with their texts."""
    found = re.findall(r"^(\w+): ((?:.+\n?)(?:    .+\n?)*)", inspect.getdoc(config) or "", re.M)
    return {name: " ".join(text.split()) for name, text in found}


def own_fields(config: type[ClientConfig]) -> list[dataclasses.Field[object]]:
    inherited = () if config is ClientConfig else dataclasses.fields(ClientConfig)
    names = {field.name for field in inherited}
    return [field for field in dataclasses.fields(config) if field.name not in names]


def page() -> str:
    parts = [HEAD]
    for config, title in TITLES.items():
        texts = entries(config)
        parts.append(f"## {title}\n\n| setting | default | meaning |\n|---|---|---|")
        parts += [
            f"| `{field.name}` | {_default(field)} | {texts[field.name]} |"
            for field in own_fields(config)
        ]
        parts.append("")
    return "\n".join(parts)


def _default(field: dataclasses.Field[object]) -> str:
    return "see right" if field.default is dataclasses.MISSING else f"`{field.default!r}`"


if __name__ == "__main__":
    PAGE.write_text(page())

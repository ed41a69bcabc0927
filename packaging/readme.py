"""README.md for a registry's page: its links lead to the repository, at the release's tag.

pyproject.toml, tool.hatch.metadata.hooks.custom --> Readme.update
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"\]\((?!\w+://|#)([^)]+)\)")


class Readme(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        place = f"{metadata['urls']['Repository']}/blob/v{metadata['version']}"
        text = RELATIVE.sub(rf"]({place}/\1)", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}

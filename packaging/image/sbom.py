"""Writes a software bill of materials of an image, CycloneDX 1.5, from what is installed in it.

    python sbom.py VERSION ROOT > sbom.cdx.json

It lists the distributions of this Python and its base, and the packages in Debian's list below
ROOT. It needs the standard library only and gives the same bytes for the same content.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from email.parser import Parser
from pathlib import Path
from typing import Any
from urllib.parse import quote

DEBIAN_LIST = "var/lib/dpkg/status"
SYSTEM = "usr/lib/os-release"

Component = dict[str, Any]


def component(name: str, version: str, purl: str) -> Component:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def of_python(installed: Iterable[importlib.metadata.Distribution]) -> Iterator[Component]:
    for one in installed:
        name = re.sub(r"[-_.]+", "-", one.name).lower()
        found = component(name, one.version, f"pkg:pypi/{name}@{quote(one.version)}")
        license_id = one.metadata.get("License-Expression")
        yield found | ({"licenses": [{"expression": license_id}]} if license_id else {})


def of_debian(status: str, system: str) -> Iterator[Component]:
    """Yield the packages that `status`, dpkg's list, has as installed."""
    ids = dict(line.split("=", 1) for line in system.splitlines() if "=" in line)
    vendor = ids.get("ID", "debian").strip('"')
    release = f"{vendor}-{ids.get('VERSION_ID', '').strip(chr(34))}"
    for paragraph in status.split("\n\n"):
        fields = Parser().parsestr(paragraph, headersonly=True)
        if fields.get("Status", "").endswith(" installed"):
            name, version, arch = (fields[key] for key in ("Package", "Version", "Architecture"))
            place = f"pkg:deb/{vendor}/{quote(name)}@{quote(version)}"
            yield component(name, version, f"{place}?arch={arch}&distro={release}")


def bill(version: str, components: Iterable[Component]) -> dict[str, Any]:
    node = component("oncelog-server", version, f"pkg:pypi/oncelog-server@{version}")
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": node | {"type": "application"}},
        # Debian's Python packages are in both lists, under different references.
        "components": sorted(
            {one["bom-ref"]: one for one in components}.values(), key=lambda one: one["bom-ref"]
        ),
    }


def main(version: str, root: Path) -> None:
    base = sysconfig.get_path("purelib", "posix_prefix", {"base": sys.base_prefix})
    components = list(of_python(importlib.metadata.distributions(path=[*sys.path, base])))
    if (root / DEBIAN_LIST).is_file():
        components += of_debian((root / DEBIAN_LIST).read_text(), (root / SYSTEM).read_text())
    json.dump(bill(version, components), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

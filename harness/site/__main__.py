"""`scripts/docs`: builds the site of this version, checks it, and lists it among the others.

tree --sources, reference--> Markdown --zensical--> SITE/VERSION --links--> versions.json
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from harness.node_process import ROOT
from harness.site.links import faults
from harness.site.reference import write_reference
from harness.site.sources import REPOSITORY, LinkError, Menu, menu_of, write_sources
from oncelog import __version__

WORK = ROOT / "build" / "docs"
SETTINGS = Path(__file__).with_name("zensical.toml")
# Search without a server needs it, and zensical has it from another host.
FAR_SHIM = "https://unpkg.com/iframe-worker/shim"
SHIM = Path(__file__).with_name("assets") / "iframe-worker.js"
LATEST = """\
<!doctype html><meta http-equiv="refresh" content="0; url={}/index.html">
<a href="{}/index.html">Oncelog</a>
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/docs", description=__doc__)
    parser.add_argument("--site", type=Path, default=ROOT / "build" / "site", help="all versions")
    parser.add_argument("--ref", default="main", help="commit or tag of links into the repository")
    parser.add_argument(
        "--version", default="dev", help=f"folder: dev, or this release ({__version__})"
    )
    options = parser.parse_args()
    began = time.monotonic()
    try:
        built = build(options.ref)
    except LinkError as error:
        print(f"docs: links of the tree that lead nowhere:\n{error}", file=sys.stderr)
        return 1
    wrong = list(faults(built))
    if wrong:
        print("docs: dead links of the site:", *wrong, sep="\n", file=sys.stderr)
        return 1
    publish(built, options.site, options.version)
    pages = sum(1 for _ in built.rglob("*.html"))
    print(f"docs: {pages} pages in {time.monotonic() - began:.1f} s: {options.site}/index.html")
    return 0


def build(ref: str) -> Path:
    """Build the site of this tree; returns its folder."""
    shutil.rmtree(WORK, ignore_errors=True)
    sources = WORK / "docs"
    write_sources(ROOT, sources, ref)
    reference = write_reference(sources)
    menu = _toml(menu_of(sources, reference))
    settings = SETTINGS.read_text().replace("nav = []", f"nav = {menu}")
    (WORK / "zensical.toml").write_text(settings.replace("REPOSITORY", REPOSITORY))
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=WORK, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"docs: zensical failed:\n{done.stdout}{done.stderr}")
    built = WORK / "site"
    shutil.copy(SHIM, built / "assets")
    for page in built.rglob("*.html"):
        up = "../" * (len(page.relative_to(built).parts) - 1)
        page.write_text(page.read_text().replace(FAR_SHIM, f"{up}assets/{SHIM.name}"))
    return built


def publish(built: Path, site: Path, version: str) -> None:
    """Put the built site beside other versions: those with a number, newest first, then others."""
    site.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(site / version, ignore_errors=True)
    shutil.copytree(built, site / version)
    folders = [path.parent.name for path in site.glob("*/index.html")]
    folders.sort(key=lambda name: [int(part) for part in re.findall(r"\d+", name)], reverse=True)
    listed = [
        {"version": name, "title": name, "aliases": ["latest"] if name == folders[0] else []}
        for name in folders
    ]
    (site / "versions.json").write_text(json.dumps(listed, indent=1) + "\n")
    (site / "index.html").write_text(LATEST.format(folders[0], folders[0]))


def _toml(menu: Menu | str) -> str:
    if isinstance(menu, str):
        return json.dumps(menu)
    entries = (
        f"{{ {json.dumps(name)} = {_toml(value)} }}" for one in menu for name, value in one.items()
    )
    return f"[{', '.join(entries)}]"


if __name__ == "__main__":
    sys.exit(main())

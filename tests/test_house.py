"""The rules of the house, held by reading the source.

Each rule is a function from one file to the places where it is broken. Two
tests use it: one applies it to the tree, one to made-up snippets, good and bad,
so that a rule that has stopped finding anything is itself a failure.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

import pytest

from tests.house import faults, pages, rooms, shape, words
from tests.house.source import OURS, PACKAGES, ROOT, Rule, Snippets, Source, dotted, imports

MAX_LINES = 700  # an alarm: a class is divided by responsibility
MAY_IMPORT = {
    "oncelog": {"oncelog"},
    "storage": {"storage"},
    "cluster": {"cluster", "oncelog", "storage"},
    "pyspark_oncelog": {"pyspark_oncelog", "oncelog"},
    # Commands and measurements around the harness, which starts real nodes as processes.
    "scripts": {"scripts", "oncelog", "harness", "tests"},
    "bench": {"bench", "oncelog", "storage", "cluster", "harness"},
    # The kit has the nodes' own verdicts; its drivers use the clients.
    "conformance": {"conformance", "oncelog", "cluster", "harness", "storage"},
    "examples": {"examples", "oncelog"},
    "harness": {"harness", "examples", "oncelog"},
    "tests": OURS,
}
PORT = PurePosixPath("cluster/consensus/port.py")
SERIALIZERS = frozenset(
    {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "jsonpickle"}
)


# --- the rules: each yields "line N: fault" -----------------------------------


def import_direction(source: Source) -> Iterator[str]:
    allowed = MAY_IMPORT[source.area]
    for found in imports(source):
        if found.top in OURS and found.top not in allowed:
            yield f"line {found.line}: {source.area} may not import {found.module}"


def pysyncobj_privates(source: Source) -> Iterator[str]:
    """Only the port touches names that the library does not promise to keep."""
    if source.path == PORT or source.area == "tests":
        return
    for number, line in enumerate(source.text.splitlines(), 1):
        if "_SyncObj__" in line:
            yield f"line {number}: _SyncObj__ belongs in {PORT}"
    for found in imports(source):
        if found.top != "pysyncobj":
            continue
        private = [name for name in found.names if name.startswith("_")]
        inner = found.module != "pysyncobj"
        if source.path.parts[:2] != PORT.parts[:2]:
            yield f"line {found.line}: pysyncobj is imported outside {PORT.parent}"
        elif private or inner:
            yield f"line {found.line}: {found.module} {private or ''} belongs in {PORT}"


def no_pickle(source: Source) -> Iterator[str]:
    """Reading a pickle runs code that its writer chose."""
    if source.area not in PACKAGES:
        return
    for found in imports(source):
        whole = {*found.module.split("."), *found.names}
        if whole & SERIALIZERS:
            yield f"line {found.line}: import of {', '.join(sorted(whole & SERIALIZERS))}"


def no_sleep(source: Source) -> Iterator[str]:
    """A sleep is either too short or too long; wait for the event instead.

    Where a library gives no event the line says so: `# no event: WHY`.
    """
    if source.area not in PACKAGES:
        return
    for found in imports(source):
        if found.module == "time" and "sleep" in found.names:
            yield f"line {found.line}: import of time.sleep"
    names = {"time"}
    lines = source.text.splitlines()
    for node in source.nodes:
        if isinstance(node, ast.Import):
            names |= {a.asname for a in node.names if a.name == "time" and a.asname}
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and dotted(node) in {f"{n}.sleep" for n in names}:
            if not re.search(r"# no event: \S", lines[node.lineno - 1]):
                yield f"line {node.lineno}: time.sleep"


def short_modules(source: Source) -> Iterator[str]:
    if source.area not in PACKAGES:
        return
    count = len(source.text.splitlines())
    if count > MAX_LINES:
        yield f"line {count}: a module has at most {MAX_LINES} lines"


def says_its_purpose(source: Source) -> Iterator[str]:
    if source.area not in PACKAGES or not source.tree.body:
        return
    if not ast.get_docstring(source.tree):
        yield "line 1: a module opens with a docstring that says its purpose"


RULES: list[Rule] = [
    import_direction,
    pysyncobj_privates,
    no_pickle,
    no_sleep,
    short_modules,
    says_its_purpose,
    *rooms.RULES,
    *shape.RULES,
    *faults.RULES,
    *pages.RULES,
    *words.RULES,
]

# --- the tree ----------------------------------------------------------------


def is_generated(path: Path) -> bool:
    return re.search(r"_pb2(_grpc)?\.pyi?$|kafka/messages\.py$", path.as_posix()) is not None


def is_python(path: Path) -> bool:
    if path.suffix == ".py":
        return True
    if path.suffix or not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.readline(200)
    return first.startswith(b"#!") and b"python" in first


def tree_files() -> list[Path]:
    """Our Python files, generated ones left out, scripts without a suffix included."""
    return [
        path
        for top in sorted(OURS)
        for path in sorted((ROOT / top).rglob("*"))
        if "__pycache__" not in path.parts and is_python(path) and not is_generated(path)
    ]


@functools.cache
def tree() -> dict[str, Source]:
    names = [path.relative_to(ROOT).as_posix() for path in tree_files()]
    return {name: Source.of(name, (ROOT / name).read_text(encoding="utf-8")) for name in names}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_holds(rule: Rule) -> None:
    areas = {source.area for source in tree().values()}
    assert {"cluster", "tests"} <= areas, f"the search for our files found only {areas}"
    broken = {name: [*rule(source)] for name, source in tree().items()}
    faults = [f"{name}: {what}" for name in broken for what in broken[name]]
    assert not faults, "\n".join([f"{rule.__name__}:", *faults])


BAD: Snippets = [
    (import_direction, "oncelog/a.py", "import cluster"),
    (import_direction, "oncelog/a.py", "from storage.log import Log"),
    (import_direction, "oncelog/wire/a.py", "from ...cluster import node"),
    (import_direction, "oncelog/a.py", "def f():\n    import tests.conftest"),
    (import_direction, "oncelog/a.py", "import importlib\nimportlib.import_module('cluster.node')"),
    (import_direction, "storage/a.py", "import oncelog.v1.batch_pb2"),
    (import_direction, "pyspark_oncelog/__init__.py", "import storage"),
    (import_direction, "cluster/a.py", "from tests import conftest"),
    (import_direction, "scripts/demo", "from cluster.node import Node"),
    (import_direction, "bench/own/a.py", "from tests.chaos.failover import kill_leader"),
    (import_direction, "harness/a.py", "import tests.conftest"),
    (import_direction, "examples/a.py", "import storage"),
    (import_direction, "examples/a.py", "import cluster"),
    (pysyncobj_privates, "cluster/consensus/guard.py", "x = obj._SyncObj__raftLog"),
    (pysyncobj_privates, "cluster/consensus/guard.py", "x = getattr(obj, '_SyncObj__raftLog')"),
    (pysyncobj_privates, "cluster/consensus/a.py", "from pysyncobj.syncobj import createJournal"),
    (pysyncobj_privates, "cluster/consensus/a.py", "from pysyncobj import _private"),
    (pysyncobj_privates, "cluster/node.py", "from pysyncobj import SyncObj"),
    (no_pickle, "storage/a.py", "import pickle"),
    (no_pickle, "cluster/a.py", "from cloudpickle import dumps"),
    (no_pickle, "cluster/a.py", "from pysyncobj import pickle as p"),
    (no_pickle, "cluster/a.py", "import pysyncobj.pickle"),
    (no_sleep, "cluster/a.py", "import time\ntime.sleep(1)"),
    (no_sleep, "cluster/a.py", "import time as t\nt.sleep(1)"),
    (no_sleep, "oncelog/a.py", "from time import sleep"),
    (no_sleep, "storage/a.py", "import time\nwait = time.sleep"),
    (no_sleep, "storage/a.py", "import time\n# no event: elsewhere\ntime.sleep(1)  # no event:"),
    (short_modules, "storage/a.py", "x = 1\n" * (MAX_LINES + 1)),
    (says_its_purpose, "storage/a.py", "import os"),
    *rooms.BAD,
    *shape.BAD,
    *faults.BAD,
    *pages.BAD,
    *words.BAD,
]

GOOD: Snippets = [
    (import_direction, "oncelog/wire/a.py", "from .. import errors\nfrom .batch import encode"),
    (import_direction, "cluster/a.py", "import storage\nfrom oncelog.v1 import batch_pb2"),
    (import_direction, "tests/unit/test_a.py", "from cluster import node"),
    (import_direction, "oncelog/a.py", "from .storage import x\nimport clusters"),
    (pysyncobj_privates, str(PORT), "import pysyncobj.syncobj\nx = '_SyncObj__raftLog'"),
    (pysyncobj_privates, "cluster/consensus/a.py", "from pysyncobj import SyncObj"),
    (no_pickle, "cluster/a.py", "from cluster import pickles"),
    (no_sleep, "cluster/a.py", "import asyncio\nasync def f():\n    await asyncio.sleep(0)"),
    (no_sleep, "storage/a.py", "import time\ntime.sleep(0.1)  # no event: flush is polled"),
    (short_modules, "storage/a.py", "x = 1\n" * MAX_LINES),
    (says_its_purpose, "storage/a.py", '"""Keeps entries."""\nimport os'),
    (says_its_purpose, "storage/__init__.py", ""),
    *rooms.GOOD,
    *shape.GOOD,
    *faults.GOOD,
    *pages.GOOD,
    *words.GOOD,
]


def _case_id(case: object) -> str:
    return str(getattr(case, "__name__", case))[:30].replace("\n", " ; ")


@pytest.mark.parametrize(("rule", "path", "text"), BAD, ids=_case_id)
def test_rule_finds_a_bad_snippet(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source.of(path, text)))


@pytest.mark.parametrize(("rule", "path", "text"), GOOD, ids=_case_id)
def test_rule_passes_a_good_snippet(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source.of(path, text))) == []


def test_every_rule_is_checked_itself() -> None:
    assert {rule for rule, _, _ in BAD} == set(RULES)


def test_rooms_have_no_circles_and_the_check_finds_one() -> None:
    arrows = rooms.arrows_between_rooms()
    assert arrows["cluster.transport"] >= {"cluster.consensus"}
    TopologicalSorter(arrows).prepare()
    arrows["cluster.consensus"].add("cluster.transport")
    with pytest.raises(CycleError):
        TopologicalSorter(arrows).prepare()


def test_rooms_are_those_of_the_tree() -> None:
    """A row of the table that no file uses is a room that is gone."""
    found = {rooms.room_of(name.removesuffix(".py").replace("/", ".")) for name in tree()}
    stubs = {"cluster.v1"}  # generated, so not among our files
    assert set(rooms.ARROWS) - stubs <= found


def test_a_prefix_that_three_files_share_is_a_folder() -> None:
    assert list(shape.shared_prefixes(tree())) == []


def test_the_prefix_check_finds_three_and_passes_two() -> None:
    two = ["a/log_x.py", "a/log_y.py", "b/log_z.py", "a/log.py", "a/test_1.py", "a/test_2.py"]
    assert list(shape.shared_prefixes([*two, "a/test_3.py"])) == []
    (found,) = shape.shared_prefixes([*two, "a/log_z.py"])
    assert found == "a: log_ is a folder: log_x.py, log_y.py, log_z.py"


def test_a_class_name_has_one_place() -> None:
    product = [source for source in tree().values() if source.area in PACKAGES]
    # The reader's and the writer's data source have one format name in Spark.
    (spark,) = shape.repeated_classes(product)
    assert spark.startswith("OncelogDataSource: ")


def test_the_class_check_finds_two_and_passes_twins() -> None:
    paths = ("oncelog/a.py", "oncelog/aio/a.py", "cluster/a.py", "oncelog/errors.py")
    one, twin, other, public = (Source.of(path, "class A: ...") for path in paths)
    assert list(shape.repeated_classes([one, twin])) == []
    assert list(shape.repeated_classes([other, public])) == []
    assert list(shape.repeated_classes([one, other])) == ["A: cluster/a.py, oncelog/a.py"]


def page_faults(path: Path) -> list[str]:
    folder = PurePosixPath(path.relative_to(ROOT).parent.as_posix())
    return [f"{path}: {page}" for page in pages.strange_pages(path.read_text("utf-8"), folder)]


def test_docs_cite_pages_of_the_tree() -> None:
    folders = [ROOT / name for name in ("docs", *sorted(OURS))]
    found = [*ROOT.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]
    assert ROOT / "docs/protocol.md" in found
    assert [fault for path in found for fault in page_faults(path)] == []


def test_the_check_of_docs_finds_strange_pages() -> None:
    text = "As [here](../gone.md), README.md and DESIGN.md say; docs/adr/0001 and adr/7777."
    assert set(pages.strange_pages(text, PurePosixPath("docs"))) == {
        "../gone.md",
        "DESIGN.md",
        "DESIGN",
        "adr/7777",
    }


def test_every_room_of_the_cluster_has_a_readme() -> None:
    folders = {source.path.parent for source in tree().values() if source.area == "cluster"}
    missing = [str(folder) for folder in folders if not (ROOT / folder / "README.md").is_file()]
    assert not [name for name in missing if name != "cluster"]


def test_pages_name_files_of_the_tree() -> None:
    """Decision records keep the names of their day."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]
    lost = {page.name: pages.lost_files(page.read_text("utf-8")) for page in found}
    assert {name: files for name, files in lost.items() if files} == {}
    assert pages.lost_files("`node/gone.py`, `node/node.py`") == ["node/gone.py"]


def test_each_decision_has_a_number_of_its_own() -> None:
    records = [page for page in (ROOT / "docs/adr").glob("*.md") if page.name != "README.md"]
    numbers = [page.name[:4] for page in records]
    assert sorted(set(numbers)) == sorted(numbers)
    index = (ROOT / "docs/adr/README.md").read_text("utf-8")
    for page in records:
        if page.name != "0000-template.md":
            number = int(page.name[:4])
            assert page.read_text("utf-8").startswith((f"# {number}. ", f"# {number:04}. ")), page
            assert f"[{number}. " in index and f"]({page.name})" in index, page


def test_sentences_are_plain() -> None:
    assert words.too_many(words.of_folders(tree().values())) == []
    assert words.too_many(words.of_messages(tree().values())) == []
    pages_of = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md", "conformance/*.md"]
    found = [page for pattern in [*pages_of, "clients/*/README.md"] for page in ROOT.glob(pattern)]
    assert len(found) > 15
    texts = [(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8")) for page in found]
    assert words.too_many(texts) == []
    # Without node/src/gen: a build beside the tests makes it anew.
    files = ["go/*.go", "java/src/**/*.java", "node/src/*.ts", "node/src/[!g]*/*.ts"]
    clients = [f"clients/{pattern}" for pattern in [*files, "rust/src/**/*.rs"]]
    assert words.too_many(words.of_comments(ROOT, ["proto/**/*.proto", *clients])) == []
    folders = [ROOT / name for name in ("scripts", *sorted(OURS))]
    sets = {
        "docs/adr": [*ROOT.glob("docs/adr/*.md")],
        "room pages": [page for folder in folders for page in folder.rglob("README.md")],
    }
    assert [len(pages) > 40 for pages in sets.values()] == [True, True]
    texts = [(place, page.read_text("utf-8")) for place, pages in sets.items() for page in pages]
    assert words.too_many(texts) == []


def test_a_riddle_is_found() -> None:
    riddle = "Who asks is told what is known. " * 60
    assert words.too_many([("a", riddle), ("b", "Plain. " * 400)]) == [
        "a: 285.7 of what, who and the like in 1,000 words"
    ]


def test_comments_of_other_languages_are_read(tmp_path: Path) -> None:
    text = "x = 1; // Who asks.\n/** What is\n * told. */\nwhat();\n"
    (tmp_path / "a.java").write_text(text)
    found = [words.WORD.findall(text) for _, text in words.of_comments(tmp_path, ["*.java"])]
    assert found == [["Who", "asks"], ["What", "is", "told"]]


def test_a_message_is_found() -> None:
    code = """
'''What a module says of itself.'''
raise ValueError(f"port: {port} is taken by" f" who came first")
log.info("listens on %s", port)
two = "no sentence"
"""
    assert list(words.messages(ast.parse(code))) == [
        "port:   is taken by who came first",
        "listens on %s",
    ]


def test_room_pages_name_every_file() -> None:
    """A newcomer finds the file for a change from the page."""
    missing = []
    for folder in {source.path.parent for source in tree().values()}:
        page = ROOT / folder / "README.md"
        if folder.parts[:1] not in (("cluster",), ("storage",), ("oncelog",)) or not page.is_file():
            continue
        text = page.read_text(encoding="utf-8")
        files = (path.name for path in (ROOT / folder).glob("*.py") if path.name != "__init__.py")
        missing += [f"{folder}/{name}" for name in files if f"`{name}`" not in text]
    assert missing == []


# --- stubs ------------------------------------------------------------------


def run_stubs(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ROOT / "scripts/stubs"), *args],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_stubs_are_fresh() -> None:
    done = run_stubs("--check")
    assert done.returncode == 0, done.stderr


def test_a_stale_stub_is_found(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    missing = run_stubs("--check", "--root", str(tmp_path))
    assert missing.returncode == 1, "missing stubs were not noticed"

    assert run_stubs("--root", str(tmp_path)).returncode == 0
    assert run_stubs("--check", "--root", str(tmp_path)).returncode == 0

    proto = next((tmp_path / "proto/oncelog/v1").glob("*.proto"))
    text = proto.read_text()
    proto.write_text(text + "\nmessage AddedByATest { int32 x = 1; }\n")
    stale = run_stubs("--check", "--root", str(tmp_path))
    assert stale.returncode == 1
    assert f"{proto.stem}_pb2.py" in stale.stderr
    proto.write_text(text)

    (tmp_path / "oncelog/v1/gone_pb2.py").write_text("")
    orphan = run_stubs("--check", "--root", str(tmp_path))
    assert orphan.returncode == 1
    assert "gone_pb2.py" in orphan.stderr


# --- the wheel ---------------------------------------------------------------


def wheel_strangers(names: list[str]) -> list[str]:
    """Names in a wheel that are neither the client's nor the wheel's own metadata."""
    return [
        name
        for name in names
        if not re.match(r"(oncelog|pyspark_oncelog)/|oncelog-[^/]+\.dist-info/", name)
        or "__pycache__" in name
    ]


def test_wheel_ships_the_client_only(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert wheel_strangers(names) == []
    for needed in ("oncelog/__init__.py", "oncelog/py.typed", "oncelog/v1/log_pb2_grpc.py"):
        assert needed in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_wheel_check_finds_strangers() -> None:
    assert wheel_strangers(["cluster/node.py", "oncelog/a.py", "oncelogs/a.py"]) == [
        "cluster/node.py",
        "oncelogs/a.py",
    ]


# --- public exports -----------------------------------------------------------


def export_faults(module: object) -> list[str]:
    """Faults of a package's `__all__`: absent, unsorted out, missing or undocumented."""
    names = getattr(module, "__all__", None)
    if not names:
        return ["no __all__"]
    faults = [f"{name} is listed twice" for name in sorted(set(names)) if names.count(name) > 1]
    for name in names:
        if name.startswith("_") and name != "__version__":
            faults.append(f"{name} is private")
        if not hasattr(module, name):
            faults.append(f"{name} does not exist")
            continue
        value = getattr(module, name)
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        doc = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
        # A dataclass without a docstring gets its own signature as docstring.
        if not doc or doc.startswith(f"{name}("):
            faults.append(f"{name} has no docstring")
    return faults


def test_public_exports_exist_and_are_documented() -> None:
    assert export_faults(importlib.import_module("oncelog")) == []


def test_export_check_finds_faults() -> None:
    class Bare:
        pass

    class Package:
        __all__ = ("Bare", "Gone", "_hidden", "Bare")
        _hidden = 1

    Package.Bare = Bare  # type: ignore[attr-defined]
    faults = export_faults(Package)
    assert faults == [
        "Bare is listed twice",
        "Bare has no docstring",
        "Gone does not exist",
        "_hidden is private",
        "Bare has no docstring",
    ]
    assert export_faults(object()) == ["no __all__"]

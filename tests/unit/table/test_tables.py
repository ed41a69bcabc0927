"""Tables without a cluster: settings, names, and the choice of files to merge."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.cli.app import run
from oncelog.errors import ConfigError
from oncelog.table.delta import DeltaTopic
from oncelog.table.files import TableError, TableFile, TablePartition, table_url
from oncelog.table.merge import MANY, due
from oncelog.table.run import Archiver, TableSettings


def files(*sizes: int, first: int = 0) -> list[TableFile]:
    return [TableFile(f"{n}", size, first + n * 10, 10) for n, size in enumerate(sizes)]


def test_small_neighbours_are_merged() -> None:
    assert due([], 100, 1000) == []
    assert due(files(60, 60), 100, 1000) == files(60, 60)
    assert due(files(200, 60, 60, 200), 100, 1000) == files(200, 60, 60, 200)[1:3]
    assert due(files(60, 200, 60), 100, 1000) == []  # no neighbours
    assert due(files(90, 5, 5), 100, 1000) == []  # it waits for as much again
    assert due(files(90, 5, 5, *[50] * 2), 100, 1000) == files(90, 5, 5, 50, 50)
    assert due(files(*[1] * (MANY - 1)), 100, 1000) == []
    assert due(files(*[1] * MANY), 100, 1000) == files(*[1] * MANY)
    assert len(due(files(*[90] * 50), 100, 450)) == 5  # no larger than one request stores
    apart = [*files(60), *files(60, first=20)]
    assert due(apart, 100, 1000) == []  # offsets between them are missing


def test_a_row_is_copied_a_few_times() -> None:
    """10,000 files of 10 kB: each byte is copied as often as the logarithm of the growth."""
    table: list[TableFile] = []
    copied = 0
    for number in range(10_000):
        table.append(TableFile("", 10_000, number * 10, 10))
        if run_ := due(table[-200:], 4_000_000, 128_000_000):
            at = table.index(run_[0])
            size, records = sum(f.size for f in run_), sum(f.records for f in run_)
            table[at : at + len(run_)] = [TableFile("", size, run_[0].first, records)]
            copied += size
    assert copied < 10 * 10_000 * 10_000
    assert len(table) < 60


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"roll_bytes": 9}, "roll_bytes: 9 is not in 4096.."),
        ({"roll_ms": 0}, "roll_ms: 0 is not in 10..86400000"),
        ({"commit_ms": 3_600_001}, "commit_ms: 3600001 is not in 10..3600000"),
        ({"merge_below": -1}, "merge_below: -1 is not in 0.."),
        ({"memory_bytes": 1}, "memory_bytes: 1 is not in "),
        ({"roll_bytes": 4096}, "merge_below: 33554432 is above roll_bytes, 4096"),
    ],
)
def test_settings_have_limits(given: dict[str, int], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TableSettings(**given)
    assert caught.value.message.startswith(text)


def test_names_and_places() -> None:
    assert table_url("/a/", "b.c.d") == "/a/b_c_d"
    assert table_url("file:///a", "b") == "/a/b"
    assert table_url("s3://bucket/a/", "b.c") == "s3://bucket/a/b_c"
    with pytest.raises(TableError, match="to: ftp:// is not supported; give a path, file:// or s3"):
        table_url("ftp://host/a", "b")
    with pytest.raises(ConfigError, match="name: it names the table of one topic"):
        Archiver(["a", "b"], "/a", name="c")
    with pytest.raises(ConfigError, match=r"topics: two of a\.b, a_b have one table"):
        Archiver(["a.b", "a_b"], "/a")


def test_positions_outlive_the_clean_up_of_the_tables_log(tmp_path: Path) -> None:
    """Delta writes a checkpoint every 100 commits, and deletes the older versions a month later."""
    url, log = str(tmp_path / "t"), tmp_path / "t" / "_delta_log"
    places = [TablePartition(5, number) for number in range(2)]
    table = DeltaTopic.open(url, "c/1", "t", create=True)
    for first in range(0, 1020, 10):
        table.commit((place, TableFile(place.new_path(first), 99, first, 10)) for place in places)
        table.refresh()
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    for version in log.glob("*.json"):
        if version.name < checkpoint.name:
            version.unlink()
    opened = DeltaTopic.open(url, "c/1", "t")
    assert [opened.position(place) for place in places] == [1020, 1020]
    assert [len(opened.files(place)) for place in places] == [102, 102]


def test_the_command_has_the_same_limits(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        run(["table", "run", "t", "--to", "/a", "--roll-bytes", "9"])
    assert exited.value.code == 2
    assert "'--roll-bytes': 9 is not in the range 4096<=x<=" in capsys.readouterr().err

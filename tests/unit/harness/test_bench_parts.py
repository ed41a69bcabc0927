"""The benchmark's own arithmetic and parsing: its reports must match its measurements."""

from __future__ import annotations

import argparse
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from bench import goals, report
from bench.fetch import _pom
from bench.figures import percentiles
from bench.machine import file_system
from bench.plan import OWN, SECTIONS, SHARED, bytes_case, names, produce_case
from bench.processes import BenchError, Server, run_json, run_text, session
from bench.results import ALL_CASES, Results, Row
from bench.run import Run
from bench.systems.kafka_tools import parse_consumer, parse_producer
from bench.timing import time_limit
from oncelog.cli import load

PERF = """\
Warmup first 100000 records. Steady state results will print after the complete test summary.
In steady state.
54796 records sent, 10731.7 records/sec (1.02 MB/sec), 3413.7 ms avg latency, 4453.0 ms max latency.
500000 records sent, 35161.744023 records/sec (3.35 MB/sec), 3468.44 ms avg latency, \
4453.00 ms max latency, 3587 ms 50th, 4284 ms 95th, 4337 ms 99th, 4390 ms 99.9th.
400000 steady state records sent, 38069.858190 records/sec (3.63 MB/sec), 3599.07 ms avg \
latency, 4453.00 ms max latency, 3647 ms 50th, 4299 ms 95th, 4339 ms 99th, 4390 ms 99.9th.
"""
CONSUMER = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, \
rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-11-21 19:39:17:811, 2026-11-21 19:39:19:914, 4.7676, 2.2670, 4883, 2321.9211, 1507, 596, \
7.9993, 8192.9530
"""


def row(section: str, system: str, case: str, client: str = "python", **figures: float) -> Row:
    return Row(section, system, case, client, figures, run="r", at="2026-11-21T00:00:00Z")


# --- times ------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [percentiles, load.percentiles])
def test_percentiles_are_times_that_were_seen(function) -> None:
    found = function([float(n) for n in range(1, 1001)])
    assert found["p50_ms"] == 501 and found["p99_ms"] == 991 and found["p999_ms"] == 1000
    assert found["max_ms"] == 1000 and found["samples"] == 1000 and found["mean_ms"] == 500.5
    assert function([7.0])["p999_ms"] == 7.0
    assert function([]) == {}


def test_a_time_limit_ends_a_wait() -> None:
    never = threading.Event()
    with pytest.raises(BenchError, match="not done after"), time_limit(0.05):
        never.wait(60)


def test_the_outer_limit_holds_inside_a_longer_one() -> None:
    never = threading.Event()
    with pytest.raises(BenchError, match="not done after"), time_limit(0.05):
        with time_limit(60):
            never.wait(60)


# --- tools of other systems -------------------------------------------------------------


def test_the_perf_tools_last_summary_counts() -> None:
    found = parse_producer(PERF, 100)
    assert found["records"] == 400_000 and found["records_per_s"] == 38069.858190
    assert found["mb_per_s"] == pytest.approx(3.8069858)
    assert found["p99_ms"] == 4339 and found["mean_ms"] == 3599.07
    with pytest.raises(BenchError, match="no summary"):
        parse_producer("org.apache.kafka.common.errors.TimeoutException", 100)


def test_the_consumer_tools_fetch_time_counts() -> None:
    found = parse_consumer(CONSUMER)
    assert found["records"] == 4883 and found["seconds"] == 0.596
    assert found["mb_per_s"] == pytest.approx(4.7676 * 1.048576 / 0.596)
    with pytest.raises(BenchError, match="no figures"):
        parse_consumer("")


def test_a_pom_names_each_artifact() -> None:
    text = _pom(["a.b:c:1", "d:e_2.13:4.0"])
    assert "<groupId>a.b</groupId><artifactId>c</artifactId><version>1</version>" in text
    assert text.count("<dependency>") == 2


# --- processes --------------------------------------------------------------------------


def test_a_program_that_fails_or_hangs_is_told_apart(tmp_path: Path) -> None:
    assert run_json(["sh", "-c", "echo noise; echo '{\"a\": 1}'"], 30) == {"a": 1}
    with pytest.raises(BenchError, match="code 3: reason"):
        run_text(["sh", "-c", "echo reason >&2; exit 3"], 30)
    with pytest.raises(BenchError, match="not done after"):
        run_text(["sleep", "60"], 0.1)
    with pytest.raises(BenchError, match="printed no JSON"):
        run_json(["echo", "hello"], 30)
    with pytest.raises(BenchError, match="no-such-program"):
        run_text([tmp_path / "no-such-program"], 30)


def test_a_server_is_ended_with_what_it_started(tmp_path: Path) -> None:
    server = Server("shell", ["sh", "-c", "sleep 600 & echo up; wait"], tmp_path / "log")
    while "up" not in server.log.read_text():
        server.check()
    assert len(session(server.pid)) == 2
    server.stop()
    assert session(server.pid) == [server.pid]
    with pytest.raises(BenchError, match="shell ended with code -9: up"):
        server.check()


# --- results ----------------------------------------------------------------------------


def test_results_are_read_back_and_the_newest_counts(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results = Results(path)
    results.add(row("produce", "Kafka", "100 B, 1 partition", records_per_s=1.0))
    later = row("produce", "Kafka", "100 B, 1 partition", records_per_s=2.0)
    results.add(replace(later, run="another"))
    results.add(row("bytes", "Kafka", "batches of 1 MiB", mb_per_s=3.0))
    assert len(path.read_text().splitlines()) == 3
    again = Results(path)
    assert len(again) == 2
    assert again.figure("produce", "100 B, 1 partition", "records_per_s", system="Kafka") == 2.0
    assert again.figure("produce", "other", "records_per_s", system="Kafka") == 0.0


def test_what_a_run_measures_several_times_counts_by_its_medians(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results = Results(path)
    for rate, late in ((10.0, 1.0), (90.0, 3.0), (20.0, 2.0)):
        results.add(row("produce", "A", "x", records_per_s=rate, p99_ms=late))
    results.add(row("produce", "B", "x", records_per_s=5.0))
    for read in (results, Results(path)):
        assert read.figure("produce", "x", "records_per_s", system="A") == 20.0
        assert read.figure("produce", "x", "p99_ms", system="A") == 2.0
        assert read.figure("produce", "x", "records_per_s", system="B") == 5.0
        assert read.rounds == 3
        assert "medians of up to 3 rounds" in report.header(read)[0]
    later = replace(row("produce", "A", "x", records_per_s=7.0), run="another")
    results.add(later)
    assert results.figure("produce", "x", "records_per_s", system="A") == 7.0
    assert results.rounds == 1


def test_a_measured_section_takes_back_that_it_failed_as_a_whole() -> None:
    results = Results()
    results.add(Row("produce", "Kafka", ALL_CASES, error="the registry gave no kafka"))
    assert [one.error for one in results.failures()] == ["the registry gave no kafka"]
    assert "failed" in report.text(results)
    results.add(row("produce", "Kafka", "100 B, 1 partition", records_per_s=1.0, mb_per_s=1.0))
    assert results.failures() == []


def test_a_failure_does_not_erase_what_was_measured(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    case = produce_case(100, 1)
    results.add(row("produce", "Kafka", case, records_per_s=1.0, mb_per_s=1.0))
    results.add(Row("produce", "Kafka", case, "python", error="left out"))
    for one in (results, Results(tmp_path / "results.jsonl")):
        assert one.figure("produce", case, "records_per_s", system="Kafka") == 1.0
        assert [row.error for row in one.failures()] == ["left out"] and len(one) == 1
        assert "1 (1)" in report.text(one) and "left out" in report.text(one)
    results.add(row("produce", "Kafka", case, records_per_s=2.0, mb_per_s=2.0))
    assert results.failures() == []


# --- tables -----------------------------------------------------------------------------


def test_ratios_are_against_the_limits_of_the_same_size() -> None:
    limits = {
        "stream_64KiB_mb_per_s": 400.0, "stream_1MiB_mb_per_s": 1000.0,
        "give_1MiB_mb_per_s": 500.0, "floor_ms": 0.5, "write_mb_per_s": 800.0,
    }  # fmt: skip
    small = report.ratios("bytes", bytes_case(65536), {"mb_per_s": 100.0}, limits)
    assert small == {"of_grpc_stream": 0.25, "of_disk": 0.125}
    large = report.ratios("bytes", bytes_case(1048576), {"mb_per_s": 100.0}, limits)
    assert large["of_grpc_stream"] == 0.1
    assert report.ratios("consume", "", {"mb_per_s": 400.0}, limits) == {"of_grpc_stream": 0.8}
    found = report.ratios("latency", "", {"p50_ms": 1.0, "p99_ms": 2.0}, limits)
    assert found == {"p50_x_floor": 2.0, "p99_x_floor": 4.0}
    assert report.ratios("latency", "", {"p50_ms": 1.0}, {}) == {}


def test_tables_show_every_system_and_what_failed() -> None:
    results = Results()
    case = produce_case(100, 1)
    results.add(row("produce", "Oncelog", case, records_per_s=250_000.0, mb_per_s=25.0))
    results.add(row("produce", "Kafka", case, "java", records_per_s=1.0, mb_per_s=1.0))
    results.add(Row("produce", "Kafka", produce_case(100, 6), "java", error="boom"))
    results.add(Row("produce", "NATS JetStream", ALL_CASES, error="go is missing"))
    for text in (report.text(results), report.markdown(results)):
        assert "250,000 (25)" in text and "boom" in text and "go is missing" in text
    (table,) = (one for one in report.tables(results) if one[0].startswith("Produce"))
    assert table[1] == ["system", "client", "100 B, 1 partition", "100 B, 6 partitions"]
    assert table[2] == [
        ["Oncelog", "python", "250,000 (25)", ""],
        ["Kafka", "java", "1 (1)", "failed"],
        ["NATS JetStream", "", "failed", "failed"],
    ]


def test_the_page_is_changed_between_its_marks_only() -> None:
    page = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    changed = report.put_into(page, "new")
    assert changed == f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n"
    assert report.put_into(changed, "new") == changed
    with pytest.raises(ValueError, match="needs one"):
        report.put_into("a page without marks", "new")


# --- goals ------------------------------------------------------------------------------


def verdict(results: Results, text: str) -> goals.Verdict:
    (found,) = (one for one in goals.verdicts(results) if one.goal.text == text)
    return found


def test_a_goal_that_was_not_measured_is_not_met() -> None:
    assert {one.word for one in goals.verdicts(Results())} == {"not measured"}


def test_goals_compare_with_the_best_of_the_named_peers() -> None:
    results = Results()
    case = produce_case(100, 1)
    results.add(row("produce", "Oncelog", case, records_per_s=300.0))
    results.add(row("produce", "Kafka", case, records_per_s=100.0))
    results.add(row("produce", "Kafka", case, "python, produce_batch", records_per_s=150.0))
    results.add(row("produce", "Kafka", case, "java", records_per_s=1000.0))
    results.add(row("produce", "Kafka, flush.messages=1", case, "java", records_per_s=250.0))
    results.add(row("produce", "RabbitMQ quorum queues", case, records_per_s=50.0))
    python = verdict(results, f"produce {case}: Kafka as shipped, Python client")
    assert (python.value, python.word) == (2.0, "met")
    synced = verdict(results, f"produce {case}: best peer that syncs, any client")
    assert (synced.value, synced.word) == (1.2, "NOT met")
    assert verdict(results, f"produce {case}: NATS JetStream as shipped").word == "not measured"


def test_goals_that_are_upper_bounds() -> None:
    results = Results()
    results.add(row("failover", "Oncelog", "30 kills", "", p50_s=0.2, p99_s=2.5))
    assert verdict(results, "failover: p50").word == "met"
    assert verdict(results, "failover: p99").word == "NOT met"


def test_a_share_of_a_limit_is_of_the_limit_of_its_own_run() -> None:
    results = Results()
    results.add(row("consume", "Oncelog", "1 KiB records", mb_per_s=800.0, of_grpc_stream=0.5))
    results.add(row("limits", "machine", "before", "", give_1MiB_mb_per_s=1000.0))
    assert verdict(results, "consume: share of the gRPC stream").value == 0.5


def test_every_goal_has_its_own_text() -> None:
    texts = [goal.text for goal in goals.GOALS]
    assert len(texts) == len(set(texts))


# --- options ----------------------------------------------------------------------------


def test_names_are_known_or_refused() -> None:
    assert names("produce,restart", SECTIONS) == ["produce", "restart"]
    with pytest.raises(argparse.ArgumentTypeError, match="'nothing' is none of client"):
        names("nothing", SECTIONS)


def test_every_section_has_its_measurement() -> None:
    assert tuple(Run.SHARED) == SHARED
    assert tuple(Run.OWN) == OWN


def test_cases_have_readable_names() -> None:
    assert produce_case(1024, 6) == "1 KiB, 6 partitions"
    assert produce_case(100, 1) == "100 B, 1 partition"
    assert bytes_case(64 * 1024) == "batches of 64 KiB"


def test_the_file_system_of_a_path_is_that_of_its_nearest_mount() -> None:
    assert file_system(Path("/proc/self")) == "proc"

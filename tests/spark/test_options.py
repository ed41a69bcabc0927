"""Options, their errors, and the arithmetic behind them: nothing here starts Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.errors import ConfigError
from oncelog.spark.source.offsets import EARLIEST, LATEST, OffsetRange, StreamPosition, admit, split
from oncelog.spark.source.options import NAMES, Bound, SourceOptions
from oncelog.types import TopicPartition

BASE = {"bootstrap.servers": "a:1,b:2", "subscribe": "t"}
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def parse(**changes: str) -> SourceOptions:
    given = {name: value for name, value in BASE.items() if name not in changes}
    return SourceOptions.parse({**given, **{k: v for k, v in changes.items() if v != ""}})


def test_defaults() -> None:
    options = parse()
    assert options.bootstrap_servers == ("a:1", "b:2")
    assert options.selection.topics == ("t",)
    assert (options.starting, options.ending, options.max_offsets_per_trigger) == (None,) * 3
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert (options.min_partitions, options.poll_timeout_ms) == (0, 120_000)


def test_names_and_words_in_any_case() -> None:
    options = SourceOptions.parse(
        {
            "BOOTSTRAP.servers": "a:1",
            "SUBSCRIBE": " t , u,t",
            "startingoffsets": "Earliest",
            "FailOnDataLoss": "FALSE",
            "includeheaders": "True",
            "maxoffsetspertrigger": " 7 ",
        }
    )
    assert options.selection.topics == ("t", "u")
    assert options.starting == Bound("startingOffsets", everywhere=EARLIEST)
    assert options.max_offsets_per_trigger == 7
    assert options.include_headers and not options.fail_on_data_loss


def test_selections() -> None:
    assigned = parse(subscribe="", assign='{"t": [1, 0, 1], "u": ["0"]}').selection
    assert assigned.partitions == (T0, T1, U0)
    pattern = parse(subscribe="", subscribePattern="ord.*").selection
    assert pattern.matches("orders") and not pattern.matches("my-orders")


def test_bounds() -> None:
    text = '{"t": {"0": 23, "1": -1}, "u": {"0": -2}}'
    starting = parse(startingOffsets=text).starting
    assert starting is not None and starting.each is not None
    assert starting.each.offsets == {T0: 23, T1: LATEST, U0: EARLIEST}
    assert parse(startingTimestamp="5").starting == Bound(
        "startingTimestamp", everywhere=5, by_time=True
    )
    by_time = parse(startingOffsetsByTimestamp='{"t": {"0": 5}}').starting
    assert by_time == Bound(
        "startingOffsetsByTimestamp", each=StreamPosition({T0: 5}), by_time=True
    )
    assert parse(endingOffsets="latest").ending == Bound("endingOffsets", everywhere=LATEST)
    # Offsets of a query's progress can be pasted.
    pasted = parse(
        startingOffsets=json.dumps(StreamPosition({T0: 5}, {"t": "1-2"}).to_json())
    ).starting
    assert pasted is not None and pasted.each == StreamPosition({T0: 5}, {"t": "1-2"})


ERRORS = [
    # options, the option that the error names, the error's text
    ({"bootstrap.servers": ""}, "bootstrap.servers", "is missing"),
    ({"bootstrap.servers": "nowhere"}, "bootstrap.servers", "'nowhere' is not host:port"),
    ({"subscribe": ""}, "subscribe", "no topic is named: use exactly one of subscribe, assign"),
    ({"subscribe": ","}, "subscribe", "is empty"),
    ({"assign": '{"t": [0]}'}, "assign", "subscribe and assign contradict each other"),
    ({"subscribe": "", "assign": "t"}, "assign", 'no JSON .* such as {"orders": \\[0, 1\\]}'),
    ({"subscribe": "", "assign": '{"t": 0}'}, "assign", "'t' must be a list"),
    ({"subscribe": "", "assign": '{"t": [-1]}'}, "assign", "-1 is no partition number"),
    ({"subscribe": "", "assign": '{"t": [true]}'}, "assign", "True is no partition number"),
    ({"subscribe": "", "subscribePattern": "("}, "subscribePattern", "no regular expression"),
    ({"startingOffsets": "first"}, "startingOffsets", "must be earliest, latest or JSON"),
    ({"startingOffsets": "{nonsense"}, "startingOffsets", "no JSON"),
    ({"startingOffsets": "{}"}, "startingOffsets", "must be JSON such as"),
    ({"startingOffsets": '{"t": 5}'}, "startingOffsets", '"partition": number'),
    ({"startingOffsets": '{"t": {"x": 5}}'}, "startingOffsets", "'x' is no partition number"),
    ({"startingOffsets": '{"t": {"0": "5"}}'}, "startingOffsets", "t-0 must be an integer"),
    ({"startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets", "from -2 to"),
    ({"startingOffsets": '{"t": {"0": 1e400}}'}, "startingOffsets", "t-0 must be an integer"),
    ({"endingOffsets": "earliest"}, "endingOffsets", "must be latest or JSON"),
    ({"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets", "from -1 to"),
    ({"startingTimestamp": "today"}, "startingTimestamp", "must be an integer from 0 to"),
    ({"startingTimestamp": "-1"}, "startingTimestamp", "must be an integer from 0 to"),
    ({"startingOffsetsByTimestamp": "5"}, "startingOffsetsByTimestamp", "must be JSON"),
    (
        {"startingTimestamp": "5", "startingOffsets": "latest"},
        "startingTimestamp",
        "startingOffsets and startingTimestamp contradict each other",
    ),
    (
        {"startingOffsetsByTimestampStrategy": "earliest"},
        "startingOffsetsByTimestampStrategy",
        "must be error or latest",
    ),
    ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger", "an integer from 1 to"),
    ({"maxOffsetsPerTrigger": "1.5"}, "maxOffsetsPerTrigger", "got '1.5'"),
    ({"minPartitions": "-1"}, "minPartitions", "from 1 to 100000"),
    ({"pollTimeoutMs": "999"}, "pollTimeoutMs", "from 1000 to"),
    ({"failOnDataLoss": "no"}, "failOnDataLoss", "must be true or false, got 'no'"),
    ({"includeHeaders": "1"}, "includeHeaders", "must be true or false"),
    (
        {"table": "/a", "subscribe": "a,b"},
        "table",
        "table is for one topic",
    ),
    ({"tls": "perhaps"}, "tls", "must be true or false, got 'perhaps'"),
    ({"kafka.bootstrap.servers": "a:1"}, "kafka.bootstrap.servers", "with bootstrap.servers"),
    ({"kafka.max.poll.records": "1"}, "kafka.max.poll.records", "Kafka's client have no meaning"),
    ({"startingOffset": "latest"}, "startingOffset", "did you mean startingOffsets?"),
    ({"path": "t"}, "path", "subscribe"),
    ({"quite": "different"}, "quite", "there are bootstrap.servers, subscribe"),
]


@pytest.mark.parametrize(("changes", "option", "says"), ERRORS, ids=lambda case: str(case)[:50])
def test_errors_name_the_option(changes: dict[str, str], option: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse(**changes)
    assert option in caught.value.settings
    assert option in caught.value.message


def test_every_option_has_an_error_of_its_own() -> None:
    named = {option for _, option, _ in ERRORS}
    # Their forms are those of the starting offsets, by the same code.
    ending = {"endingTimestamp", "endingOffsetsByTimestamp"}
    # The client reads the files, where it connects, and reports faults in them.
    files = {"tls.ca.file", "tls.cert.file", "tls.key.file", "token.file"}
    assert set(NAMES) - named == ending | files


def test_what_is_for_batches_or_streams_only() -> None:
    with pytest.raises(ConfigError, match="maxOffsetsPerTrigger is for streaming"):
        parse(maxOffsetsPerTrigger="5").for_batch()
    for text in ("latest", '{"t": {"0": 5, "1": -1}}'):
        with pytest.raises(ConfigError, match="startingOffsets: a batch query cannot start"):
            parse(startingOffsets=text).for_batch()
    for name, text in (("endingOffsets", "latest"), ("endingTimestamp", "5")):
        with pytest.raises(ConfigError, match=f"{name} is for batch queries"):
            parse(**{name: text}).for_stream()
    parse(maxOffsetsPerTrigger="5", startingOffsets="latest").for_stream()
    parse(endingOffsets="latest", startingOffsets="earliest").for_batch()


def test_importing_needs_none_of_the_extra() -> None:
    """Spark's search for data sources, which every session does, does not load Arrow either."""
    program = """
import sys, oncelog, oncelog.spark
print(sorted({"pyspark", "pyarrow", "pandas"} & set(sys.modules)))
import pyspark_oncelog
print(sorted({"pyarrow", "pandas"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.decode().split() == ["[]", "[]"]


# --- arithmetic ------------------------------------------------------------------------

tps = st.builds(TopicPartition, st.sampled_from("tuv"), st.integers(0, 20))
backlogs = st.dictionaries(tps, st.integers(0, 10_000), min_size=1)


def test_a_place_survives_json_whatever_its_order() -> None:
    place = StreamPosition(
        {TopicPartition("t", 10): 1, T1: 2, U0: 2**63 - 1}, {"u": "2-5", "t": "1-5"}
    )
    text = json.dumps(place.to_json())
    assert StreamPosition.from_json(json.loads(text)) == place
    again = StreamPosition(dict(reversed(place.offsets.items())), dict(reversed(place.ids.items())))
    assert json.dumps(again.to_json()) == text
    assert text == (
        '{"@id": {"t": "1-5", "u": "2-5"}, "t": {"1": 2, "10": 1}, "u": {"0": 9223372036854775807}}'
    )


@given(backlogs, st.integers(1, 20_000))
def test_admission(backlog: dict[TopicPartition, int], limit: int) -> None:
    start = {tp: 100 + i for i, tp in enumerate(backlog)}
    end = {tp: start[tp] + size for tp, size in backlog.items()}
    upto = admit(start, end, limit)
    got = {tp: upto[tp] - start[tp] for tp in backlog}
    waiting = [tp for tp in backlog if backlog[tp]]
    total = sum(backlog.values())
    assert all(0 <= got[tp] <= backlog[tp] for tp in backlog)
    assert all(got[tp] >= 1 for tp in waiting), "no partition starves"
    if total <= limit:
        assert got == backlog
    else:
        small = sum(1 for tp in waiting if limit * backlog[tp] < total)
        assert limit <= sum(got.values()) <= limit + small
        for tp in waiting:
            fair = limit * backlog[tp] / total
            assert max(1, fair - 1) <= got[tp] + 1e-6
            assert got[tp] <= max(1, fair + 1)


def test_admission_shares_in_proportion() -> None:
    start = {T0: 0, T1: 0, U0: 50}
    assert admit(start, {T0: 900, T1: 100, U0: 50}, 100) == {T0: 90, T1: 10, U0: 50}
    assert sum(admit(start, {T0: 333, T1: 333, U0: 383}, 100).values()) == 150
    assert admit(start, {T0: 10**18, T1: 1, U0: 50}, 10) == {T0: 9, T1: 1, U0: 50}


@given(backlogs, st.integers(0, 300))
def test_splits(backlog: dict[TopicPartition, int], at_least: int) -> None:
    ranges = [OffsetRange(tp, 7, 7 + size) for tp, size in backlog.items()]
    pieces = split(ranges, at_least)
    full = [one for one in ranges if one.size]
    assert len(pieces) == min(max(at_least, len(full)), sum(one.size for one in full))
    for one in full:
        own = [piece for piece in pieces if piece.tp == one.tp]
        assert own[0].start == one.start and own[-1].end == one.end
        assert all(a.end == b.start for a, b in pairwise(own))
        sizes = [piece.size for piece in own]
        assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1


def test_splits_go_where_most_is() -> None:
    pieces = split([OffsetRange(T0, 0, 900), OffsetRange(T1, 0, 100), OffsetRange(U0, 5, 5)], 10)
    assert [piece.tp for piece in pieces].count(T0) == 9

"""franz-go's tests of its client pkg/kgo, from the Go module proxy, against three nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.suites.go_tests import GoTests
from tests.suites.outcome import Case
from tests.suites.places import cluster_of

VERSION = "v1.22.3"
TESTS = GoTests("github.com/twmb/franz-go", VERSION, "pkg/kgo")
RECORDS, QUICK_RECORDS = 50_000, 20_000  # for a test of groups or transactions
QUICK = ("TestTxnEtl",)
CANNOT: dict[str, str] = {
    "TestConsumeRegex": "wants the topic __consumer_offsets",
}


def run(only: Sequence[str], *, quick: bool) -> Iterator[Case]:
    with cluster_of(3) as (_, servers):
        environment = {
            "KGO_SEEDS": servers,
            "KGO_TEST_RF": "3",
            "KGO_TEST_RECORDS": str(QUICK_RECORDS if quick else RECORDS),
            "KGO_LOG_LEVEL": "none",
        }
        yield from TESTS.run(only or (QUICK if quick else ()), environment)

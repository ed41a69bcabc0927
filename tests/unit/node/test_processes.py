"""Settings of a machine's processes: ids, ports, directories, budgets; and their scrape targets."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cluster.config.node_config import NodeConfig
from cluster.config.processes import check_processes, nodes_of, of_process
from cluster.config.settings import MIB
from cluster.errors import ConfigError
from cluster.node.health.memory_watch import client_memory
from cluster.node.metrics.targets import scrape_targets

PORTS = [
    *("--listen", "127.0.0.1:7001", "--kafka-listen", "127.0.0.1:9092"),
    *("--metrics-listen", "127.0.0.1:9100", "--health-listen", "127.0.0.1:7080"),
]


def machine(*argv: str, processes: int = 2) -> NodeConfig:
    return NodeConfig.load(["--processes", str(processes), *argv], {})


def test_process_0_keeps_the_places_of_a_node_alone() -> None:
    alone = NodeConfig.load([*PORTS, "--advertise", "a:1"], {})
    first = of_process(machine(*PORTS, "--advertise", "a:1"), 0)
    for name in ("node_id", "data_dir", "listen", "advertise", "kafka_listen", "metrics_listen"):
        assert getattr(first, name) == getattr(alone, name), name


def test_ids_and_ports_of_the_next_process_are_100_higher() -> None:
    config = machine(*PORTS, "--advertise", "a:1", "--kafka-advertise", "k:2", processes=3)
    check_processes(config)
    assert nodes_of(config) == [1, 101, 201]
    last = of_process(config, 2)
    assert (last.node_id, last.process) == (201, 2)
    assert (last.listen, last.advertise) == ("127.0.0.1:7201", "a:201")
    assert (last.kafka_listen, last.kafka_advertised) == ("127.0.0.1:9292", "k:202")
    assert last.metrics_listen == "127.0.0.1:9300"
    assert last.peer_listen == "127.0.0.1:17201"
    assert last.data_dir == Path("oncelog-data/processes/201")


def test_the_supervisor_answers_probes_at_the_machines_port() -> None:
    config = machine(*PORTS)
    asked = [of_process(config, process).health_listen for process in (0, 1)]
    assert asked == ["127.0.0.1:7180", "127.0.0.1:7280"]
    assert of_process(machine(), 1).health_listen == ""


def test_a_machine_alone_begins_with_all_its_processes() -> None:
    config = machine(processes=3)
    assert config.nodes == {1: "127.0.0.1:7001", 101: "127.0.0.1:7101", 201: "127.0.0.1:7201"}
    assert config.default_replicas == 3
    for process in range(3):
        assert of_process(config, process).nodes == config.nodes
        assert of_process(config, process).join == ""


def test_processes_that_nodes_names_begin_the_cluster_and_the_others_join_it() -> None:
    nodes = "1=a:7001,101=a:7101,2=b:7001,102=b:7101"
    given = ["--nodes", nodes, "--node-id", "2", "--listen", "b:7001", "--insecure"]
    config = machine(*given, processes=3)
    first, named, new = (of_process(config, process) for process in range(3))
    assert dict(first.nodes) == dict(named.nodes) == dict(config.nodes)
    assert (first.advertise, named.advertise) == ("b:7001", "b:7101")
    assert new.nodes == {202: "b:7201"}
    assert new.join == "a:7001,b:7001,a:7101,b:7101"
    joining = of_process(machine("--node-id", "4", "--join", "a:7001"), 1)
    assert (joining.nodes, joining.join) == (
        {104: "127.0.0.1:7101"},
        "a:7001,127.0.0.1:7001",
    )


def test_all_processes_have_the_machines_labels() -> None:
    named = machine("--rack", "r1", "--machine", "m7", "--node-id", "7")
    assert [(one.rack, one.machine) for one in (of_process(named, 0), of_process(named, 1))] == [
        ("r1", "m7")
    ] * 2
    assert of_process(machine("--node-id", "7"), 1).machine == "machine-7"


def test_budgets_of_the_machine_are_divided() -> None:
    given = ["--client-memory-bytes", str(2048 * MIB), "--page-cache-bytes", str(400 * MIB)]
    own = of_process(machine(*given, processes=4), 3)
    assert own.page_cache_bytes == 100 * MIB
    assert own.checkpoint_node_bytes == 64 * MIB
    assert own.tail_cache_bytes == 4 * MIB
    assert client_memory(own, 100_000 * MIB) == 512 * MIB
    assert of_process(machine("--page-cache-bytes", "0"), 1).page_cache_bytes == 0


def test_half_of_the_machines_free_memory_is_the_clients_of_all_processes() -> None:
    own = of_process(machine(processes=2), 1)
    assert client_memory(own, 3000 * MIB) == 750 * MIB
    assert client_memory(own, 100_000 * MIB) == 1024 * MIB


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--processes", "65"], "processes: '65' (--processes) must be 1..64"),
        (["--listen", "127.0.0.1:0"], "listen: port 0 must be 1..55535"),
        (["--metrics-listen", "127.0.0.1:65500"], "metrics_listen: port 65500 must be 1..65335"),
        (["--listen", "127.0.0.1:55500"], "nodes.101: port 55600 must be 1..55535"),
        (["--kafka-listen", "127.0.0.1:7101"], "would take port 7101 of kafka_listen of process 0"),
        (["--health-listen", "127.0.0.1:7101"], "would take port 7101 of health_listen"),
        (["--node-id", "2147483647"], "node_id: the last process would be node 2147483747"),
        (["--client-memory-bytes", str(256 * MIB)], "must be at least 268435456 for each of 2"),
        (["--nodes", "1=a:7001", "--node-id", "1", "--listen", "a:7001", "--tls-cert", "c",
          "--tls-key", "k"], "listen (of nodes): a:7001 is reachable"),
    ],
)  # fmt: skip
def test_a_machine_that_cannot_be(argv: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        check_processes(machine(*argv))


def test_a_process_beyond_the_machines_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"process: 2 must be 0\.\.1"):
        of_process(machine(), 2)


def test_every_process_names_all_scrape_targets() -> None:
    config = machine(*PORTS, "--advertise", "a.example:7001", "--rack", "r1", "--machine", "m1")
    answers = [scrape_targets(of_process(config, process)) for process in (0, 1)]
    assert answers[0] == answers[1]
    assert answers[0].content == "application/json"
    labels = {"__scheme__": "http", "rack": "r1", "machine": "m1"}
    assert json.loads(answers[0].body) == [
        {"targets": ["a.example:9100"], "labels": {**labels, "node": "1"}},
        {"targets": ["a.example:9200"], "labels": {**labels, "node": "101"}},
    ]


def test_a_node_alone_names_itself() -> None:
    given = ["--metrics-listen", "127.0.0.1:9100", "--tls-cert", "c", "--tls-key", "k"]
    assert json.loads(scrape_targets(NodeConfig.load(given, {})).body) == [
        {"targets": ["127.0.0.1:9100"], "labels": {"__scheme__": "https", "node": "1"}}
    ]

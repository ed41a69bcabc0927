"""A cluster's layout: one command plans and saves it, the next one loads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.layout import Layout
from harness.node_process import HarnessError


def planned(root: Path, *, proxied: bool, metrics: bool, processes: int = 1) -> Layout:
    return Layout.plan(
        root,
        3,
        {"heartbeat_ms": 50},
        cluster_id="c",
        proxied=proxied,
        metrics=metrics,
        kafka=metrics,
        disks=False,
        namespaces=False,
        ports=None,
        processes=processes,
    )


@pytest.mark.parametrize("proxied", [False, True])
def test_what_is_saved_is_loaded(tmp_path: Path, proxied: bool) -> None:
    layout = planned(tmp_path, proxied=proxied, metrics=True)
    layout.save()
    assert Layout.load(tmp_path) == layout


def test_everybody_reaches_a_node_through_the_proxy() -> None:
    layout = planned(Path("cluster"), proxied=True, metrics=False)
    specs = {node: layout.spec(node) for node in layout.listen}
    ends = {route.listen: route.target for route in layout.routes}
    for node, spec in specs.items():
        assert ends[spec.advertise] == spec.listen
        for peer, address in spec.nodes.items():
            assert ends.get(address, address) == layout.listen[peer]
            assert (address in ends) is (peer != node), "a node reaches itself directly"
    assert len(layout.routes) == 3 + 6 + 6, "clients, calls between nodes, their streams"


def test_without_a_proxy_addresses_are_the_nodes_own() -> None:
    layout = planned(Path("cluster"), proxied=False, metrics=False)
    assert layout.spec(1).nodes == layout.listen
    assert layout.client_address(2) == layout.listen[2]


def test_a_machine_has_several_nodes(tmp_path: Path) -> None:
    layout = planned(tmp_path, proxied=False, metrics=True, processes=2)
    assert [*layout.listen] == [1, 2, 3, 101, 102, 103]
    assert layout.machines == [1, 2, 3] and layout.nodes_of(2) == [2, 102]
    for addresses in (layout.listen, layout.metrics, layout.kafka):
        ports = {node: int(address.rpartition(":")[2]) for node, address in addresses.items()}
        assert len({*ports.values()}) == 6
        assert all(ports[node + 100] == ports[node] + 100 for node in layout.machines)
    spec = layout.spec(2)
    assert (spec.settings["processes"], spec.settings["machine"]) == (2, "m2")
    assert spec.nodes == layout.listen
    layout.save()
    assert Layout.load(tmp_path) == layout
    with pytest.raises(HarnessError, match="processes: not with proxied"):
        planned(tmp_path, proxied=True, metrics=False, processes=2)


def test_where_no_cluster_lies_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="there is no cluster in"):
        Layout.load(tmp_path)

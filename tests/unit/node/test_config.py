"""Settings: precedence, every refusal names key, source, value and limit."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from cluster.config.node_config import NodeConfig
from cluster.config.settings import BASIC, MIB, SETTINGS
from cluster.errors import ConfigError

THREE = "1=a:7001,2=b:7001,3=c:7001"


def load(*argv: str, **environ: str) -> NodeConfig:
    return NodeConfig.load(argv, environ)


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return str(path)


def refused(*argv: str, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        NodeConfig.load(argv, environ)
    return str(caught.value)


def test_defaults_are_one_node_on_loopback():
    config = load()
    assert config.nodes == {1: "127.0.0.1:7001"}
    assert config.advertise == "127.0.0.1:7001"
    assert config.default_replicas == 1
    assert config.data_dir == Path("oncelog-data")
    assert config.max_message_bytes == 65 * MIB
    assert not config.print_config


def test_each_setting_is_a_field_and_each_field_a_setting():
    asked = {"given", "unknown", "print_config", "next_steps", "process"}
    fields = {field.name for field in dataclasses.fields(NodeConfig)} - asked
    assert fields >= BASIC
    assert len(BASIC) == 10
    assert fields == {setting.name for setting in SETTINGS}


def test_default_values_keep_their_own_limits():
    for setting in SETTINGS:
        if setting.kind == "int":
            default: Any = getattr(NodeConfig(), setting.name)
            assert setting.low <= default <= setting.high, setting.name


def test_flags_over_environment_over_file_over_default(tmp_path):
    path = write(
        tmp_path, "heartbeat_ms = 11\nrequest_timeout_ms = 1111\nelection_timeout_ms = 1100\n"
    )
    config = load(
        "--config", path, "--heartbeat-ms", "33",
        ONCELOG_HEARTBEAT_MS="22", ONCELOG_REQUEST_TIMEOUT_MS="2222",
    )  # fmt: skip
    assert config.heartbeat_ms == 33
    assert config.request_timeout_ms == 2222
    assert config.election_timeout_ms == 1100
    assert config.retention_check_ms == 60_000


def test_config_file_named_by_environment(tmp_path):
    path = write(tmp_path, 'cluster_id = "blue"\n')
    assert load(ONCELOG_CONFIG=path).cluster_id == "blue"


def test_three_nodes_from_a_file(tmp_path):
    path = write(tmp_path, 'node_id = 2\n[nodes]\n1 = "a:1"\n2 = "b:2"\n3 = "[::1]:3"\n')
    config = load("--config", path)
    assert config.nodes == {1: "a:1", 2: "b:2", 3: "[::1]:3"}
    assert config.advertise == "b:2"
    assert config.default_replicas == 3


def test_three_nodes_from_the_environment_replace_the_files_nodes(tmp_path):
    path = write(tmp_path, 'node_id = 9\n[nodes]\n9 = "z:1"\n')
    config = load("--config", path, ONCELOG_NODES=THREE, ONCELOG_NODE_ID="3")
    assert config.nodes == {1: "a:7001", 2: "b:7001", 3: "c:7001"}
    assert config.advertise == "c:7001"


def test_advertise_is_kept_when_given():
    config = load("--nodes", THREE, "--node-id", "1", "--advertise", "public:9")
    assert config.advertise == "public:9"
    assert config.nodes[1] == "a:7001"


def test_peers_streams_have_a_port_of_their_own():
    config = load("--nodes", THREE, "--node-id", "2", "--listen", "0.0.0.0:7001",
                  "--insecure")  # fmt: skip
    assert config.peer_listen == "0.0.0.0:17001"
    assert config.peer_stream_of(3) == "c:17001"
    config = load("--nodes", "1=[::1]:7001,2=b:7002", "--node-id", "2", "--listen", "[::]:7002",
                  "--peer-port-offset", "50", "--insecure")  # fmt: skip
    assert config.peer_listen == "[::]:7052"
    assert config.peer_stream_of(1) == "[::1]:7051"


def test_a_node_alone_takes_no_streams():
    assert load("--listen", "127.0.0.1:0").peer_listen == ""
    assert load("--listen", "127.0.0.1:65000").peer_listen == ""


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--listen", "0.0.0.0:60000"], "listen: port 60000 must be 1..55535"),
        (["--listen", "0.0.0.0:0"], "listen: port 0 must be 1..55535"),
        (["--peer-port-offset", "58535"], "nodes.1: port 7001 must be 1..7000"),
        (["--peer-port-offset", "0"], "peer_port_offset: '0'"),
    ],
)
def test_a_port_for_streams_that_cannot_be(argv, says):
    listen = [] if "--listen" in argv else ["--listen", "0.0.0.0:1"]
    listen.append("--insecure")
    with pytest.raises(ConfigError, match=re.escape(says)):
        load("--nodes", THREE, "--node-id", "1", *listen, *argv)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--listen", "127.0.0.1:0"],
        ["--insecure", "--tls-cert", "a", "--tls-key", "b"],
        ["--nodes", THREE, "--node-id", "3", "--data-dir", '/x "y" \\z', "--log-level", "DEBUG"],
    ],
)
def test_printed_settings_load_to_the_same_settings(tmp_path, argv):
    config = NodeConfig.load(argv, {})
    path = write(tmp_path, config.describe())
    assert NodeConfig.load(["--config", path], {}) == config


def test_print_config_flag():
    assert load("--print-config").print_config


def test_help_lists_each_setting(capsys):
    with pytest.raises(SystemExit) as caught:
        load("--help")
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    for setting in SETTINGS:
        assert setting.flag in shown


def test_unknown_key_in_the_file_names_key_and_file(tmp_path):
    path = write(tmp_path, "heartbeat = 3\n")
    message = refused("--config", path)
    assert "'heartbeat'" in message
    assert path in message


def test_unknown_variable_is_named():
    assert "ONCELOG_HEARTBEET_MS" in refused(ONCELOG_HEARTBEET_MS="1")


def test_other_peoples_variables_are_left_alone():
    load(ONCELOG_BOOTSTRAP="x:1", ONCELOG_TEST_SEED="5", PATH="/bin", HEARTBEAT_MS="x")


def test_unknown_flag_is_named():
    assert "--heartbeet" in refused("--heartbeet", "3")
    assert "--heart" in refused("--heart", "3"), "no abbreviations: they change meaning later"


@pytest.mark.parametrize("value", ["4", "10001", "x", "1.5", ""])
def test_bad_number_names_key_source_value_and_limit(value):
    message = refused("--heartbeat-ms", value)
    assert message.startswith("heartbeat_ms: ")
    assert "--heartbeat-ms" in message
    assert repr(value) in message
    assert "5..10000" in message or "whole number" in message


@pytest.mark.parametrize("text", ["true", "1.0", '"x"', "[1]", "-5"])
def test_bad_number_in_the_file(tmp_path, text):
    path = write(tmp_path, f"heartbeat_ms = {text}\n")
    message = refused("--config", path)
    assert message.startswith("heartbeat_ms: ")
    assert path in message


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost",
        ":1",
        "a:",
        "a:x",
        "a:65536",
        "a:-1",
        "::1:80",
        "a b:1",
        "a:٣",
        "x" * 300 + ":1",
    ],
)
def test_bad_listen_address(address):
    assert refused("--listen", address).startswith("listen: ")


def test_only_listeners_may_ask_for_any_port():
    assert load("--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0").listen
    assert "port must be 1..65535" in refused("--advertise", "a:0")
    assert "port must be 1..65535" in refused("--nodes", "1=a:0", "--node-id", "1")


@pytest.mark.parametrize(
    ("nodes", "part"),
    [
        ("1", "must look like"),
        ("0=a:1", "node id '0'"),
        ("x=a:1", "node id 'x'"),
        ("1=a:1,1=b:1", "is listed twice"),
        ("1=a:1,2=a:1", "nodes.2"),
        ("1=a", "nodes.1"),
        (",".join(f"{i}=h{i}:1" for i in range(1, 66)), "at most 64"),
    ],
)
def test_bad_nodes(nodes, part):
    assert part in refused("--nodes", nodes, "--node-id", "1")


def test_bad_nodes_in_the_file(tmp_path):
    assert "nodes.1" in refused("--config", write(tmp_path, "node_id = 1\n[nodes]\n1 = 5\n"))
    assert "must be a table" in refused("--config", write(tmp_path, "nodes = 5\n"))


def test_a_node_outside_nodes_joins_through_them():
    config = load("--nodes", THREE, "--node-id", "4", "--advertise", "d:7001")
    assert (config.nodes, config.join) == ({4: "d:7001"}, "a:7001,b:7001,c:7001")
    assert config.peer_listen  # it is not alone
    config = load("--nodes", THREE, "--node-id", "4", "--advertise", "d:7001", "--join", "e:1")
    assert config.join == "e:1,a:7001,b:7001,c:7001"
    everywhere = ("--listen", "0.0.0.0:7001", "--insecure")
    message = refused("--nodes", THREE, "--node-id", "4", *everywhere)
    assert message.startswith("advertise: clients cannot connect to 0.0.0.0:7001")
    assert refused("--nodes", THREE).startswith("node_id: must be set")


def test_contradictions_are_refused():
    assert "heartbeat_ms" in refused("--heartbeat-ms", "500")
    assert "lease_lifetime_ms" in refused("--producer-name-expiry-ms", "1000")
    assert refused("--default-replicas", "2").startswith("default_replicas: ")
    assert refused("--listen", "0.0.0.0:7001").startswith("advertise: ")
    assert load("--listen", "0.0.0.0:7001", "--nodes", THREE, "--node-id", "1", "--insecure").listen


def test_bad_strings():
    assert refused("--cluster-id", "").startswith("cluster_id: ")
    assert refused("--cluster-id", "a\nb").startswith("cluster_id: ")
    assert "debug, info" in refused("--log-level", "loud")


def test_bad_string_in_the_file(tmp_path):
    assert "must be a string" in refused("--config", write(tmp_path, "cluster_id = 5\n"))


def test_missing_and_broken_files(tmp_path):
    missing = str(tmp_path / "none.toml")
    assert missing in refused("--config", missing)
    broken = write(tmp_path, "a = = b")
    assert "not valid TOML" in refused("--config", broken)
    Path(broken).write_bytes(b"\xff\xfe")
    assert "not valid TOML" in refused("--config", broken)


CLIENTS = ["--tls-cert", "c.crt", "--tls-key", "c.key"]
NODES = ["--peer-cert", "p.crt", "--peer-key", "p.key", "--peer-ca", "p.ca"]
OPEN = ["--listen", "10.0.0.1:7001"]
SEVERAL = ["--nodes", THREE, "--node-id", "1"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (OPEN, "listen: 10.0.0.1:7001 is reachable from other machines, and without tls_cert"),
        ([*OPEN, *SEVERAL, *CLIENTS], "listen (of nodes): 10.0.0.1:7001 is reachable from"),
        ([*OPEN, *SEVERAL, *NODES], "listen: 10.0.0.1:7001 is reachable from"),
        (["--metrics-listen", "0.0.0.0:9"], "metrics_listen: 0.0.0.0:9 is reachable from"),
        (["--listen", "a.localhost:7001"], "listen: a.localhost:7001 is reachable from"),
        (["--tls-cert", "c.crt"], "tls_cert, tls_key: both or neither"),
        (["--tls-ca", "ca.crt"], "tls_ca needs them"),
        (["--peer-ca", "ca.crt"], "peer_cert, peer_key, peer_ca: all three or none"),
        (["--jwt-issuer", "x"], "jwt_issuer, jwt_audience: all three or none"),
        (["--jwt-keys", "k", "--jwt-keys-url", "https://a/b"], "only one of them may be set"),
        (["--jwt-keys-ca", "c"], "jwt_keys_ca: needs jwt_keys_url"),
        *(
            (["--jwt-keys-url", url], "must be https://HOST[:PORT]/PATH, without a user")
            for url in (
                "http://a/b",
                "file:///etc/passwd",
                "https://",
                "https://u:p@a/b",
                "a",
                "https://a:99999/",
                "https://a/b c",
                "https://a/#b",
                "https://[::1/",
            )
        ),
        (["--tokens-file", "t"], "tokens_file: needs tls_cert: without TLS"),
        (["--permissions"], "permissions: needs a way to identify callers"),
        ([*CLIENTS, "--permissions", "--superusers", "a"], "permissions: needs a way"),
        (
            [*CLIENTS, "--tls-ca", "a", "--permissions"],
            "permissions: needs a way to identify callers",
        ),
    ],
)
def test_a_port_is_not_open_to_all_by_mistake(argv, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        load(*argv)


@pytest.mark.parametrize(
    "argv",
    [
        ["--listen", "127.0.0.2:7001"],
        ["--listen", "localhost:7001"],
        ["--listen", "[::1]:7001"],
        [*OPEN, *CLIENTS],
        [*OPEN, *CLIENTS, "--metrics-listen", "10.0.0.1:9"],
        [*OPEN, *SEVERAL, *CLIENTS, *NODES],
        [*OPEN, *SEVERAL, "--insecure"],
    ],
)
def test_loopback_tls_and_insecure_are_taken(argv):
    assert load(*argv).insecure == ("--insecure" in argv)


def test_the_address_for_kafkas_clients_follows_from_the_others():
    assert load().kafka_advertised == ""
    own = ["--nodes", THREE, "--node-id", "3", "--listen", "c:7001", "--insecure"]
    assert load(*own, "--kafka-listen", "0.0.0.0:9092").kafka_advertised == "c:9092"
    told = load(*own, "--kafka-listen", "0.0.0.0:9092", "--kafka-advertise", "k:1")
    assert told.kafka_advertised == "k:1"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--kafka-listen", "127.0.0.1:0"], "kafka_listen: '127.0.0.1:0'"),
        (["--kafka-listen", "0.0.0.0:9092"], "kafka_listen: 0.0.0.0:9092 is reachable"),
        (["--kafka-advertise", "0.0.0.0:9092"], "kafka_advertise: clients cannot connect"),
    ],
)
def test_a_port_for_kafkas_clients_that_cannot_be(argv, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        load(*argv)


def test_a_flag_is_true_or_false_wherever_it_stands(tmp_path):
    file = tmp_path / "node.toml"
    file.write_text("insecure = true\n")
    assert load("--config", str(file)).insecure
    assert NodeConfig.load([], {"ONCELOG_INSECURE": "true"}).insecure
    assert not NodeConfig.load([], {"ONCELOG_INSECURE": "false"}).insecure
    with pytest.raises(ConfigError, match=r"insecure: 'yes' .* must be true or false"):
        NodeConfig.load([], {"ONCELOG_INSECURE": "yes"})


def test_variables_of_kubernetes_are_no_settings():
    """Kubernetes sets them in each pod for Services called oncelog and oncelog-nodes."""
    port = "tcp://10.0.0.1:7001"
    for service in ("ONCELOG", "ONCELOG_NODES"):
        given = {
            f"{service}_SERVICE_HOST": "10.0.0.1",
            f"{service}_SERVICE_PORT": "7001",
            f"{service}_SERVICE_PORT_CLIENTS": "7001",
            f"{service}_PORT": port,
            f"{service}_PORT_7001_TCP": port,
            f"{service}_PORT_7001_TCP_PROTO": "tcp",
            f"{service}_PORT_7001_TCP_PORT": "7001",
            f"{service}_PORT_7001_TCP_ADDR": "10.0.0.1",
        }
        assert load(**given).unknown == ()


def test_a_variable_of_somebody_elses_is_told_with_the_nearest_setting():
    unknown = load(ONCELOG_IMAGE="oncelog:1", ONCELOG_JWT_ISS="x").unknown
    assert unknown[0][0] == "ONCELOG_IMAGE"
    assert unknown[1] == ("ONCELOG_JWT_ISS", "ONCELOG_JWT_ISSUER")


@pytest.mark.parametrize(
    ("name", "meant"),
    [("ONCELOG_PERMISSION", "PERMISSIONS"), ("ONCELOG_PEER_PORT_OFSET", "PEER_PORT_OFFSET")],
)
def test_a_misspelt_variable_is_refused(name, meant):
    assert f"{name!r}; did you mean ONCELOG_{meant}?" in refused(**{name: "true"})


def test_a_password_in_an_address_is_not_printed():
    for setting in ("listen", "advertise", "join"):
        said = refused(**{f"ONCELOG_{setting.upper()}": "user:secret@host:7001"})
        assert "secret" not in said and "***@host:7001" in said
    assert "secret" not in refused(ONCELOG_NODES="1=user:secret@a:1", ONCELOG_NODE_ID="1")


def test_an_ipv6_host_without_brackets_is_told_the_form():
    assert "in brackets: [::1]:7001" in refused(ONCELOG_LISTEN="::1:7001")


def test_labels_name_the_rack_and_the_machine():
    assert load().rack == load().machine == ""
    config = load("--rack", "eu-west-1a", "--machine", "host.example:7/b")
    assert (config.rack, config.machine) == ("eu-west-1a", "host.example:7/b")
    for label in ("a b", "a" * 65, "ä", "a\n"):
        text = "must have ..64 of letters, digits, and . _ : / -"
        assert text in refused("--rack", label) and text in refused("--machine", label)

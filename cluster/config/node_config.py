"""Settings of a node, read once at start: flags over environment over file over defaults.

`NodeConfig.load(argv, environ)` is the only way in. Nothing is repaired silently: an unknown
key of the file, a misspelt variable, a bad value or two settings that contradict each other
raise `ConfigError` with the key, its source, the value and the limit.

A setting's type, limits and help stand once, in `settings.py`; the flag
`--election-timeout-ms`, the variable `ONCELOG_ELECTION_TIMEOUT_MS` and the TOML
key `election_timeout_ms` all follow from it.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NoReturn

from cluster.config.addresses import host_and_port, shifted, with_port
from cluster.config.exposure import check_exposure
from cluster.config.settings import (
    BASIC,
    DAY_MS,
    ENV_PREFIX,
    HOUR_MS,
    MAX_NODE_ID,
    MIB,
    MINUTE_MS,
    PROCESS_STEP,
    SETTINGS,
    Setting,
)
from cluster.errors import ConfigError

# The command line client and the tests own these variables with our prefix.
FOREIGN_ENV = (
    "ONCELOG_BOOTSTRAP", "ONCELOG_CLIENT_", "ONCELOG_PROFILE", "ONCELOG_TEST_", "ONCELOG_BENCH_",
)  # fmt: skip
# Kubernetes gives them to every pod for each Service of the namespace, one called oncelog, say.
_KUBERNETES_ENV = re.compile(
    ENV_PREFIX + r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)
MISSPELT = 0.85  # similarity to a setting's name from which a variable counts as misspelt
ENV_CONFIG_FILE = "ONCELOG_CONFIG"
DEFAULT_LISTEN = "127.0.0.1:7001"
DEFAULT_REPLICAS = 3

# Room in a message beside the payload of its largest batch.
MESSAGE_OVERHEAD_BYTES = MIB
LARGEST_MESSAGE_BYTES = 64 * MIB + MESSAGE_OVERHEAD_BYTES  # for any max_batch_bytes
MAX_NODES = 64
MAX_ADDRESS_CHARS = 255
MAX_LABEL_CHARS = 64
_LABEL = re.compile(rf"[A-Za-z0-9._:/-]{{,{MAX_LABEL_CHARS}}}")
TOLD = ("advertise", "kafka_listen", "kafka_advertise")  # addresses or ports that others are told
WILDCARD_HOSTS = ("0.0.0.0", "[::]", "*")
_BY_NAME = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Checked settings. Times are milliseconds, sizes bytes, addresses "host:port"."""

    cluster_id: str = "oncelog"
    node_id: int = 1
    data_dir: Path = Path("oncelog-data")
    listen: str = DEFAULT_LISTEN
    advertise: str = ""
    nodes: Mapping[int, str] = field(default_factory=dict)
    join: str = ""
    found: str = ""
    processes: int = 1
    rack: str = ""
    machine: str = ""
    peer_port_offset: int = 10_000
    kafka_listen: str = ""
    kafka_advertise: str = ""
    kafka_auto_create: bool = False
    kafka_compact: str = "compact"
    kafka_initial_rebalance_delay_ms: int = 3000
    kafka_max_transaction_timeout_ms: int = 900_000
    metrics_listen: str = ""
    health_listen: str = ""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    peer_cert: Path | None = None
    peer_key: Path | None = None
    peer_ca: Path | None = None
    tokens_file: Path | None = None
    jwt_keys: Path | None = None
    jwt_keys_url: str = ""
    jwt_keys_ca: Path | None = None
    jwt_issuer: str = ""
    jwt_audience: str = ""
    permissions: bool = False
    superusers: str = ""
    audit_file: Path | None = None
    connection_age_ms: int = HOUR_MS
    max_connections: int = 10_000
    insecure: bool = False
    election_timeout_ms: int = 1000
    heartbeat_ms: int = 100
    clock_bound_ms: int = 10_000
    request_timeout_ms: int = 10_000
    max_batch_bytes: int = 64 * MIB
    learner_bytes_per_s: int = 0
    lease_lifetime_ms: int = DAY_MS
    producer_name_expiry_ms: int = 7 * DAY_MS
    pid_block_size: int = 100
    default_partitions: int = 6
    default_replicas: int = DEFAULT_REPLICAS
    preferred_leader_delay_ms: int = 5000
    handover_timeout_ms: int = 8000
    checkpoint_bytes: int = 64 * MIB
    checkpoint_entries: int = 100_000
    checkpoint_node_bytes: int = 256 * MIB
    repair_after_ms: int = 5000
    retention_check_ms: int = MINUTE_MS
    cleaner_bytes_per_s: int = 10_000_000
    cleaner_memory_bytes: int = 256 * MIB
    upgrade_auto_finalize_ms: int = DAY_MS
    log_level: str = "info"
    log_format: str = "text"
    fetch_max_bytes: int = 4 * MIB
    tail_cache_bytes: int = 16 * MIB
    page_cache_bytes: int = 1024 * MIB
    client_memory_bytes: int = 1024 * MIB
    last_seen_capacity: int = 1_000_000
    # Names of the settings that were given, and are not defaults.
    given: frozenset[str] = field(default=frozenset(), compare=False)
    # Variables with our prefix that are not settings, each with the nearest setting's name.
    unknown: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    # From the command line: print the settings and stop; print the next steps for a new user.
    print_config: bool = False
    next_steps: bool = False
    # Number of this process on its machine, from the supervisor; None: there is no supervisor.
    process: int | None = None

    @property
    def wanted_replicas(self) -> int:
        """Replicas of a topic that names no number, once there are enough nodes.

        `default_replicas` is at most the number of the first nodes, unless it was given.
        """
        return self.default_replicas if "default_replicas" in self.given else DEFAULT_REPLICAS

    @property
    def max_message_bytes(self) -> int:
        """Return the largest gRPC message that a node sends or takes."""
        return self.max_batch_bytes + MESSAGE_OVERHEAD_BYTES

    @property
    def peer_listen(self) -> str:
        """Return where this node takes its peers' streams; empty if it starts without peers."""
        alone = len(self.nodes) == 1 and not self.join
        return "" if alone else shifted(self.listen, self.peer_port_offset)

    def peer_stream_of(self, node: int) -> str:
        """Return where `node` takes its peers' streams."""
        return shifted(self.nodes[node], self.peer_port_offset)

    @property
    def advertised(self) -> str:
        """Return the address for clients that this node registers."""
        return self.advertise

    @property
    def kafka_advertised(self) -> str:
        """Return the address for clients of Kafka's protocol; empty: they are not served."""
        if not self.kafka_listen:
            return ""
        port = host_and_port(self.kafka_listen)[1]
        return self.kafka_advertise or with_port(self.advertise, port)

    @classmethod
    def load(cls, argv: Sequence[str], environ: Mapping[str, str]) -> NodeConfig:
        """Read the settings from `argv` (without the program's name), `environ` and the file.

        Raises ConfigError. `--help` prints and raises SystemExit(0), as argparse does.
        """
        flags = vars(_parser().parse_args(list(argv)))
        print_config = bool(flags.pop("print_config", False))
        next_steps = bool(flags.pop("next_steps", False))
        process = flags.pop("process", None)
        path = flags.pop("config", None) or environ.get(ENV_CONFIG_FILE)
        given: dict[str, _Given] = {}
        if path:
            given.update(_from_file(Path(path)))
        given.update(_from_env(environ))
        unknown = tuple(_unknown_env(environ))
        for name, value in flags.items():
            given[name] = _Given(value, _BY_NAME[name].flag)
        values = {name: _convert(_BY_NAME[name], item) for name, item in given.items()}
        return dataclasses.replace(
            _resolve(values, given),
            given=frozenset(values),
            unknown=unknown,
            print_config=print_config,
            next_steps=next_steps,
            process=process,
        )

    def describe(self) -> str:
        """Return the settings as a file that `load` reads back to the same settings."""
        # A node alone that listens on any free port has no address to print.
        alone = self.nodes == {self.node_id: self.listen}
        lines = []
        for setting in SETTINGS:
            value = getattr(self, setting.name)
            if setting.kind == "nodes":
                continue
            if value is None or (alone and setting.name == "advertise" and value == self.listen):
                value = ""
            if setting.kind in ("int", "flag"):
                shown = str(value).lower()
            else:
                shown = _toml_string(str(value))
            lines.append(f"{setting.name} = {shown}")
        if not alone:
            lines += ["", "[nodes]"]
            lines += [f"{node} = {_toml_string(peer)}" for node, peer in self.nodes.items()]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Given:
    """A given value, and its source for messages."""

    value: Any
    source: str


class _Parser(argparse.ArgumentParser):
    """argparse that reports through ConfigError instead of printing and exiting."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"command line: {message}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="oncelog server",
        usage="oncelog server [SETTING ...]",
        description="Starts one Oncelog node. Flags override ONCELOG_* variables, which override "
        "the file.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file with the settings below")
    parser.add_argument("--print-config", action="store_true", help="print the settings and stop")
    parser.add_argument("--next-steps", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    defaults = {field.name: field.default for field in dataclasses.fields(NodeConfig)}
    basic = parser.add_argument_group("basic settings")
    advanced = parser.add_argument_group("advanced settings")
    for setting in SETTINGS:
        _add_flag(basic if setting.name in BASIC else advanced, setting, defaults[setting.name])
    return parser


def _add_flag(group: argparse._ArgumentGroup, setting: Setting, default: object) -> None:
    if setting.kind == "flag":
        group.add_argument(
            setting.flag, dest=setting.name, action="store_const", const=True, help=setting.help
        )
        return
    limits = f", {setting.low}..{setting.high}" if setting.kind == "int" else ""
    known = isinstance(default, int | str | Path) and default != ""
    shown = f" (default {default}{limits})" if known else ""
    group.add_argument(
        setting.flag,
        dest=setting.name,
        metavar="N" if setting.kind == "int" else "VALUE",
        help=(setting.help + shown).replace("%", "%%"),
    )


def _from_file(path: Path) -> dict[str, _Given]:
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"config file {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"config file {path}: not valid TOML: {error}") from error
    unknown = sorted(set(table) - set(_BY_NAME))
    if unknown:
        raise ConfigError(f"config file {path}: unknown key {_listed(unknown)}")
    return {name: _Given(value, f"config file {path}") for name, value in table.items()}


def _from_env(environ: Mapping[str, str]) -> dict[str, _Given]:
    return {
        setting.name: _Given(environ[setting.env], f"environment variable {setting.env}")
        for setting in SETTINGS
        if setting.env in environ
    }


def _unknown_env(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield foreign variables, each with the nearest setting's.

    Raises ConfigError for a misspelt setting: a node without permissions, say, must not start
    unnoticed.
    """
    ours = {setting.env for setting in SETTINGS} | {ENV_CONFIG_FILE}
    for key in sorted(environ):
        if not key.startswith(ENV_PREFIX) or key.startswith(FOREIGN_ENV) or key in ours:
            continue
        if _KUBERNETES_ENV.fullmatch(key):
            continue
        alike = {name: SequenceMatcher(None, _bare(key), _bare(name)).ratio() for name in ours}
        nearest = max(sorted(ours), key=lambda name: alike[name])
        if alike[nearest] >= MISSPELT:
            raise ConfigError(f"environment: unknown key {key!r}; did you mean {nearest}?")
        yield key, nearest


def _bare(key: str) -> str:
    return key.removeprefix(ENV_PREFIX)


def _convert(setting: Setting, given: _Given) -> Any:
    """Return `given` as the setting's type, within its limits."""
    match setting.kind:
        case "int":
            return _convert_int(setting, given)
        case "nodes":
            return _convert_nodes(given)
        case "flag":
            return _convert_flag(setting, given)
    if not isinstance(given.value, str):
        raise _bad(setting.name, given, "must be a string")
    text = given.value
    if setting.choices:
        if text.lower() not in setting.choices:
            raise _bad(setting.name, given, "must be one of " + ", ".join(setting.choices))
        return text.lower()
    if setting.kind == "addr" or (setting.kind == "optaddr" and text):
        # A listener may ask for any free port; an address told to others may not.
        check_address(setting.name, given, text, low_port=int(setting.name in TOLD))
        return text
    if setting.kind == "label" and not _LABEL.fullmatch(text):
        limit = f"must have ..{MAX_LABEL_CHARS} of letters, digits, and . _ : / -"
        raise _bad(setting.name, given, limit)
    if setting.kind in ("path", "optstr"):
        if len(text) > MAX_ADDRESS_CHARS or not text.isprintable():
            raise _bad(setting.name, given, f"must have ..{MAX_ADDRESS_CHARS} printable chars")
        if setting.kind == "optstr":
            return text
        return Path(text) if text else None
    if setting.kind == "str":
        if not text or len(text) > MAX_ADDRESS_CHARS or not text.isprintable():
            raise _bad(setting.name, given, f"must have 1..{MAX_ADDRESS_CHARS} printable chars")
        return Path(text) if setting.name == "data_dir" else text
    return text


def _convert_int(setting: Setting, given: _Given) -> int:
    value = given.value
    if isinstance(value, str):
        try:
            value = int(value.strip())
        except ValueError:
            raise _bad(setting.name, given, "must be a whole number") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _bad(setting.name, given, "must be a whole number")
    if not setting.low <= value <= setting.high:
        raise _bad(setting.name, given, f"must be {setting.low}..{setting.high}")
    return value


def _convert_flag(setting: Setting, given: _Given) -> bool:
    if isinstance(given.value, bool):
        return given.value
    if given.value not in ("true", "false"):
        raise _bad(setting.name, given, "must be true or false")
    return bool(given.value == "true")


def _convert_nodes(given: _Given) -> dict[int, str]:
    """Parse a table {"1": "host:port"} or the text "1=host:port,2=host:port"."""
    pairs: list[tuple[str, object]] = []
    if isinstance(given.value, dict):
        pairs = list(given.value.items())
    elif isinstance(given.value, str):
        for part in filter(None, (part.strip() for part in given.value.split(","))):
            number, sep, text = part.partition("=")
            if not sep:
                raise _bad("nodes", given, "must look like 1=host:port,2=host:port")
            pairs.append((number.strip(), text.strip()))
    else:
        raise _bad("nodes", given, "must be a table of id = address")
    nodes: dict[int, str] = {}
    for number, address in pairs:
        key = _Given(address, given.source)
        if not (number.isascii() and number.isdigit() and 1 <= int(number) <= MAX_NODE_ID):
            raise _bad("nodes", given, f"node id {number!r} must be 1..{MAX_NODE_ID}")
        if not isinstance(address, str):
            raise _bad(f"nodes.{number}", key, 'must be a string "host:port"')
        check_address(f"nodes.{number}", key, address, low_port=1)
        if int(number) in nodes:
            raise _bad("nodes", given, f"node id {number} is listed twice")
        same = [node for node, taken in nodes.items() if taken == address]
        if same:
            raise _bad(f"nodes.{number}", key, f"is the address of node {same[0]}, too")
        nodes[int(number)] = address
    if len(nodes) > MAX_NODES:
        raise _bad("nodes", given, f"must name at most {MAX_NODES} nodes")
    return nodes


def check_address(name: str, given: _Given, text: str, *, low_port: int) -> None:
    """Raise ConfigError unless `text` is host:port, with [brackets] around an IPv6 host."""
    host, _, port = text.rpartition(":")
    in_brackets = host.startswith("[") and host.endswith("]") and len(host) > 2
    if ":" in host and not in_brackets and "@" not in host and "/" not in host:
        raise _bad(name, given, "must be host:port, with an IPv6 host in brackets: [::1]:7001")
    if not host or (":" in host and not in_brackets) or any(c.isspace() or c in "@/" for c in text):
        raise _bad(name, given, "must be host:port")
    if not (port.isascii() and port.isdigit() and low_port <= int(port) <= 65535):
        raise _bad(name, given, f"port must be {low_port}..65535")
    if len(text) > MAX_ADDRESS_CHARS:
        raise _bad(name, given, f"must have at most {MAX_ADDRESS_CHARS} characters")


def _resolve(values: dict[str, Any], given: Mapping[str, _Given]) -> NodeConfig:
    """Fill in the defaults that depend on other settings; refuse contradictions."""
    config = NodeConfig(**{name: value for name, value in values.items() if name != "nodes"})
    nodes: dict[int, str] = values.get("nodes") or {}
    if nodes and "node_id" not in values:
        raise ConfigError(f"node_id: must be set where nodes is ({given['nodes'].source})")
    for address in config.join.split(",") if config.join else ():
        check_address("join", given["join"], address.strip(), low_port=1)
    if nodes and config.node_id not in nodes:  # it joins through them, once it is added
        join = ",".join(filter(None, (config.join, *nodes.values())))
        config, nodes = dataclasses.replace(config, join=join), {}
    own, first = config.node_id, config.advertise or config.listen
    steps = range(0, 1 if config.join else config.processes * PROCESS_STEP, PROCESS_STEP)
    nodes = nodes or {own + step: shifted(first, step) if step else first for step in steps}
    advertise = config.advertise or nodes[config.node_id]
    for name, address in (("advertise", advertise), ("kafka_advertise", config.kafka_advertise)):
        if address.rpartition(":")[0] in WILDCARD_HOSTS:
            text = f"clients cannot connect to {address}; name an address they can reach"
            raise ConfigError(f"{name}: {text}")
    alone = len(nodes) == 1 and not config.join
    if not alone:
        check_peer_ports(config, nodes)
    check_exposure(config, alone=alone)
    if config.default_replicas > len(nodes) and not config.join:
        if "default_replicas" in given:
            raise _bad("default_replicas", given["default_replicas"],
                       f"must be at most the number of nodes, {len(nodes)}")  # fmt: skip
        config = dataclasses.replace(config, default_replicas=len(nodes))
    if config.heartbeat_ms * 3 > config.election_timeout_ms:
        raise ConfigError(
            f"heartbeat_ms: {config.heartbeat_ms} must be at most a third of "
            f"election_timeout_ms, {config.election_timeout_ms}"
        )
    if config.producer_name_expiry_ms < config.lease_lifetime_ms:
        raise ConfigError(
            f"producer_name_expiry_ms: {config.producer_name_expiry_ms} must be at least "
            f"lease_lifetime_ms, {config.lease_lifetime_ms}"
        )
    return dataclasses.replace(config, nodes=dict(sorted(nodes.items())), advertise=advertise)


def check_peer_ports(config: NodeConfig, nodes: Mapping[int, str]) -> None:
    """Raise ConfigError unless each port has one above it for the peers' streams."""
    addresses = {"listen": config.listen}
    addresses |= {f"nodes.{node}": address for node, address in nodes.items()}
    highest = 65535 - config.peer_port_offset
    for name, address in addresses.items():
        _, port = host_and_port(address)
        if not 1 <= port <= highest:
            raise ConfigError(
                f"{name}: port {port} must be 1..{highest}, since peers' streams are taken "
                f"{config.peer_port_offset} above it (peer_port_offset)"
            )


def _bad(name: str, given: _Given, limit: str) -> ConfigError:
    # A password in an address or a URL is not printed.
    shown = re.sub(r"[^\s,=/'\"]+@", "***@", repr(given.value))
    return ConfigError(f"{name}: {shown} ({given.source}) {limit}")


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(map(repr, keys))


def _toml_string(text: str) -> str:
    """Return `text` as a basic TOML string; settings hold no control characters."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

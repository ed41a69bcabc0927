"""Table of a node's settings: name, type, limits and help of each, once.

config.py --reads flags, environment and file by--> SETTINGS
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB
SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

ENV_PREFIX = "ONCELOG_"
MAX_NODE_ID = 2**31 - 1
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: `kind` is int, str, addr, optaddr, path, flag, level or nodes.

    A path may be left out, a flag is given without a value. Limits are inclusive.
    """

    name: str
    kind: str
    help: str
    low: int = 0
    high: int = 0

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper()


def _int(name: str, low: int, high: int, text: str) -> Setting:
    return Setting(name, "int", text, low, high)


SETTINGS: tuple[Setting, ...] = (
    Setting("cluster_id", "str", "name that all nodes of the cluster share"),
    _int("node_id", 1, MAX_NODE_ID, "this node's number in the cluster"),
    Setting("data_dir", "str", "directory of this node's data"),
    Setting("listen", "addr", "address to serve clients at"),
    Setting("advertise", "optaddr", "address that clients are told (default: own in nodes)"),
    Setting("nodes", "nodes",
            "all nodes, as 1=host:port,2=host:port; their ids stay (default: only this)"),
    Setting("join", "optstr",
            "nodes of a cluster that a new data directory joins, host:port, separated by commas"),
    Setting("found", "optstr",
            "id of this new data directory: found a cluster though not all of nodes answer"),
    _int("peer_port_offset", 1, 60_000,
         "nodes send each other the log at their ports in nodes plus this"),
    Setting("metrics_listen", "optaddr", "address of the metrics page; empty: none"),
    Setting("tls_cert", "path", "certificate that clients are shown, PEM; empty: no TLS"),
    Setting("tls_key", "path", "its key, PEM, a file that only the node may read"),
    Setting("tls_ca", "path", "CAs of clients, which must show a certificate; empty: none must"),
    Setting("peer_cert", "path", "certificate that other nodes are shown, PEM; empty: no TLS"),
    Setting("peer_key", "path", "its key, PEM, a file that only the node may read"),
    Setting("peer_ca", "path", "CAs of the nodes' certificates, PEM"),
    Setting("tokens_file", "path", "static tokens, hashed: NAME scrypt:... lines; empty: none"),
    Setting("jwt_keys", "path", "JSON Web Key Set of whoever issues JWTs; empty: none are taken"),
    Setting("jwt_keys_url", "optstr", "where to fetch such a set instead, https://..."),
    Setting("jwt_keys_ca", "path", "CAs of that URL's server, PEM; empty: the system's"),
    Setting("jwt_issuer", "optstr", "what JWTs must name as iss"),
    Setting("jwt_audience", "optstr", "what JWTs must name as aud"),
    Setting("permissions", "flag", "allow only what `oncelog acl` rules allow; default: all may"),
    Setting("superusers", "optstr", "principals that may do everything, separated by commas"),
    Setting("audit_file", "path", "where refused and administrative calls are noted; empty: none"),
    _int("connection_age_ms", SECOND_MS, 30 * DAY_MS,
         "with TLS: how long a client's connection lasts before it must be made anew"),
    _int("max_connections", 10, 1_000_000,
         "clients' connections that are open at a time; fewer where open files are limited"),
    Setting("insecure", "flag", "listen without TLS beyond this machine's loopback"),
    _int("election_timeout_ms", 50, MINUTE_MS, "silence after which a leader is replaced"),
    _int("heartbeat_ms", 5, 10 * SECOND_MS, "how often a leader is heard at least"),
    _int("clock_bound_ms", 100, HOUR_MS,
         "how far a node's wall clock may be from a majority's before it may not lead"),
    _int("request_timeout_ms", 100, 10 * MINUTE_MS, "longest wait for a commit"),
    # These four are the cluster's: a new one is founded with them (`oncelog cluster config set`).
    _int("max_batch_bytes", KIB, 64 * MIB, "cap on the topics' max_batch_bytes"),
    _int("learner_bytes_per_s", 0, 1 << 40,
         "how fast leaders of this node fill new replicas, all together; 0: no limit"),
    _int("lease_lifetime_ms", SECOND_MS, 30 * DAY_MS, "how long a producer id is valid"),
    _int("producer_name_expiry_ms", SECOND_MS, 365 * DAY_MS,
         "idle time after which a producer name is forgotten"),
    _int("pid_block_size", 1, 100_000, "producer ids that a node takes at a time"),
    _int("default_partitions", 1, 1000, "partitions of a topic that names no number"),
    _int("default_replicas", 1, 9, "replicas of a topic that names no number"),
    _int("preferred_leader_delay_ms", 0, HOUR_MS,
         "how long a preferred leader must be back before it leads again; longer after each loss"),
    _int("handover_timeout_ms", 0, HOUR_MS,
         "how long a node that is stopped hands over what it leads, before it stops all the same"),
    _int("checkpoint_bytes", 64 * KIB, 16 * 1024 * MIB,
         "log bytes of a partition between two snapshots of its state"),
    _int("checkpoint_entries", 10, 100_000_000,
         "log entries of a partition between two snapshots of its state"),
    _int("checkpoint_node_bytes", 64 * KIB, 1024 * 1024 * MIB,
         "log bytes of all partitions since their snapshots, each entry with 16 KiB more"),
    _int("repair_after_ms", 0, DAY_MS,
         "how long a damaged replica is left before it is made anew from its leader; 0: for ever"),
    _int("retention_check_ms", 100, DAY_MS, "how often old records are dropped"),
    _int("upgrade_auto_finalize_ms", 0, 30 * DAY_MS,
         "how long all nodes run a newer release before it is finalized by itself; 0: never"),
    Setting("log_level", "level", "one of " + ", ".join(LOG_LEVELS)),
    _int("fetch_max_bytes", KIB, 64 * MIB, "payload bytes in a fetch response"),
    _int("tail_cache_bytes", 64 * KIB, 16 * 1024 * MIB,
         "memory for the newest entries of all partitions, in equal shares, 256 KiB each at least"),
    _int("page_cache_bytes", 0, 1024 * 1024 * MIB,
         "bytes of its log that the node leaves in the system's page cache; 0: no limit"),
    _int("client_memory_bytes", 256 * MIB, 1024 * 1024 * MIB,
         "memory above the empty node's that clients may make it use, about; by default no more "
         "than half of what the machine or container has left"),
    _int("last_seen_capacity", 100, 100_000_000,
         "producers that a partition remembers at most"),
)  # fmt: skip

# Most nodes start with these; `--help` shows them first.
BASIC = frozenset(
    {
        "cluster_id", "node_id", "data_dir", "listen", "advertise", "nodes", "join",
        "metrics_listen", "insecure", "log_level",
    }
)  # fmt: skip

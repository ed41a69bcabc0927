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
PROCESS_STEP = 100  # from a process's node id and ports to those of the machine's next one
KAFKA_COMPACT = ("compact", "keep")
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: `kind` is int, str, optstr, label, addr, optaddr, path, flag, choice or nodes.

    A path may be left out, a flag is given without a value. Limits are inclusive.
    """

    name: str
    kind: str
    help: str
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper()


def _int(name: str, low: int, high: int, text: str) -> Setting:
    return Setting(name, "int", text, low, high)


SETTINGS: tuple[Setting, ...] = (
    Setting("cluster_id", "str", "name of the cluster, the same on all nodes"),
    _int("node_id", 1, MAX_NODE_ID, "this node's number in the cluster"),
    Setting("data_dir", "str", "directory of this node's data"),
    Setting("listen", "addr", "address for clients"),
    Setting("advertise", "optaddr", "address told to clients (default: own in nodes)"),
    Setting("nodes", "nodes",
            "nodes that the cluster begins with, as 1=host:port,2=host:port; ids never change; "
            "another node joins through them (default: only this node)"),
    Setting("join", "optstr",
            "nodes of a cluster that a new data directory joins, host:port, separated by commas"),
    Setting("found", "optstr",
            "id of this new data directory: found a cluster before all nodes answer"),
    _int("processes", 1, 64,
         "nodes that this machine runs, a process each: ids and ports of the next are 100 higher"),
    Setting("rack", "label",
            "rack or zone of this node: replicas of a partition spread over racks; empty: its own"),
    Setting("machine", "label",
            "machine of this node within its rack: replicas avoid one machine; empty: its own"),
    _int("peer_port_offset", 1, 60_000,
         "offset from a node's port in nodes to its port for other nodes"),
    Setting("kafka_listen", "optaddr", "address for Kafka's clients; empty: none"),
    Setting("kafka_advertise", "optaddr",
            "address for Kafka's clients that is reported to them (default: advertise's host)"),
    Setting("kafka_auto_create", "flag",
            "create a topic when a Kafka client asks for one that is missing"),
    Setting("kafka_compact", "choice",
            "cleanup.policy=compact of a Kafka client: compact the topic, or keep all its records",
            choices=KAFKA_COMPACT),
    _int("kafka_initial_rebalance_delay_ms", 0, 60_000,
         "how long an empty group of Kafka's clients waits for more members"),
    _int("kafka_max_transaction_timeout_ms", SECOND_MS, DAY_MS,
         "cap on the transaction.timeout.ms of Kafka's clients"),
    Setting("metrics_listen", "optaddr", "address of the metrics page; empty: none"),
    Setting("health_listen", "optaddr",
            "address of /livez and /readyz, plain HTTP for probes; empty: none"),
    Setting("tls_cert", "path", "certificate shown to clients, PEM; empty: no TLS"),
    Setting("tls_key", "path", "its key, PEM; only the node may read the file"),
    Setting("tls_ca", "path", "CAs of clients' certificates, which are then required; empty: none"),
    Setting("peer_cert", "path", "certificate shown to other nodes, PEM; empty: no TLS"),
    Setting("peer_key", "path", "its key, PEM; only the node may read the file"),
    Setting("peer_ca", "path", "CAs of the nodes' certificates, PEM"),
    Setting("tokens_file", "path", "static tokens, hashed: NAME scrypt:... lines; empty: none"),
    Setting("jwt_keys", "path", "JSON Web Key Set of the JWT issuer; empty: JWTs are rejected"),
    Setting("jwt_keys_url", "optstr", "URL of the key set instead of a file, https://..."),
    Setting("jwt_keys_ca", "path", "CAs of that URL's server, PEM; empty: the system's"),
    Setting("jwt_issuer", "optstr", "required iss of JWTs"),
    Setting("jwt_audience", "optstr", "required aud of JWTs"),
    Setting("permissions", "flag", "deny calls without an `oncelog acl` rule; default: allow all"),
    Setting("superusers", "optstr", "principals with all permissions, separated by commas"),
    Setting("audit_file", "path", "log of rejected and administrative calls; empty: none"),
    _int("connection_age_ms", SECOND_MS, 30 * DAY_MS,
         "with TLS: age at which a client of gRPC must reconnect"),
    _int("max_connections", 10, 1_000_000,
         "open client connections, at most; fewer if open files are limited"),
    Setting("insecure", "flag", "listen without TLS beyond this machine's loopback"),
    _int("election_timeout_ms", 50, MINUTE_MS, "silence of a leader before an election"),
    _int("heartbeat_ms", 5, 10 * SECOND_MS, "longest time between two messages of a leader"),
    _int("clock_bound_ms", 100, HOUR_MS,
         "largest distance of a leader's wall clock from that of a majority"),
    _int("request_timeout_ms", 100, 10 * MINUTE_MS, "longest wait for a commit"),
    # These four are the cluster's: a new one is founded with them (`oncelog cluster config set`).
    _int("max_batch_bytes", KIB, 64 * MIB, "cap on the topics' max_batch_bytes"),
    _int("learner_bytes_per_s", 0, 1 << 40,
         "bytes a second to new replicas from all leaders of this node; 0: no limit"),
    _int("lease_lifetime_ms", SECOND_MS, 30 * DAY_MS, "lifetime of a producer id"),
    _int("producer_name_expiry_ms", SECOND_MS, 365 * DAY_MS,
         "idle time before a producer name is forgotten"),
    _int("pid_block_size", 1, 100_000, "producer ids that a node reserves at once"),
    _int("default_partitions", 1, 1000, "partitions of a new topic by default"),
    _int("default_replicas", 1, 9, "replicas of a new topic by default"),
    _int("preferred_leader_delay_ms", 0, HOUR_MS,
         "wait before a returned preferred leader leads again; longer after each loss"),
    _int("handover_timeout_ms", 0, HOUR_MS,
         "longest time that a stopping node hands over its leaderships"),
    _int("checkpoint_bytes", 64 * KIB, 16 * 1024 * MIB,
         "log bytes of a partition between two checkpoints"),
    _int("checkpoint_entries", 10, 100_000_000,
         "log entries of a partition between two checkpoints"),
    _int("checkpoint_node_bytes", 64 * KIB, 1024 * 1024 * MIB,
         "log bytes of all partitions since their checkpoints; 16 KiB more for each entry"),
    _int("repair_after_ms", 0, DAY_MS,
         "wait before a damaged replica is rebuilt from its leader; 0: never"),
    _int("retention_check_ms", 100, DAY_MS,
         "period of the deletion of old records, and of a look for topics to compact"),
    _int("cleaner_bytes_per_s", 0, 1 << 40,
         "bytes a second that are read to compact topics; 0: no limit"),
    _int("cleaner_memory_bytes", 16 * MIB, 64 * 1024 * MIB,
         "memory for the keys of one compaction; more keys take more rounds"),
    _int("upgrade_auto_finalize_ms", 0, 30 * DAY_MS,
         "wait before a newer release on all nodes is finalized automatically; 0: never"),
    Setting("log_level", "choice", "one of " + ", ".join(LOG_LEVELS), choices=LOG_LEVELS),
    Setting("log_format", "choice", "text, or json: an object in each line", choices=LOG_FORMATS),
    _int("fetch_max_bytes", KIB, 64 * MIB, "payload bytes in a fetch response"),
    _int("tail_cache_bytes", 64 * KIB, 16 * 1024 * MIB,
         "memory for the newest entries of all partitions, in equal shares, 256 KiB each at least"),
    _int("page_cache_bytes", 0, 1024 * 1024 * MIB,
         "largest part of the log in the system's page cache; 0: no limit"),
    _int("client_memory_bytes", 256 * MIB, 1024 * 1024 * MIB,
         "memory for clients' requests and answers, about; by default at most half of the free "
         "memory of the machine or container"),
    _int("last_seen_capacity", 100, 100_000_000,
         "producers in a partition's last-seen map, at most"),
)  # fmt: skip

# Most nodes start with these ten; `--help` shows them first.
BASIC = frozenset(
    {
        "cluster_id", "node_id", "data_dir", "listen", "advertise", "nodes", "join",
        "metrics_listen", "insecure", "log_level",
    }
)  # fmt: skip

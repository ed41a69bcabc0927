//! Settings, their defaults, and contradictions.

use std::time::Duration;

use crate::compress::Compression;
use crate::errors::{Error, ErrorKind, Result};
use crate::payload::{BATCH_OVERHEAD, MAX_PAYLOAD_BYTES};
use crate::rebalance::Listener;
use crate::secure::SecurityConfig;
use crate::types::ProducerIdentity;

/// The settings that all clients share.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The nodes to begin with, as `host:port`; others are learned from them. By default the list
    /// in `ONCELOG_BOOTSTRAP`, or a node at `127.0.0.1:7001`.
    pub bootstrap_servers: Vec<String>,
    /// Names the client to the nodes.
    pub client_id: String,
    /// How long one request may take before it is tried again elsewhere.
    pub request_timeout: Duration,
    /// The first pause before a retry; it doubles up to `retry_backoff_max`.
    pub retry_backoff: Duration,
    /// The longest pause before a retry.
    pub retry_backoff_max: Duration,
    /// After how long leaders are asked for anew, without a reason.
    pub metadata_max_age: Duration,
    /// TLS, and the client's identity; without it everything goes in the clear.
    pub security: SecurityConfig,
}

/// The settings of a [`Producer`](crate::Producer).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProducerConfig {
    /// Parts that all clients share.
    pub client: ClientConfig,
    /// A stable name: a restart with the same name fences the instance before it.
    pub producer_name: Option<String>,
    /// A producer id to start with instead of a leased one.
    pub resume_from: Option<ProducerIdentity>,
    /// Makes retries harmless. Without it a retry may store a record again.
    pub enable_idempotence: bool,
    /// How long a batch that is not full waits for more records.
    pub linger: Duration,
    /// Closes a batch when its payload, before compression, has this many bytes.
    pub batch_size: usize,
    /// Bounds the records that wait in this process, sent and not yet acknowledged included.
    pub buffer_memory: usize,
    /// How long a send may wait for room in the buffer or for a topic's metadata.
    pub max_block: Duration,
    /// Applied to whole batches.
    pub compression: Compression,
    /// Of zstd's own scale; `None`: the codec's default.
    pub compression_level: Option<i32>,
    /// After how long a record without an acknowledgement is given up.
    pub delivery_timeout: Duration,
    /// How many batches of one partition are on their way at the same time. Up to 5 the cluster
    /// knows the offset of a repeated batch without looking it up.
    pub max_in_flight: usize,
}

/// Where to start without a position, or go on when it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetReset {
    /// The first record that is kept.
    Earliest,
    /// Behind the last one.
    Latest,
    /// An error of [`ErrorKind::OffsetOutOfRange`] instead.
    None,
}

impl OffsetReset {
    /// The setting's name in all clients.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Earliest => "earliest",
            Self::Latest => "latest",
            Self::None => "none",
        }
    }
}

/// The part of a group in its consumers' work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// The nodes share topics out among the group's members.
    Assigned,
    /// The group only keeps offsets, and each consumer reads the partitions it is given.
    Manual,
}

impl Membership {
    /// The setting's name in all clients.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Assigned => "assigned",
            Self::Manual => "manual",
        }
    }
}

/// How a group shares partitions out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Assignor {
    /// All topics together, and partitions stay where they are.
    Uniform,
    /// A member has the same stretch of each topic.
    Range,
}

impl Assignor {
    /// The setting's name in all clients.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Range => "range",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Uniform, Self::Range].into_iter().find(|assignor| assignor.as_str() == name)
    }
}

/// The settings of a [`Consumer`](crate::Consumer).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerConfig {
    /// Parts that all clients share.
    pub client: ClientConfig,
    /// The group that keeps the committed offsets.
    pub group_id: Option<String>,
    /// Whether the group shares topics out; it is moot without a `group_id`.
    pub membership: Membership,
    /// A name that outlives the process: one that comes back within a session goes on as it was.
    pub group_instance_id: Option<String>,
    /// The group's first member decides on this and the three that follow.
    pub assignor: Assignor,
    /// After so long without a word a member is none any more.
    pub session_timeout: Duration,
    /// How long it has to give a partition back.
    pub revoke_timeout: Duration,
    /// How long it has to come back for more records.
    pub processing_timeout: Duration,
    /// Commits the records returned before the last poll, each `auto_commit_interval` and before
    /// partitions are given back.
    pub enable_auto_commit: bool,
    /// With `enable_auto_commit`.
    pub auto_commit_interval: Duration,
    /// Is told which partitions come or go.
    pub listener: Option<Listener>,
    /// Where to start without a position.
    pub auto_offset_reset: OffsetReset,
    /// Size that a node waits for, at most `fetch_max_wait`.
    pub fetch_min_bytes: usize,
    /// How long a node waits for `fetch_min_bytes`.
    pub fetch_max_wait: Duration,
    /// Bounds one answer.
    pub fetch_max_bytes: usize,
    /// Bounds a partition's part of an answer, and the part of it kept here.
    pub max_partition_fetch_bytes: usize,
    /// Bounds the records of one poll.
    pub max_poll_records: usize,
    /// Compares each batch with its checksum.
    pub check_crcs: bool,
    /// Reads from any replica up to its own high watermark, not only from leaders.
    pub any_replica: bool,
    /// With `any_replica` reads only from that one.
    pub replica_node_id: Option<i32>,
    /// Reads from a replica in this rack that keeps up with its leader; where there is none, from
    /// the leader.
    pub rack: Option<String>,
}

impl ClientConfig {
    /// The defaults. `servers` is `host:port,...`.
    pub fn new(servers: impl AsRef<str>) -> Self {
        Self {
            bootstrap_servers: servers.as_ref().split(',').map(String::from).collect(),
            client_id: "oncelog-rust".into(),
            request_timeout: Duration::from_secs(10),
            retry_backoff: Duration::from_millis(50),
            retry_backoff_max: Duration::from_secs(1),
            metadata_max_age: Duration::from_secs(300),
            security: SecurityConfig::default(),
        }
    }
}

impl ProducerConfig {
    /// The defaults. `servers` is `host:port,...`.
    pub fn new(servers: impl AsRef<str>) -> Self {
        Self {
            client: ClientConfig::new(servers),
            producer_name: None,
            resume_from: None,
            enable_idempotence: true,
            linger: Duration::from_millis(5),
            batch_size: 1 << 20,
            buffer_memory: 64 << 20,
            max_block: Duration::from_secs(60),
            compression: Compression::None,
            compression_level: None,
            delivery_timeout: Duration::from_secs(120),
            max_in_flight: 5,
        }
    }
}

impl ConsumerConfig {
    /// The defaults. `servers` is `host:port,...`.
    pub fn new(servers: impl AsRef<str>) -> Self {
        Self {
            client: ClientConfig::new(servers),
            group_id: None,
            membership: Membership::Assigned,
            group_instance_id: None,
            assignor: Assignor::Uniform,
            session_timeout: Duration::from_secs(10),
            revoke_timeout: Duration::from_secs(60),
            processing_timeout: Duration::from_secs(300),
            enable_auto_commit: false,
            auto_commit_interval: Duration::from_secs(5),
            listener: None,
            auto_offset_reset: OffsetReset::Latest,
            fetch_min_bytes: 1,
            fetch_max_wait: Duration::from_millis(500),
            fetch_max_bytes: 16 << 20,
            max_partition_fetch_bytes: 4 << 20,
            max_poll_records: 10_000,
            check_crcs: true,
            any_replica: false,
            replica_node_id: None,
            rack: None,
        }
    }
}

fn default_servers() -> String {
    let listed = std::env::var("ONCELOG_BOOTSTRAP").unwrap_or_default();
    if listed.is_empty() { "127.0.0.1:7001".into() } else { listed }
}

impl Default for ClientConfig {
    /// For the nodes that `ONCELOG_BOOTSTRAP` lists, or a node at `127.0.0.1:7001`.
    fn default() -> Self {
        Self::new(default_servers())
    }
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self::new(default_servers())
    }
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self::new(default_servers())
    }
}

fn fail<T>(message: String) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidConfig, message))
}

const MAX_NAME_CHARS: usize = 249;
const MS: Duration = Duration::from_millis(1);
const MAX_SPAN: Duration = Duration::from_millis(i32::MAX as u64);

pub(crate) fn check_name(setting: &str, name: &str) -> Result<()> {
    let count = name.chars().count();
    if count > MAX_NAME_CHARS {
        return fail(format!("{setting} has {count} characters, limit {MAX_NAME_CHARS}"));
    }
    let known = |c: char| c.is_ascii_alphanumeric() || "._:/@=+ -".contains(c);
    if name.is_empty() || !name.chars().all(known) {
        return fail(format!(
            "{setting} {name:?} is empty or has a character outside A-Z a-z 0-9 ._:/@=+-"
        ));
    }
    Ok(())
}

fn span(name: &str, value: Duration, low: Duration) -> Result<()> {
    span_up_to(name, value, low, MAX_SPAN)
}

fn span_up_to(name: &str, value: Duration, low: Duration, high: Duration) -> Result<()> {
    if value < low || value > high {
        return fail(format!("{name} must be from {low:?} to {high:?}, got {value:?}"));
    }
    Ok(())
}

fn number(name: &str, value: i64, low: i64, high: i64) -> Result<()> {
    if value < low || value > high {
        return fail(format!("{name} must be from {low} to {high}, got {value}"));
    }
    Ok(())
}

fn size(name: &str, value: usize, low: usize, high: usize) -> Result<()> {
    let bounded = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    number(name, bounded(value), bounded(low), bounded(high))
}

fn is_address(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| {
        let plain = host.starts_with('[') && host.ends_with(']') || !host.contains(':');
        !host.is_empty() && plain && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

impl ClientConfig {
    /// Refuses values out of range, and tidies the addresses.
    pub(crate) fn check(&mut self) -> Result<()> {
        let mut servers: Vec<String> = vec![];
        for address in self.bootstrap_servers.iter().map(|address| address.trim()) {
            if !address.is_empty() && !is_address(address) {
                return fail(format!("bootstrap_servers: {address:?} is not host:port"));
            }
            if !address.is_empty() && !servers.iter().any(|known| known == address) {
                servers.push(address.into());
            }
        }
        if servers.is_empty() {
            return fail("bootstrap_servers is empty: name at least one node as host:port".into());
        }
        self.bootstrap_servers = servers;
        if http::HeaderValue::from_str(&self.client_id).is_err() {
            return fail(format!("client_id {:?} cannot be sent in a header", self.client_id));
        }
        span("request_timeout", self.request_timeout, MS)?;
        span("retry_backoff", self.retry_backoff, MS)?;
        span("retry_backoff_max", self.retry_backoff_max, MS)?;
        span("metadata_max_age", self.metadata_max_age, 100 * MS)?;
        if self.retry_backoff_max < self.retry_backoff {
            return fail(format!(
                "retry_backoff_max={:?} is below retry_backoff={:?}",
                self.retry_backoff_max, self.retry_backoff
            ));
        }
        self.security.check()
    }
}

impl ProducerConfig {
    pub(crate) fn check(&mut self) -> Result<()> {
        self.client.check()?;
        span("linger", self.linger, Duration::ZERO)?;
        size("batch_size", self.batch_size, BATCH_OVERHEAD, MAX_PAYLOAD_BYTES)?;
        size("buffer_memory", self.buffer_memory, 1, usize::MAX)?;
        span("max_block", self.max_block, Duration::ZERO)?;
        span("delivery_timeout", self.delivery_timeout, MS)?;
        size("max_in_flight", self.max_in_flight, 1, 1000)?;
        if let Some(level) = self.compression_level {
            number("compression_level", level.into(), -131_072, 22)?;
            if self.compression == Compression::None {
                return fail(format!("compression_level={level} contradicts compression none"));
            }
        }
        if self.batch_size > self.buffer_memory {
            return fail(format!(
                "batch_size={} does not fit into buffer_memory={}",
                self.batch_size, self.buffer_memory
            ));
        }
        if self.delivery_timeout < self.linger + self.client.request_timeout {
            return fail(format!(
                "delivery_timeout={:?} is below linger={:?} + request_timeout={:?}: a record would \
                 be given up while it waits for its first answer",
                self.delivery_timeout, self.linger, self.client.request_timeout
            ));
        }
        if let Some(name) = &self.producer_name {
            check_name("producer_name", name)?;
            if !self.enable_idempotence {
                return fail("producer_name contradicts enable_idempotence=false".into());
            }
        }
        self.check_resume_from()
    }

    fn check_resume_from(&self) -> Result<()> {
        let Some(resume_from) = &self.resume_from else { return Ok(()) };
        if !self.enable_idempotence {
            return fail("resume_from contradicts enable_idempotence=false".into());
        }
        if self.producer_name.is_some() {
            return fail("resume_from contradicts producer_name: a name has its own id".into());
        }
        number("resume_from.producer_id", resume_from.producer_id, 1, i64::MAX)?;
        number("resume_from.epoch", resume_from.epoch.into(), 0, i32::MAX.into())?;
        for (tp, sequence) in &resume_from.next_sequences {
            number(&format!("resume_from.next_sequences[{tp}]"), *sequence, 0, i64::MAX)?;
        }
        Ok(())
    }
}

impl ConsumerConfig {
    pub(crate) fn check(&mut self) -> Result<()> {
        self.client.check()?;
        let most = i32::MAX as usize;
        size("fetch_min_bytes", self.fetch_min_bytes, 0, most)?;
        span("fetch_max_wait", self.fetch_max_wait, Duration::ZERO)?;
        size("fetch_max_bytes", self.fetch_max_bytes, 1, most)?;
        size("max_partition_fetch_bytes", self.max_partition_fetch_bytes, 1, most)?;
        size("max_poll_records", self.max_poll_records, 1, most)?;
        if let Some(group) = &self.group_id {
            check_name("group_id", group)?;
        }
        self.check_group()?;
        if self.fetch_max_wait >= self.client.request_timeout {
            return fail(format!(
                "fetch_max_wait={:?} must be below request_timeout={:?}",
                self.fetch_max_wait, self.client.request_timeout
            ));
        }
        if let Some(node) = self.replica_node_id {
            number("replica_node_id", node.into(), 1, i32::MAX.into())?;
            if !self.any_replica {
                return fail("replica_node_id needs any_replica".into());
            }
        }
        if let Some(rack) = &self.rack {
            check_name("rack", rack)?;
            if self.any_replica {
                return fail("rack excludes any_replica".into());
            }
        }
        Ok(())
    }

    /// Whether it joins its group.
    pub(crate) fn is_member(&self) -> bool {
        self.group_id.is_some() && self.membership == Membership::Assigned
    }

    fn check_group(&self) -> Result<()> {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let second = Duration::from_secs(1);
        span_up_to("session_timeout", self.session_timeout, second, minutes(30))?;
        span_up_to("revoke_timeout", self.revoke_timeout, second, minutes(60))?;
        span_up_to("processing_timeout", self.processing_timeout, second, minutes(24 * 60))?;
        span("auto_commit_interval", self.auto_commit_interval, MS)?;
        if let Some(name) = &self.group_instance_id {
            check_name("group_instance_id", name)?;
        }
        let set = [
            ("group_instance_id", self.group_instance_id.is_some()),
            ("enable_auto_commit", self.enable_auto_commit),
            ("listener", self.listener.is_some()),
        ];
        match set.iter().find(|(_, is_set)| *is_set && !self.is_member()) {
            Some((name, _)) => fail(format!(
                "{name} is for members of a group: it needs a group_id, and membership assigned"
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut ProducerConfig)) -> String {
        let mut config = ProducerConfig::new("localhost:7001");
        change(&mut config);
        let error = config.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        error.to_string()
    }

    #[test]
    fn defaults_are_taken() {
        ProducerConfig::new("localhost:7001").check().unwrap();
        ConsumerConfig::new("a:1, b:2,[::1]:3").check().unwrap();
    }

    #[test]
    fn servers_are_tidied() {
        let mut config = ClientConfig::new("a:1, b:2,,a:1");
        config.check().unwrap();
        assert_eq!(config.bootstrap_servers, ["a:1", "b:2"]);
        for wrong in ["", "localhost", "localhost:0", ":1", "a:b", "a:70000", "::1:5"] {
            assert!(ClientConfig::new(wrong).check().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        assert!(refused(|c| c.batch_size = 1).contains("batch_size"));
        assert!(refused(|c| c.max_in_flight = 0).contains("max_in_flight"));
        assert!(refused(|c| c.compression_level = Some(3)).contains("compression_level"));
        assert!(refused(|c| c.buffer_memory = 1000).contains("does not fit"));
        assert!(refused(|c| c.delivery_timeout = MS).contains("delivery_timeout"));
        assert!(refused(|c| c.producer_name = Some("a*".into())).contains("producer_name"));
        assert!(refused(|c| c.client.retry_backoff_max = MS).contains("retry_backoff_max"));
        assert!(refused(|c| c.client.client_id = "a\nb".into()).contains("client_id"));
        let both = |c: &mut ProducerConfig| {
            c.producer_name = Some("a".into());
            c.resume_from = Some(ProducerIdentity { producer_id: 1, ..Default::default() });
        };
        assert!(refused(both).contains("contradicts producer_name"));
        let mut config = ConsumerConfig::new("a:1");
        config.replica_node_id = Some(1);
        assert!(config.check().is_err());
        let mut config = ConsumerConfig::new("a:1");
        config.rack = Some("a".into());
        config.check().unwrap();
        config.any_replica = true;
        assert!(config.check().unwrap_err().message().contains("rack"));
        let mut config = ConsumerConfig::new("a:1");
        config.enable_auto_commit = true;
        assert!(config.check().unwrap_err().message().contains("needs a group_id"));
        config.group_id = Some("g".into());
        config.check().unwrap();
        config.session_timeout = MS;
        assert!(config.check().is_err());
    }
}

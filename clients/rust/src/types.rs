//! Values that users give to the client and get from it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::config::Assignor;

/// A partition, by topic and number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// From 0.
    pub partition: i32,
}

impl TopicPartition {
    /// A partition of a topic.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// A record to be sent. Its bytes are borrowed: a send copies them.
///
/// ```
/// # use oncelog::Message;
/// let message = Message::new("greetings", "hello").key("k").header("language", "en");
/// let null = Message::null("greetings").key("k");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Message<'a> {
    pub(crate) topic: &'a str,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) headers: Vec<(&'a str, Option<&'a [u8]>)>,
    pub(crate) timestamp_us: Option<i64>,
    pub(crate) partition: Option<i32>,
    pub(crate) sequence: Option<i64>,
    pub(crate) expected_offset: Option<i64>,
}

impl<'a> Message<'a> {
    /// A record with this value.
    pub fn new<V: AsRef<[u8]> + ?Sized>(topic: &'a str, value: &'a V) -> Self {
        Self { topic, value: Some(value.as_ref()), ..Self::default() }
    }

    /// A record with a null value; an empty value is not null.
    pub fn null(topic: &'a str) -> Self {
        Self { topic, ..Self::default() }
    }

    /// Without a key it is null.
    pub fn key<K: AsRef<[u8]> + ?Sized>(mut self, key: &'a K) -> Self {
        self.key = Some(key.as_ref());
        self
    }

    /// Adds a header.
    pub fn header<V: AsRef<[u8]> + ?Sized>(mut self, name: &'a str, value: &'a V) -> Self {
        self.headers.push((name, Some(value.as_ref())));
        self
    }

    /// Adds a header with a null value.
    pub fn null_header(mut self, name: &'a str) -> Self {
        self.headers.push((name, None));
        self
    }

    /// Microseconds since the Unix epoch; without it the time of the send.
    pub fn timestamp_us(mut self, timestamp_us: i64) -> Self {
        self.timestamp_us = Some(timestamp_us);
        self
    }

    /// Names the record's partition.
    pub fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Gives the record the application's own number, rising per partition. It makes the record
    /// recognisable across restarts, if it is sent again with the same bytes, so with the same
    /// timestamp too.
    pub fn sequence(mut self, sequence: i64) -> Self {
        self.sequence = Some(sequence);
        self
    }

    /// Stores the record only if it gets exactly this offset.
    pub fn expected_offset(mut self, offset: i64) -> Self {
        self.expected_offset = Some(offset);
        self
    }
}

/// Options of [`Producer::send_batch`](crate::Producer::send_batch) beside its records.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BatchOptions {
    /// The application's own sequences: one for each record, rising.
    pub sequences: Option<Vec<i64>>,
    /// Stores the batch only if its first record gets exactly this offset.
    pub expected_offset: Option<i64>,
}

impl BatchOptions {
    /// Nothing special.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`BatchOptions::sequences`].
    pub fn sequences(mut self, sequences: Vec<i64>) -> Self {
        self.sequences = Some(sequences);
        self
    }

    /// Sets [`BatchOptions::expected_offset`].
    pub fn expected_offset(mut self, offset: i64) -> Self {
        self.expected_offset = Some(offset);
        self
    }
}

/// A name with a value beside a record. `None` is a null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The header's name.
    pub key: String,
    /// Its value.
    pub value: Option<Bytes>,
}

/// A record as it is stored. Its bytes share the memory of its batch: copy them to keep few
/// records of many.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// Where it is stored.
    pub topic: Arc<str>,
    /// Where it is stored.
    pub partition: i32,
    /// Its place in the partition.
    pub offset: i64,
    /// Microseconds since the Unix epoch.
    pub timestamp_us: i64,
    /// `None` is a null.
    pub value: Option<Bytes>,
    /// `None` is a null.
    pub key: Option<Bytes>,
    /// In the order in which they were given.
    pub headers: Vec<Header>,
}

/// Place of a record, or of a batch that was sent as one, and its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// Where it is stored.
    pub topic: Arc<str>,
    /// Where it is stored.
    pub partition: i32,
    /// Of the (first) record; -1 for a duplicate if the cluster no longer knows its place.
    pub offset: i64,
    /// Of the (first) record; -1 without idempotence.
    pub sequence: i64,
    /// Of the last record: the same for a single one.
    pub last_sequence: i64,
    /// The producer it was stored as.
    pub producer_id: i64,
    /// The producer it was stored as.
    pub epoch: i32,
    /// An earlier attempt had stored it. That is a success.
    pub duplicate: bool,
}

/// A producer id to start with instead of a leased one.
#[derive(Clone, Debug, Default)]
pub struct ProducerIdentity {
    /// The id.
    pub producer_id: i64,
    /// Its epoch.
    pub epoch: i32,
    /// That of the id's lease; a partition that starts at 0 is refused without it.
    pub lease_token: Bytes,
    /// For each partition where to go on; others start at 0.
    pub next_sequences: HashMap<TopicPartition, i64>,
}

/// The right to use a producer id until `expire_ms`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProducerLease {
    /// The id.
    pub producer_id: i64,
    /// Its epoch.
    pub epoch: i32,
    /// Unix time.
    pub expire_ms: i64,
    /// From the lease to its end.
    pub lifetime: Duration,
    /// Proves the lease.
    pub lease_token: Bytes,
}

/// Outcome of a sequence without an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It is stored.
    Committed,
    /// It is not there and never will be.
    Never,
    /// It is not stored, but a copy on its way may still come.
    NotYet,
    /// Retention or compaction has deleted the evidence of whether it was stored. It cannot be
    /// stored any more, unless its id is a Kafka client's.
    Forgotten,
}

impl Resolution {
    /// The resolution's name in all clients.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Never => "never",
            Self::NotYet => "not_yet",
            Self::Forgotten => "forgotten",
        }
    }
}

/// Finding of [`Producer::resolve`](crate::Producer::resolve).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResolvedSequence {
    /// Its outcome.
    pub resolution: Resolution,
    /// The record's, or -1.
    pub offset: i64,
    /// The producer's last stored one; -1: none.
    pub last_sequence: i64,
    /// The producer's, as the partition knows it.
    pub current_epoch: i32,
}

/// Offset that a group commits for a partition: the next offset to read. With a producer id it is
/// checked as a batch of that producer is: an older epoch is fenced, a lower sequence refused,
/// the same one a duplicate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffsetCommit {
    /// The next offset to read.
    pub offset: i64,
    /// The group's own, at most 4096 bytes.
    pub metadata: String,
    /// 0: the commit overwrites the present one.
    pub producer_id: i64,
    /// With a producer id.
    pub epoch: i32,
    /// With a producer id.
    pub sequence: i64,
}

impl OffsetCommit {
    /// A commit that overwrites the present one.
    pub fn at(offset: i64) -> Self {
        Self { offset, ..Self::default() }
    }
}

/// A group's committed offset of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommittedOffset {
    /// The committed offset.
    pub commit: OffsetCommit,
    /// When: Unix time.
    pub commit_ms: i64,
}

/// A group, and for how many partitions it has committed offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupInfo {
    /// The group's name.
    pub group: String,
    /// For how many partitions.
    pub offsets: i32,
    /// Unix time.
    pub last_commit_ms: i64,
}

/// A group's committed offsets.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupDescription {
    /// The group's name.
    pub group: String,
    /// Whether it has committed anything.
    pub exists: bool,
    /// Unix time.
    pub last_commit_ms: i64,
    /// The node that keeps its offsets.
    pub coordinator_id: i32,
    /// By partition.
    pub offsets: HashMap<TopicPartition, CommittedOffset>,
    /// Those that have joined it.
    pub members: Vec<GroupMember>,
    /// Of the newest assignment.
    pub epoch: i64,
    /// How it shares partitions out; `None`: it has no members.
    pub assignor: Option<Assignor>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupMember {
    /// Its own, new in each process.
    pub member_id: String,
    /// The name that outlives its process; empty: none.
    pub instance_id: String,
    /// Its name, for people.
    pub client_host: String,
    /// Its partitions, with the number of each ownership.
    pub owned: HashMap<TopicPartition, i64>,
    /// Partitions of these that are asked back.
    pub revoking: Vec<TopicPartition>,
    /// How long ago it came back for records.
    pub idle: Duration,
    /// Whether it has a connection.
    pub connected: bool,
}

pub(crate) fn now_us() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() as i64 * 1_000_000 + i64::from(since.subsec_micros()))
}

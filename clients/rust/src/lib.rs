//! The Rust client of Oncelog, a replicated, partitioned log that keeps every record exactly once.
//!
//! A [`Producer`] may retry as often as it likes, its leader may be killed between the append and
//! the acknowledgement, and each record is still in the log one time, in the order it was sent. A
//! [`Consumer`] reads records in offset order, alone or in a group; a [`Transaction`] makes the
//! written records, and how far their source was read, one thing; an [`Admin`] manages topics and
//! looks at the cluster.
//!
//! ```no_run
//! use oncelog::{Message, Producer, ProducerConfig};
//!
//! # async fn example() -> oncelog::Result<()> {
//! let producer = Producer::new(ProducerConfig::new("localhost:7001"))?;
//! let delivery = producer.send(Message::new("greetings", "hello")).await?;
//! let metadata = delivery.wait().await?; // stored once
//! println!("{} at {}", metadata.partition, metadata.offset);
//! producer.close().await // waits for all records, and fails if one failed unseen
//! # }
//! ```
//!
//! The client's behaviour on the wire is laid down in docs/protocol.md; settings and errors mean
//! the same as in the other clients. Errors form a tree: see [`ErrorKind`]. Clients are made
//! within a Tokio runtime. A future that is dropped ends waiting, never a record that is on its
//! way.

mod accumulator;
mod admin;
mod admin_nodes;
mod admin_partitions;
mod admin_security;
mod admin_sinks;
mod admin_transactions;
mod attempts;
mod buffer;
mod catchup;
mod cluster;
mod compress;
mod config;
mod connection;
mod consumer;
mod delivery;
mod errors;
mod fetcher;
mod following;
mod founding;
mod groups;
mod growth;
mod identities;
mod info;
mod kafka_batch;
mod lag;
mod leaders;
mod member;
mod membership;
mod partitioner;
mod payload;
mod positions;
mod producer;
mod queue;
mod reachability;
mod rebalance;
mod records;
mod refusal;
mod resolve;
mod routes;
mod sealing;
mod secure;
mod sender;
mod staging;
mod status;
mod stream;
mod transaction;
mod transactions;
mod types;
mod watch;
mod window;

/// Made from proto/ by the script `stubs`.
#[allow(missing_docs, dead_code, clippy::all, rustdoc::all)]
mod pb {
    include!("gen/oncelog.v1.rs");
}

pub use admin::{Admin, AdminConfig};
pub use admin_nodes::{Balance, NodeReplacement, NodeStatus};
pub use admin_partitions::{PartitionMove, Resize, Resized};
pub use admin_security::{AlteredPermissions, PermissionRule, Permissions, Quota, QuotaKey};
pub use admin_sinks::{SinkBefore, SinkInfo};
pub use admin_transactions::{TransactionInfo, TransactionPart};
pub use compress::Compression;
pub use config::{Assignor, ClientConfig, ConsumerConfig, Membership, OffsetReset, ProducerConfig};
pub use consumer::Consumer;
pub use delivery::Delivery;
pub use errors::{Error, ErrorDetails, ErrorKind, Outcome, Result};
pub use info::{
    CleanupPolicy, ClusterInfo, ExpectedOffsets, NodeInfo, PartitionInfo, ProducerEpoch,
    ProducerName, ProducerState, RecentBatch, TopicConfig, TopicFormats, TopicInfo, UpgradeInfo,
};
pub use lag::{GroupLag, PartitionLag};
pub use producer::{Producer, Stats};
pub use reachability::Outages;
pub use rebalance::{Followed, Listener, RebalanceListener};
pub use records::Records;
pub use secure::SecurityConfig;
pub use staging::{CommittedTransaction, PublishedRun, TransactionState};
pub use transaction::{Transaction, TransactionOptions};
pub use types::{
    BatchOptions, CommittedOffset, GroupDescription, GroupInfo, GroupMember, Header, Message,
    Metadata, OffsetCommit, ProducerIdentity, ProducerLease, Record, Resolution, ResolvedSequence,
    TopicPartition,
};

/// The version of this client.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

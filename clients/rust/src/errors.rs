//! The tree of errors. The kinds are the words that travel over the network.

use std::fmt;
use std::time::Duration;

/// Result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $reason:literal below $parent:ident,)*) => {
        /// A place in the tree of errors. [`ErrorKind::is`] tells whether it is below another one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            /// Above all calls that may succeed later, unchanged.
            Retriable,
            /// Above all calls that fail again if repeated.
            Fatal,
            /// Settings that are out of range or contradict each other.
            InvalidConfig,
            $($(#[$doc])* $name,)*
        }

        impl ErrorKind {
            /// The word that travels over the network, such as `NOT_LEADER`.
            pub fn reason(self) -> &'static str {
                match self {
                    Self::Retriable => "RETRIABLE",
                    Self::Fatal => "FATAL",
                    Self::InvalidConfig => "INVALID_CONFIG",
                    $(Self::$name => $reason,)*
                }
            }

            fn parent(self) -> Option<Self> {
                match self {
                    Self::Retriable | Self::Fatal | Self::InvalidConfig => None,
                    $(Self::$name => Some(Self::$parent),)*
                }
            }

            /// The kind that a node's word stands for.
            pub(crate) fn of_reason(reason: &str) -> Option<Self> {
                let kind = match reason {
                    $($reason => Self::$name,)*
                    _ => return None,
                };
                (!kind.is_own()).then_some(kind)
            }
        }
    };
}

kinds! {
    /// The node does not lead the partition; `leader_id` and `leader_address` name the leader, if
    /// it is known.
    NotLeader = "NOT_LEADER" below Retriable,
    /// A new leader that has not caught up, or no leader at all, yet.
    NotReady = "NOT_READY" below Retriable,
    /// The node cannot be reached, or has no quorum.
    Unavailable = "UNAVAILABLE" below Retriable,
    /// The node has too much to do, or a limit of it is reached.
    Throttled = "THROTTLED" below Retriable,
    /// The node's disk is full; it takes writes again when there is room.
    StorageFull = "STORAGE_FULL" below Retriable,
    /// No answer in time; the call may still take effect.
    RequestTimeout = "REQUEST_TIMEOUT" below Retriable,
    /// The node is of another founding than the cluster that this client began with; the call had
    /// no effect there.
    OtherCluster = "OTHER_CLUSTER" below Retriable,
    /// The buffer stayed full for [`ProducerConfig::max_block`](crate::ProducerConfig);
    /// nothing was queued.
    BufferFull = "BUFFER_FULL" below Retriable,
    /// No answer to a commit or an abort in time: the outcome is not known yet. Repeat the call:
    /// the same transaction answers how it ended.
    CommitTimeout = "COMMIT_TIMEOUT" below Retriable,
    /// There is none, as far as the node knows; `topic`, `partition`.
    UnknownTopicOrPartition = "UNKNOWN_TOPIC_OR_PARTITION" below Retriable,

    /// An argument is wrong; `field` names it, `limit` is the allowed range.
    InvalidRequest = "INVALID_REQUEST" below Fatal,
    /// A topic of this name exists; `topic`.
    TopicAlreadyExists = "TOPIC_ALREADY_EXISTS" below Fatal,
    /// No producer holds, or held, `producer_name`.
    ProducerNameNotFound = "PRODUCER_NAME_NOT_FOUND" below Fatal,
    /// The node does not know the caller: no certificate or token, or one that is of no use.
    Unauthenticated = "UNAUTHENTICATED" below Fatal,
    /// The caller may not do this; the message names the grant that is missing.
    NotAuthorized = "NOT_AUTHORIZED" below Fatal,
    /// The server, or this client, cannot do it.
    NotSupported = "NOT_SUPPORTED" below Fatal,
    /// The group's members share its partitions; only they commit, or read on from its offsets.
    GroupHasMembers = "GROUP_HAS_MEMBERS" below Fatal,
    /// The partition is not, or not any more, this member's of its group, or another process has
    /// taken its `group_instance_id`.
    FencedMember = "FENCED_MEMBER" below Fatal,
    /// A bug or a broken invariant at the node; its log says more.
    Internal = "INTERNAL" below Fatal,
    /// No record is there; `offset`, `log_start_offset`, `high_watermark`.
    OffsetOutOfRange = "OFFSET_OUT_OF_RANGE" below Fatal,
    /// Stored or fetched bytes are damaged; `topic`, `partition`, `offset`.
    CorruptLog = "CORRUPT_LOG" below Fatal,
    /// The client was used after it was closed.
    ClientClosed = "CLIENT_CLOSED" below Fatal,

    /// Above all of a record that is not known to be stored; [`Error::outcome`] says more.
    Delivery = "DELIVERY_FAILED" below Fatal,
    /// The batch itself is wrong; the message says how.
    InvalidBatch = "INVALID_BATCH" below Delivery,
    /// The batch or record is over the topic's limit, or the buffer's.
    BatchTooLarge = "BATCH_TOO_LARGE" below Delivery,
    /// The expected offset is not the one that comes next, `next_offset`.
    OffsetMismatch = "OFFSET_MISMATCH" below Delivery,
    /// [`ProducerConfig::delivery_timeout`](crate::ProducerConfig) is over.
    DeliveryTimeout = "DELIVERY_TIMEOUT" below Delivery,
    /// Returned by flush and close: `count` records failed and nobody looked at it.
    Undelivered = "UNDELIVERED_RECORDS" below Delivery,

    /// Above all of a transaction that did not become, or is not, as requested.
    Transaction = "TRANSACTION_FAILED" below Delivery,
    /// Nothing of it is readable; the message says why.
    TransactionAborted = "TRANSACTION_ABORTED" below Transaction,
    /// It was committed before; nothing is undone.
    TransactionCommitted = "TRANSACTION_COMMITTED" below Transaction,
    /// It has ended; repeat its commit to learn how.
    TransactionEnded = "TRANSACTION_ENDED" below Transaction,
    /// Another transaction of the same producer name is open.
    TransactionOpen = "TRANSACTION_OPEN" below Transaction,
    /// It was never begun, or ended so long ago that nobody knows how.
    UnknownTransaction = "UNKNOWN_TRANSACTION" below Transaction,
    /// The commit names other batches than are staged; it is still open.
    CommitIncomplete = "COMMIT_INCOMPLETE" below Transaction,
    /// It was committed with other batches than this commit names.
    CommitDiffers = "COMMIT_DIFFERS" below Transaction,

    /// Above all after which the producer cannot go on: all its pending records have failed.
    ProducerFailed = "PRODUCER_FAILED" below Delivery,
    /// A producer with a higher epoch, `current_epoch`, has taken over.
    Fenced = "FENCED" below ProducerFailed,
    /// The same sequences are stored with another content.
    SequenceConflict = "SEQUENCE_CONFLICT" below ProducerFailed,
    /// The batch does not follow `last_sequence`, the last one that is stored.
    OutOfOrder = "OUT_OF_ORDER" below ProducerFailed,
    /// The cluster never issued this producer id, or the partition does not know it.
    UnknownProducer = "UNKNOWN_PRODUCER" below ProducerFailed,
    /// The lease of the producer id is over.
    ProducerExpired = "PRODUCER_EXPIRED" below ProducerFailed,
}

impl ErrorKind {
    /// Whether this is `other`, or below it in the tree.
    pub fn is(self, other: Self) -> bool {
        self == other || self.parent().is_some_and(|parent| parent.is(other))
    }

    /// Those that no node says.
    fn is_own(self) -> bool {
        matches!(
            self,
            Self::BufferFull
                | Self::ClientClosed
                | Self::Delivery
                | Self::DeliveryTimeout
                | Self::Undelivered
                | Self::Transaction
                | Self::CommitTimeout
                | Self::ProducerFailed
        )
    }
}

/// Known outcome of a failed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No node has seen the record.
    NeverSent,
    /// A node refused it.
    NotStored,
    /// It was sent and may be stored now or a little later.
    Unknown,
}

impl Outcome {
    /// The outcome's name in all clients.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NeverSent => "never_sent",
            Self::NotStored => "not_stored",
            Self::Unknown => "unknown",
        }
    }
}

/// Fields of an error beside its message. The fields that are set depend on its kind.
///
/// A record's error names its batch: `Admin::resolve_sequence` takes `topic`, `partition`,
/// `producer_id`, `epoch` and `sequence`, and tells later whether the batch was stored.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // the kinds say which of them they set
pub struct ErrorDetails {
    pub topic: String,
    pub partition: i32,
    /// 0: the batch was never sent, or without idempotence.
    pub producer_id: i64,
    pub epoch: i32,
    /// Of the batch's last record: a batch is stored whole or not at all.
    pub sequence: i64,
    pub offset: i64,
    pub log_start_offset: i64,
    pub high_watermark: i64,
    pub next_offset: i64,
    pub last_sequence: i64,
    pub current_epoch: i32,
    pub leader_id: i32,
    pub leader_address: String,
    pub producer_name: String,
    pub field: String,
    pub limit: String,
    /// Of `NotAuthorized`: the caller and its missing permission, as the next three say.
    pub principal: String,
    pub operation: String,
    pub kind: String,
    pub name: String,
    /// Of `Throttled`: sooner it is of no use; zero: not known.
    pub retry_after: Duration,
    pub count: u64,
}

/// Every error of this crate.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    outcome: Option<Outcome>,
    details: Box<ErrorDetails>,
    /// By a node.
    told: bool,
    /// The call was not sent: there was no connection.
    unsent: bool,
}

impl Error {
    /// Kinds below `Delivery` are not stored until something else is said.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let outcome = match kind {
            // The committed records are stored.
            ErrorKind::CommitTimeout | ErrorKind::TransactionCommitted => Some(Outcome::Unknown),
            _ => kind.is(ErrorKind::Delivery).then_some(Outcome::NotStored),
        };
        let (message, details) = (message.into(), Box::default());
        Self { kind, message, outcome, details, told: false, unsent: false }
    }

    pub(crate) fn told(mut self) -> Self {
        self.told = true;
        self
    }

    /// Whether it is no word of a node of this cluster: nobody answered.
    pub(crate) fn is_silence(&self) -> bool {
        match self.kind {
            ErrorKind::OtherCluster => true,
            ErrorKind::Unavailable | ErrorKind::RequestTimeout => !self.told,
            _ => false,
        }
    }

    pub(crate) fn is_told(&self) -> bool {
        self.told
    }

    /// Of a call that was not sent.
    pub(crate) fn unsent(mut self) -> Self {
        self.unsent = true;
        self
    }

    pub(crate) fn is_unsent(&self) -> bool {
        self.unsent
    }

    /// A retriable error of a call of which an attempt had no answer.
    pub(crate) fn in_doubt(mut self, doubt: bool) -> Self {
        if doubt && self.is_retriable() {
            self.outcome = Some(Outcome::Unknown);
        }
        self
    }

    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest, message).with(|d| d.field = field.into())
    }

    pub(crate) fn closed(what: &str) -> Self {
        Self::new(ErrorKind::ClientClosed, format!("the {what} is closed"))
    }

    pub(crate) fn with_message(mut self, message: String) -> Self {
        self.message = message;
        self
    }

    pub(crate) fn with(mut self, set: impl FnOnce(&mut ErrorDetails)) -> Self {
        set(&mut self.details);
        self
    }

    /// The known outcome of the records, if the kind is one that has an outcome.
    pub(crate) fn with_outcome(mut self, outcome: Outcome) -> Self {
        if self.kind.is(ErrorKind::Delivery) {
            self.outcome = Some(outcome);
        }
        self
    }

    /// The error's place in the tree.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the error's kind is this one, or below it.
    pub fn is(&self, kind: ErrorKind) -> bool {
        self.kind.is(kind)
    }

    /// Whether the same call may succeed later.
    pub fn is_retriable(&self) -> bool {
        self.kind.is(ErrorKind::Retriable)
    }

    /// For people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Known outcome of the record; of `CommitTimeout`, and of kinds below `Delivery`. Of another
    /// retriable error it is `Unknown` if an attempt of the call had no answer: the call may take
    /// effect.
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Fields of the error beside its message.
    pub fn details(&self) -> &ErrorDetails {
        &self.details
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() {
            return f.write_str(self.kind.reason());
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

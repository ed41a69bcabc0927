//! Transactions, as an operator sees them.

use std::time::Duration;

use crate::admin::Admin;
use crate::cluster::ask;
use crate::errors::Result;
use crate::pb;
use crate::staging::TransactionState;
use crate::types::TopicPartition;

/// A transaction, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionInfo {
    /// Its number.
    pub transaction_id: i64,
    /// How far it is.
    pub state: TransactionState,
    /// Of an abort.
    pub reason: String,
    /// Or the sink's.
    pub producer_name: String,
    /// Whether it is a sink's.
    pub sink: bool,
    /// 0: it is a sink's.
    pub producer_id: i64,
    /// The producer's.
    pub epoch: i32,
    /// Unix time.
    pub begun_ms: i64,
    /// How long ago that is.
    pub age: Duration,
    /// It is aborted after so long without a sign of life.
    pub idle_timeout: Duration,
    /// It is aborted after so long altogether.
    pub total_timeout: Duration,
    /// In all partitions that answer.
    pub staged_bytes: i64,
    /// Where it has something.
    pub partitions: Vec<TransactionPart>,
}

/// Part of a transaction in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionPart {
    /// The topic is empty if it was deleted.
    pub tp: TopicPartition,
    /// The partition knows the outcome.
    pub ended: bool,
    /// Records staged there now; -1: the partition's leader does not answer.
    pub staged_records: i64,
    /// The same in bytes.
    pub staged_bytes: i64,
    /// In `__offsets`: of how many partitions.
    pub staged_offsets: i64,
}

impl Admin {
    /// At most `limit` (0: 100) transactions that have not ended everywhere, the oldest first: of a
    /// name (`None`: of all), begun longer ago than `older_than`.
    pub async fn list_transactions(
        &self,
        producer_name: Option<&str>,
        older_than: Duration,
        limit: i32,
    ) -> Result<Vec<TransactionInfo>> {
        let request = pb::ListTransactionsRequest {
            producer_name: producer_name.unwrap_or_default().into(),
            older_than_ms: i64::try_from(older_than.as_millis()).unwrap_or(i64::MAX),
            limit,
        };
        let answer = self.call(ask!(transactions.list_transactions(request))).await?;
        Ok(answer.transactions.into_iter().map(transaction_info).collect())
    }

    /// An open transaction, or an ended one if its owner has begun no other since;
    /// [`ErrorKind::UnknownTransaction`](crate::ErrorKind::UnknownTransaction) for any other.
    pub async fn describe_transaction(&self, transaction_id: i64) -> Result<TransactionInfo> {
        let request = pb::DescribeTransactionRequest { transaction_id };
        let answer = self.call(ask!(transactions.describe_transaction(request))).await?;
        Ok(transaction_info(answer.transaction.unwrap_or_default()))
    }

    /// Drops the staged records of any owner;
    /// [`ErrorKind::TransactionCommitted`](crate::ErrorKind::TransactionCommitted) if it is too late.
    pub async fn abort_transaction(&self, transaction_id: i64) -> Result<()> {
        let request = pb::AbortTransactionRequest { transaction_id, ..Default::default() };
        self.call(ask!(transactions.abort_transaction(request))).await.map(|_| ())
    }
}

fn transaction_info(one: pb::TransactionDescription) -> TransactionInfo {
    let state = match one.state() {
        pb::TransactionState::Unspecified => TransactionState::Unknown,
        pb::TransactionState::Open => TransactionState::Open,
        pb::TransactionState::Committing => TransactionState::Committing,
        pb::TransactionState::Committed => TransactionState::Committed,
        pb::TransactionState::Aborting => TransactionState::Aborting,
        pb::TransactionState::Aborted => TransactionState::Aborted,
    };
    let part = |part: pb::TransactionPart| TransactionPart {
        tp: TopicPartition::new(part.topic, part.partition),
        ended: part.ended,
        staged_records: part.staged_records,
        staged_bytes: part.staged_bytes,
        staged_offsets: part.staged_offsets,
    };
    let span = |ms: i64| Duration::from_millis(ms.max(0) as u64);
    TransactionInfo {
        transaction_id: one.transaction_id,
        state,
        reason: one.reason,
        producer_name: one.producer_name,
        sink: one.sink,
        producer_id: one.producer_id,
        epoch: one.epoch,
        begun_ms: one.begun_ms,
        age: span(one.age_ms),
        idle_timeout: span(one.idle_timeout_ms.into()),
        total_timeout: span(one.total_timeout_ms.into()),
        staged_bytes: one.staged_bytes,
        partitions: one.partitions.into_iter().map(part).collect(),
    }
}

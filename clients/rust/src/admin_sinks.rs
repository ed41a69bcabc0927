//! Committed batches of queries' and jobs' sinks.

use std::ops::RangeInclusive;

use crate::admin::{Admin, LIST_PAGE};
use crate::cluster::ask;
use crate::errors::Result;
use crate::pb;

/// An output of a streaming query, or of batch jobs, and its committed batches.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkInfo {
    /// Its name.
    pub sink: String,
    /// Whether it is of batch jobs.
    pub jobs: bool,
    /// That it belongs to; empty: of jobs, or none yet.
    pub query: String,
    /// Of the newest batch.
    pub run: String,
    /// The newest one; -1: none.
    pub committed_batch: i64,
    /// Of that.
    pub record_count: i64,
    /// 0: none.
    pub open_transaction_id: i64,
    /// -1: none.
    pub open_batch: i64,
    /// Batches of jobs.
    pub committed: Vec<RangeInclusive<i64>>,
    /// Its committed batch before it was reset.
    pub before: Option<SinkBefore>,
}

/// Batch that a sink had committed before it was reset.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkBefore {
    /// That it belonged to.
    pub query: String,
    /// The newest one.
    pub batch: i64,
    /// Of that.
    pub record_count: i64,
}

impl Admin {
    /// Outputs of queries and jobs, by name, and the committed batch of each.
    pub async fn list_sinks(&self) -> Result<Vec<SinkInfo>> {
        let mut found: Vec<SinkInfo> = vec![];
        loop {
            let after = found.last().map_or_else(String::new, |sink| sink.sink.clone());
            let request = pb::ListSinksRequest { after, limit: LIST_PAGE as i32 };
            let page = self.call(ask!(sinks.list_sinks(request))).await?.sinks;
            let more = page.len() == LIST_PAGE;
            found.extend(page.into_iter().map(sink_info));
            if !more {
                return Ok(found);
            }
        }
    }

    /// One of them; [`ErrorKind::UnknownTransaction`](crate::ErrorKind::UnknownTransaction) if there
    /// is none.
    pub async fn describe_sink(&self, sink: &str) -> Result<SinkInfo> {
        let request = pb::DescribeSinkRequest { sink: sink.into() };
        let answer = self.call(ask!(sinks.describe_sink(request))).await?;
        Ok(sink_info(answer.sink.unwrap_or_default()))
    }

    /// Takes the next batch of any query; runs of before write nothing more.
    pub async fn reset_sink(&self, sink: &str) -> Result<()> {
        let request = pb::ResetSinkRequest { sink: sink.into() };
        self.call(ask!(sinks.reset_sink(request))).await.map(|_| ())
    }
}

fn sink_info(sink: pb::SinkDescription) -> SinkInfo {
    let before = |one: pb::SinkBefore| SinkBefore {
        query: one.query,
        batch: one.batch,
        record_count: one.record_count,
    };
    SinkInfo {
        sink: sink.sink,
        jobs: sink.jobs,
        query: sink.query,
        run: sink.run,
        committed_batch: sink.committed_batch,
        record_count: sink.record_count,
        open_transaction_id: sink.open_transaction_id,
        open_batch: if sink.open_transaction_id == 0 { -1 } else { sink.open_batch },
        committed: sink.committed.iter().map(|one| one.first..=one.last).collect(),
        before: sink.before.map(before),
    }
}

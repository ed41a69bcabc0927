//! Offsets to start from: where a group stands, where a log begins and ends.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::buffer::{Wanted, corrupt};
use crate::cluster::{Cluster, ask, no_partition};
use crate::config::{ConsumerConfig, OffsetReset};
use crate::errors::{Error, ErrorKind, Result};
use crate::fetcher::partition_text;
use crate::groups::Groups;
use crate::growth::Growth;
use crate::member::GroupMember;
use crate::pb::offset_query::Position;
use crate::pb::{self, PartitionError};
use crate::routes::Routes;
use crate::types::TopicPartition;

/// Offsets by partition.
pub(crate) type Offsets = HashMap<TopicPartition, i64>;

pub(crate) struct Positions {
    pub(crate) config: ConsumerConfig,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) growth: Growth,
    /// Of a consumer that has joined its group.
    pub(crate) member: OnceLock<Arc<GroupMember>>,
}

/// Where a partition's log begins or ends.
pub(crate) fn place_of(reset: OffsetReset) -> Position {
    match reset {
        OffsetReset::Earliest => Position::Earliest(true),
        OffsetReset::Latest | OffsetReset::None => Position::Latest(true),
    }
}

impl Positions {
    /// Where to begin. Partitions in `fresh` may go on where the group stands. What is not found
    /// has the error.
    pub(crate) async fn start(
        &self,
        missing: &[Wanted],
        fresh: &[TopicPartition],
    ) -> (Offsets, Option<Error>) {
        let mut found = Offsets::new();
        if let Some(group) = self.config.group_id.as_ref().filter(|_| !fresh.is_empty()) {
            let terms = self.member.get().map(|member| member.terms_to_look(fresh)).transpose();
            let committed = match terms {
                Ok(terms) => self.groups.committed(group, fresh, terms.as_ref(), false).await,
                Err(error) => Err(error),
            };
            match committed {
                Ok(committed) => {
                    found
                        .extend(committed.into_iter().map(|(tp, known)| (tp, known.commit.offset)));
                }
                Err(error) => return (found, Some(error)),
            }
        }
        let left = missing.iter().map(|wanted| &wanted.tp).filter(|tp| !found.contains_key(*tp));
        let left: Vec<TopicPartition> = left.cloned().collect();
        if left.is_empty() {
            return (found, None);
        }
        if self.config.auto_offset_reset == OffsetReset::None {
            let message = "no position, and auto_offset_reset is none: seek first";
            return (found, Some(Error::new(ErrorKind::OffsetOutOfRange, message)));
        }
        let mut queries = HashMap::new();
        for tp in left {
            if let Err(error) = self.learn(&tp).await {
                return (found, Some(error));
            }
            let from_start = fresh.contains(&tp) && self.growth.begins_at_start(&tp);
            let reset =
                if from_start { OffsetReset::Earliest } else { self.config.auto_offset_reset };
            queries.insert(tp, place_of(reset));
        }
        let error = self.list_into(&queries, &mut found).await.err();
        (found, error)
    }

    /// Asks for offsets and follows leader changes for `request_timeout`. -1: no such record.
    pub(crate) async fn list(
        &self,
        queries: &HashMap<TopicPartition, Position>,
    ) -> Result<Offsets> {
        let mut found = Offsets::new();
        self.list_into(queries, &mut found).await?;
        Ok(found)
    }

    async fn list_into(
        &self,
        queries: &HashMap<TopicPartition, Position>,
        found: &mut Offsets,
    ) -> Result<()> {
        let limit = self.cluster.config.request_timeout;
        let deadline = Instant::now() + limit;
        for tp in queries.keys() {
            self.learn(tp).await?;
        }
        for failures in 1.. {
            match self.list_once(queries, found).await {
                Ok(()) => return Ok(()),
                Err(error) if !error.is_retriable() || Instant::now() >= deadline => {
                    return Err(error);
                }
                Err(error) => sleep(self.cluster.backoff.after(&error, failures)).await,
            }
            for tp in queries.keys().filter(|tp| !found.contains_key(tp)) {
                let left = deadline.saturating_duration_since(Instant::now());
                self.cluster.require_topic(&tp.topic, left.max(Duration::from_millis(100))).await?;
            }
        }
        unreachable!("it ends with an answer or its deadline")
    }

    /// Asks for a partition that is not known yet.
    async fn learn(&self, tp: &TopicPartition) -> Result<()> {
        if self.cluster.leaders.leader(tp).is_some() {
            return Ok(());
        }
        self.cluster.require_topic(&tp.topic, self.cluster.config.request_timeout).await?;
        match self.cluster.leaders.leader(tp) {
            Some(_) => Ok(()),
            None => Err(no_partition(tp)),
        }
    }

    async fn list_once(
        &self,
        queries: &HashMap<TopicPartition, Position>,
        found: &mut Offsets,
    ) -> Result<()> {
        let mut by_node: HashMap<String, Vec<(&TopicPartition, Position)>> = HashMap::new();
        for (tp, place) in queries.iter().filter(|(tp, _)| !found.contains_key(tp)) {
            let address = self
                .routes
                .address(tp)
                .ok_or_else(|| Error::new(ErrorKind::NotReady, format!("{tp} has no leader")))?;
            by_node.entry(address).or_default().push((tp, *place));
        }
        let mut problem = None;
        for (address, asked) in by_node {
            for asked in asked.chunks(crate::fetcher::MOST_FETCHED) {
                match self.list_node(&address, asked, found).await {
                    Err(error) if !error.is_retriable() => return Err(error),
                    Err(error) => problem = Some(error),
                    Ok(()) => {}
                }
            }
        }
        problem.map_or(Ok(()), Err)
    }

    async fn list_node(
        &self,
        address: &str,
        asked: &[(&TopicPartition, Position)],
        found: &mut Offsets,
    ) -> Result<()> {
        let query = |(tp, place): &(&TopicPartition, Position)| pb::OffsetQuery {
            topic: tp.topic.to_string(),
            partition: tp.partition,
            position: Some(*place),
        };
        let request = pb::ListOffsetsRequest {
            queries: asked.iter().map(query).collect(),
            any_replica: self.config.any_replica,
        };
        let limit = self.cluster.config.request_timeout;
        let answer =
            match self.cluster.call_at(address, limit, ask!(log.list_offsets(request))).await {
                Ok(answer) => answer,
                Err(error) => {
                    if error.is_retriable() {
                        for (tp, _) in asked {
                            self.routes.failed(tp, address);
                        }
                    }
                    return Err(error);
                }
            };
        if answer.results.len() != asked.len() {
            let (got, count) = (answer.results.len(), asked.len());
            let message = format!("the node gave {got} answers to {count} questions");
            return Err(Error::new(ErrorKind::Internal, message));
        }
        let mut problem = None;
        for ((tp, _), result) in asked.iter().zip(&answer.results) {
            match self.take_offset(tp, result, address) {
                Ok(offset) => {
                    found.insert((*tp).clone(), offset);
                }
                Err(error) if !error.is_retriable() => return Err(error),
                Err(error) => problem = Some(error),
            }
        }
        problem.map_or(Ok(()), Err)
    }

    fn take_offset(
        &self,
        tp: &TopicPartition,
        result: &pb::OffsetResult,
        address: &str,
    ) -> Result<i64> {
        let error = result.error;
        if error == i32::from(PartitionError::None) {
            return Ok(result.offset);
        }
        self.routes.leads_elsewhere(tp, address, result.leader_id, &result.leader_address);
        let text = partition_text(error, &result.message);
        let damaged = error == i32::from(PartitionError::Storage);
        if damaged && !self.routes.is_elsewhere(tp, address, error) {
            return Err(corrupt(tp, -1, text));
        }
        Err(Error::new(ErrorKind::NotReady, format!("{tp}: {text}")))
    }
}

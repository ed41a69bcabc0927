//! Offsets to start from: where a group stands, where a log begins and ends.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::attempts::Attempts;
use crate::buffer::{Wanted, corrupt};
use crate::cluster::{Cluster, ask, no_partition};
use crate::config::{ConsumerConfig, OffsetReset};
use crate::errors::{Error, ErrorKind, Result};
use crate::fetcher::partition_text;
use crate::groups::{ATTEMPT, Groups};
use crate::growth::Growth;
use crate::member::GroupMember;
use crate::pb::offset_query::Position;
use crate::pb::{self, PartitionError};
use crate::routes::Routes;
use crate::types::{CommittedOffset, TopicPartition};

/// Partitions that one error names.
const MOST_NAMED: usize = 5;

/// Offsets by partition.
pub(crate) type Offsets = HashMap<TopicPartition, i64>;

pub(crate) struct Positions {
    pub(crate) config: ConsumerConfig,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) growth: Growth,
    /// Of a consumer that has joined its group.
    pub(crate) member: Slot<GroupMember>,
}

/// Lifetime of a membership.
pub(crate) struct Slot<T>(Mutex<Option<Arc<T>>>);

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Slot<T> {
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        self.0.lock().expect("no panic while it is held").clone()
    }

    pub(crate) fn set(&self, what: Option<Arc<T>>) {
        *self.0.lock().expect("no panic while it is held") = what;
    }
}

/// Where a partition's log begins or ends.
pub(crate) fn place_of(reset: OffsetReset) -> Position {
    match reset {
        OffsetReset::Earliest => Position::Earliest(true),
        OffsetReset::Latest | OffsetReset::None => Position::Latest(true),
    }
}

/// Is told of one partition, as soon as there is something to tell: its offset, or an error for good.
/// Partitions of which nothing is told are to be asked for again.
pub(crate) type Tell<'a> = &'a (dyn Fn(&TopicPartition, Result<i64>) + Send + Sync);

type Failed = BTreeMap<TopicPartition, Error>;

/// Whether asking again is of no use. It was asked again for the missing offsets.
pub(crate) fn is_final(error: &Error) -> bool {
    !error.is_retriable() || error.kind() == ErrorKind::UnknownTopicOrPartition
}

impl Positions {
    /// Tells where to begin: where the group stands, or where the settings say.
    pub(crate) async fn start(&self, missing: &[Wanted], tell: Tell<'_>) {
        let in_group = |wanted: &&Wanted| self.config.group_id.is_some() && wanted.begin.is_none();
        let asked: Vec<_> = missing.iter().filter(in_group).map(|w| w.tp.clone()).collect();
        let mut left: HashMap<_, _> = missing.iter().map(|w| (w.tp.clone(), w.begin)).collect();
        if !asked.is_empty() {
            let standing = self.standing(&asked).await;
            for tp in &asked {
                match &standing {
                    Ok(standing) => match standing.get(tp) {
                        Some(known) => tell(tp, Ok(known.commit.offset)),
                        None => continue,
                    },
                    Err(error) if error.is_retriable() => {}
                    // Of a fenced member a poll passes it over.
                    Err(error) => tell(tp, Err(error.clone())),
                }
                left.remove(tp);
            }
            if standing.is_err() {
                // The coordinator moves or, of a fenced member, the group will name the new owners.
                sleep(self.config.client.retry_backoff_max).await;
            }
        }
        let tps: Vec<_> = left.keys().cloned().collect();
        let mut failed = self.learn(&tps, ATTEMPT).await;
        let mut queries = HashMap::new();
        for (tp, begin) in left {
            let from_start = begin.is_none() && self.growth.begins_at_start(&tp);
            match begin.unwrap_or(self.config.auto_offset_reset) {
                OffsetReset::None => {
                    let message =
                        format!("{tp}: no position, and auto_offset_reset is none: seek first");
                    failed.insert(tp, Error::new(ErrorKind::OffsetOutOfRange, message));
                }
                _ if from_start => _ = queries.insert(tp, place_of(OffsetReset::Earliest)),
                place => _ = queries.insert(tp, place_of(place)),
            }
        }
        self.list_once(&queries, &mut failed, ATTEMPT, tell).await;
        for (tp, error) in failed.into_iter().filter(|(_, error)| is_final(error)) {
            tell(&tp, Err(error));
        }
    }

    /// The group's committed offsets of these partitions.
    async fn standing(
        &self,
        tps: &[TopicPartition],
    ) -> Result<HashMap<TopicPartition, CommittedOffset>> {
        let group = self.config.group_id.as_deref().unwrap_or_default();
        let terms = self.member.get().map(|member| member.terms_to_look(tps)).transpose()?;
        self.groups.committed(group, tps, terms.as_ref(), false).await
    }

    /// Asks for offsets and follows leader changes for `request_timeout`. -1: no such record. An
    /// error names the partitions that were not found.
    pub(crate) async fn list(
        &self,
        queries: &HashMap<TopicPartition, Position>,
    ) -> Result<Offsets> {
        let (found, failed) = self.list_for(queries, self.cluster.config.request_timeout).await;
        of_partitions(&failed).map_or(Ok(found), Err)
    }

    /// Does so for that long, and returns the errors of missing partitions, too.
    pub(crate) async fn list_for(
        &self,
        queries: &HashMap<TopicPartition, Position>,
        limit: Duration,
    ) -> (Offsets, Failed) {
        let deadline = Instant::now() + limit;
        let found = Mutex::new(Offsets::new());
        let tell = |tp: &TopicPartition, offset: Result<i64>| {
            if let Ok(offset) = offset {
                found.lock().expect("no panic while it is held").insert(tp.clone(), offset);
            }
        };
        let mut lost = Failed::new();
        let mut left = queries.clone();
        let mut tried: BTreeMap<TopicPartition, Attempts> = BTreeMap::new();
        for failures in 1.. {
            let span = || deadline.saturating_duration_since(Instant::now());
            let tps: Vec<_> = left.keys().cloned().collect();
            let mut failed = self.learn(&tps, span()).await;
            self.list_once(&left, &mut failed, span(), &tell).await;
            left.retain(|tp, _| failed.get(tp).is_some_and(|error| !is_final(error)));
            lost.extend(
                failed.iter().filter(|(_, e)| is_final(e)).map(|(t, e)| (t.clone(), e.clone())),
            );
            for tp in left.keys() {
                tried.entry(tp.clone()).or_default().failed(&failed[tp]);
            }
            if left.is_empty() || Instant::now() >= deadline {
                lost.extend(left.keys().map(|tp| (tp.clone(), tried[tp].error())));
                return (found.into_inner().expect("no panic while it is held"), lost);
            }
            sleep(self.cluster.backoff.delay(failures)).await;
        }
        unreachable!("it ends with an answer or its deadline")
    }

    /// Asks for unknown leaders, and returns the errors of partitions without a node to ask.
    async fn learn(&self, tps: &[TopicPartition], limit: Duration) -> Failed {
        let mut topics: HashMap<Arc<str>, Option<Error>> = HashMap::new();
        let mut failed = Failed::new();
        for tp in tps.iter().filter(|tp| self.routes.offset_address(tp).is_none()) {
            if !topics.contains_key(&tp.topic) {
                let limit = limit.max(Duration::from_millis(100));
                let problem = self.cluster.require_topic(&tp.topic, limit).await.err();
                topics.insert(tp.topic.clone(), problem);
            }
            if self.routes.offset_address(tp).is_some() {
                continue;
            }
            let error = match &topics[&tp.topic] {
                Some(problem) => problem.clone(),
                None if self.cluster.leaders.leader(tp).is_none() => no_partition(tp),
                None => no_leader(tp),
            };
            self.routes.failed(tp, "");
            failed.insert(tp.clone(), error);
        }
        failed
    }

    /// Asks each leader once, all at the same time, and returns their answers. It adds to `failed`,
    /// the nodes that are not to be asked.
    async fn list_once(
        &self,
        queries: &HashMap<TopicPartition, Position>,
        failed: &mut Failed,
        limit: Duration,
        tell: Tell<'_>,
    ) {
        let mut by_node: HashMap<String, Vec<(TopicPartition, Position)>> = HashMap::new();
        for (tp, place) in queries {
            if failed.contains_key(tp) {
                continue;
            }
            match self.routes.offset_address(tp) {
                Some(address) => by_node.entry(address).or_default().push((tp.clone(), *place)),
                None => _ = failed.insert(tp.clone(), no_leader(tp)),
            }
        }
        let mut asking = vec![];
        for (address, asked) in &by_node {
            for some in asked.chunks(crate::fetcher::MOST_FETCHED) {
                asking.push(self.list_node(address, some, limit, tell));
            }
        }
        for problems in join_all(asking).await {
            failed.extend(problems);
        }
    }

    async fn list_node(
        &self,
        address: &str,
        asked: &[(TopicPartition, Position)],
        limit: Duration,
        tell: Tell<'_>,
    ) -> Failed {
        let query = |(tp, place): &(TopicPartition, Position)| pb::OffsetQuery {
            topic: tp.topic.to_string(),
            partition: tp.partition,
            position: Some(*place),
        };
        let request = pb::ListOffsetsRequest {
            queries: asked.iter().map(query).collect(),
            any_replica: self.config.any_replica,
        };
        let answer = self.cluster.call_at(address, limit, ask!(log.list_offsets(request))).await;
        let answer = answer.and_then(|answer| match (answer.results.len(), asked.len()) {
            (got, count) if got != count => {
                let message = format!("the node gave {got} answers to {count} questions");
                Err(Error::new(ErrorKind::Internal, message))
            }
            _ => Ok(answer.results),
        });
        let mut failed = Failed::new();
        match answer {
            Ok(results) => {
                for ((tp, _), result) in asked.iter().zip(&results) {
                    match self.take_offset(tp, result, address) {
                        Ok(offset) => tell(tp, Ok(offset)),
                        Err(error) => _ = failed.insert(tp.clone(), error),
                    }
                }
            }
            Err(error) => {
                for (tp, _) in asked {
                    self.routes.failed(tp, address);
                    failed.insert(tp.clone(), error.clone());
                }
            }
        }
        failed
    }

    fn take_offset(
        &self,
        tp: &TopicPartition,
        result: &pb::OffsetResult,
        address: &str,
    ) -> Result<i64> {
        let error = result.error;
        if error == i32::from(PartitionError::None) {
            self.routes.answered(tp, address);
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

/// The first error, a final one if there is one, with the names of all partitions that have one.
fn of_partitions(failed: &Failed) -> Option<Error> {
    let first = failed.values().find(|error| !error.is_retriable()).or(failed.values().next())?;
    if failed.len() == 1 {
        return Some(first.clone());
    }
    let names: Vec<_> = failed.keys().take(MOST_NAMED).map(ToString::to_string).collect();
    let more = match failed.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let message = format!("no offsets of {}{more}: {first}", names.join(", "));
    Some(first.clone().with_message(message))
}

fn no_leader(tp: &TopicPartition) -> Error {
    Error::new(ErrorKind::NotReady, format!("{tp} has no leader"))
}

/// Waits for all of them at the same time.
pub(crate) async fn join_all<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        for (future, done) in waiting.iter_mut().filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(result) = future.as_mut().poll(cx) {
                *done = Some(result);
            }
        }
        if waiting.iter().all(|(_, done)| done.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    waiting.into_iter().filter_map(|(_, done)| done).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_all_partitions_without_an_answer() {
        let tp = |n| TopicPartition::new("t", n);
        let mut failed: Failed = (0..7).map(|n| (tp(n), no_leader(&tp(n)))).collect();
        let error = of_partitions(&failed).expect("seven have none");
        assert_eq!(error.kind(), ErrorKind::NotReady);
        let names = "t-0, t-1, t-2, t-3, t-4 and 2 more";
        assert!(error.to_string().starts_with(&format!("no offsets of {names}: t-0 ")), "{error}");
        failed.insert(tp(6), no_partition(&tp(6)).with(|d| d.offset = 1));
        failed.insert(tp(5), corrupt(&tp(5), -1, "damaged".into()));
        let error = of_partitions(&failed).expect("they have none");
        assert_eq!(error.kind(), ErrorKind::CorruptLog, "a final one is told first");
        assert!(of_partitions(&Failed::new()).is_none());
    }
}

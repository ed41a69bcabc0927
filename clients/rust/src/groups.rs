//! The node that keeps a group's offsets, and the calls to it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tonic::{Response, Status};

use crate::attempts::Attempts;
use crate::cluster::{Cluster, ask};
use crate::config::Assignor;
use crate::connection::Node;
use crate::errors::{Error, ErrorKind, Result};
use crate::pb;
use crate::staging::Staging;
use crate::types::{
    CommittedOffset, GroupDescription, GroupInfo, GroupMember, OffsetCommit, TopicPartition,
};

const LIST_PAGE: usize = 1000;
/// A node that hangs must not hold up a question that another one answers.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(2);

/// The member's part of a commit, or of a look at the offset to go on from.
#[derive(Clone, Debug)]
pub(crate) struct CommitTerms {
    pub(crate) member_id: String,
    pub(crate) number: i64,
    pub(crate) ownerships: HashMap<TopicPartition, i64>,
}

pub(crate) struct Groups {
    cluster: Arc<Cluster>,
    coordinators: Mutex<HashMap<String, String>>,
}

impl Groups {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster, coordinators: Mutex::default() }
    }

    /// The node to ask: the one that is known to keep the group, or one after the other.
    pub(crate) fn place(&self, group: &str) -> String {
        let known = self.coordinators.lock().expect("no panic while it is held");
        known.get(group).cloned().unwrap_or_else(|| self.cluster.addresses().swap_remove(0))
    }

    /// It is another node, perhaps; how long to wait until one is to be asked again.
    pub(crate) fn failed(
        &self,
        group: &str,
        address: &str,
        error: &Error,
        failures: u32,
    ) -> Duration {
        let named = error.details().leader_address.as_str();
        let hint = if named == address { "" } else { named };
        self.answered(group, hint);
        if hint.is_empty() {
            self.cluster.avoid(address);
        } else if failures == 1 {
            return Duration::ZERO; // a hint needs none the first time; then somebody is wrong
        }
        self.cluster.backoff.after(error, failures)
    }

    /// This node keeps the group; empty: the leader is not known.
    pub(crate) fn answered(&self, group: &str, address: &str) {
        let mut coordinators = self.coordinators.lock().expect("no panic while it is held");
        if address.is_empty() {
            coordinators.remove(group);
        } else {
            coordinators.insert(group.into(), address.into());
        }
    }

    /// Asks the group's coordinator, wherever it is now.
    async fn call<T, F, A>(&self, group: &str, method: F) -> Result<T>
    where
        F: Fn(Node) -> A,
        A: Future<Output = std::result::Result<Response<T>, Status>>,
    {
        self.call_noting(group, &mut Attempts::default(), method).await
    }

    /// The same, with the failed attempts for the caller.
    async fn call_noting<T, F, A>(&self, group: &str, tried: &mut Attempts, method: F) -> Result<T>
    where
        F: Fn(Node) -> A,
        A: Future<Output = std::result::Result<Response<T>, Status>>,
    {
        let deadline = Instant::now() + self.cluster.config.request_timeout;
        for failures in 1.. {
            let address = self.place(group);
            let left = deadline.saturating_duration_since(Instant::now());
            let error = match self.cluster.call_at(&address, left.min(ATTEMPT), &method).await {
                Ok(answer) => {
                    self.answered(group, &address);
                    return Ok(answer);
                }
                Err(error) => error,
            };
            if !error.is_retriable() {
                return Err(tried.final_answer(error));
            }
            tried.failed(&error);
            let pause = self.failed(group, &address, &error, failures);
            if Instant::now() + pause >= deadline {
                return Err(tried.error());
            }
            sleep(pause).await;
        }
        unreachable!("it ends with an answer or its deadline")
    }

    pub(crate) async fn commit(
        &self,
        group: &str,
        offsets: &HashMap<TopicPartition, OffsetCommit>,
        terms: Option<&CommitTerms>,
    ) -> Result<()> {
        let request = pb::CommitOffsetsRequest {
            group: group.into(),
            offsets: messages(offsets, terms),
            timeout_ms: 0,
            member_id: terms.map(|terms| terms.member_id.clone()).unwrap_or_default(),
            commit_number: terms.map_or(0, |terms| terms.number),
        };
        let answer = self.call(group, ask!(groups.commit_offsets(request))).await?;
        match answer.results.iter().find(|result| !result.error.is_empty()) {
            Some(refused) => Err(refused_commit(refused)),
            None => Ok(()),
        }
    }

    /// Stores offsets with a transaction, all of them or none; a repeat has the same number.
    pub(crate) async fn stage(
        &self,
        transaction: &Staging,
        group: &str,
        offsets: &HashMap<TopicPartition, OffsetCommit>,
        number: i64,
        terms: Option<&CommitTerms>,
    ) -> Result<()> {
        let request = pb::StageOffsetsRequest {
            transaction_id: transaction.id,
            producer_id: transaction.producer_id,
            epoch: transaction.epoch,
            group: group.into(),
            number,
            offsets: messages(offsets, terms),
            member_id: terms.map(|terms| terms.member_id.clone()).unwrap_or_default(),
            timeout_ms: 0,
        };
        let answer = self.call(group, ask!(groups.stage_offsets(request))).await?;
        if answer.error.is_empty() {
            return Ok(());
        }
        let kind = match answer.error.as_str() {
            "TRANSACTION_CONFLICT" => ErrorKind::NotReady, // another one has to end first
            reason => ErrorKind::of_reason(reason).unwrap_or(ErrorKind::Internal),
        };
        let text = if answer.message.is_empty() { answer.error } else { answer.message };
        Err(Error::new(kind, format!("group {group}: offsets not staged: {text}")))
    }

    /// Committed offsets of these partitions, or of all. A caller that only looks ends no
    /// transaction that has staged offsets there.
    pub(crate) async fn committed(
        &self,
        group: &str,
        tps: &[TopicPartition],
        terms: Option<&CommitTerms>,
        looks: bool,
    ) -> Result<HashMap<TopicPartition, CommittedOffset>> {
        let ownership =
            |terms: &CommitTerms, tp| terms.ownerships.get(tp).copied().unwrap_or_default();
        let request = pb::FetchOffsetsRequest {
            group: group.into(),
            partitions: on_wire(tps),
            ignore_transactions: looks,
            member_id: terms.map(|terms| terms.member_id.clone()).unwrap_or_default(),
            ownerships: terms
                .map(|terms| tps.iter().map(|tp| ownership(terms, tp)).collect())
                .unwrap_or_default(),
        };
        let answer = self.call(group, ask!(groups.fetch_offsets(request))).await?;
        Ok(committed_offsets(answer.offsets))
    }

    pub(crate) async fn describe(&self, group: &str) -> Result<GroupDescription> {
        let request = pb::DescribeGroupRequest { group: group.into() };
        let answer = self.call(group, ask!(groups.describe_group(request))).await?;
        Ok(GroupDescription {
            group: group.into(),
            exists: answer.exists,
            last_commit_ms: answer.last_commit_ms,
            coordinator_id: answer.coordinator_id,
            offsets: committed_offsets(answer.offsets),
            members: answer.members.into_iter().map(described_member).collect(),
            epoch: answer.epoch,
            assignor: Assignor::named(&answer.assignor),
        })
    }

    /// Whether there was one.
    pub(crate) async fn delete(&self, group: &str) -> Result<bool> {
        let request = pb::DeleteGroupRequest { group: group.into() };
        let mut tried = Attempts::default();
        let answer =
            self.call_noting(group, &mut tried, ask!(groups.delete_group(request))).await?;
        // A lost answer to an earlier attempt may mean that we deleted it.
        Ok(answer.existed || tried.in_doubt())
    }

    /// All groups, by name: each node tells those that it leads.
    pub(crate) async fn all(&self) -> Result<Vec<GroupInfo>> {
        let deadline = Instant::now() + self.cluster.config.request_timeout;
        let mut tried = Attempts::default();
        for failures in 1.. {
            let mut listing = Listing::default();
            let request = pb::DescribeClusterRequest::default();
            let call = ask!(cluster.describe_cluster(request));
            let info = self.cluster.call(self.cluster.trying(), call).await?;
            for node in info.nodes.iter().filter(|node| node.alive && !node.address.is_empty()) {
                match self.list_node(&node.address, &mut listing).await {
                    Err(error) if !error.is_retriable() => return Err(error),
                    Err(error) => tried.failed(&error),
                    Ok(()) => {}
                }
            }
            let missing = listing.count.saturating_sub(listing.covered.len());
            if missing == 0 {
                return Ok(listing.found.into_values().collect());
            }
            let pause = self.cluster.backoff.delay(failures);
            if Instant::now() + pause >= deadline {
                let text = format!("{missing} partitions of __offsets have no leader that answers");
                return Err(match tried.telling() {
                    None => Error::new(ErrorKind::NotReady, text),
                    Some(_) => tried.late(&text),
                });
            }
            sleep(pause).await;
        }
        unreachable!("it ends with an answer or its deadline")
    }

    async fn list_node(&self, address: &str, listing: &mut Listing) -> Result<()> {
        let mut request = pb::ListGroupsRequest { limit: LIST_PAGE as i32, ..Default::default() };
        loop {
            let call = ask!(groups.list_groups(request.clone()));
            let answer = self.cluster.call_at(address, ATTEMPT, call).await?;
            let last = answer.groups.len() < LIST_PAGE;
            for info in answer.groups {
                request.after_group.clone_from(&info.group);
                let group = GroupInfo {
                    group: info.group.clone(),
                    offsets: info.offsets,
                    last_commit_ms: info.last_commit_ms,
                };
                listing.found.insert(info.group, group);
            }
            if last {
                listing.covered.extend(answer.partitions);
                listing.count = listing.count.max(answer.partition_count.max(0) as usize);
                return Ok(());
            }
        }
    }
}

#[derive(Default)]
struct Listing {
    found: BTreeMap<String, GroupInfo>,
    covered: HashSet<i32>,
    count: usize,
}

pub(crate) fn on_wire(tps: &[TopicPartition]) -> Vec<pb::TopicPartition> {
    let partition = |tp: &TopicPartition| pb::TopicPartition {
        topic: tp.topic.to_string(),
        partition: tp.partition,
    };
    tps.iter().map(partition).collect()
}

fn messages(
    offsets: &HashMap<TopicPartition, OffsetCommit>,
    terms: Option<&CommitTerms>,
) -> Vec<pb::OffsetCommit> {
    let sorted: BTreeMap<_, _> = offsets.iter().collect();
    let ownership = |tp| terms.and_then(|terms| terms.ownerships.get(tp)).copied();
    let commits = sorted.into_iter();
    commits.map(|(tp, commit)| message(tp, commit, ownership(tp).unwrap_or_default())).collect()
}

fn described_member(member: pb::GroupMember) -> GroupMember {
    let owned = |p: pb::OwnedPartition| (TopicPartition::new(p.topic, p.partition), p.ownership);
    let revoking = |p: pb::TopicPartition| TopicPartition::new(p.topic, p.partition);
    GroupMember {
        member_id: member.member_id,
        instance_id: member.instance_id,
        client_host: member.client_host,
        owned: member.owned.into_iter().map(owned).collect(),
        revoking: member.revoking.into_iter().map(revoking).collect(),
        idle: Duration::from_millis(member.idle_ms.max(0) as u64),
        connected: member.connected,
    }
}

fn message(tp: &TopicPartition, commit: &OffsetCommit, ownership: i64) -> pb::OffsetCommit {
    pb::OffsetCommit {
        topic: tp.topic.to_string(),
        partition: tp.partition,
        offset: commit.offset,
        metadata: commit.metadata.clone(),
        producer_id: commit.producer_id,
        epoch: commit.epoch,
        sequence: commit.sequence,
        ownership,
    }
}

fn refused_commit(result: &pb::OffsetCommitResult) -> Error {
    let text = if result.message.is_empty() { &result.error } else { &result.message };
    let kind = ErrorKind::of_reason(&result.error).unwrap_or(ErrorKind::Internal);
    let message = format!("{}-{}: offset not committed: {text}", result.topic, result.partition);
    Error::new(kind, message).with(|d| {
        d.topic.clone_from(&result.topic);
        d.partition = result.partition;
        d.current_epoch = result.current_epoch;
        d.last_sequence = result.last_sequence;
    })
}

fn committed_offsets(
    offsets: Vec<pb::CommittedOffset>,
) -> HashMap<TopicPartition, CommittedOffset> {
    let known = offsets.into_iter().filter(|offset| offset.offset >= 0);
    known
        .map(|o| {
            let commit = OffsetCommit {
                offset: o.offset,
                metadata: o.metadata,
                producer_id: o.producer_id,
                epoch: o.epoch,
                sequence: o.sequence,
            };
            let tp = TopicPartition::new(o.topic, o.partition);
            (tp, CommittedOffset { commit, commit_ms: o.commit_ms })
        })
        .collect()
}

//! Topics, the cluster, its producers and groups. Other calls of an admin client are in the modules
//! `admin_...`.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tonic::{Response, Status};

use crate::attempts::may_have_been_done;
use crate::cluster::{Cluster, Trying, ask};
use crate::config::ClientConfig;
use crate::connection::Node;
use crate::errors::{Error, ErrorKind, Result};
use crate::groups::Groups;
use crate::identities::nonce;
use crate::info::{
    ClusterInfo, NodeInfo, ProducerEpoch, ProducerName, ProducerState, TopicConfig, TopicInfo,
    UpgradeInfo, message, producer_state, settings_of, topic_info, upgrade_info,
};
use crate::pb;
use crate::resolve::resolve_sequence;
use crate::types::{
    GroupDescription, GroupInfo, OffsetCommit, ProducerLease, ResolvedSequence, TopicPartition,
};

/// The settings of an [`Admin`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AdminConfig {
    /// Parts that all clients share.
    pub client: ClientConfig,
}

impl AdminConfig {
    /// The defaults. `servers` is `host:port,...`.
    pub fn new(servers: impl AsRef<str>) -> Self {
        Self { client: ClientConfig::new(servers) }
    }
}

pub(crate) const LIST_PAGE: usize = 1000;
pub(crate) const MOST_CREATION: Duration = Duration::from_secs(30);

/// Manages topics, nodes, permissions and quotas, and looks at the cluster, its producers, groups,
/// transactions and sinks. It is used by reference, by any number of tasks. Calls are tried at
/// other nodes while errors are retriable.
pub struct Admin {
    pub(crate) cluster: Arc<Cluster>,
    groups: Groups,
}

impl Admin {
    /// Makes an admin client, within a Tokio runtime.
    pub fn new(mut config: AdminConfig) -> Result<Self> {
        config.client.check()?;
        let cluster = Arc::new(Cluster::new(config.client)?);
        Ok(Self { groups: Groups::new(cluster.clone()), cluster })
    }

    /// Frees everything, as dropping it does.
    pub fn close(&self) {
        self.cluster.close();
    }

    /// One call, which any node answers.
    pub(crate) async fn call<T, F, A>(&self, method: F) -> Result<T>
    where
        F: Fn(Node) -> A,
        A: Future<Output = std::result::Result<Response<T>, Status>>,
    {
        self.cluster.call(self.cluster.trying(), method).await
    }

    // --- topics --------------------------------------------------------------------------

    /// Creates a topic and waits, up to half a minute, until each partition has a leader. 0
    /// partitions or replicas: the cluster's default.
    pub async fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        replicas: i32,
        config: TopicConfig,
    ) -> Result<TopicInfo> {
        self.create_topic_within(MOST_CREATION, name, partitions, replicas, config).await
    }

    /// The same, with another limit.
    pub async fn create_topic_within(
        &self,
        limit: Duration,
        name: &str,
        partitions: i32,
        replicas: i32,
        config: TopicConfig,
    ) -> Result<TopicInfo> {
        let request = pb::CreateTopicRequest {
            name: name.into(),
            partitions,
            replicas,
            config: Some(message(&config)),
            timeout_ms: held_ms(limit),
        };
        let trying = held_for(limit);
        let mut in_doubt = false;
        let noting = &mut |e: &Error| in_doubt |= may_have_been_done(e);
        let call = ask!(cluster.create_topic(request));
        let error = match self.cluster.call_noting(trying, None, noting, call).await {
            Ok(answer) => return Ok(topic_info(answer.topic.unwrap_or_default())),
            Err(error) => error,
        };
        if error.kind() != ErrorKind::TopicAlreadyExists || !in_doubt {
            return Err(error);
        }
        // After a call without an answer it may be the topic of this call.
        let Ok(found) = self.describe_topic(name).await else {
            return Err(error);
        };
        let most = found.partitions.iter().map(|p| p.replicas.len()).max().unwrap_or(0);
        let as_asked = |asked: i32, found: usize| asked == 0 || asked as usize == found;
        let counts = as_asked(partitions, found.partitions.len()) && as_asked(replicas, most);
        if counts && found.config.fits(&config) {
            return Ok(found);
        }
        Err(error)
    }

    /// Deletes a topic with its records.
    pub async fn delete_topic(&self, name: &str) -> Result<()> {
        let request = pb::DeleteTopicRequest { name: name.into() };
        let mut in_doubt = false;
        let noting = &mut |e: &Error| in_doubt |= may_have_been_done(e);
        let call = ask!(cluster.delete_topic(request));
        match self.cluster.call_noting(self.cluster.trying(), None, noting, call).await {
            // A lost answer to an earlier attempt may mean that we deleted it.
            Err(e) if in_doubt && e.kind() == ErrorKind::UnknownTopicOrPartition => Ok(()),
            done => done.map(|_| ()),
        }
    }

    /// Changes the settings that are given. Leaders hear of it a moment later.
    pub async fn alter_topic(&self, name: &str, config: TopicConfig) -> Result<TopicInfo> {
        let request = pb::AlterTopicRequest {
            name: name.into(),
            config: Some(message(&config)),
            set_expected_offsets: config.expected_offsets.is_some(),
        };
        let answer = self.call(ask!(cluster.alter_topic(request))).await?;
        Ok(topic_info(answer.topic.unwrap_or_default()))
    }

    /// One topic.
    pub async fn describe_topic(&self, name: &str) -> Result<TopicInfo> {
        let mut topics = self.describe_topics(&[name]).await?;
        topics.pop().ok_or_else(|| unknown_topic(name))
    }

    /// These topics, in this order, or all, by name.
    pub async fn describe_topics(&self, names: &[&str]) -> Result<Vec<TopicInfo>> {
        let request =
            pb::DescribeTopicsRequest { names: names.iter().map(|n| (*n).into()).collect() };
        let answer = match self.call(ask!(cluster.describe_topics(request))).await {
            Ok(answer) => answer,
            Err(error) => {
                if error.kind() == ErrorKind::UnknownTopicOrPartition {
                    // The node may be behind: another call asks another node.
                    self.cluster.prefer_another();
                }
                return Err(error);
            }
        };
        self.cluster.leaders.update(&answer);
        let mut found: Vec<TopicInfo> = answer.topics.into_iter().map(topic_info).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        if names.is_empty() {
            return Ok(found);
        }
        let named = |name: &&str| {
            let topic = found.iter().find(|topic| topic.name == **name);
            topic.cloned().ok_or_else(|| unknown_topic(name))
        };
        names.iter().map(named).collect()
    }

    // --- cluster -------------------------------------------------------------------------

    /// The cluster, as the answering node sees it.
    pub async fn describe_cluster(&self) -> Result<ClusterInfo> {
        let request = pb::DescribeClusterRequest { ask_leaders: true };
        let answer = self.call(ask!(cluster.describe_cluster(request))).await?;
        let node = |node: pb::NodeInfo| NodeInfo {
            node_id: node.node_id,
            address: node.address,
            alive: node.alive,
            clock_disagrees: node.clock_disagrees,
            release: node.release,
            oldest_cluster_version: node.oldest_cluster_version,
            newest_cluster_version: node.newest_cluster_version,
            features: node.features,
            insecure: node.insecure,
        };
        Ok(ClusterInfo {
            cluster_id: answer.cluster_id,
            answering_node_id: answer.answering_node_id,
            controller_id: answer.controller_id,
            nodes: answer.nodes.into_iter().map(node).collect(),
            topics: answer.topics,
            partitions: answer.partitions,
            leaderless_partitions: answer.leaderless_partitions,
            under_replicated_partitions: answer.under_replicated_partitions,
            max_message_bytes: answer.max_message_bytes,
            upgrade: upgrade_info(answer.upgrade),
            settings: settings_of(answer.settings),
            damaged_replicas: answer.damaged_replicas,
            founding: answer.founding,
        })
    }

    /// Turns on the features of the newest release; no node can go back to an older one afterwards.
    /// It returns the features that are on, or [`ErrorKind::NotSupported`] that names the nodes in
    /// the way.
    pub async fn finalize_upgrade(&self) -> Result<UpgradeInfo> {
        let request = pb::FinalizeUpgradeRequest::default();
        let answer = self.call(ask!(cluster.finalize_upgrade(request))).await?;
        Ok(upgrade_info(answer.upgrade))
    }

    /// Sets a setting of all nodes, and returns all such settings.
    pub async fn set_cluster_setting(
        &self,
        name: &str,
        value: i64,
    ) -> Result<HashMap<String, i64>> {
        let setting = pb::ClusterSetting { name: name.into(), value };
        let request = pb::SetClusterSettingRequest { setting: Some(setting) };
        let answer = self.call(ask!(cluster.set_cluster_setting(request))).await?;
        Ok(settings_of(answer.settings))
    }

    /// Has another replica lead (0: the most caught-up one) and returns its id.
    pub async fn transfer_leadership(&self, tp: &TopicPartition, target: i32) -> Result<i32> {
        let request = pb::TransferLeadershipRequest {
            topic: tp.topic.to_string(),
            partition: tp.partition,
            target_node_id: target,
        };
        let call = ask!(cluster.transfer_leadership(request));
        Ok(self.cluster.call_leader(tp, call).await?.leader_id)
    }

    // --- producers -----------------------------------------------------------------------

    /// Leases a producer id; with a name, its id with the epoch raised by one.
    pub async fn lease_producer(&self, producer_name: Option<&str>) -> Result<ProducerLease> {
        let request = pb::LeaseProducerRequest {
            producer_name: producer_name.unwrap_or_default().into(),
            nonce: producer_name.map_or(0, |_| nonce()),
            ..Default::default()
        };
        let answer = self.call(ask!(producers.lease_producer(request))).await?;
        Ok(ProducerLease {
            producer_id: answer.producer_id,
            epoch: answer.epoch,
            expire_ms: answer.expire_ms,
            lifetime: Duration::from_millis(answer.lifetime_ms.max(0) as u64),
            lease_token: answer.lease_token,
        })
    }

    /// Raises a name's epoch, which fences its producer, and returns the new epoch.
    pub async fn fence_producer(&self, producer_name: &str) -> Result<ProducerEpoch> {
        let request =
            pb::FenceProducerRequest { producer_name: producer_name.into(), nonce: nonce() };
        let answer = self.call(ask!(producers.fence_producer(request))).await?;
        Ok(ProducerEpoch { producer_id: answer.producer_id, epoch: answer.epoch })
    }

    /// All names, as the node that answers knows them.
    pub async fn list_producer_names(&self) -> Result<Vec<ProducerName>> {
        let request = pb::ListProducerNamesRequest::default();
        let answer = self.call(ask!(producers.list_producer_names(request))).await?;
        let name = |known: pb::ProducerName| ProducerName {
            name: known.name,
            producer_id: known.producer_id,
            epoch: known.epoch,
            last_lease_ms: known.last_lease_ms,
        };
        Ok(answer.names.into_iter().map(name).collect())
    }

    /// The producers that a partition remembers, or one of them, at most `limit`.
    pub async fn describe_producers(
        &self,
        tp: &TopicPartition,
        producer_id: Option<i64>,
        limit: usize,
    ) -> Result<Vec<ProducerState>> {
        let mut states: Vec<ProducerState> = vec![];
        while states.len() < limit {
            let page = (limit - states.len()).min(LIST_PAGE);
            let request = pb::DescribeProducersRequest {
                topic: tp.topic.to_string(),
                partition: tp.partition,
                producer_id: producer_id.unwrap_or(0),
                after_producer_id: states.last().map_or(0, |state| state.producer_id),
                limit: page as i32,
                ..Default::default()
            };
            let call = ask!(producers.describe_producers(request));
            let found = self.cluster.call_leader(tp, call).await?.producers;
            let more = found.len() == page && producer_id.is_none();
            states.extend(found.into_iter().map(producer_state));
            if !more {
                break;
            }
        }
        Ok(states)
    }

    /// Outcome of a record without an acknowledgement.
    pub async fn resolve_sequence(
        &self,
        tp: &TopicPartition,
        producer_id: i64,
        epoch: i32,
        sequence: i64,
    ) -> Result<ResolvedSequence> {
        resolve_sequence(&self.cluster, tp, producer_id, epoch, sequence).await
    }

    // --- groups --------------------------------------------------------------------------

    /// All groups that have committed offsets, by name.
    pub async fn list_groups(&self) -> Result<Vec<GroupInfo>> {
        self.groups.all().await
    }

    /// A group's committed offsets.
    pub async fn describe_group(&self, group: &str) -> Result<GroupDescription> {
        self.groups.describe(group).await
    }

    /// Has a group go on at these offsets. It fails as
    /// [`Consumer::commit_offsets`](crate::Consumer::commit_offsets) does.
    pub async fn commit_offsets(
        &self,
        group: &str,
        offsets: &HashMap<TopicPartition, OffsetCommit>,
    ) -> Result<()> {
        self.groups.commit(group, offsets, None).await
    }

    /// Forgets a group and its offsets, and tells whether there was one: true also if an attempt
    /// without an answer may have deleted it.
    pub async fn delete_group(&self, group: &str) -> Result<bool> {
        self.groups.delete(group).await
    }
}

/// For a call that the node may hold for so long, with that time in the request.
pub(crate) fn held_for(limit: Duration) -> Trying {
    let total = limit.min(MOST_CREATION) + Duration::from_secs(1);
    Trying { total, attempt: total }
}

pub(crate) fn held_ms(limit: Duration) -> i32 {
    limit.min(MOST_CREATION).as_millis().max(1) as i32
}

fn unknown_topic(name: &str) -> Error {
    let message = format!("topic {name:?} does not exist");
    Error::new(ErrorKind::UnknownTopicOrPartition, message).with(|d| {
        d.topic = name.into();
        d.partition = -1;
    })
}

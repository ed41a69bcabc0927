//! Nodes that come and go, and replicas that are spread over them.

use crate::admin::Admin;
use crate::admin_partitions::{PartitionMove, partition_move};
use crate::cluster::ask;
use crate::errors::Result;
use crate::pb;

/// State of a node, as the answering node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its number.
    pub node_id: i32,
    /// Where clients reach it; empty: it has not joined.
    pub address: String,
    /// Whether it is heard.
    pub alive: bool,
    /// It may join with a new data directory.
    pub expected: bool,
    /// It has one, and not the metadata yet.
    pub joining: bool,
    /// Its replicas move to other nodes.
    pub leaving: bool,
    /// It leads nothing.
    pub drained: bool,
    /// How many.
    pub replicas: i32,
    /// How many.
    pub leaderships: i32,
    /// Partitions, and the metadata, of which its replica may not count yet.
    pub coming: i32,
    /// Partitions of which its replica is to go.
    pub going: i32,
    /// For people: why its change is not done yet.
    pub waits_for: Vec<String>,
    /// Bytes that it will hold of the partitions that come to it.
    pub coming_bytes: i64,
    /// And holds by now.
    pub copied_bytes: i64,
}

impl NodeStatus {
    /// Whether nothing is under way with it.
    pub fn is_settled(&self) -> bool {
        let busy = self.expected || self.joining || self.leaving;
        let moving = self.coming > 0 || self.going > 0;
        let draining = self.drained && self.leaderships > 0;
        !(busy || moving || draining)
    }
}

/// How [`Admin::replace_node`] treats losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReplacement {
    /// Checks the replacement and returns its effects.
    pub dry_run: bool,
    /// Goes on although partitions have no majority, or no replica at all, without the node.
    pub accept_loss: bool,
    /// The lost data directory's id, if one of two nodes is lost and the other decides alone.
    pub directory_id: u64,
}

impl NodeReplacement {
    /// Sets [`NodeReplacement::dry_run`].
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Sets [`NodeReplacement::accept_loss`].
    pub fn accept_loss(mut self, accept_loss: bool) -> Self {
        self.accept_loss = accept_loss;
        self
    }

    /// Sets [`NodeReplacement::directory_id`].
    pub fn directory_id(mut self, directory_id: u64) -> Self {
        self.directory_id = directory_id;
        self
    }
}

/// Progress of the partitions that move for any reason; of a plan: the moves that it would make.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Balance {
    /// More may begin.
    pub balancing: bool,
    /// The first of `count`.
    pub moves: Vec<PartitionMove>,
    /// How many.
    pub count: i32,
    /// Of all of them.
    pub bytes: i64,
    /// Of all of them.
    pub copied: i64,
    /// For people: omissions and their reasons.
    pub waits_for: Vec<String>,
}

impl Balance {
    /// Whether nothing is under way.
    pub fn is_settled(&self) -> bool {
        !self.balancing && self.count == 0
    }
}

impl Admin {
    /// All nodes, and the progress of their changes.
    pub async fn list_nodes(&self) -> Result<Vec<NodeStatus>> {
        let request = pb::ListNodesRequest::default();
        let answer = self.call(ask!(cluster.list_nodes(request))).await?;
        Ok(answer.nodes.into_iter().map(node_status).collect())
    }

    /// Lets a new node join, with an empty data directory. This and the next five return texts
    /// about the effect when the change is decided, or is found possible (`dry_run`);
    /// [`Admin::list_nodes`] shows the progress. After a call without an answer there may be no
    /// effect left.
    pub async fn add_node(&self, node_id: i32, dry_run: bool) -> Result<Vec<String>> {
        self.change_node(node_id, pb::NodeAction::Add, NodeReplacement::default().dry_run(dry_run))
            .await
    }

    /// Moves a node's replicas to other nodes, then removes it.
    pub async fn remove_node(&self, node_id: i32, dry_run: bool) -> Result<Vec<String>> {
        self.change_node(
            node_id,
            pb::NodeAction::Remove,
            NodeReplacement::default().dry_run(dry_run),
        )
        .await
    }

    /// Keeps a node that is being removed; replicas that have moved do not come back.
    pub async fn cancel_node_removal(&self, node_id: i32, dry_run: bool) -> Result<Vec<String>> {
        self.change_node(node_id, pb::NodeAction::Keep, NodeReplacement::default().dry_run(dry_run))
            .await
    }

    /// Moves a node's leaderships away before a restart, until [`Admin::undrain_node`].
    pub async fn drain_node(&self, node_id: i32, dry_run: bool) -> Result<Vec<String>> {
        self.change_node(
            node_id,
            pb::NodeAction::Drain,
            NodeReplacement::default().dry_run(dry_run),
        )
        .await
    }

    /// Lets a drained node lead again.
    pub async fn undrain_node(&self, node_id: i32, dry_run: bool) -> Result<Vec<String>> {
        self.change_node(
            node_id,
            pb::NodeAction::Undrain,
            NodeReplacement::default().dry_run(dry_run),
        )
        .await
    }

    /// Gives up a node's lost data directory, so that it can join with an empty one.
    pub async fn replace_node(&self, node_id: i32, how: NodeReplacement) -> Result<Vec<String>> {
        self.change_node(node_id, pb::NodeAction::Replace, how).await
    }

    async fn change_node(
        &self,
        node_id: i32,
        action: pb::NodeAction,
        how: NodeReplacement,
    ) -> Result<Vec<String>> {
        let request = pb::ChangeNodeRequest {
            node_id,
            action: action.into(),
            dry_run: how.dry_run,
            accept_loss: how.accept_loss,
            directory_id: how.directory_id,
        };
        Ok(self.call(ask!(cluster.change_node(request))).await?.effects)
    }

    /// Spreads replicas and leaderships over the nodes, by count and then by bytes. Returns at once
    /// with the progress of all moves.
    pub async fn start_balance(&self) -> Result<Balance> {
        self.balance(pb::BalanceAction::Start).await
    }

    /// Starts no further move, and undoes the moves in progress.
    pub async fn cancel_balance(&self) -> Result<Balance> {
        self.balance(pb::BalanceAction::Cancel).await
    }

    /// Returns the moves that [`Admin::start_balance`] would make.
    pub async fn plan_balance(&self) -> Result<Balance> {
        self.balance(pb::BalanceAction::Plan).await
    }

    /// Returns the progress of all moves, of any origin.
    pub async fn describe_balance(&self) -> Result<Balance> {
        self.balance(pb::BalanceAction::Describe).await
    }

    async fn balance(&self, action: pb::BalanceAction) -> Result<Balance> {
        let request = pb::BalanceClusterRequest { action: action.into() };
        let answer = self.call(ask!(cluster.balance_cluster(request))).await?;
        Ok(Balance {
            balancing: answer.balancing,
            moves: answer.moves.into_iter().map(partition_move).collect(),
            count: answer.count,
            bytes: answer.bytes,
            copied: answer.copied,
            waits_for: answer.waits_for,
        })
    }
}

fn node_status(node: pb::NodeStatus) -> NodeStatus {
    NodeStatus {
        node_id: node.node_id,
        address: node.address,
        alive: node.alive,
        expected: node.expected,
        joining: node.joining,
        leaving: node.leaving,
        drained: node.drained,
        replicas: node.replicas,
        leaderships: node.leaderships,
        coming: node.coming,
        going: node.going,
        waits_for: node.waits_for,
        coming_bytes: node.coming_bytes,
        copied_bytes: node.copied_bytes,
    }
}

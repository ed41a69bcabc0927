//! Nodes that come and go, and replicas that are spread over them.

use crate::admin::Admin;
use crate::admin_partitions::{PartitionMove, partition_move};
use crate::cluster::ask;
use crate::errors::Result;
use crate::pb;

/// What becomes of a node, as the answering node knows it.
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
    /// What it holds goes to other nodes.
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
    /// For people: why what is to be done with it is not done yet.
    pub waits_for: Vec<String>,
    /// That it will hold of what comes to it.
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

/// What is to become of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeAction {
    /// It may join, with a new data directory.
    Add,
    /// Its data directory is lost: it may join with a new one.
    Replace,
    /// What it holds goes to other nodes, then it goes.
    Remove,
    /// Takes a removal back.
    Keep,
    /// It leads nothing.
    Drain,
    /// It leads again.
    Undrain,
}

/// What [`Admin::change_node`] is asked.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NodeChange {
    /// What is to become of it.
    pub action: NodeAction,
    /// Checks it, and says what it would do.
    pub dry_run: bool,
    /// Of [`NodeAction::Replace`]: goes on although partitions have no majority, or no replica at
    /// all, without the node.
    pub accept_loss: bool,
    /// Of the lost data directory, where the other one of two nodes decides alone.
    pub directory_id: u64,
}

impl NodeChange {
    /// This, and nothing special.
    pub fn new(action: NodeAction) -> Self {
        Self { action, dry_run: false, accept_loss: false, directory_id: 0 }
    }

    /// Sets [`NodeChange::dry_run`].
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Sets [`NodeChange::accept_loss`].
    pub fn accept_loss(mut self, accept_loss: bool) -> Self {
        self.accept_loss = accept_loss;
        self
    }

    /// Sets [`NodeChange::directory_id`].
    pub fn directory_id(mut self, directory_id: u64) -> Self {
        self.directory_id = directory_id;
        self
    }
}

/// What [`Admin::balance`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BalanceAction {
    /// Tells how far all partitions are that move.
    Describe,
    /// Tells what `Start` would do.
    Plan,
    /// Has partitions moved, until nothing is left to move.
    Start,
    /// Ends that, and takes moves back that are not done.
    Cancel,
}

/// How far partitions are that move, whoever has decided that; of a plan: what would move.
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
    /// For people: what is left out, and why.
    pub waits_for: Vec<String>,
}

impl Balance {
    /// Whether nothing is under way.
    pub fn is_settled(&self) -> bool {
        !self.balancing && self.count == 0
    }
}

impl Admin {
    /// All nodes, and how far what is to be done with them is.
    pub async fn list_nodes(&self) -> Result<Vec<NodeStatus>> {
        let request = pb::ListNodesRequest::default();
        let answer = self.call(ask!(cluster.list_nodes(request))).await?;
        Ok(answer.nodes.into_iter().map(node_status).collect())
    }

    /// Decides what becomes of a node. It returns what that does, for people, when it is decided;
    /// [`Admin::list_nodes`] tells how far it is. After a call whose answer was lost that may be
    /// nothing.
    pub async fn change_node(&self, node_id: i32, change: NodeChange) -> Result<Vec<String>> {
        let action = match change.action {
            NodeAction::Add => pb::NodeAction::Add,
            NodeAction::Replace => pb::NodeAction::Replace,
            NodeAction::Remove => pb::NodeAction::Remove,
            NodeAction::Keep => pb::NodeAction::Keep,
            NodeAction::Drain => pb::NodeAction::Drain,
            NodeAction::Undrain => pb::NodeAction::Undrain,
        };
        let request = pb::ChangeNodeRequest {
            node_id,
            action: action.into(),
            dry_run: change.dry_run,
            accept_loss: change.accept_loss,
            directory_id: change.directory_id,
        };
        Ok(self.call(ask!(cluster.change_node(request))).await?.effects)
    }

    /// Spreads replicas and leaderships over the nodes, by count and then by bytes. It returns at
    /// once how far all partitions are that move.
    pub async fn balance(&self, action: BalanceAction) -> Result<Balance> {
        let action = match action {
            BalanceAction::Describe => pb::BalanceAction::Describe,
            BalanceAction::Plan => pb::BalanceAction::Plan,
            BalanceAction::Start => pb::BalanceAction::Start,
            BalanceAction::Cancel => pb::BalanceAction::Cancel,
        };
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

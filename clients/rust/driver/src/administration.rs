//! The verbs of admin clients for partitions, nodes, permissions, quotas, transactions and sinks.

use std::time::Duration;

use oncelog::{
    Admin, NodeReplacement, NodeStatus, PartitionLag, PartitionMove, PermissionRule, Quota,
    QuotaKey, Resize, SinkInfo, TopicPartition, TransactionInfo,
};
use serde_json::{Value, json};

use crate::verbs::{fault, tp};
use crate::{Answer, Fault, empty};

pub async fn carry_out(admin: &Admin, verb: &str, c: &Value) -> Answer {
    let number = |name: &str| c[name].as_i64().unwrap_or_default();
    match verb {
        "resize_topic" => {
            let resize = Resize {
                partitions: number("partitions") as i32,
                replicas: number("replicas") as i32,
                dry_run: flag(c, "dry_run"),
            };
            let found = admin.resize_topic(text(c, "topic"), resize).await?;
            Ok(json!({ "partitions": found.topic.partitions.len(), "moves": found.count }))
        }
        "reassign_partition" => {
            let nodes: Vec<i32> =
                each(&c["replicas"], |node| node.as_i64().unwrap_or_default() as i32);
            let topic = admin.reassign_partition(&tp(c), &nodes).await?;
            let found = &topic.partitions[tp(c).partition as usize];
            Ok(json!({ "replicas": found.replicas, "target": found.target }))
        }
        "list_nodes" => {
            let nodes = admin.list_nodes().await?;
            Ok(json!({ "nodes": nodes.iter().map(node).collect::<Vec<Value>>() }))
        }
        "change_node" => {
            Ok(json!({ "effects": change_node(admin, c, number("node_id") as i32).await? }))
        }
        "balance" => balance(admin, c).await,
        "alter_permissions" => {
            let (add, remove) = (each(&c["add"], rule), each(&c["remove"], rule));
            let altered = admin.alter_permissions(&add, &remove).await?;
            Ok(json!({ "added": altered.added, "removed": altered.removed }))
        }
        "list_permissions" => {
            let found = admin.list_permissions(c["principal"].as_str()).await?;
            let rules: Vec<Value> = found.rules.iter().map(rule_object).collect();
            Ok(json!({ "rules": rules, "enforced": found.enforced, "caller": found.caller }))
        }
        "check_permission" => {
            let (operation, kind, name) = (text(c, "operation"), text(c, "kind"), text(c, "name"));
            let principal = c["principal"].as_str();
            let allowed = admin.check_permission(operation, kind, name, principal).await?;
            Ok(json!({ "allowed": allowed }))
        }
        "alter_quotas" => {
            let quota = |q: &Value| {
                Quota::new(text(q, "principal"), text(q, "name"), q["value"].as_i64().unwrap_or(-1))
            };
            let key = |q: &Value| QuotaKey::new(text(q, "principal"), text(q, "name"));
            admin.alter_quotas(&each(&c["set"], quota), &each(&c["remove"], key)).await?;
            Ok(empty())
        }
        "list_quotas" => {
            let found = admin.list_quotas(c["principal"].as_str()).await?;
            let quota = |q: &Quota| json!({ "principal": q.key.principal, "name": q.key.name, "value": q.value });
            Ok(json!({ "quotas": found.iter().map(quota).collect::<Vec<Value>>() }))
        }
        "list_transactions" => {
            let name = c["producer_name"].as_str();
            let found = admin.list_transactions(name, Duration::ZERO, 0).await?;
            Ok(json!({ "transactions": found.iter().map(transaction).collect::<Vec<Value>>() }))
        }
        "describe_transaction" => {
            Ok(transaction(&admin.describe_transaction(number("transaction_id")).await?))
        }
        "end_transaction" => {
            admin.abort_transaction(number("transaction_id")).await?;
            Ok(empty())
        }
        "group_lag" => {
            let found = admin.group_lag(text(c, "group")).await?;
            let partitions: Vec<Value> = found.partitions.iter().map(partition_lag).collect();
            Ok(json!({ "lag": found.lag(), "partitions": partitions }))
        }
        "delete_group" => Ok(json!({ "existed": admin.delete_group(text(c, "group")).await? })),
        "list_sinks" => {
            let found = admin.list_sinks().await?;
            Ok(json!({ "sinks": found.iter().map(sink).collect::<Vec<Value>>() }))
        }
        "describe_sink" => Ok(sink(&admin.describe_sink(text(c, "sink")).await?)),
        "reset_sink" => {
            admin.reset_sink(text(c, "sink")).await?;
            Ok(empty())
        }
        verb => Err(Fault::NotOffered(format!("no verb {verb}"))),
    }
}

async fn balance(admin: &Admin, c: &Value) -> Answer {
    let found = match c["action"].as_str() {
        None | Some("describe") => admin.describe_balance().await?,
        Some("plan") => admin.plan_balance().await?,
        Some("start") => admin.start_balance().await?,
        Some("cancel") => admin.cancel_balance().await?,
        Some(other) => return Err(fault(format!("no action {other}"))),
    };
    let one = |m: &PartitionMove| {
        json!({
            "topic": &*m.tp.topic, "partition": m.tp.partition, "replicas": m.replicas,
            "target": m.target, "bytes": m.bytes, "copied": m.copied, "waits_for": m.waits_for,
        })
    };
    Ok(json!({
        "balancing": found.balancing, "moves": found.moves.iter().map(one).collect::<Vec<Value>>(),
        "count": found.count, "bytes": found.bytes, "copied": found.copied,
        "waits_for": found.waits_for,
    }))
}

async fn change_node(admin: &Admin, c: &Value, node: i32) -> Result<Vec<String>, Fault> {
    let dry_run = flag(c, "dry_run");
    let effects = match text(c, "action") {
        "add" => admin.add_node(node, dry_run).await,
        "remove" => admin.remove_node(node, dry_run).await,
        "keep" => admin.cancel_node_removal(node, dry_run).await,
        "drain" => admin.drain_node(node, dry_run).await,
        "undrain" => admin.undrain_node(node, dry_run).await,
        "replace" => {
            let how = NodeReplacement::default()
                .dry_run(dry_run)
                .accept_loss(flag(c, "accept_loss"))
                .directory_id(c["directory_id"].as_u64().unwrap_or(0));
            admin.replace_node(node, how).await
        }
        other => return Err(fault(format!("no action {other}"))),
    };
    Ok(effects?)
}

fn text<'a>(c: &'a Value, name: &str) -> &'a str {
    c[name].as_str().unwrap_or_default()
}

fn flag(c: &Value, name: &str) -> bool {
    c[name].as_bool().unwrap_or_default()
}

fn each<T>(list: &Value, one: impl Fn(&Value) -> T) -> Vec<T> {
    list.as_array().into_iter().flatten().map(one).collect()
}

fn rule(r: &Value) -> PermissionRule {
    PermissionRule {
        principal: text(r, "principal").into(),
        operations: each(&r["operations"], |one| one.as_str().unwrap_or_default().into()),
        kind: text(r, "kind").into(),
        name: text(r, "name").into(),
        prefix: flag(r, "prefix"),
        deny: flag(r, "deny"),
    }
}

fn rule_object(r: &PermissionRule) -> Value {
    json!({
        "principal": r.principal, "operations": r.operations, "kind": r.kind, "name": r.name,
        "prefix": r.prefix, "deny": r.deny,
    })
}

fn node(n: &NodeStatus) -> Value {
    json!({
        "node_id": n.node_id, "address": n.address, "alive": n.alive, "expected": n.expected,
        "joining": n.joining, "leaving": n.leaving, "drained": n.drained, "replicas": n.replicas,
        "leaderships": n.leaderships, "coming": n.coming, "going": n.going,
        "waits_for": n.waits_for, "coming_bytes": n.coming_bytes, "copied_bytes": n.copied_bytes,
    })
}

fn transaction(found: &TransactionInfo) -> Value {
    let parts = found.partitions.iter();
    json!({
        "transaction_id": found.transaction_id, "state": found.state.as_str().to_uppercase(),
        "reason": found.reason, "producer_name": found.producer_name,
        "partitions": parts.map(|p| json!([&*p.tp.topic, p.tp.partition])).collect::<Vec<Value>>(),
    })
}

fn sink(s: &SinkInfo) -> Value {
    let committed: Vec<Value> =
        s.committed.iter().map(|range| json!([range.start(), range.end()])).collect();
    let before = s.before.as_ref().map(|b| json!([b.query, b.batch, b.record_count]));
    json!({
        "sink": s.sink, "jobs": s.jobs, "query": s.query, "run": s.run,
        "committed_batch": s.committed_batch, "record_count": s.record_count,
        "open_transaction_id": s.open_transaction_id, "open_batch": s.open_batch,
        "committed": committed, "before": before,
    })
}

fn partition_lag((tp, one): (&TopicPartition, &PartitionLag)) -> Value {
    json!({
        "topic": &*tp.topic,
        "partition": tp.partition,
        "committed": one.committed.as_ref().map(|committed| committed.commit.offset),
        "log_start_offset": one.log_start_offset,
        "high_watermark": one.high_watermark,
        "lag": one.lag,
        "error": one.error.as_ref().map(|error| error.kind().reason()),
    })
}

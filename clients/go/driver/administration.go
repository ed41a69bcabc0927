package main

import (
	"cmp"
	"context"
	"maps"
	"slices"

	oncelog "github.com/oncelog/oncelog/clients/go"
)

type rule struct {
	Principal  string   `json:"principal"`
	Operations []string `json:"operations"`
	Kind       string   `json:"kind"`
	Name       string   `json:"name"`
	Prefix     bool     `json:"prefix"`
	Deny       bool     `json:"deny"`
}

type quota struct {
	Principal string `json:"principal"`
	Name      string `json:"name"`
	Value     int64  `json:"value"`
}

func changeNode(ctx context.Context, c *command, admin *oncelog.Admin) ([]string, error) {
	if c.Action == "replace" {
		how := oncelog.NodeReplacement{DryRun: c.DryRun, AcceptLoss: c.AcceptLoss, DirectoryID: c.DirectoryID}
		return admin.ReplaceNode(ctx, c.NodeID, how)
	}
	return map[string]func(context.Context, int32, bool) ([]string, error){
		"add": admin.AddNode, "remove": admin.RemoveNode, "keep": admin.CancelNodeRemoval,
		"drain": admin.DrainNode, "undrain": admin.UndrainNode,
	}[c.Action](ctx, c.NodeID, c.DryRun)
}

// administrate carries out changes of nodes, permissions, quotas and sinks.
func administrate(ctx context.Context, c *command, admin *oncelog.Admin) (object, error) {
	switch c.Verb {
	case "list_nodes":
		nodes, err := admin.ListNodes(ctx)
		return object{"nodes": each(nodes, node)}, err
	case "change_node":
		effects, err := changeNode(ctx, c, admin)
		return object{"effects": list(effects)}, err
	case "balance":
		balance := map[string]func(context.Context) (oncelog.Balance, error){
			"": admin.DescribeBalance, "describe": admin.DescribeBalance, "plan": admin.PlanBalance,
			"start": admin.StartBalance, "cancel": admin.CancelBalance,
		}[c.Action]
		found, err := balance(ctx)
		return object{
			"balancing": found.Balancing, "moves": each(found.Moves, move), "count": found.Count,
			"bytes": found.Bytes, "copied": found.Copied, "waits_for": list(found.WaitsFor),
		}, err
	case "reassign_partition":
		replicas, err := read[[]int32]("replicas", c.Replicas)
		if err != nil {
			return nil, err
		}
		topic, err := admin.ReassignPartition(ctx, c.tp(), replicas...)
		if err != nil {
			return nil, err
		}
		found := topic.Partitions[c.tp().Partition]
		return object{"replicas": list(found.Replicas), "target": list(found.Target)}, nil
	case "alter_permissions":
		remove, err := read[[]rule]("remove", c.Remove)
		if err != nil {
			return nil, err
		}
		added, removed, err := admin.AlterPermissions(ctx, each(c.Add, given), each(remove, given))
		return object{"added": added, "removed": removed}, err
	case "list_permissions":
		found, err := admin.ListPermissions(ctx, c.Principal)
		rules := each(found.Rules, func(r oncelog.PermissionRule) rule { return rule(r) })
		return object{"rules": rules, "enforced": found.Enforced, "caller": found.Caller}, err
	case "check_permission":
		allowed, err := admin.CheckPermission(ctx, c.Operation, c.Kind, c.Name, c.Principal)
		return object{"allowed": allowed}, err
	case "alter_quotas":
		remove, err := read[[]quota]("remove", c.Remove)
		if err != nil {
			return nil, err
		}
		set := each(c.Set, func(q quota) oncelog.Quota { return oncelog.Quota{QuotaKey: key(q), Value: q.Value} })
		return nil, admin.AlterQuotas(ctx, set, each(remove, key))
	case "list_quotas":
		quotas, err := admin.ListQuotas(ctx, c.Principal)
		return object{"quotas": each(quotas, func(q oncelog.Quota) quota {
			return quota{q.Principal, q.Name, q.Value}
		})}, err
	case "group_lag":
		found, err := admin.GroupLag(ctx, c.Group)
		return groupLag(found), err
	case "delete_group":
		existed, err := admin.DeleteGroup(ctx, c.Group)
		return object{"existed": existed}, err
	case "list_sinks":
		sinks, err := admin.ListSinks(ctx)
		return object{"sinks": each(sinks, sink)}, err
	case "describe_sink":
		found, err := admin.DescribeSink(ctx, c.Sink)
		return sink(found), err
	case "reset_sink":
		return nil, admin.ResetSink(ctx, c.Sink)
	}
	return nil, notOffered("no verb %s", c.Verb)
}

func node(n oncelog.NodeStatus) object {
	return object{
		"node_id": n.NodeID, "address": n.Address, "alive": n.Alive, "expected": n.Expected,
		"joining": n.Joining, "leaving": n.Leaving, "drained": n.Drained, "replicas": n.Replicas,
		"leaderships": n.Leaderships, "coming": n.Coming, "going": n.Going,
		"waits_for": list(n.WaitsFor), "coming_bytes": n.ComingBytes, "copied_bytes": n.CopiedBytes,
	}
}

func move(m oncelog.PartitionMove) object {
	return object{
		"topic": m.Topic, "partition": m.Partition, "replicas": list(m.Replicas),
		"target": list(m.Target), "bytes": m.Bytes, "copied": m.Copied, "waits_for": m.WaitsFor,
	}
}

func sink(s oncelog.SinkInfo) object {
	found := object{
		"sink": s.Sink, "jobs": s.Jobs, "query": s.Query, "run": s.Run,
		"committed_batch": s.CommittedBatch, "record_count": s.RecordCount,
		"open_transaction_id": s.OpenTransactionID, "open_batch": s.OpenBatch,
		"committed": each(s.Committed, func(r oncelog.BatchRange) [2]int64 { return [2]int64{r.First, r.Last} }),
		"before":    nil,
	}
	if s.Before != nil {
		found["before"] = []any{s.Before.Query, s.Before.Batch, s.Before.RecordCount}
	}
	return found
}

func given(r rule) oncelog.PermissionRule { return oncelog.PermissionRule(r) }

func key(q quota) oncelog.QuotaKey {
	return oncelog.QuotaKey{Principal: q.Principal, Name: q.Name}
}

// each maps a list; an empty list is written as a list all the same.
func each[From, To any](from []From, as func(From) To) []To {
	to := make([]To, 0, len(from))
	for _, one := range from {
		to = append(to, as(one))
	}
	return to
}

func list[T any](some []T) []T {
	return each(some, func(one T) T { return one })
}

func pairs(tps []oncelog.TopicPartition) [][2]any {
	return each(tps, func(tp oncelog.TopicPartition) [2]any { return [2]any{tp.Topic, tp.Partition} })
}

func groupLag(found oncelog.GroupLag) object {
	partitions := []object{}
	tps := slices.SortedFunc(maps.Keys(found.Partitions), func(a, b oncelog.TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for _, tp := range tps {
		one := found.Partitions[tp]
		lag := object{
			"topic": tp.Topic, "partition": tp.Partition, "committed": nil, "error": nil,
			"log_start_offset": known(one.LogStartOffset), "high_watermark": known(one.HighWatermark),
			"lag": known(one.Lag),
		}
		if one.Committed != nil {
			lag["committed"] = one.Committed.Offset
		}
		if one.Err != nil {
			lag["error"] = errorObject(one.Err)["reason"]
		}
		partitions = append(partitions, lag)
	}
	return object{"lag": found.Lag(), "partitions": partitions}
}

func known(number int64) any {
	if number == oncelog.NotKnown {
		return nil
	}
	return number
}

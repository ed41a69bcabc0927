package oncelog

import (
	"context"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// NodeStatus is what becomes of a node, as the answering node knows it.
type NodeStatus struct {
	NodeID      int32
	Address     string // empty: it has not joined
	Alive       bool
	Expected    bool // it may join with a new data directory
	Joining     bool // it has one, and not the metadata yet
	Leaving     bool
	Drained     bool // it leads nothing
	Replicas    int32
	Leaderships int32
	Coming      int32    // partitions, and the metadata, of which its replica may not count yet
	Going       int32    // partitions of which its replica is to go
	WaitsFor    []string // for people: why what is to be done with it is not done yet
	ComingBytes int64    // that it will hold of what comes to it
	CopiedBytes int64    // and holds by now
}

// Settled tells whether nothing is under way with the node.
func (n *NodeStatus) Settled() bool {
	busy := n.Expected || n.Joining || n.Leaving || n.Coming > 0 || n.Going > 0
	return !busy && !(n.Drained && n.Leaderships > 0)
}

// NodeAction says what becomes of a node.
type NodeAction string

const (
	// AddNode: it may join, with a new data directory.
	AddNode NodeAction = "add"
	// ReplaceNode: its data directory is lost, and it may join with a new one.
	ReplaceNode NodeAction = "replace"
	// RemoveNode: what it holds goes to other nodes, then it goes.
	RemoveNode NodeAction = "remove"
	// KeepNode takes a removal back.
	KeepNode NodeAction = "keep"
	// DrainNode: it leads nothing.
	DrainNode NodeAction = "drain"
	// UndrainNode: it leads again.
	UndrainNode NodeAction = "undrain"
)

var nodeActions = map[NodeAction]pb.NodeAction{
	AddNode: pb.NodeAction_NODE_ACTION_ADD, ReplaceNode: pb.NodeAction_NODE_ACTION_REPLACE,
	RemoveNode: pb.NodeAction_NODE_ACTION_REMOVE, KeepNode: pb.NodeAction_NODE_ACTION_KEEP,
	DrainNode: pb.NodeAction_NODE_ACTION_DRAIN, UndrainNode: pb.NodeAction_NODE_ACTION_UNDRAIN,
}

// NodeChange says what ChangeNode changes.
type NodeChange struct {
	Action NodeAction
	DryRun bool // check it, and say what it would do
	// Of ReplaceNode: go on although partitions have no majority, or no replica, without the node.
	AcceptLoss bool
	// DirectoryID is that of the lost data directory, where the other one of two nodes decides alone.
	DirectoryID uint64
}

// ListNodes returns all nodes, and how far what is to be done with them is.
func (a *Admin) ListNodes(ctx context.Context) ([]NodeStatus, error) {
	answer, err := ask(ctx, a.cluster, pb.NewClusterServiceClient, pb.ClusterServiceClient.ListNodes, &pb.ListNodesRequest{})
	nodes := make([]NodeStatus, 0, len(answer.GetNodes()))
	for _, n := range answer.GetNodes() {
		nodes = append(nodes, NodeStatus{
			n.GetNodeId(), n.GetAddress(), n.GetAlive(), n.GetExpected(), n.GetJoining(), n.GetLeaving(),
			n.GetDrained(), n.GetReplicas(), n.GetLeaderships(), n.GetComing(), n.GetGoing(),
			n.GetWaitsFor(), n.GetComingBytes(), n.GetCopiedBytes(),
		})
	}
	return nodes, err
}

// ChangeNode decides what becomes of a node. It returns what that does, for people, when it is
// decided; ListNodes tells how far it is. After a call whose answer was lost that may be nothing.
func (a *Admin) ChangeNode(ctx context.Context, nodeID int32, change NodeChange) (effects []string, err error) {
	action, ok := nodeActions[change.Action]
	if !ok {
		return nil, unknownAction(string(change.Action))
	}
	request := &pb.ChangeNodeRequest{
		NodeId: nodeID, Action: action, DryRun: change.DryRun, AcceptLoss: change.AcceptLoss,
		DirectoryId: change.DirectoryID,
	}
	answer, err := ask(ctx, a.cluster, pb.NewClusterServiceClient, pb.ClusterServiceClient.ChangeNode, request)
	return answer.GetEffects(), err
}

// BalanceAction says what Balance does.
type BalanceAction string

const (
	// DescribeBalance tells how far all partitions are that move.
	DescribeBalance BalanceAction = "describe"
	// PlanBalance tells what StartBalance would do.
	PlanBalance BalanceAction = "plan"
	// StartBalance has partitions moved, until nothing is left to move.
	StartBalance BalanceAction = "start"
	// CancelBalance ends that, and takes moves back that are not done.
	CancelBalance BalanceAction = "cancel"
)

var balanceActions = map[BalanceAction]pb.BalanceAction{
	DescribeBalance: pb.BalanceAction_BALANCE_ACTION_DESCRIBE, PlanBalance: pb.BalanceAction_BALANCE_ACTION_PLAN,
	StartBalance: pb.BalanceAction_BALANCE_ACTION_START, CancelBalance: pb.BalanceAction_BALANCE_ACTION_CANCEL,
}

// Balance is how far partitions are that move, whoever has decided that; of a plan: what would move.
type Balance struct {
	Balancing bool            // more may begin
	Moves     []PartitionMove // the first of Count
	Count     int32
	Bytes     int64 // of all of them
	Copied    int64
	WaitsFor  []string // for people: what is left out, and why
}

// Settled tells whether nothing is under way.
func (b *Balance) Settled() bool { return !b.Balancing && b.Count == 0 }

// Balance spreads replicas and leaderships over the nodes, by count and then by bytes. It returns
// at once how far all partitions are that move.
func (a *Admin) Balance(ctx context.Context, action BalanceAction) (Balance, error) {
	wanted, ok := balanceActions[action]
	if !ok {
		return Balance{}, unknownAction(string(action))
	}
	request := &pb.BalanceClusterRequest{Action: wanted}
	answer, err := ask(ctx, a.cluster, pb.NewClusterServiceClient, pb.ClusterServiceClient.BalanceCluster, request)
	return Balance{
		answer.GetBalancing(), partitionMoves(answer.GetMoves()), answer.GetCount(),
		answer.GetBytes(), answer.GetCopied(), answer.GetWaitsFor(),
	}, err
}

func unknownAction(action string) error {
	e := fail(ErrInvalidRequest, "action: %q is none", action)
	e.Field = "action"
	return e
}

package oncelog

import (
	"context"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// NodeStatus is the state of a node, as the answering node knows it.
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
	WaitsFor    []string // for people: why its change is not done yet
	ComingBytes int64    // bytes that it will hold of the partitions that come to it
	CopiedBytes int64    // and holds by now
}

// Settled tells whether nothing is under way with the node.
func (n *NodeStatus) Settled() bool {
	busy := n.Expected || n.Joining || n.Leaving || n.Coming > 0 || n.Going > 0
	return !busy && !(n.Drained && n.Leaderships > 0)
}

// NodeReplacement says how ReplaceNode treats losses.
type NodeReplacement struct {
	// DryRun checks the replacement and returns its effects.
	DryRun bool
	// AcceptLoss goes on although partitions have no majority, or no replica, without the node.
	AcceptLoss bool
	// DirectoryID is the lost data directory's, if one of two nodes is lost and the other decides alone.
	DirectoryID uint64
}

// ListNodes returns all nodes, and the progress of their changes.
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

// AddNode lets a new node join, with an empty data directory. This and the next five return texts
// about the effect when the change is decided, or is found possible (dryRun); [Admin.ListNodes] shows
// the progress. After a call without an answer there may be no effect left.
func (a *Admin) AddNode(ctx context.Context, nodeID int32, dryRun bool) (effects []string, err error) {
	return a.changeNode(ctx, &pb.ChangeNodeRequest{NodeId: nodeID, Action: pb.NodeAction_NODE_ACTION_ADD, DryRun: dryRun})
}

// RemoveNode moves a node's replicas to other nodes, then removes it.
func (a *Admin) RemoveNode(ctx context.Context, nodeID int32, dryRun bool) (effects []string, err error) {
	return a.changeNode(ctx, &pb.ChangeNodeRequest{NodeId: nodeID, Action: pb.NodeAction_NODE_ACTION_REMOVE, DryRun: dryRun})
}

// CancelNodeRemoval keeps a node that is being removed; replicas that have moved do not come back.
func (a *Admin) CancelNodeRemoval(ctx context.Context, nodeID int32, dryRun bool) (effects []string, err error) {
	return a.changeNode(ctx, &pb.ChangeNodeRequest{NodeId: nodeID, Action: pb.NodeAction_NODE_ACTION_KEEP, DryRun: dryRun})
}

// DrainNode moves a node's leaderships away before a restart, until [Admin.UndrainNode].
func (a *Admin) DrainNode(ctx context.Context, nodeID int32, dryRun bool) (effects []string, err error) {
	return a.changeNode(ctx, &pb.ChangeNodeRequest{NodeId: nodeID, Action: pb.NodeAction_NODE_ACTION_DRAIN, DryRun: dryRun})
}

// UndrainNode lets a drained node lead again.
func (a *Admin) UndrainNode(ctx context.Context, nodeID int32, dryRun bool) (effects []string, err error) {
	return a.changeNode(ctx, &pb.ChangeNodeRequest{NodeId: nodeID, Action: pb.NodeAction_NODE_ACTION_UNDRAIN, DryRun: dryRun})
}

// ReplaceNode gives up a node's lost data directory, so that it can join with an empty one.
func (a *Admin) ReplaceNode(ctx context.Context, nodeID int32, how NodeReplacement) (effects []string, err error) {
	return a.changeNode(ctx, &pb.ChangeNodeRequest{
		NodeId: nodeID, Action: pb.NodeAction_NODE_ACTION_REPLACE, DryRun: how.DryRun,
		AcceptLoss: how.AcceptLoss, DirectoryId: how.DirectoryID,
	})
}

func (a *Admin) changeNode(ctx context.Context, request *pb.ChangeNodeRequest) ([]string, error) {
	answer, err := ask(ctx, a.cluster, pb.NewClusterServiceClient, pb.ClusterServiceClient.ChangeNode, request)
	return answer.GetEffects(), err
}

// Balance is the progress of the partitions that move for any reason; of a plan: the moves that it
// would make.
type Balance struct {
	Balancing bool            // more may begin
	Moves     []PartitionMove // the first of Count
	Count     int32
	Bytes     int64 // of all of them
	Copied    int64
	WaitsFor  []string // for people: omissions and their reasons
}

// Settled tells whether nothing is under way.
func (b *Balance) Settled() bool { return !b.Balancing && b.Count == 0 }

// StartBalance spreads replicas and leaderships over the nodes, by count and then by bytes. It returns
// at once with the progress of all moves.
func (a *Admin) StartBalance(ctx context.Context) (Balance, error) {
	return a.balance(ctx, pb.BalanceAction_BALANCE_ACTION_START)
}

// CancelBalance starts no further move, and undoes the moves in progress.
func (a *Admin) CancelBalance(ctx context.Context) (Balance, error) {
	return a.balance(ctx, pb.BalanceAction_BALANCE_ACTION_CANCEL)
}

// PlanBalance returns the moves that [Admin.StartBalance] would make.
func (a *Admin) PlanBalance(ctx context.Context) (Balance, error) {
	return a.balance(ctx, pb.BalanceAction_BALANCE_ACTION_PLAN)
}

// DescribeBalance returns the progress of all moves, of any origin.
func (a *Admin) DescribeBalance(ctx context.Context) (Balance, error) {
	return a.balance(ctx, pb.BalanceAction_BALANCE_ACTION_DESCRIBE)
}

func (a *Admin) balance(ctx context.Context, action pb.BalanceAction) (Balance, error) {
	request := &pb.BalanceClusterRequest{Action: action}
	answer, err := ask(ctx, a.cluster, pb.NewClusterServiceClient, pb.ClusterServiceClient.BalanceCluster, request)
	return Balance{
		answer.GetBalancing(), partitionMoves(answer.GetMoves()), answer.GetCount(),
		answer.GetBytes(), answer.GetCopied(), answer.GetWaitsFor(),
	}, err
}

package oncelog

import (
	"context"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// PermissionRule allows, or denies, a principal operations on a topic, group, producer, sink, or
// the cluster.
type PermissionRule struct {
	Principal  string   // "*": every known principal
	Operations []string // "*": each
	Kind       string
	Name       string // "*": all of the kind; the cluster has none
	Prefix     bool   // Name is how names begin
	Deny       bool   // stands above all rules that allow
}

// Permissions are the rules, and how the node that answered goes by them.
type Permissions struct {
	Rules    []PermissionRule
	Enforced bool
	Caller   string // the principal that the node sees; empty: it knows nobody
}

// QuotaKey names a quota of a principal.
type QuotaKey struct {
	Principal string // "*": each one that has no value of its own
	Name      string // to remove, empty: all of the principal's
}

// Quota is how much of something a principal may use at each node. Value 0: no limit.
type Quota struct {
	QuotaKey
	Value int64
}

// AlterPermissions removes rules and adds others, all or none. It returns how many were new, and
// were there; after a call without an answer that may be none. Nodes follow a moment later.
func (a *Admin) AlterPermissions(ctx context.Context, add, remove []PermissionRule) (added, removed int32, err error) {
	request := &pb.AlterPermissionsRequest{Add: ruleMessages(add), Remove: ruleMessages(remove)}
	answer, err := ask(ctx, a.cluster, pb.NewSecurityServiceClient, pb.SecurityServiceClient.AlterPermissions, request)
	return answer.GetAdded(), answer.GetRemoved(), err
}

// ListPermissions returns the rules of one principal (empty: all), and whether they are enforced.
func (a *Admin) ListPermissions(ctx context.Context, principal string) (Permissions, error) {
	request := &pb.ListPermissionsRequest{Principal: principal}
	answer, err := ask(ctx, a.cluster, pb.NewSecurityServiceClient, pb.SecurityServiceClient.ListPermissions, request)
	found := Permissions{Enforced: answer.GetEnforced(), Caller: answer.GetCaller()}
	for _, rule := range answer.GetRules() {
		found.Rules = append(found.Rules, PermissionRule{
			rule.GetPrincipal(), rule.GetOperations(), rule.GetKind(), rule.GetName(),
			rule.GetPrefix(), rule.GetDeny(),
		})
	}
	return found, err
}

// CheckPermission tells whether a principal (empty: this client's) may do something.
func (a *Admin) CheckPermission(ctx context.Context, operation, kind, name, principal string) (bool, error) {
	request := &pb.CheckPermissionRequest{
		Principal: principal, Operation: operation, Kind: kind, Name: name,
	}
	answer, err := ask(ctx, a.cluster, pb.NewSecurityServiceClient, pb.SecurityServiceClient.CheckPermission, request)
	return answer.GetAllowed(), err
}

// AlterQuotas removes quotas and sets others, all or none. Nodes follow a moment later.
func (a *Admin) AlterQuotas(ctx context.Context, set []Quota, remove []QuotaKey) error {
	request := &pb.AlterQuotasRequest{}
	for _, quota := range set {
		request.Set = append(request.Set, &pb.Quota{
			Principal: quota.Principal, Name: quota.Name, Value: quota.Value,
		})
	}
	for _, key := range remove {
		request.Remove = append(request.Remove, &pb.QuotaKey{Principal: key.Principal, Name: key.Name})
	}
	_, err := ask(ctx, a.cluster, pb.NewSecurityServiceClient, pb.SecurityServiceClient.AlterQuotas, request)
	return err
}

// ListQuotas returns the quotas of one principal, or all.
func (a *Admin) ListQuotas(ctx context.Context, principal string) ([]Quota, error) {
	request := &pb.ListQuotasRequest{Principal: principal}
	answer, err := ask(ctx, a.cluster, pb.NewSecurityServiceClient, pb.SecurityServiceClient.ListQuotas, request)
	quotas := make([]Quota, 0, len(answer.GetQuotas()))
	for _, quota := range answer.GetQuotas() {
		quotas = append(quotas, Quota{QuotaKey{quota.GetPrincipal(), quota.GetName()}, quota.GetValue()})
	}
	return quotas, err
}

func ruleMessages(rules []PermissionRule) (messages []*pb.PermissionRule) {
	for _, rule := range rules {
		messages = append(messages, &pb.PermissionRule{
			Principal: rule.Principal, Operations: rule.Operations, Kind: rule.Kind, Name: rule.Name,
			Prefix: rule.Prefix, Deny: rule.Deny,
		})
	}
	return messages
}

//! Permissions and quotas.

use crate::admin::Admin;
use crate::cluster::ask;
use crate::errors::Result;
use crate::pb;

/// Allows, or denies, a principal operations on a topic, group, producer, sink, or the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PermissionRule {
    /// `*`: every known principal.
    pub principal: String,
    /// `*`: each.
    pub operations: Vec<String>,
    /// `topic`, `group`, `producer`, `sink` or `cluster`.
    pub kind: String,
    /// `*`: all of the kind; the cluster has none.
    pub name: String,
    /// The name is how names begin.
    pub prefix: bool,
    /// It stands above all rules that allow.
    pub deny: bool,
}

/// The rules, and how the node that answered goes by them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Permissions {
    /// Those that were asked for.
    pub rules: Vec<PermissionRule>,
    /// Whether the node goes by them.
    pub enforced: bool,
    /// The principal that the node sees; empty: it knows nobody.
    pub caller: String,
}

/// How much of something a principal may use at each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Owner and kind.
    pub key: QuotaKey,
    /// 0: no limit.
    pub value: i64,
}

/// Subject of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaKey {
    /// `*`: each one that has no value of its own.
    pub principal: String,
    /// To be removed, empty: all of the principal's.
    pub name: String,
}

impl Quota {
    /// One quota.
    pub fn new(principal: impl Into<String>, name: impl Into<String>, value: i64) -> Self {
        Self { key: QuotaKey::new(principal, name), value }
    }
}

impl QuotaKey {
    /// One quota of any value.
    pub fn new(principal: impl Into<String>, name: impl Into<String>) -> Self {
        Self { principal: principal.into(), name: name.into() }
    }
}

/// Changes made by [`Admin::alter_permissions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AlteredPermissions {
    /// Rules that are new.
    pub added: i32,
    /// Rules that were there.
    pub removed: i32,
}

impl Admin {
    /// Removes rules and adds others, all or none. After a call without an answer none may be new.
    /// Nodes follow a moment later.
    pub async fn alter_permissions(
        &self,
        add: &[PermissionRule],
        remove: &[PermissionRule],
    ) -> Result<AlteredPermissions> {
        let messages = |rules: &[PermissionRule]| rules.iter().map(rule_message).collect();
        let request = pb::AlterPermissionsRequest { add: messages(add), remove: messages(remove) };
        let answer = self.call(ask!(security.alter_permissions(request))).await?;
        Ok(AlteredPermissions { added: answer.added, removed: answer.removed })
    }

    /// All rules, or those of one principal, and whether they are enforced.
    pub async fn list_permissions(&self, principal: Option<&str>) -> Result<Permissions> {
        let principal = principal.unwrap_or_default().into();
        let request = pb::ListPermissionsRequest { principal };
        let answer = self.call(ask!(security.list_permissions(request))).await?;
        Ok(Permissions {
            rules: answer.rules.into_iter().map(permission_rule).collect(),
            enforced: answer.enforced,
            caller: answer.caller,
        })
    }

    /// Whether a principal (`None`: this client's) may do something; the cluster's name is empty.
    pub async fn check_permission(
        &self,
        operation: &str,
        kind: &str,
        name: &str,
        principal: Option<&str>,
    ) -> Result<bool> {
        let request = pb::CheckPermissionRequest {
            principal: principal.unwrap_or_default().into(),
            operation: operation.into(),
            kind: kind.into(),
            name: name.into(),
        };
        Ok(self.call(ask!(security.check_permission(request))).await?.allowed)
    }

    /// Removes quotas and sets others, all or none. Nodes follow a moment later.
    pub async fn alter_quotas(&self, set: &[Quota], remove: &[QuotaKey]) -> Result<()> {
        let quota = |one: &Quota| pb::Quota {
            principal: one.key.principal.clone(),
            name: one.key.name.clone(),
            value: one.value,
        };
        let key = |one: &QuotaKey| pb::QuotaKey {
            principal: one.principal.clone(),
            name: one.name.clone(),
        };
        let request = pb::AlterQuotasRequest {
            set: set.iter().map(quota).collect(),
            remove: remove.iter().map(key).collect(),
        };
        self.call(ask!(security.alter_quotas(request))).await.map(|_| ())
    }

    /// All quotas, or those of one principal.
    pub async fn list_quotas(&self, principal: Option<&str>) -> Result<Vec<Quota>> {
        let request = pb::ListQuotasRequest { principal: principal.unwrap_or_default().into() };
        let answer = self.call(ask!(security.list_quotas(request))).await?;
        let quota = |one: pb::Quota| Quota::new(one.principal, one.name, one.value);
        Ok(answer.quotas.into_iter().map(quota).collect())
    }
}

fn rule_message(rule: &PermissionRule) -> pb::PermissionRule {
    let rule = rule.clone();
    pb::PermissionRule {
        principal: rule.principal,
        operations: rule.operations,
        kind: rule.kind,
        name: rule.name,
        prefix: rule.prefix,
        deny: rule.deny,
    }
}

fn permission_rule(rule: pb::PermissionRule) -> PermissionRule {
    PermissionRule {
        principal: rule.principal,
        operations: rule.operations,
        kind: rule.kind,
        name: rule.name,
        prefix: rule.prefix,
        deny: rule.deny,
    }
}

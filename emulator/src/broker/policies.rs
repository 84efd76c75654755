//! IAM policies: stored and returned, but not enforced; every client may do everything.

use std::collections::BTreeMap;

use super::changes::Change;
use super::names::Kind;
use super::{Answer, Broker, Name, Refusal, Time, limits};
use crate::proto::iam::{self, audit_log_config::LogType};

/// The etag of a resource that has no policy yet: `ACAB` in JSON.
const NO_POLICY: [u8; 3] = [0x00, 0x20, 0x01];
const VERSIONS: [i32; 3] = [0, 1, 3];

/// Policies by the resource on which they are set.
#[derive(Default)]
pub(super) struct Policies {
    by_resource: BTreeMap<Name, iam::Policy>,
    /// How many were set so far; the source of etags.
    set: u64,
}

impl Policies {
    /// Forgets the policy of a deleted resource.
    pub(super) fn forget(&mut self, resource: &str) {
        self.by_resource.remove(resource);
    }

    fn of(&self, resource: &str) -> iam::Policy {
        let nothing = || iam::Policy { etag: NO_POLICY.to_vec(), ..Default::default() };
        self.by_resource.get(resource).cloned().unwrap_or_else(nothing)
    }

    fn set(&mut self, resource: &str, mut policy: iam::Policy) -> iam::Policy {
        self.set += 1;
        policy.etag = self.set.to_be_bytes().to_vec();
        self.by_resource.insert(resource.into(), policy.clone());
        policy
    }

    /// How many were set so far.
    pub(super) fn last(&self) -> u64 {
        self.set
    }

    /// Takes over policies, and how many were set before.
    pub(super) fn load(&mut self, by_resource: BTreeMap<Name, iam::Policy>, set: u64) {
        let numbers = by_resource.values().filter_map(|policy| policy.etag.as_slice().try_into().ok());
        let last = numbers.map(u64::from_be_bytes).max().unwrap_or_default();
        self.set = self.set.max(set).max(last);
        self.by_resource = by_resource;
    }

    /// What is noted of them.
    pub(super) fn changes(&self) -> impl Iterator<Item = Change> {
        self.by_resource.iter().map(|(resource, policy)| change(resource, policy))
    }
}

impl Broker {
    /// Stores a resource's policy, which is not enforced.
    pub fn set_iam_policy(&mut self, _now: Time, request: iam::SetIamPolicyRequest) -> Answer<iam::Policy> {
        self.check_resource(&request.resource)?;
        let policy = request.policy.unwrap_or_default();
        check(&policy)?;
        let current = self.policies.of(&request.resource);
        if !policy.etag.is_empty() && policy.etag != current.etag {
            return Err(Refusal::new(
                tonic::Code::Aborted,
                "There were concurrent policy changes. Please retry the whole read-modify-write with exponential \
                 backoff.",
            ));
        }
        let policy = match &request.update_mask {
            None => iam::Policy { version: policy.version.max(1), bindings: policy.bindings, ..current },
            Some(mask) => masked(current, &policy, &mask.paths)?,
        };
        let policy = self.policies.set(&request.resource, policy);
        self.ledger.note(|| change(&Name::from(request.resource.as_str()), &policy));
        Ok(policy)
    }

    /// Returns a resource's policy; an empty one if none was set.
    pub fn get_iam_policy(&mut self, _now: Time, request: iam::GetIamPolicyRequest) -> Answer<iam::Policy> {
        self.check_resource(&request.resource)?;
        Ok(self.policies.of(&request.resource))
    }

    /// Grants all requested permissions, as none is enforced; none on a resource that does not
    /// exist.
    pub fn test_iam_permissions(
        &mut self,
        _now: Time,
        request: iam::TestIamPermissionsRequest,
    ) -> Answer<iam::TestIamPermissionsResponse> {
        limits::at_most("permissions", request.permissions.len(), limits::MOST_PERMISSIONS)?;
        if let Some(wildcard) = request.permissions.iter().find(|permission| permission.contains('*')) {
            return Err(limits::bad_argument(&format!("permissions={wildcard}; wildcards are not allowed")));
        }
        match self.check_resource(&request.resource) {
            Ok(()) => Ok(iam::TestIamPermissionsResponse { permissions: request.permissions }),
            Err(refusal) if refusal.code == tonic::Code::NotFound => {
                Ok(iam::TestIamPermissionsResponse::default())
            }
            Err(refusal) => Err(refusal),
        }
    }

    fn check_resource(&self, resource: &str) -> Answer<()> {
        match Kind::of(resource) {
            Some(Kind::Topic) => self.topic("resource", resource).map(|_| ()),
            Some(Kind::Subscription) => self.subscription("resource", resource).map(|_| ()),
            Some(Kind::Snapshot) => self.snapshot("resource", resource).map(|_| ()),
            Some(Kind::Schema) => self.schema("resource", resource).map(|_| ()),
            None => Err(limits::bad_argument(&format!("resource={resource}"))),
        }
    }
}

fn change(resource: &Name, policy: &iam::Policy) -> Change {
    Change::Policy { resource: resource.clone(), policy: Box::new(policy.clone()) }
}

fn check(policy: &iam::Policy) -> Answer<()> {
    if !VERSIONS.contains(&policy.version) {
        return Err(limits::bad_argument("policy.version"));
    }
    let members = policy.bindings.iter().map(|binding| binding.members.len()).sum();
    limits::at_most("members of the policy", members, limits::MOST_MEMBERS)?;
    limits::at_most("bindings of the policy", policy.bindings.len(), limits::MOST_MEMBERS)?;
    if policy.bindings.iter().any(|binding| binding.role.is_empty()) {
        return Err(limits::bad_argument("policy.bindings.role"));
    }
    let mut logs = policy.audit_configs.iter().flat_map(|config| &config.audit_log_configs);
    if logs.any(|log| LogType::try_from(log.log_type).is_err()) {
        return Err(limits::bad_argument("policy.audit_configs.audit_log_configs.log_type"));
    }
    Ok(())
}

fn masked(mut current: iam::Policy, policy: &iam::Policy, paths: &[String]) -> Answer<iam::Policy> {
    for path in paths {
        match path.as_str() {
            "bindings" => current.bindings.clone_from(&policy.bindings),
            "version" => current.version = policy.version,
            "audit_configs" => current.audit_configs.clone_from(&policy.audit_configs),
            "etag" => {}
            other => return Err(limits::bad_argument(&format!("update_mask={other}"))),
        }
    }
    Ok(current)
}

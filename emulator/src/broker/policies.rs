//! IAM policies: stored and returned, not enforced.

use super::{Answer, Broker, Refusal, Time};
use crate::proto::iam;

impl Broker {
    /// Stores a resource's policy, which is not enforced.
    pub fn set_iam_policy(&mut self, _now: Time, _request: iam::SetIamPolicyRequest) -> Answer<iam::Policy> {
        Err(Refusal::unsupported("under construction"))
    }

    /// A resource's policy.
    pub fn get_iam_policy(&mut self, _now: Time, _request: iam::GetIamPolicyRequest) -> Answer<iam::Policy> {
        Err(Refusal::unsupported("under construction"))
    }

    /// All of the permissions asked for: none is enforced.
    pub fn test_iam_permissions(
        &mut self,
        _now: Time,
        _request: iam::TestIamPermissionsRequest,
    ) -> Answer<iam::TestIamPermissionsResponse> {
        Err(Refusal::unsupported("under construction"))
    }
}

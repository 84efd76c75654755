//! IAM policies: stored and returned.

use tonic::Code;
use wakeq_emulator::proto::iam::{
    Binding, GetIamPolicyRequest, Policy, SetIamPolicyRequest, TestIamPermissionsRequest,
};

use crate::stage::refused;

fn set(resource: &str) -> SetIamPolicyRequest {
    let binding = Binding {
        role: "roles/pubsub.publisher".to_owned(),
        members: vec!["user:ada@example.com".to_owned()],
        condition: None,
    };
    let policy = Policy { version: 1, bindings: vec![binding], ..Policy::default() };
    SetIamPolicyRequest { resource: resource.to_owned(), policy: Some(policy), update_mask: None }
}

fn get(resource: &str) -> GetIamPolicyRequest {
    GetIamPolicyRequest { resource: resource.to_owned(), options: None }
}

cases! {
    async fn a_policy_is_kept_and_returned(mut stage) {
        let (topic, subscription) = stage.pair().await;
        for resource in [topic, subscription] {
            let empty = stage.policies.get_iam_policy(get(&resource)).await.unwrap().into_inner();
            assert_eq!(empty.bindings, []);
            let request = set(&resource);
            let bindings = request.policy.clone().unwrap().bindings;
            let kept = stage.policies.set_iam_policy(request).await.unwrap().into_inner();
            assert_eq!(kept.bindings, bindings);
            assert_eq!(stage.policies.get_iam_policy(get(&resource)).await.unwrap().into_inner(), kept);
        }
    }

    async fn a_policy_is_of_something_that_is_there(mut stage) {
        let nowhere = stage.topic_name("nowhere");
        refused(stage.policies.set_iam_policy(set(&nowhere)).await, Code::NotFound);
        refused(stage.policies.get_iam_policy(get(&nowhere)).await, Code::NotFound);
    }

    async fn permissions_are_answered_from_those_asked_for(mut stage) {
        let resource = stage.topic("a-topic").await;
        let permissions = vec!["pubsub.topics.get".to_owned(), "pubsub.topics.publish".to_owned()];
        let request = TestIamPermissionsRequest { resource, permissions: permissions.clone() };
        let answer = stage.policies.test_iam_permissions(request).await.unwrap().into_inner();
        assert_eq!(answer.permissions, permissions);
    }
}

//! IAM policies.

use super::*;
use crate::proto::iam;

fn policy(member: &str, etag: &[u8]) -> iam::Policy {
    let binding = iam::Binding {
        role: "roles/pubsub.publisher".to_owned(),
        members: vec![member.to_owned()],
        condition: None,
    };
    iam::Policy { bindings: vec![binding], etag: etag.to_vec(), ..Default::default() }
}

fn set(world: &mut World, resource: &str, policy: iam::Policy) -> Answer<iam::Policy> {
    let request =
        iam::SetIamPolicyRequest { resource: resource.to_owned(), policy: Some(policy), update_mask: None };
    world.broker.set_iam_policy(world.now, request)
}

fn get(world: &mut World, resource: &str) -> Answer<iam::Policy> {
    let request = iam::GetIamPolicyRequest { resource: resource.to_owned(), options: None };
    world.broker.get_iam_policy(world.now, request)
}

fn test(world: &mut World, resource: &str, permission: &str) -> Answer<Vec<String>> {
    let request = iam::TestIamPermissionsRequest {
        resource: resource.to_owned(),
        permissions: vec![permission.to_owned()],
    };
    world.broker.test_iam_permissions(world.now, request).map(|response| response.permissions)
}

#[test]
fn each_resource_has_a_policy_that_is_read_as_it_was_written() {
    let mut world = World::with_subscription();
    world.snapshot(SNAPSHOT, SUBSCRIPTION).unwrap();
    for resource in [TOPIC, SUBSCRIPTION, SNAPSHOT] {
        let empty = get(&mut world, resource).unwrap();
        assert_eq!((empty.bindings.len(), empty.etag), (0, vec![0x00, 0x20, 0x01]));
        let stored = set(&mut world, resource, policy(resource, &[])).unwrap();
        assert_eq!(stored.bindings[0].members, [resource]);
        assert_eq!(get(&mut world, resource), Ok(stored));
        assert_eq!(
            test(&mut world, resource, "pubsub.topics.publish"),
            Ok(vec!["pubsub.topics.publish".to_owned()])
        );
    }
}

#[test]
fn rejects_a_policy_change_with_an_outdated_etag() {
    let mut world = World::with_subscription();
    let before = get(&mut world, TOPIC).unwrap();
    let first = set(&mut world, TOPIC, policy("first", &before.etag)).unwrap();
    assert_eq!(code(set(&mut world, TOPIC, policy("second", &before.etag))), Code::Aborted);
    assert_eq!(get(&mut world, TOPIC), Ok(first.clone()));
    let second = set(&mut world, TOPIC, policy("second", &first.etag)).unwrap();
    assert_ne!(second.etag, first.etag);
    world.delete_topic(TOPIC);
    world.topic(TOPIC);
    assert_eq!(get(&mut world, TOPIC), Ok(before), "a new topic has no policy of an old one");
}

#[test]
fn rejects_policies_of_missing_resources_and_invalid_policies() {
    let mut world = World::with_subscription();
    let absent = "projects/p/topics/none";
    assert_eq!(code(set(&mut world, absent, policy("a", &[]))), Code::NotFound);
    assert_eq!(code(get(&mut world, absent)), Code::NotFound);
    assert_eq!(test(&mut world, absent, "a.b.c"), Ok(Vec::new()), "nothing is permitted on nothing");
    assert_eq!(code(get(&mut world, "nonsense")), Code::InvalidArgument);
    assert_eq!(code(get(&mut world, "projects/p/schemas/abc")), Code::NotFound);
    assert_eq!(code(test(&mut world, TOPIC, "pubsub.*")), Code::InvalidArgument);
    let versions = |version| iam::Policy { version, ..policy("a", &[]) };
    for (version, expected) in [(1, Code::Ok), (2, Code::InvalidArgument), (3, Code::Ok)] {
        assert_eq!(code(set(&mut world, TOPIC, versions(version))), expected);
    }
    for (log_type, expected) in [(3, Code::Ok), (4, Code::InvalidArgument)] {
        let log = iam::AuditLogConfig { log_type, ..Default::default() };
        let audit = iam::AuditConfig { audit_log_configs: vec![log], ..Default::default() };
        let policy = iam::Policy { audit_configs: vec![audit], ..policy("a", &[]) };
        assert_eq!(code(set(&mut world, TOPIC, policy)), expected, "{log_type}");
    }
    let crowd = iam::Binding { members: vec!["a".to_owned(); 1_501], ..policy("a", &[]).bindings[0].clone() };
    assert_eq!(
        code(set(&mut world, TOPIC, iam::Policy { bindings: vec![crowd], ..Default::default() })),
        Code::InvalidArgument
    );
}

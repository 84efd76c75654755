//! The list of all methods: each with its request, its response, and the function of the broker
//! that carries it out.
//!
//! One list generates both the gRPC services and the methods that REST calls by name, so that
//! neither can lack one. What takes several turns of the broker is a function of the calls instead.
//! A publish and pulls are not in it, since they need more than their request.

use crate::proto::protobuf::Empty;
use serde_json::Value;
use tonic::{Request, Response, Status};

use super::{Calls, from_json, to_json};
use crate::broker::{Answer, Broker, Method, Time};
use crate::proto::iam::{
    GetIamPolicyRequest, Policy, SetIamPolicyRequest, TestIamPermissionsRequest, TestIamPermissionsResponse,
    iam_policy_server::IamPolicy,
};
use crate::proto::pubsub::publisher_server::Publisher;
use crate::proto::pubsub::schema_service_server::SchemaService;
use crate::proto::pubsub::subscriber_server::Subscriber;
use crate::proto::pubsub::*;
use crate::server::grpc;
use crate::server::head_start::LastPublish;

/// Implements a service's trait, except for the items in braces at the end, and the calls of its
/// methods with JSON. Those after `in turns` are functions of the calls, and not of the broker.
macro_rules! service {
    ($trait:ident, $json:ident:
     $($rpc:literal $method:ident($request:ty) -> $response:ty = $work:expr;)*
     $(in turns: $($turns_rpc:literal $turns_method:ident($turns_request:ty)
        -> $turns_response:ty = $turns:path;)*)?
     { $($else:tt)* }) => {
        #[tonic::async_trait]
        impl $trait for Calls {
            $(
                async fn $method(&self, request: Request<$request>) -> Result<Response<$response>, Status> {
                    let request = request.into_inner();
                    let answer = self.call(Method::named($rpc), |broker, now| $work(broker, now, request));
                    answer.await.map(Response::new).map_err(grpc::status)
                }
            )*
            $($(
                async fn $turns_method(
                    &self,
                    request: Request<$turns_request>,
                ) -> Result<Response<$turns_response>, Status> {
                    let answer = $turns(self, request.into_inner());
                    answer.await.map(Response::new).map_err(grpc::status)
                }
            )*)?
            $($else)*
        }

        impl Calls {
            pub(super) async fn $json(&self, rpc: &str, request: Value) -> Option<Answer<Value>> {
                match rpc {
                    $($rpc => Some(self.transcode::<$request, $response>(Method::named($rpc), request, $work).await),)*
                    $($($turns_rpc => {
                        let answer = async { to_json(&$turns(self, from_json(request)?).await?) };
                        Some(answer.await)
                    })*)?
                    _ => None,
                }
            }
        }
    };
}

service! { Publisher, publisher_json:
    "CreateTopic" create_topic(Topic) -> Topic = Broker::create_topic;
    "UpdateTopic" update_topic(UpdateTopicRequest) -> Topic = Broker::update_topic;
    "GetTopic" get_topic(GetTopicRequest) -> Topic = Broker::get_topic;
    "ListTopics" list_topics(ListTopicsRequest) -> ListTopicsResponse = Broker::list_topics;
    "ListTopicSubscriptions" list_topic_subscriptions(ListTopicSubscriptionsRequest)
        -> ListTopicSubscriptionsResponse = Broker::list_topic_subscriptions;
    "ListTopicSnapshots" list_topic_snapshots(ListTopicSnapshotsRequest)
        -> ListTopicSnapshotsResponse = Broker::list_topic_snapshots;
    "DeleteTopic" delete_topic(DeleteTopicRequest) -> Empty = empty(Broker::delete_topic);
    "DetachSubscription" detach_subscription(DetachSubscriptionRequest)
        -> DetachSubscriptionResponse = Broker::detach_subscription;
    {
        async fn publish(
            &self,
            request: Request<PublishRequest>,
        ) -> Result<Response<PublishResponse>, Status> {
            let noted = request.extensions().get::<LastPublish>().cloned();
            let answer = self.publish_noted(request.into_inner(), noted);
            answer.await.map(Response::new).map_err(grpc::status)
        }
    }
}

service! { Subscriber, subscriber_json:
    "CreateSubscription" create_subscription(Subscription) -> Subscription = Broker::create_subscription;
    "GetSubscription" get_subscription(GetSubscriptionRequest) -> Subscription = Broker::get_subscription;
    "UpdateSubscription" update_subscription(UpdateSubscriptionRequest)
        -> Subscription = Broker::update_subscription;
    "ListSubscriptions" list_subscriptions(ListSubscriptionsRequest)
        -> ListSubscriptionsResponse = Broker::list_subscriptions;
    "DeleteSubscription" delete_subscription(DeleteSubscriptionRequest)
        -> Empty = empty(Broker::delete_subscription);
    "ModifyAckDeadline" modify_ack_deadline(ModifyAckDeadlineRequest)
        -> Empty = empty(by_reference(Broker::modify_ack_deadline));
    "Acknowledge" acknowledge(AcknowledgeRequest) -> Empty = empty(by_reference(Broker::acknowledge));
    "ModifyPushConfig" modify_push_config(ModifyPushConfigRequest)
        -> Empty = empty(Broker::modify_push_config);
    "GetSnapshot" get_snapshot(GetSnapshotRequest) -> Snapshot = Broker::get_snapshot;
    "ListSnapshots" list_snapshots(ListSnapshotsRequest) -> ListSnapshotsResponse = Broker::list_snapshots;
    "CreateSnapshot" create_snapshot(CreateSnapshotRequest) -> Snapshot = Broker::create_snapshot;
    "UpdateSnapshot" update_snapshot(UpdateSnapshotRequest) -> Snapshot = Broker::update_snapshot;
    "DeleteSnapshot" delete_snapshot(DeleteSnapshotRequest) -> Empty = empty(Broker::delete_snapshot);
    "Seek" seek(SeekRequest) -> SeekResponse = Broker::seek;
    {
        async fn pull(&self, request: Request<PullRequest>) -> Result<Response<PullResponse>, Status> {
            grpc::pull(self, request).await
        }

        type StreamingPullStream = grpc::PullResponses;

        async fn streaming_pull(
            &self,
            request: Request<tonic::Streaming<StreamingPullRequest>>,
        ) -> Result<Response<grpc::PullResponses>, Status> {
            grpc::streaming_pull(self, request).await
        }
    }
}

service! { IamPolicy, policy_json:
    "SetIamPolicy" set_iam_policy(SetIamPolicyRequest) -> Policy = Broker::set_iam_policy;
    "GetIamPolicy" get_iam_policy(GetIamPolicyRequest) -> Policy = Broker::get_iam_policy;
    "TestIamPermissions" test_iam_permissions(TestIamPermissionsRequest)
        -> TestIamPermissionsResponse = Broker::test_iam_permissions;
    {}
}

service! { SchemaService, schema_json:
    "GetSchema" get_schema(GetSchemaRequest) -> Schema = Broker::get_schema;
    "ListSchemas" list_schemas(ListSchemasRequest) -> ListSchemasResponse = Broker::list_schemas;
    "ListSchemaRevisions" list_schema_revisions(ListSchemaRevisionsRequest)
        -> ListSchemaRevisionsResponse = Broker::list_schema_revisions;
    "RollbackSchema" rollback_schema(RollbackSchemaRequest) -> Schema = Broker::rollback_schema;
    "DeleteSchemaRevision" delete_schema_revision(DeleteSchemaRevisionRequest)
        -> Schema = Broker::delete_schema_revision;
    "DeleteSchema" delete_schema(DeleteSchemaRequest) -> Empty = empty(Broker::delete_schema);
    in turns:
    "CreateSchema" create_schema(CreateSchemaRequest) -> Schema = Calls::new_schema;
    "CommitSchema" commit_schema(CommitSchemaRequest) -> Schema = Calls::new_revision;
    "ValidateSchema" validate_schema(ValidateSchemaRequest)
        -> ValidateSchemaResponse = Calls::valid_schema;
    "ValidateMessage" validate_message(ValidateMessageRequest)
        -> ValidateMessageResponse = Calls::valid_message;
    {}
}

/// Methods without a result answer with an empty message.
fn empty<Req>(
    work: impl FnOnce(&mut Broker, Time, Req) -> Answer<()>,
) -> impl FnOnce(&mut Broker, Time, Req) -> Answer<Empty> {
    |broker, now, request| work(broker, now, request).map(|()| Empty {})
}

fn by_reference<Req, Res>(
    work: impl FnOnce(&mut Broker, Time, &Req) -> Answer<Res>,
) -> impl FnOnce(&mut Broker, Time, Req) -> Answer<Res> {
    |broker, now, request| work(broker, now, &request)
}

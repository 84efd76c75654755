//! The services over gRPC: their limits, the status of a refusal, and what a unary call cannot
//! express.

mod health;
mod status;
mod streaming;
mod timeout;

use tonic::codec::CompressionEncoding;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use super::calls::{Calls, PullGuard};
use crate::proto::iam::iam_policy_server::IamPolicyServer;
use crate::proto::pubsub::publisher_server::PublisherServer;
use crate::proto::pubsub::schema_service_server::SchemaServiceServer;
use crate::proto::pubsub::subscriber_server::SubscriberServer;
use crate::proto::pubsub::{PullRequest, PullResponse};

pub(super) use status::{ErrorInfo, status};
pub(super) use streaming::{PullResponses, streaming_pull};

/// A larger request is not even read. The service's own limits are lower (10 MB of messages), and
/// their refusals carry its messages; the difference is for the encoding.
pub(super) const LARGEST_REQUEST_BYTES: usize = 32 * 1024 * 1024;

/// The routes of all services.
pub(super) fn routes(calls: &Calls) -> axum::Router {
    macro_rules! limited {
        ($server:ident) => {
            $server::new(calls.clone())
                .max_decoding_message_size(LARGEST_REQUEST_BYTES)
                .accept_compressed(CompressionEncoding::Gzip)
        };
    }
    Routes::new(limited!(PublisherServer))
        .add_service(limited!(SubscriberServer))
        .add_service(limited!(IamPolicyServer))
        .add_service(limited!(SchemaServiceServer))
        .into_axum_router()
        .merge(health::routes(calls.core().stop().clone()))
        // As `Routes::prepare` does: it makes the router faster.
        .with_state(())
}

pub(super) async fn pull(
    calls: &Calls,
    request: Request<PullRequest>,
) -> Result<Response<PullResponse>, Status> {
    let timeout = timeout::of(request.metadata());
    let request = request.into_inner();
    let response = calls.pull(&request, timeout).await.map_err(status)?;
    let pull_guard = PullGuard::new(calls.core(), request.subscription, &response);
    let mut response = Response::new(response);
    response.extensions_mut().insert(pull_guard);
    Ok(response)
}

//! `grpc.health.v1`: whether the emulator serves. It does from its start to its end, and injected
//! faults do not concern this.

use std::future::{Ready, ready};
use std::pin::Pin;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response};
use axum::routing::post;
use futures_util::Stream;
use futures_util::stream::{StreamExt as _, once};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::server::{Grpc, ServerStreamingService, UnaryService};
use tonic_prost::ProstCodec;

use super::status;
use crate::server::core::stopping;

/// What may be asked about: the server as a whole, which has no name, and its services.
const SERVICES: [&str; 5] = [
    "",
    "google.iam.v1.IAMPolicy",
    "google.pubsub.v1.Publisher",
    "google.pubsub.v1.SchemaService",
    "google.pubsub.v1.Subscriber",
];

const SERVING: i32 = 1;
const SERVICE_UNKNOWN: i32 = 3;

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// The routes of the service, whose streams end when it is stopped.
pub(super) fn routes(stop: CancellationToken) -> Router {
    Router::new()
        .route("/grpc.health.v1.Health/Check", post(check))
        .route("/grpc.health.v1.Health/Watch", post(watch))
        .with_state(stop)
}

async fn check(request: Request<Body>) -> Response<tonic::body::Body> {
    let mut grpc = Grpc::new(ProstCodec::<HealthCheckResponse, HealthCheckRequest>::default());
    grpc.unary(Check, request).await
}

async fn watch(State(stop): State<CancellationToken>, request: Request<Body>) -> Response<tonic::body::Body> {
    let mut grpc = Grpc::new(ProstCodec::<HealthCheckResponse, HealthCheckRequest>::default());
    grpc.server_streaming(Watch(stop), request).await
}

struct Check;

impl UnaryService<HealthCheckRequest> for Check {
    type Response = HealthCheckResponse;
    type Future = Ready<Result<tonic::Response<HealthCheckResponse>, Status>>;

    fn call(&mut self, request: tonic::Request<HealthCheckRequest>) -> Self::Future {
        ready(match is_served(&request) {
            true => Ok(tonic::Response::new(HealthCheckResponse { status: SERVING })),
            false => Err(Status::not_found("The emulator has no such service.")),
        })
    }
}

struct Watch(CancellationToken);

impl ServerStreamingService<HealthCheckRequest> for Watch {
    type Response = HealthCheckResponse;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;
    type Future = Ready<Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<HealthCheckRequest>) -> Self::Future {
        let now = HealthCheckResponse { status: if is_served(&request) { SERVING } else { SERVICE_UNKNOWN } };
        let stop = self.0.clone();
        let end = async move {
            stop.cancelled().await;
            Err(status(stopping()))
        };
        let responses: Self::ResponseStream = Box::pin(once(ready(Ok(now))).chain(once(end)));
        ready(Ok(tonic::Response::new(responses)))
    }
}

fn is_served(request: &tonic::Request<HealthCheckRequest>) -> bool {
    SERVICES.contains(&request.get_ref().service.as_str())
}

//! Delivery to HTTP targets: what it sends, where it refuses to send, and how it treats every kind
//! of answer. The servers are small ones on loopback.

mod answers;
mod connections;
mod corpus;
mod names;
mod servers;
mod signatures;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use wakeq::events::Metadata;
use wakeq::targets::{Secret, Secrets, Target, TargetHeaders, TargetPolicy, TargetUrl};
use wakeq::{CanvasId, EventId, Execution, HandlerAddress, HandlerScope, Name};
use wakeq_service::delivery::{Deliverer, DeliveryConfig, DeliveryOutcome};

use crate::support::TIMEOUT;
use names::Names;

/// The message for every host that is not reached at a public address.
const UNREACHED: &str = "its host could not be reached";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const FORMER_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Allows 127.0.0.1 and nothing else besides the public internet, with or without TLS, and knows
/// only these names.
fn config(names: &Arc<Names>) -> DeliveryConfig {
    DeliveryConfig {
        allow: vec!["*=127.0.0.1:1-65535".parse().unwrap()],
        allow_http: true,
        resolver: names.clone(),
        ..DeliveryConfig::default()
    }
}

fn deliverer() -> Deliverer {
    Deliverer::new(config(&Arc::default())).unwrap()
}

fn target(url: TargetUrl) -> Target {
    let secrets = Secrets { current: SECRET.parse::<Secret>().unwrap(), previous: None };
    let policy = TargetPolicy { timeout: TIMEOUT, ..TargetPolicy::default() };
    Target { url, policy, audience: None, secrets, headers: TargetHeaders::default() }
}

/// For a target that will not answer.
fn impatient(url: TargetUrl) -> Target {
    let policy = TargetPolicy { timeout: Duration::from_millis(200), ..TargetPolicy::default() };
    Target { policy, ..target(url) }
}

async fn deliver(deliverer: &Deliverer, target: &Target) -> DeliveryOutcome {
    deliver_event(deliverer, target, EventId::new(), r#"{"greet":"Ada"}"#, 1).await
}

/// The same for a target of this canvas.
async fn deliver_on(deliverer: &Deliverer, target: &Target, canvas: CanvasId) -> DeliveryOutcome {
    deliver_of(deliverer, target, canvas, EventId::new(), "1", 1).await
}

async fn deliver_event(
    deliverer: &Deliverer,
    target: &Target,
    event: EventId,
    json: &str,
    attempt: u32,
) -> DeliveryOutcome {
    deliver_of(deliverer, target, CanvasId::DEFAULT, event, json, attempt).await
}

async fn deliver_of(
    deliverer: &Deliverer,
    target: &Target,
    canvas: CanvasId,
    event: EventId,
    json: &str,
    attempt: u32,
) -> DeliveryOutcome {
    let scope = HandlerScope::worker(canvas, "greet").unwrap();
    let emitted_at = "2026-01-31T08:00:00Z".parse().unwrap();
    let address = HandlerAddress { scope, modifier: Name::no_modifier() };
    let mut execution = Execution::new(address, json, emitted_at);
    (execution.id, execution.attempt) = (event, attempt);
    execution.metadata = Metadata { traceparent: Some(TRACE.parse().unwrap()) };
    deliverer.deliver(target, execution, None).await
}

fn failure(delivered: DeliveryOutcome) -> String {
    match delivered {
        DeliveryOutcome::Failed { message, .. } => message,
        DeliveryOutcome::Completed
        | DeliveryOutcome::NotYet { .. }
        | DeliveryOutcome::Busy { .. }
        | DeliveryOutcome::Dead { .. }
        | DeliveryOutcome::Gone { .. } => panic!("it did not fail: {delivered:?}"),
    }
}

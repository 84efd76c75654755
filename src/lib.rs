//! A durable event queue: Postgres holds every event, Google Cloud Pub/Sub only wakes the workers.

mod event;
pub mod machine;
pub mod notify;

pub use event::{
    CanvasId, Claim, Due, Event, EventError, EventId, HandlerAddress, HandlerScope, InvalidName,
    InvalidTraceparent, JsonError, MalformedNotification, Name, Notification, RuleKind, Timestamp, Timing,
    Traceparent,
};
pub use machine::{Outcome, RetryPolicy};

//! A durable event queue: Postgres holds every event, Google Cloud Pub/Sub only wakes the workers.

mod event;
mod machine;
pub mod notify;
mod store;

pub use event::{
    CanvasId, Claim, Due, Event, EventError, EventId, HandlerAddress, HandlerScope, InvalidName,
    InvalidTraceparent, JsonError, MalformedNotification, Name, Notification, RuleKind, Timestamp, Timing,
    Traceparent,
};
pub use store::{DeadEvent, DeadFilter, HandlerCounts, MigrationState, MigrationStatus, Rule, Store, StoreConfig, StoreError};
pub use machine::{Outcome, RetryPolicy};

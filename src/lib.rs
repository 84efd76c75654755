//! A durable event queue: Postgres holds every event, Google Cloud Pub/Sub only wakes the workers.

mod event;
pub mod notify;

pub use event::{CanvasId, EventId, MalformedNotification, Notification, Timestamp};

//! A client of the HTTP API of [wakeq](https://github.com/OWNER/wakeq), a durable event queue: emit
//! events, see why they are not running, cancel, pause, redrive, listen; and verify what wakeq
//! delivers to HTTP targets.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use wakeq_client::{Client, NewEvent};
//!
//! let wakeq = Client::new("https://queue.example", &std::env::var("WAKEQ_KEY")?)?;
//! let event = NewEvent::new("greet", &"Ada")?.delay(Duration::from_secs(30));
//! let id = wakeq.emit(&event).await?.id;
//! println!("{}", wakeq.explain(id).await?.next);
//! wakeq.cancel(id).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Client`] is for one canvas, which is a tenant; the key decides what it may do. Every other
//! route is a [`Request`]. A failure is an [`Error`], which tells whether the same request may
//! succeed later.
//!
//! A service that receives deliveries checks each of them with a [`Verifier`].

mod batches;
mod calls;
mod client;
mod error;
mod history;
mod limits;
mod listen;
mod operations;
mod options;
mod pulled;
mod request;
mod search;
mod types;
mod unique;
mod verify;
mod workers;

pub use batches::{Batch, BatchCounts, BatchEnd, OnEnd};
pub use client::Client;
pub use error::{Error, Problem};
pub use history::{Attempt, EndedEvent, EndedFilter};
pub use limits::{Limit, LimitSet, LimitUse, NewLimit, OnFull, Rate};
pub use listen::{Heard, Listening};
pub use operations::{
    NewOperation, Operation, OperationFilter, OperationKind, OperationPreview, OperationState,
};
pub use options::{EventOptions, KeepSeconds};
pub use pulled::{Extended, LeasedEvent, PullPolicy, Release, Released};
pub use request::{Method, Request};
pub use search::{EventCount, EventFilter, EventSummary};
pub use types::{
    Cancelled, Checkpoint, DeadEvent, DeadFilter, Emitted, EventDetail, EventState, Handler, Lifted,
    LimitWait, NewEvent, Page, Pause, Redriven, Rule, Statistics, StatisticsRange, StatisticsTimes, Stopped,
};
pub use unique::{Outcome, Unique};
pub use verify::{Delivery, SignatureError, Verifier};
pub use workers::{Worker, WorkerRun, WorkerState, WorkerSummary};

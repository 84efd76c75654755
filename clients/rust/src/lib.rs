//! A client of the HTTP API of [wakeq](https://github.com/OWNER/wakeq), a durable event queue: emit
//! events, see why they are not running, cancel, pause, redrive, schedule, listen; and verify what
//! wakeq delivers to HTTP targets.
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
mod crons;
mod error;
mod failures;
mod handlers;
mod history;
mod limits;
mod listen;
mod operations;
mod options;
mod pulled;
mod queues;
mod request;
mod rules;
mod search;
mod targets;
mod types;
mod unique;
mod verify;
mod workers;

pub use batches::{Batch, BatchCounts, BatchEnd, OnEnd};
pub use client::Client;
pub use crons::{Cron, CronEvent, CronPause, CronTick, MissedTicks, NewCron};
pub use error::{Error, Problem};
pub use failures::{ErrorGroup, ErrorGroupFilter, ErrorGroups, HaltedObject, KnownError};
pub use handlers::{Depth, Handler, HandlerAttempt, LastAttempts, Purged};
pub use history::{Attempt, EndedEvent, EndedFilter};
pub use limits::{Limit, LimitSet, LimitUse, NewLimit, OnFull, Rate};
pub use listen::{Heard, Listening};
pub use operations::{
    NewOperation, Operation, OperationFilter, OperationKind, OperationPreview, OperationState,
};
pub use options::{EventOptions, KeepSeconds};
pub use pulled::{Extended, LeasedEvent, PullPolicy, Release, Released};
pub use queues::{Queue, QueueDepth};
pub use request::{Method, Request};
pub use rules::{Lifted, Pause, Rule, Stopped};
pub use search::{EventCount, EventFilter, EventSummary};
pub use targets::{NewTarget, Target, TargetPolicy, TargetSet};
pub use types::{
    Cancelled, Checkpoint, DeadEvent, DeadFilter, Deleted, Emitted, EventDetail, EventState, LimitWait,
    NewEvent, Page, Redriven, Statistics, StatisticsRange, StatisticsTimes,
};
pub use unique::{Outcome, Unique};
pub use verify::{Delivery, SignatureError, Verifier};
pub use workers::{Program, Worker, WorkerRun, WorkerState, WorkerSummary};

//! All SQL: one concrete struct over sqlx's pool, one file per table or concern, one function per
//! statement.
//!
//! Every write restates its precondition in `where` and reports whether it took effect. Times are
//! the database's: no function here takes a worker's clock. Nothing here publishes, decides, or
//! retries beyond its own statement.

/// Calls the same statement on the in-memory tables and returns, if the test kit uses them instead
/// of Postgres.
macro_rules! in_memory {
    ($store:ident, $statement:ident ( $($argument:expr),* $(,)? )) => {
        #[cfg(feature = "testing")]
        #[allow(unused_mut, reason = "some only read")]
        if let Some(mut tables) = $store.tables() {
            return tables.$statement($($argument),*);
        }
    };
}

mod audit;
mod chains;
mod chores;
mod claims;
mod coalescer;
mod control;
mod counts;
mod crons;
mod dead_events;
mod depth;
mod engine;
mod error;
mod events;
mod expiry;
mod handlers;
mod held;
mod idempotency;
mod idle;
mod insert;
mod lanes;
mod listen;
mod load;
mod log;
mod long_values;
#[cfg(feature = "testing")]
mod memory;
mod migrate;
mod missed;
mod parts;
mod permits;
mod pools;
mod probe;
mod promises;
mod queues;
mod quotas;
mod resume;
mod rights;
mod route;
mod rows;
mod rules;
mod session;
mod session_settings;
mod settings;
#[cfg(feature = "testing")]
mod shift;
mod slices;
mod statement;
mod targets;
#[cfg(test)]
pub(crate) mod tests;
mod ticks;
mod tombstones;
mod unknown_handlers;
mod uses;

pub use audit::{AuditEntry, AuditLine, AuditOutcome, Refusal};
pub(crate) use chains::NewState;
pub use chains::{Object, insert_with_state};
pub(crate) use chores::MakingDue;
pub(crate) use claims::{ClaimLimits, Retry};
pub use coalescer::Coalescer;
pub(crate) use coalescer::{BATCH_MAX, IN_FLIGHT};
pub(crate) use control::{BULK_PAGE, CommandOutcome};
pub(crate) use counts::HandlerActivity;
pub use counts::HandlerCounts;
pub(crate) use crons::{CronPut, CronRow, CronUnpaused, NewCronRow};
pub use dead_events::{DeadEvent, DeadFilter};
pub use depth::{Depth, HandlerDepth};
pub use engine::ForeignEngine;
pub use error::StoreError;
pub(crate) use events::{ListedEvent, Position};
pub(crate) use expiry::ExpiryPart;
pub use expiry::Retention;
pub(crate) use handlers::HandlerPosition;
pub(crate) use idempotency::{IdempotencyOutcome, NewKey};
pub(crate) use idle::IdleRetention;
pub(crate) use insert::insert_one;
pub use insert::{InsertOutcome, statements};
pub(crate) use lanes::HaltedPosition;
pub use lanes::{HaltedLane, InHand};
pub(crate) use listen::{Listening, PAYLOAD_BYTES_MAX};
pub(crate) use load::{ClaimedEvent, LoadedEvent};
pub(crate) use log::AppendRefusal;
pub use log::{LogAppender, LogBatch, LogEnd, LogHolder, LogHorizon, append_batch, lacks_partition};
pub use migrate::{MigrationDifferences, MigrationState, MigrationStatus};
pub use permits::{Purpose, on_behalf_of};
pub use queues::{Emission, Facet, FacetSettings, Lease, QueueDepth, RegisteredQueue};
pub(crate) use queues::{
    Fence, LeasePosition, LeasedRow, NewQueueRow, PulledSplit, QueuePut, TurnOutcome, TurnRequest,
};
pub use quotas::{Additions, QuotaUse, default_quota, quota_exceeded, serialize_on_canvas};
pub use rights::RoleKind;
pub use route::DatabaseRoute;
pub use rules::Rule;
pub(crate) use rules::RulePosition;
pub use session::{Store, StoreConfig, interval};

pub use settings::{DatabaseUse, TimingMode};
pub use targets::FoundTarget;
pub(crate) use targets::{NewTargetRow, PutOutcome, TargetPosition};
pub use targets::{RegisteredTarget, SecretCounts};
pub(crate) use ticks::{CronDue, CronStep};
pub use tombstones::Tombstone;

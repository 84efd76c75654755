//! The ground floor: connections and what runs on them, single statements, errors, the durations of
//! the deployment, migrations, roles and the audit log; and what this process remembers for the
//! rooms above: the patterns of queues, how far its passes got, how much canvases keep, what it has
//! counted.
//!
//! It imports no other room, and writes no event.

mod addresses;
mod audit;
mod coalescer;
mod config;
mod counting;
#[cfg(feature = "testing")]
mod double;
mod engine;
mod error;
mod held;
mod listen;
mod migrate;
pub(in crate::store) mod pass;
mod permits;
mod pools;
mod registry;
mod rights;
mod role_settings;
mod route;
mod savings;
mod session;
mod session_settings;
mod settings;
mod shared;
mod sql;
mod statement;
pub(in crate::store) mod usage;
mod uses;

pub(in crate::store) use addresses::{address, handler_columns, notifications};
pub use audit::{AuditEntry, AuditFilter, AuditLine, AuditOutcome, Refusal};
pub(crate) use audit::{AuditPosition, LookedLine};
pub use coalescer::Coalescer;
pub(crate) use coalescer::{BATCH_MAX, IN_FLIGHT};
pub use config::{StoreConfig, TimingMode};
pub(in crate::store) use counting::{CountRows, HANDLERS_MAX};
#[cfg(feature = "testing")]
pub(in crate::store) use double::Double;
pub use engine::ForeignEngine;
pub use error::StoreError;
pub(in crate::store) use held::timed;
pub(crate) use listen::{Listening, PAYLOAD_BYTES_MAX};
pub use migrate::{MigrationDifferences, MigrationState, MigrationStatus};
pub use permits::{Purpose, on_behalf_of};
pub use registry::Emission;
pub(in crate::store) use registry::{Patterns, QueueRegistry, STALE_TRIES, compiled, patterns_of, too_busy};
pub use rights::RoleKind;
pub use route::DatabaseRoute;
pub(in crate::store) use session::{Bounded, Session};
pub use session::{Store, interval};
pub use settings::DatabaseUse;
pub(in crate::store) use sql::Sql;

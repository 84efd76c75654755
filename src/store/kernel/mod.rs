//! The ground floor: connections and what runs on them, single statements, errors, the durations of
//! the deployment, migrations, roles and the audit log.
//!
//! It knows no table of events, rules or queues.

mod audit;
mod coalescer;
mod engine;
mod error;
mod held;
mod listen;
mod migrate;
mod permits;
mod pools;
mod probe;
mod rights;
mod route;
mod session;
mod session_settings;
mod settings;
mod slices;
mod statement;
mod uses;

pub use audit::{AuditEntry, AuditLine, AuditOutcome, Refusal};
pub use coalescer::Coalescer;
pub(crate) use coalescer::{BATCH_MAX, IN_FLIGHT};
pub use engine::ForeignEngine;
pub use error::StoreError;
pub(in crate::store) use held::timed;
pub(crate) use listen::{Listening, PAYLOAD_BYTES_MAX};
pub use migrate::{MigrationDifferences, MigrationState, MigrationStatus};
pub use permits::{Purpose, on_behalf_of};
pub use rights::RoleKind;
pub use route::DatabaseRoute;
pub(in crate::store) use session::{Bounded, Session};
pub use session::{Store, StoreConfig, interval};
pub use settings::{DatabaseUse, TimingMode};
pub(in crate::store) use slices::{Portion, Walk};

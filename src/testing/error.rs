//! Why a call of the kit failed.

use crate::admin::AdminError;
use crate::emit::EmitError;
use crate::event::InvalidLimitName;
use crate::notify::NotifyError;
use crate::store::StoreError;
use crate::worker::WorkerError;

/// Maximum number of waves in a row in which no handler runs, each for events that fell due during
/// the previous one.
pub(super) const IDLE_WAVES_MAX: usize = 1_000;

/// Why a call of the kit failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KitError {
    /// The list of handlers, or the worker's configuration, is not valid.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// An emit was refused.
    #[error(transparent)]
    Emit(#[from] EmitError),
    /// A command was refused.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The database failed, or a store in memory does not support the call.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The notifier failed; a test may have broken it.
    #[error(transparent)]
    Notify(#[from] NotifyError),
    /// A run got no answer from the database.
    #[error("a run was cut short: {0}")]
    CutShort(String),
    /// The name of a limit is not valid.
    #[error(transparent)]
    LimitName(#[from] InvalidLimitName),
    /// An event was to start elsewhere, and may not start now. It waits, unless a limit has
    /// cancelled it.
    #[error("the event could not start elsewhere: {0}")]
    NotStarted(&'static str),
    /// Handlers keep emitting for one another.
    #[error(
        "{0} runs, and the drain has not ended (the limit is 100 for each event emitted before the drain, \
         and at least 10000): do handlers emit for one another, or retry without a delay?"
    )]
    Restless(usize),
    /// Events keep falling due, and can't run.
    #[error(
        "{IDLE_WAVES_MAX} times in a row events fell due that could not run: move the clock with `advance`"
    )]
    Idle,
    /// The kit's notifier hands out nothing.
    #[error("{waiting} notifications wait in the kit's notifier, which delivers none: {remedy}")]
    HeldBack {
        /// How many notifications wait.
        waiting: usize,
        /// What to call.
        remedy: &'static str,
    },
}

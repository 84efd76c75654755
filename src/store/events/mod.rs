//! Events from their emit to their end: inserts, loads, claims, rules and the jobs that lift them,
//! dead events, and what operators list and count.

mod cancelling;
mod chains;
mod checkpoints;
mod claims;
mod columns;
mod control;
mod counts;
mod dead_events;
mod depth;
mod error_groups;
mod event_counts;
mod handler_keys;
mod handlers;
mod history;
mod idempotency;
mod insert;
mod last_attempts;
mod limit_looks;
mod list;
mod load;
mod logged;
mod long_values;
mod operations;
mod outcome;
mod pages;
mod placements;
mod promises;
mod repeats;
mod resume;
mod rows;
mod rules;
mod search;
mod spread;
mod tags;
mod transactional;
mod unique;
mod unknown_handlers;

pub(crate) use cancelling::{CANCELLED_PAGE, RunningCancel};
pub(crate) use checkpoints::checkpoint_in;
pub(crate) use claims::{ClaimLimits, NotedRetry, Renewal, Retry};
pub(in crate::store) use claims::{fences, happened};
pub(crate) use control::{BULK_PAGE, CommandOutcome, LeftPlaces, MovedDue, PurgedPage};
pub(crate) use counts::HandlerActivity;
pub use counts::HandlerCounts;
pub(crate) use dead_events::RedriveOutcome;
pub use depth::{Depth, HandlerDepth};
pub use error_groups::{ErrorGroup, KnownError};
pub(crate) use error_groups::{ErrorGroupPosition, ErrorGroupsAsked, KnowOutcome};
pub(crate) use event_counts::CountedEvents;
pub(crate) use handler_keys::HandlerKeys;
pub(crate) use handlers::HandlerPosition;
pub(crate) use history::{AttemptEnd, KeptEnd};
pub use history::{AttemptRecord, EndedEvent, EndedFilter};
pub(crate) use idempotency::IdempotencyOutcome;
pub(in crate::store) use idempotency::{keep, used};
pub(in crate::store) use insert::add_all;
pub(crate) use insert::{NewState, add_one};
pub use insert::{add_with_state, statements};
pub use last_attempts::HandlerAttempt;
pub use limit_looks::LimitDepth;
pub(crate) use list::{ListedEvent, Position};
pub(crate) use load::{ClaimedEvent, LoadedEvent};
pub(in crate::store) use load::{ClaimedRow, claimed_rows};
pub use load::{DeadEvent, DeadFilter};
pub(crate) use operations::{
    BegunOperation, KeyedBegin, Looked, OPERATIONS_OPEN_MAX, OperationEvents, OperationPosition,
    OperationsAfter,
};
pub use outcome::InsertOutcome;
pub(crate) use resume::ResumePage;
pub use rules::Rule;
pub(crate) use rules::{AddedRule, LiftedRule, RulePosition};
pub(crate) use search::FoundDead;
pub(crate) use transactional::{Standing, complete_in};

//! Emitting from the library: events, their ids, unique and idempotency keys, and what is refused.

mod batch_crashes;
mod batches;
mod chosen_ids;
mod events;
mod idempotency;
mod reserved;
mod unique;

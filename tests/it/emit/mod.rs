//! Emitting from the library: events, their ids and idempotency keys, and what is refused.

mod chosen_ids;
mod events;
mod idempotency;
mod reserved;

//! Hooks: the table `hooks`, which says what other systems may emit by webhooks. Whether a
//! signature is right is not decided here.

mod lookup;
mod records;
mod resealing;

pub use lookup::FoundHook;
pub use records::RegisteredHook;
pub(crate) use records::{HookOutcome, HookRefusal, NewHookRow};

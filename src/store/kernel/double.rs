//! The place of the test kit in a store. Here is only known whether it has tables of its own; what
//! they hold is known to the room above that puts it here.

use std::any::Any;
use std::fmt::Debug;

/// What the test kit adds to a store.
pub(in crate::store) trait Double: Any + Debug + Send + Sync {
    /// Whether it stands in for Postgres: then no session can be opened.
    fn has_tables(&self) -> bool;
}

//! The place of the test kit in a store. Here is only known whether it has tables of its own; what
//! they hold is known to the room above that puts it here.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use super::Store;

/// What the test kit adds to a store.
pub(in crate::store) trait Double: Any + Debug + Send + Sync {
    /// Whether it stands in for Postgres: then no session can be opened.
    fn has_tables(&self) -> bool;
}

impl Store {
    /// This store with a test kit; shared by all clones of it.
    pub(in crate::store) fn with_double(mut self, double: impl Double) -> Self {
        self.double = Some(Arc::new(double));
        self
    }

    /// The test kit, if there is one.
    pub(in crate::store) fn double(&self) -> Option<&dyn Any> {
        let double: &dyn Any = self.double.as_deref()?;
        Some(double)
    }

    /// Whether the test kit's tables are used instead of Postgres.
    pub(in crate::store) fn is_in_memory(&self) -> bool {
        self.double.as_deref().is_some_and(|double| double.has_tables())
    }
}

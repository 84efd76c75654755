//! The statements that the test kit has a twin of: on Postgres they are functions of [`Sql`], not
//! of [`Store`].
//!
//! What callers are promised stands at the function of the same name of `Store`, in the seam above
//! all rooms. Beside a statement stands only why its SQL looks as it does. Nothing here knows of
//! the twins.

use std::ops::Deref;

use super::Store;

/// A store's statements on Postgres, for the seam and for statements that call one another. A
/// session, the durations and whatever else is the store's are reached through it.
pub(in crate::store) struct Sql<'s>(pub(in crate::store) &'s Store);

impl Deref for Sql<'_> {
    type Target = Store;

    fn deref(&self) -> &Store {
        self.0
    }
}

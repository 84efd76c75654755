//! The clock of the test kit.

use std::time::Duration;

use super::on_backing;
use crate::event::Timestamp;
use crate::store::kernel::{Store, StoreError};

impl Store {
    /// Lets this much time pass. On Postgres no other process may use the database meanwhile.
    pub(crate) async fn advance(&self, by: Duration) -> Result<(), StoreError> {
        on_backing!(self.advance(by))
    }

    /// The next moment after this one at which time alone changes something: an event becomes due,
    /// a lease expires, a rule ends.
    pub(crate) async fn next_moment(&self, after: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        on_backing!(self.next_moment(after))
    }

    /// How many events have not ended.
    pub(crate) async fn count(&self) -> Result<u64, StoreError> {
        on_backing!(self.count())
    }
}

//! The SQL of the service's own tables, beside that of the queue.

mod access_keys;
mod changes;
pub(crate) mod checkup;
mod deployment;
mod page_sessions;
mod service_accounts;
#[cfg(test)]
pub(crate) mod tests;

use std::ops::Deref;

pub(crate) use access_keys::{KeyRow, NewKeyRow, RowsOf};
pub(crate) use page_sessions::{NewSessionRow, SessionRow};
pub(crate) use service_accounts::AccountRow;
use wakeq::internals::{default_quota, interval, quota_exceeded, serialize_on_canvas};
use wakeq::{Store, StoreError};

/// The queue's store, with the statements on the service's own tables.
#[derive(Clone, Debug)]
pub(crate) struct ServiceStore(Store);

impl From<Store> for ServiceStore {
    fn from(store: Store) -> Self {
        Self(store)
    }
}

impl Deref for ServiceStore {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.0
    }
}

//! The seam between two backings: Postgres, and the test kit's tables in memory. Here are the
//! functions of [`Store`] that exist on both, each with what callers are promised, and
//! `on_backing!`, which chooses.
//!
//! The files have the names of those in `memory`. A function of `Store` that is not here has no
//! twin there, and fails without Postgres. Nothing below calls the functions here: a statement
//! calls another one on `Sql`. Nothing here is SQL, or decides anything else.

mod batches;
mod checkpoints;
mod dead;
mod history;
mod inserts;
mod lanes;
mod limits;
mod lists;
mod operations;
mod rules;
mod runs;
#[cfg(feature = "testing")]
mod shift;
mod targets;
mod waking;
mod workers;

use crate::store::kernel::{Sql, Store};
#[cfg(feature = "testing")]
use crate::store::memory::Memory;

/// What a store's statements run on.
enum Backing<'s> {
    Postgres(Sql<'s>),
    #[cfg(feature = "testing")]
    Memory(&'s Memory),
}

/// Calls the function of this name on the backing.
macro_rules! on_backing {
    ($store:ident.$name:ident($($argument:expr),*)) => {
        match $store.backing() {
            $crate::store::seam::Backing::Postgres(sql) => sql.$name($($argument),*).await,
            #[cfg(feature = "testing")]
            $crate::store::seam::Backing::Memory(memory) => memory.tables().$name($($argument),*),
        }
    };
}
use on_backing;

impl Store {
    /// The only place that chooses. [`Store::session`] also asks, and refuses one in memory.
    fn backing(&self) -> Backing<'_> {
        #[cfg(feature = "testing")]
        if let Some(memory) = self.memory() {
            return Backing::Memory(memory);
        }
        Backing::Postgres(Sql(self))
    }
}

//! Counts what happens to events, in memory, and makes sure that it is written within a minute or
//! so. No statement, and nothing here fails.

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::event::{CountedRun, EventCounts, HandlerScope};
use crate::store::kernel::Store;

impl Store {
    /// Counts an event that was emitted for a handler.
    pub(crate) fn count_emitted(&self, handler: &HandlerScope) {
        self.tally(handler, |counts| counts.emitted += 1);
    }

    /// Counts a run of an event of a handler.
    pub(crate) fn count_run(&self, handler: &HandlerScope, run: &CountedRun) {
        self.tally(handler, |counts| counts.add_run(run));
    }

    fn tally(&self, handler: &HandlerScope, add: impl FnOnce(&mut EventCounts)) {
        if self.has_server() {
            self.counting.add(handler, add);
            self.write_later();
        }
    }

    /// Writes what is counted when it is time to, unless a task waits for that already. Outside of
    /// a runtime it is left to whatever counts next.
    fn write_later(&self) {
        let Some(turn) = self.counting.write_turn() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let store = self.clone();
        runtime.spawn(async move {
            tokio::time::sleep(store.counting.until_write(Instant::now())).await;
            // What is counted from here on may miss this write, and needs another one.
            drop(turn);
            store.write_statistics().await;
        });
    }
}

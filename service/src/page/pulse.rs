//! Whether the database is as it was: asked about once a second for all pages of a process, while
//! somebody watches one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::memo::Mark;

/// How old what is known may be.
const FRESH: Duration = Duration::from_secs(1);

/// What the database was like when it was last asked.
#[derive(Default)]
pub(super) struct Pulse(Mutex<Option<(Instant, Mark)>>);

impl Pulse {
    /// The mark of the database, from a second ago at most, or else what `ask` brings. Those who
    /// ask at the same time wait for one answer.
    pub(super) async fn mark(&self, ask: impl Future<Output = Option<String>>) -> Mark {
        let mut last = self.0.lock().await;
        if let Some((at, mark)) = &*last
            && at.elapsed() < FRESH
        {
            return mark.clone();
        }
        let at = Instant::now();
        let mark = ask.await.map(Arc::from);
        *last = Some((at, mark.clone()));
        mark
    }
}

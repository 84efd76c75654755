//! A process that is idle sends nothing, so that a serverless Postgres may suspend.

use std::time::Duration;

use super::Waker;

impl Waker {
    /// Sends nothing until something needs a pass, as far as is known now, or this process uses the
    /// database again. Work of other processes in the meantime has notifications of its own.
    pub(super) async fn let_sleep(&self, period: Duration) {
        let uses = self.store.uses();
        let before = uses.count();
        let due = match self.store.until_next_pass().await {
            Ok(due) => due,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "could not find out when a pass is needed; passes go on");
                return;
            }
        };
        if due.is_some_and(|due| due <= period) {
            return;
        }
        tracing::info!(until = ?due, "idle: nothing is sent to the database");
        let next = async {
            match due {
                Some(due) => tokio::time::sleep(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = next => {}
            // Beyond the question above.
            () = uses.more_than(before + 1) => {}
        }
    }
}

//! Publishes what this process, and others that were interrupted with it, may have missed.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{PAGE_PERIOD, WakeError, Waker};

/// Maximum number of pages that are looked at after one interruption. The promises wake the rest.
const PAGES: usize = 10;
/// How often it is tried, since an interruption of the notifier has often broken other connections,
/// too.
const TRIES: u32 = 6;
/// The pause before the second try; it doubles each time.
const RETRY: Duration = Duration::from_millis(250);

impl Waker {
    /// After each interruption of the notifier, looks once for what was missed.
    pub(crate) async fn find_missed(self) {
        loop {
            let missed = self.notifier.missed().await;
            let noticed = Instant::now();
            for attempt in 0..TRIES {
                match self.publish_missed(missed + noticed.elapsed()).await {
                    Ok(woken) => {
                        tracing::info!(woken, ?missed, "looked for events that were missed");
                        break;
                    }
                    Err(error) => tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        attempt,
                        "could not look for missed events; retrying, and in the end their promises wake them"
                    ),
                }
                sleep(RETRY * 2_u32.pow(attempt)).await;
            }
        }
    }

    /// Publishes the events that were emitted in this time until now and have not begun; returns
    /// how many.
    async fn publish_missed(&self, missed: Duration) -> Result<usize, WakeError> {
        let (mut woken, mut after) = (0, None);
        for _ in 0..PAGES {
            let page = self.store.missed_for(missed, after).await?;
            self.publish(&page.notifications).await?;
            woken += page.notifications.len();
            after = page.next;
            if after.is_none() {
                break;
            }
            sleep(PAGE_PERIOD).await;
        }
        Ok(woken)
    }
}

//! Listens on a channel, and again after every interruption.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::store::{Listening, Store, StoreError};

/// How often a process that listens sends itself a message, to notice a connection that is dead
/// without a sign.
const CHECK: Duration = Duration::from_secs(60);
/// The first pause before it listens again; it doubles each time.
const RETRY: Duration = Duration::from_millis(100);
/// The longest of these pauses.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// What is done with what is heard.
pub(super) trait Hear: Send + Sync + 'static {
    /// It listens from now on. What was sent before is missed.
    fn begin(&self);

    /// A message of any process.
    fn hear(&self, text: &str);

    /// Sends a message that comes back to this process, which recognizes it by [`Hear::is_echo`].
    fn check(&self);

    fn is_echo(&self, text: &str) -> bool;

    /// Why nothing is heard now; `None` if all is well again.
    fn trouble(&self, reason: Option<String>);
}

/// Listens until it is dropped. `begun` learns how the first attempt went.
pub(super) async fn listen(
    store: Store,
    channel: &'static str,
    hearer: impl Hear,
    begun: oneshot::Sender<Result<(), StoreError>>,
) {
    let (mut begun, mut pause) = (Some(begun), RETRY);
    loop {
        let heard = store.listen(channel).await;
        if let Some(begun) = begun.take() {
            // A caller that has left needs no answer.
            let _ = begun.send(heard.as_ref().map(|_| ()).map_err(Clone::clone));
        }
        let error = match heard {
            Ok(listening) => {
                pause = RETRY;
                tracing::info!(channel, "listening");
                hearer.trouble(None);
                hearer.begin();
                hear(listening, &hearer).await
            }
            Err(error) => error,
        };
        let reason = format!("the notifications of other processes are not heard: {error}");
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            channel,
            retry = ?pause,
            "the messages of other processes are not heard"
        );
        hearer.trouble(Some(reason));
        sleep(pause).await;
        pause = (2 * pause).min(RETRY_MAX);
    }
}

/// Hears until the connection breaks, or no longer brings what this process sends itself.
async fn hear(mut listening: Listening, hearer: &impl Hear) -> StoreError {
    let mut checks = interval(CHECK);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    checks.reset();
    let mut checking = false;
    loop {
        tokio::select! {
            text = listening.next() => match text {
                Ok(text) if hearer.is_echo(&text) => checking = false,
                Ok(text) => hearer.hear(&text),
                Err(error) => return error,
            },
            _ = checks.tick() => {
                if checking {
                    return StoreError::TimedOut { statement: "listen", after: CHECK, ended: true };
                }
                checking = true;
                hearer.check();
            }
        }
    }
}

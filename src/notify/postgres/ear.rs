//! Listens on a channel, and again after every interruption and when the secret was replaced.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use uuid::Uuid;

use super::outlet::Keyring;
use super::seal::{ChannelKeys, Purpose};
use crate::event::spread;
use crate::store::{Listening, StoreError};

/// How often a process that listens sends itself a message, to notice a connection that is dead
/// without a sign.
pub(super) const CHECK: Duration = Duration::from_secs(20);
/// The first pause before it listens again; it doubles each time.
const RETRY: Duration = Duration::from_millis(100);
/// The longest of these pauses.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Handles the messages of a channel.
pub(super) trait Hear: Send + Sync + 'static {
    /// The process listens from now on. It missed the messages of at most this long, or all earlier
    /// ones when it begins for the first time.
    fn begin(&self, missed: Option<Duration>);

    /// A message of any process of the deployment.
    fn hear(&self, sender: Uuid, content: &[u8]);

    /// Sends any message, which comes back to this process.
    fn check(&self);

    /// Why nothing is heard now; `None` if all is well again.
    fn trouble(&self, reason: Option<String>);
}

/// A channel, and who listens on it.
pub(super) struct Ear {
    pub(super) keyring: Keyring,
    pub(super) purpose: Purpose,
    /// The sender of the process's own messages on this channel.
    pub(super) own: Uuid,
}

/// Why it no longer hears.
enum End {
    /// The secret was replaced, and the channel with it.
    Replaced,
    Failed(StoreError),
}

impl Ear {
    /// Listens until it is dropped. `begun` learns how the first attempt went.
    pub(super) async fn listen(self, hearer: impl Hear, begun: oneshot::Sender<Result<(), StoreError>>) {
        let (mut begun, mut pause, mut heard) = (Some(begun), RETRY, None::<Instant>);
        loop {
            let opened = self.open().await;
            if let Some(begun) = begun.take() {
                // A caller that has left needs no answer.
                let _ = begun.send(opened.as_ref().map(|_| ()).map_err(Clone::clone));
            }
            let error = match opened {
                Ok((listening, keys)) => {
                    pause = RETRY;
                    tracing::info!(channel = self.purpose.label(), "listening");
                    hearer.trouble(None);
                    hearer.begin(heard.map(|heard| heard.elapsed()));
                    let heard = heard.insert(Instant::now());
                    match self.hear(listening, &keys, &hearer, heard).await {
                        End::Replaced => continue,
                        End::Failed(error) => error,
                    }
                }
                Err(error) => {
                    heard.get_or_insert_with(Instant::now);
                    error
                }
            };
            let reason = format!("the notifications of other processes are not heard: {error}");
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                channel = self.purpose.label(),
                retry = ?pause,
                "the messages of other processes are not heard"
            );
            hearer.trouble(Some(reason));
            sleep(spread(pause)).await;
            pause = (2 * pause).min(RETRY_MAX);
        }
    }

    async fn open(&self) -> Result<(Listening, Arc<ChannelKeys>), StoreError> {
        let keys = self.keyring.read().await?;
        let listening = self.keyring.store.listen(&keys.channel(self.purpose)).await?;
        Ok((listening, keys))
    }

    /// Hears until the connection breaks, or no longer brings what this process sends itself.
    /// Payloads that are not messages of the deployment are passed over; `heard` is when the last
    /// message came.
    async fn hear(
        &self,
        mut listening: Listening,
        keys: &Arc<ChannelKeys>,
        hearer: &impl Hear,
        heard: &mut Instant,
    ) -> End {
        let mut checks = interval(CHECK);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        checks.reset();
        let mut checking = false;
        loop {
            tokio::select! {
                payload = listening.next() => match payload {
                    Ok(payload) => {
                        let Some(message) = keys.open(self.purpose, &payload) else { continue };
                        *heard = Instant::now();
                        checking &= message.sender != self.own;
                        hearer.hear(message.sender, &message.content);
                    }
                    Err(error) => return End::Failed(error),
                },
                _ = checks.tick() => {
                    if checking {
                        let statement = "listen";
                        return End::Failed(StoreError::TimedOut { statement, after: CHECK, ended: true });
                    }
                    // If it can't be read, the check fails as well.
                    if self.keyring.read().await.is_ok_and(|now| !Arc::ptr_eq(&now, keys)) {
                        return End::Replaced;
                    }
                    checking = true;
                    hearer.check();
                }
            }
        }
    }
}

//! A channel of broadcasts: one connection listens for all listeners of the process.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::ear::{Ear, Hear};
use super::outlet::{Keyring, Outlet};
use super::seal::{CONTENT_BYTES_MAX, Purpose};
use crate::broadcast::{Channel, Inbox, ListenError, LocalChannel, PublishOutcome};
use crate::event::Broadcast;
use crate::notify::NotifyError;
use crate::store::StoreError;

/// The first byte of a broadcast; a check has no bytes.
const BROADCAST: u8 = 0;

/// A channel of broadcasts.
pub(super) struct PostgresChannel {
    keyring: Keyring,
    purpose: Purpose,
    /// The sender of what this process broadcasts.
    id: Uuid,
    outlet: Arc<Outlet>,
    /// The listeners of this process.
    audience: LocalChannel,
    listening: tokio::sync::Mutex<Weak<AbortOnDropHandle<()>>>,
}

impl PostgresChannel {
    pub(super) fn new(keyring: Keyring, purpose: Purpose) -> Self {
        let id = Uuid::new_v4();
        let outlet = Arc::new(Outlet::new(keyring.clone(), purpose, id));
        let (audience, listening) = (LocalChannel::default(), tokio::sync::Mutex::default());
        Self { keyring, purpose, id, outlet, audience, listening }
    }

    /// Listens as long as the result is held.
    async fn listen(&self) -> Result<Arc<AbortOnDropHandle<()>>, StoreError> {
        let mut current = self.listening.lock().await;
        if let Some(listening) = current.upgrade() {
            return Ok(listening);
        }
        let (begun, beginning) = oneshot::channel();
        let ear = Ear { keyring: self.keyring.clone(), purpose: self.purpose, own: self.id };
        let hearer = BroadcastHearer { outlet: Arc::clone(&self.outlet), audience: self.audience.clone() };
        let task = AbortOnDropHandle::new(tokio::spawn(ear.listen(hearer, begun)));
        beginning.await.map_err(|_| StoreError::Defect)??;
        let listening = Arc::new(task);
        *current = Arc::downgrade(&listening);
        Ok(listening)
    }
}

#[async_trait]
impl Channel for PostgresChannel {
    async fn publish(&self, broadcasts: &[Broadcast]) -> PublishOutcome {
        let bodies = broadcasts.iter().map(|broadcast| broadcast.body_within(CONTENT_BYTES_MAX - 1));
        let short = bodies.filter(|body| body.len() < CONTENT_BYTES_MAX);
        let contents: Vec<Vec<u8>> = short.map(|body| [&[BROADCAST], body.as_bytes()].concat()).collect();
        let mut outcome = PublishOutcome { lost: broadcasts.len() - contents.len(), error: None };
        if outcome.lost > 0 {
            outcome.error =
                Some(failed("the metadata of a broadcast alone are too large for a NOTIFY", None));
        }
        if let Err(error) = self.outlet.send(&contents).await {
            outcome.lost = broadcasts.len();
            outcome.error = Some(failed("NOTIFY failed", Some(error)));
        }
        outcome
    }

    async fn open(
        &self,
        inbox: Arc<Inbox>,
        closing: CancellationToken,
    ) -> Result<BoxFuture<'static, ()>, ListenError> {
        let listening = self.listen().await.map_err(|error| failed("LISTEN failed", Some(error)))?;
        let receiving = self.audience.open(inbox, closing).await?;
        Ok(Box::pin(async move {
            receiving.await;
            drop(listening);
        }))
    }
}

fn failed(what: &str, source: Option<StoreError>) -> ListenError {
    NotifyError { what: what.to_owned(), source: source.map(|error| Box::new(error) as _) }.into()
}

struct BroadcastHearer {
    outlet: Arc<Outlet>,
    audience: LocalChannel,
}

impl Hear for BroadcastHearer {
    fn begin(&self, _: Option<Duration>) {
        self.audience.each(Inbox::lost);
    }

    fn hear(&self, _: Uuid, content: &[u8]) {
        let Some((&BROADCAST, body)) = content.split_first() else { return };
        match Broadcast::parse(body) {
            Ok(broadcast) => self.audience.each(|inbox| inbox.offer(&broadcast)),
            Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "passed over"),
        }
    }

    fn check(&self) {
        let outlet = Arc::clone(&self.outlet);
        // If it fails, it does not come back, which is reported.
        tokio::spawn(async move { drop(outlet.send(&[Vec::new()]).await) });
    }

    fn trouble(&self, reason: Option<String>) {
        self.audience.each(|inbox| inbox.in_trouble(reason.clone()));
    }
}

//! A channel of broadcasts: one connection listens for all listeners of the process.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::ear::{Hear, listen};
use crate::broadcast::{Channel, Inbox, ListenError, LocalChannel, PublishOutcome};
use crate::event::Broadcast;
use crate::notify::NotifyError;
use crate::store::{PAYLOAD_BYTES_MAX, Store, StoreError};

/// Most broadcasts in one statement: 800 kB.
const STATEMENT_MAX: usize = 100;

/// A channel of broadcasts.
pub(super) struct PostgresChannel {
    store: Store,
    name: &'static str,
    /// The listeners of this process.
    audience: LocalChannel,
    listening: tokio::sync::Mutex<Weak<AbortOnDropHandle<()>>>,
}

impl PostgresChannel {
    pub(super) fn new(store: &Store, name: &'static str) -> Self {
        let (audience, listening) = (LocalChannel::default(), tokio::sync::Mutex::default());
        Self { store: store.clone(), name, audience, listening }
    }

    /// Listens as long as the result is held.
    async fn listen(&self) -> Result<Arc<AbortOnDropHandle<()>>, StoreError> {
        let mut current = self.listening.lock().await;
        if let Some(listening) = current.upgrade() {
            return Ok(listening);
        }
        let (begun, beginning) = oneshot::channel();
        let hearer = Hearer {
            store: self.store.clone(),
            channel: self.name,
            echo: Uuid::new_v4().to_string(),
            audience: self.audience.clone(),
        };
        let task = AbortOnDropHandle::new(tokio::spawn(listen(self.store.clone(), self.name, hearer, begun)));
        beginning.await.map_err(|_| StoreError::Defect)??;
        let listening = Arc::new(task);
        *current = Arc::downgrade(&listening);
        Ok(listening)
    }
}

#[async_trait]
impl Channel for PostgresChannel {
    async fn publish(&self, broadcasts: &[Broadcast]) -> PublishOutcome {
        let texts = broadcasts.iter().map(|broadcast| broadcast.body_within(PAYLOAD_BYTES_MAX));
        let texts: Vec<String> = texts.filter(|text| text.len() <= PAYLOAD_BYTES_MAX).collect();
        let mut outcome = PublishOutcome { lost: broadcasts.len() - texts.len(), error: None };
        if outcome.lost > 0 {
            outcome.error = Some(failed("a broadcast is larger than the 7,999 bytes of a NOTIFY", None));
        }
        for texts in texts.chunks(STATEMENT_MAX) {
            if let Err(error) = self.store.notify(self.name, texts).await {
                outcome.lost += texts.len();
                outcome.error = Some(failed("NOTIFY failed", Some(error)));
            }
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

struct Hearer {
    store: Store,
    channel: &'static str,
    echo: String,
    audience: LocalChannel,
}

impl Hear for Hearer {
    fn begin(&self) {
        self.audience.each(Inbox::lost);
    }

    fn hear(&self, text: &str) {
        match Broadcast::parse(text.as_bytes()) {
            Ok(broadcast) => self.audience.each(|inbox| inbox.offer(&broadcast)),
            Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "passed over"),
        }
    }

    fn check(&self) {
        let (store, channel, echo) = (self.store.clone(), self.channel, self.echo.clone());
        // If it fails, the echo does not come, which is reported.
        tokio::spawn(async move { drop(store.notify(channel, &[echo]).await) });
    }

    fn is_echo(&self, text: &str) -> bool {
        text == self.echo
    }

    fn trouble(&self, reason: Option<String>) {
        self.audience.each(|inbox| inbox.in_trouble(reason.clone()));
    }
}

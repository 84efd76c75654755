//! Sends the messages of this process on a channel, sealed with the deployment's current secret.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::seal::{ChannelKeys, Purpose};
use crate::store::{Store, StoreError};

/// How long a secret counts before it is read again. After it was replaced, processes may miss each
/// other's messages for this long.
const KEPT: Duration = Duration::from_secs(60);
/// Maximum number of messages in one statement: 800 kB.
const STATEMENT_MAX: usize = 100;

/// The keys of this process, which follow the deployment's secret. Clones share them.
#[derive(Clone)]
pub(super) struct Keyring {
    pub(super) store: Store,
    known: Arc<tokio::sync::Mutex<Option<Known>>>,
}

struct Known {
    secret: Vec<u8>,
    keys: Arc<ChannelKeys>,
    read: Instant,
}

impl Keyring {
    pub(super) fn new(store: &Store) -> Self {
        Self { store: store.clone(), known: Arc::default() }
    }

    /// The keys, as they are now or were a minute ago.
    pub(super) async fn keys(&self) -> Result<Arc<ChannelKeys>, StoreError> {
        self.keys_since(KEPT).await
    }

    /// The keys as they are now; the same ones unless the secret was replaced.
    pub(super) async fn read(&self) -> Result<Arc<ChannelKeys>, StoreError> {
        self.keys_since(Duration::ZERO).await
    }

    async fn keys_since(&self, kept: Duration) -> Result<Arc<ChannelKeys>, StoreError> {
        let mut known = self.known.lock().await;
        if let Some(known) = known.as_ref().filter(|known| known.read.elapsed() < kept) {
            return Ok(Arc::clone(&known.keys));
        }
        let (secret, read) = (self.store.notice_secret().await?, Instant::now());
        let keys = match known.take() {
            Some(before) if before.secret == secret => before.keys,
            Some(_) | None => Arc::new(ChannelKeys::new(&secret)),
        };
        *known = Some(Known { secret, keys: Arc::clone(&keys), read });
        Ok(keys)
    }
}

/// A channel as this process sends on it.
pub(super) struct Outlet {
    keyring: Keyring,
    purpose: Purpose,
    sender: Uuid,
    /// The number of the next message; none is used twice.
    next: AtomicU64,
}

impl Outlet {
    pub(super) fn new(keyring: Keyring, purpose: Purpose, sender: Uuid) -> Self {
        Self { keyring, purpose, sender, next: AtomicU64::new(0) }
    }

    /// Sends these contents in their order. Returns when the server has committed them.
    pub(super) async fn send(&self, contents: &[Vec<u8>]) -> Result<(), StoreError> {
        let keys = self.keyring.keys().await?;
        let channel = keys.channel(self.purpose);
        for contents in contents.chunks(STATEMENT_MAX) {
            let sealed = contents.iter().map(|content| {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                keys.seal(self.purpose, self.sender, number, content).ok_or(StoreError::Defect)
            });
            let payloads: Vec<String> = sealed.collect::<Result<_, _>>()?;
            self.keyring.store.notify(&channel, &payloads).await?;
        }
        Ok(())
    }

    /// Whether messages could be sent now.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        let channel = self.keyring.keys().await?.channel(self.purpose);
        self.keyring.store.notify(&channel, &[]).await
    }
}

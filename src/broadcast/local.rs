//! Broadcasts within a process: each goes directly to every listener of the process, and nowhere
//! else.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::channel::{Channel, ListenError, PublishOutcome};
use super::inbox::Inbox;
use crate::event::Broadcast;

/// The listeners of this process. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalChannel {
    inboxes: Arc<Mutex<Vec<Arc<Inbox>>>>,
}

impl LocalChannel {
    /// Does this to the inbox of each listener.
    pub(crate) fn each(&self, act: impl Fn(&Inbox)) {
        let inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        inboxes.iter().for_each(|inbox| act(inbox));
    }
}

#[async_trait]
impl Channel for LocalChannel {
    async fn publish(&self, broadcasts: &[Broadcast]) -> PublishOutcome {
        self.each(|inbox| broadcasts.iter().for_each(|broadcast| inbox.offer(broadcast)));
        PublishOutcome::default()
    }

    async fn open(
        &self,
        inbox: Arc<Inbox>,
        closing: CancellationToken,
    ) -> Result<BoxFuture<'static, ()>, ListenError> {
        let inboxes = Arc::clone(&self.inboxes);
        inboxes.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&inbox));
        Ok(Box::pin(async move {
            closing.cancelled().await;
            let mut inboxes = inboxes.lock().unwrap_or_else(PoisonError::into_inner);
            inboxes.retain(|other| !Arc::ptr_eq(other, &inbox));
        }))
    }
}

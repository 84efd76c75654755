//! What a broker asks of whoever works on sources.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::event::{EventSource, Name, SubscriberId};

/// The grace of who says nothing about it.
const GRACE: Duration = Duration::from_secs(5);

/// Whether a subscriber can work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It works, or would.
    Healthy,
    /// It can't, and says why. Its sources are given to others.
    Unhealthy(String),
}

/// Whoever works on the sources it is given: a consumer, or a processor of entities. It is told what it has; it never asks.
#[async_trait]
pub trait EventSubscriber: Send + Sync + 'static {
    /// The name of its group: what kind of work it does.
    fn name(&self) -> &Name;

    /// Which instance it is.
    fn id(&self) -> SubscriberId;

    /// All sources of its group, of which it may be given any, or none.
    fn requests(&self) -> Vec<EventSource>;

    /// Begins with a source, under an epoch that fences what it commits; returns at once. Accepting again what it works on, under
    /// a higher epoch, changes nothing: it was not elsewhere meanwhile.
    fn accept(&self, source: EventSource, epoch: i64);

    /// Ends with a source. When this has returned, no event of it is being handled here, and none will be.
    async fn withdraw(&self, source: &EventSource);

    /// How long that may take at most. A broker works with a subscriber only if this is a third of its lease at most: a node that
    /// is not heard of ends its work when two thirds are over. Default 5 s.
    fn grace(&self) -> Duration {
        GRACE
    }

    /// Whether it can work, now and whenever that changes.
    fn health(&self) -> watch::Receiver<Health>;

    /// An operator says that what kept it from working is mended: it is to try again. Default: nothing.
    fn recover(&self) {}
}

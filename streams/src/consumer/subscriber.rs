//! The interface of a subscriber to a broker.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::event::SubscriberId;
use wakeq::Name;
use wakeq::log::EventSource;

/// The default grace.
const GRACE: Duration = Duration::from_secs(5);

/// Whether a subscriber can work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It works, or could.
    Healthy,
    /// It can't work, for this reason. Its sources are given to others.
    Unhealthy(String),
}

/// Works on the sources that a broker gives to it: a consumer, or a processor of entities.
#[async_trait]
pub trait EventSubscriber: Send + Sync + 'static {
    /// The name of its group, which stands for one kind of work.
    fn name(&self) -> &Name;

    /// The id of this instance.
    fn id(&self) -> SubscriberId;

    /// All sources of its group. It may be given any of them, or none.
    fn requests(&self) -> Vec<EventSource>;

    /// Starts working on a source, under an epoch that fences its commits, and returns at once.
    /// Accepting a source again that it is working on, under a higher epoch, changes nothing: no
    /// other subscriber had it meanwhile.
    fn accept(&self, source: EventSource, epoch: i64);

    /// Stops working on a source. When this has returned, no event of it is being handled here, and
    /// none will be.
    async fn withdraw(&self, source: &EventSource);

    /// The longest time that [`withdraw`](Self::withdraw) takes. A broker accepts at most a third
    /// of its lease, because a node that can't write its heartbeat ends its work after two thirds.
    /// Default 5 s.
    fn grace(&self) -> Duration {
        GRACE
    }

    /// Whether it can work, now and after each change.
    fn health(&self) -> watch::Receiver<Health>;

    /// Called when an operator says that the cause of a failure was fixed: it should try again.
    /// Default: nothing.
    fn recover(&self) {}
}

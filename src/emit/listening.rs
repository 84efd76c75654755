//! The work after the commit of an emit, and listening to the events that any process emits.

use super::Queue;
use crate::broadcast::{Broadcasts, ListenError, Listener, Signal, Signals};
use crate::event::{Broadcast, NewEvent};
use crate::store::InsertOutcome;

impl Queue {
    /// Passes a committed event to listeners, to consumers of the log and to the test kit, and
    /// counts it for the statistics of its handler, if that has it.
    pub(super) fn remember(&self, event: &NewEvent, inserted: &InsertOutcome) {
        let InsertOutcome::New { link, .. } = inserted else { return };
        if !event.only_queues {
            self.store.count_emitted(&event.address.scope);
        }
        if let Some(broadcasts) = &self.broadcasts {
            broadcasts.send(Broadcast::of(event, *link));
        }
        if let Some(stream) = &event.logged {
            self.signals.send(Signal::Log(stream.category.clone()));
        }
        #[cfg(feature = "testing")]
        self.store.remember(event);
    }

    /// Listens to the events of every canvas whose topic `canvas:module:name` matches a
    /// [`TopicPattern`](crate::listeners::TopicPattern), whichever process emits them, from the
    /// moment this returns. Refused if the notifier does not broadcast.
    ///
    /// ```no_run
    /// # async fn example(queue: wakeq::Queue) -> Result<(), wakeq::listeners::ListenError> {
    /// let mut pages = queue.subscribe("*:page:*").await?;
    /// while let Some(item) = pages.next().await {
    ///     println!("{item:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn subscribe(&self, pattern: &str) -> Result<Listener, ListenError> {
        self.broadcasts.as_ref().ok_or(ListenError::Off)?.subscribe(pattern).await
    }

    /// The signals that wake consumers of the log.
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// The broadcasts of emitted events; `None` if the notifier does not broadcast.
    pub fn broadcasts(&self) -> Option<&Broadcasts> {
        self.broadcasts.as_ref()
    }
}

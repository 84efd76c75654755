//! What happens beside an emit once it is committed, and listening to what is emitted, here or elsewhere.

use super::Queue;
use crate::broadcast::{Broadcasts, ListenError, Listener, Signal, Signals};
use crate::store::{Inserted, NewEvent};

impl Queue {
    /// What was emitted, once it is committed: for listeners, and for the test kit.
    pub(super) fn remember(&self, event: &NewEvent, inserted: &Inserted) {
        if let Some(broadcasts) = &self.broadcasts {
            event.broadcast(inserted).into_iter().for_each(|told| broadcasts.send(told));
        }
        if let (Some(stream), Inserted::New { .. }) = (&event.logged, inserted) {
            self.signals.send(Signal::Log(stream.category.clone()));
        }
        #[cfg(feature = "testing")]
        if matches!(inserted, Inserted::New { .. }) {
            self.store.remember(event);
        }
    }

    /// Listens to the events of every canvas whose topic `canvas:module:name` matches a [`TopicPattern`](crate::TopicPattern), whoever
    /// emits them: to those that are emitted after this has returned. Refused, if the notifier broadcasts nothing.
    ///
    /// ```no_run
    /// # async fn example(queue: wakeq::Queue) -> Result<(), wakeq::ListenError> {
    /// let mut pages = queue.subscribe("*:page:*").await?;
    /// while let Some(heard) = pages.next().await {
    ///     println!("{heard:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn subscribe(&self, pattern: &str) -> Result<Listener, ListenError> {
        self.broadcasts.as_ref().ok_or(ListenError::Off)?.subscribe(pattern).await
    }

    /// What consumers of the log are woken by.
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// The broadcasts of what is emitted, if there are any.
    pub fn broadcasts(&self) -> Option<&Broadcasts> {
        self.broadcasts.as_ref()
    }
}

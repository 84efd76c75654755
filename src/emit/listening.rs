//! Listening to what is emitted, here or elsewhere.

use super::Queue;
use crate::broadcast::{Broadcasts, ListenError, Listener};

impl Queue {
    /// Listens to the events of every canvas whose topic `canvas:module:name` matches a [`Pattern`](crate::Pattern), whoever
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

    /// The broadcasts of what is emitted, if there are any.
    pub fn broadcasts(&self) -> Option<&Broadcasts> {
        self.broadcasts.as_ref()
    }
}

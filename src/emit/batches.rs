//! Batches: opened with the event to emit at the end, and closed once no more members come.

use super::{EmitError, Queue};
use crate::event::{BatchName, CanvasId, Due, Event, EventError, EventFields, InvalidBatchName, NewEvent};
use crate::store::{BatchClosing, BatchKey, BatchOpening, BatchProgress, EndedBatch, StoreError};

/// Why a batch was not opened, closed or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The text is not the name of a batch.
    #[error(transparent)]
    Name(#[from] InvalidBatchName),
    /// The event for the end can't be emitted.
    #[error(transparent)]
    Event(#[from] EventError),
    /// The event for the end has what it can't have.
    #[error(
        "the event at the end of a batch can't {0}: it has a handler, a modifier and a value, and nothing else"
    )]
    OnEnd(&'static str),
    /// Another batch of the canvas has the name.
    #[error(
        "the batch {0} exists already: it is closed or over, or another event was given for its end. Choose another \
         name; one that is over is remembered for 7 days"
    )]
    Taken(BatchName),
    /// The canvas has no such batch.
    #[error("the canvas has no batch {0}: open it first")]
    Missing(BatchName),
    /// An error of the database. [`StoreError::Quota`] if the canvas has too many that are not
    /// over, or no room for the event.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A batch of a canvas, by its name: many events that share it, and one that is emitted when the
/// last of them has ended. [`Queue::batch`] makes it.
#[derive(Clone)]
pub struct EventBatch {
    queue: Queue,
    canvas: CanvasId,
    name: BatchName,
}

impl Queue {
    /// The batch of this name on the queue's canvas. Open it with the event to emit at the end,
    /// emit its members with [`Event::batch`], and close it when no more come. Once it is closed
    /// and all members have ended, the event is emitted, once.
    ///
    /// Its value is `{"batch": name, "completed": n, "dead": n, "cancelled": n, "total": n,
    /// "value": yours}`, with how the members have ended and the value that you have opened the
    /// batch with.
    ///
    /// ```
    /// use wakeq::testing::{TestKit, assert_emitted};
    /// use wakeq::{Event, Handlers};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut kit = TestKit::new();
    /// let handlers = Handlers::new().on("import-row", |_event| async { Ok(()) });
    /// kit.handlers(handlers.on("imported", |_event| async { Ok(()) }))?;
    ///
    /// let import = kit.queue().batch("import:42")?;
    /// import.open(Event::new("imported", "customers.csv")?).await?;
    /// for row in 1..=3 {
    ///     kit.emit(Event::new("import-row", &row)?.batch("import:42")?).await?;
    /// }
    /// import.close().await?;
    /// kit.drain().await?.assert_all_fine(4);
    /// assert_emitted!(kit, "imported", count = 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn batch(&self, name: &str) -> Result<EventBatch, InvalidBatchName> {
        Ok(EventBatch { queue: self.clone(), canvas: self.config.canvas, name: name.parse()? })
    }

    /// Ends a batch if it is over. Where that fails, the minute's pass ends it.
    async fn end_batch(&self, batch: &BatchKey) -> Result<(), StoreError> {
        if !self.store.are_over(std::slice::from_ref(batch)).await?.contains(&true) {
            return Ok(());
        }
        let Some(EndedBatch { event, inserted }) = self.store.end_batch(batch).await? else {
            return Ok(());
        };
        let events = [event];
        self.sent(&events);
        match self.after_commit(&events, vec![inserted]).await {
            Ok(_) => {}
            Err(EmitError::Store(error)) => return Err(error),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, batch = %batch.1, "the event of a batch was emitted, and not announced");
            }
        }
        self.store.forget_batch_ends(batch).await.map(drop)
    }
}

impl EventBatch {
    /// The same on another canvas.
    pub fn canvas(self, canvas: CanvasId) -> Self {
        Self { canvas, ..self }
    }

    /// Opens the batch, with the event to emit at its end. Returns whether it is new: opening it
    /// again with the same handler and value changes nothing, as long as it is open.
    ///
    /// The event has a handler, a modifier and a value, and is due as soon as it is emitted.
    pub async fn open(&self, on_end: Event) -> Result<bool, BatchError> {
        let event = self.checked(on_end)?;
        // Its name is remembered when it is over.
        self.queue.admit_with(std::slice::from_ref(&event), None, Some(self.canvas)).await?;
        match self.queue.store.open_batch(&self.name, &event).await? {
            BatchOpening::Opened => Ok(true),
            BatchOpening::Repeated => Ok(false),
            BatchOpening::Taken => Err(BatchError::Taken(self.name.clone())),
        }
    }

    /// Closes the batch: it is over once its last member has ended, which may be now. Until then
    /// its members can still emit further members. Closing it again changes nothing.
    ///
    /// Emit its members before: once it is over, emits into it are refused. A member that is
    /// emitted in a transaction counts from its commit on, so commit that first, too. The batch
    /// does not end before.
    pub async fn close(&self) -> Result<BatchProgress, BatchError> {
        match self.queue.store.close_batch(self.canvas, &self.name).await? {
            BatchClosing::Closed | BatchClosing::Repeated => {}
            BatchClosing::Missing => return Err(BatchError::Missing(self.name.clone())),
        }
        let batch = (self.canvas, self.name.clone());
        if let Err(error) = self.queue.end_batch(&batch).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, batch = %self.name, "a batch that may be over is left to the minute's pass");
        }
        self.progress().await
    }

    /// How many of its members have ended, and how many are left.
    pub async fn progress(&self) -> Result<BatchProgress, BatchError> {
        let found = self.queue.store.batch(self.canvas, &self.name).await?;
        found.ok_or_else(|| BatchError::Missing(self.name.clone()))
    }

    fn checked(&self, on_end: Event) -> Result<NewEvent, BatchError> {
        if on_end.only_queues {
            return Err(BatchError::OnEnd("be only for queues"));
        }
        let EventFields { id, canvas, value: _, due, object, metadata: _, is_logged, unique, options } =
            on_end.fields();
        let excluded = [
            (canvas.is_some_and(|canvas| canvas != self.canvas), "be on another canvas"),
            (id.is_some(), "have an id of the caller's choice"),
            (due != Due::Now, "be delayed"),
            (object.is_some(), "be on an object"),
            (is_logged, "be appended to the log"),
            (unique.is_some(), "have a unique key"),
            (options.is_some(), "have options"),
        ];
        match excluded.into_iter().find(|(has, _)| *has) {
            Some((_, what)) => Err(BatchError::OnEnd(what)),
            None => Ok(self.queue.checked(on_end.canvas(self.canvas))?),
        }
    }
}

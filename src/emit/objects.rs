//! Changes of objects: a main event, its subevents and the object's state, in one transaction.

use std::sync::Arc;

use sqlx::postgres::PgConnection;
use tracing::Instrument;

use super::byte_budget::CheckedEvents;
use super::{EmitError, Emitted, Idempotent, Queue, Receipt, refused, retry_busy};
use crate::event::{CanvasId, Event, EventError, IdempotencyKey, ObjectKey, check_json};
use crate::store::{NewState, Object, StoreError, add_with_state};

impl Queue {
    /// Changes an object, in one transaction: emits a main event and any number of subevents on it,
    /// one after the other in its chain, and sets its state to the given JSON, if any. Other emits
    /// on the same object come before or after all of these events.
    ///
    /// If the caller chose the main event's id and it was emitted before, the state is not changed.
    ///
    /// ```no_run
    /// # async fn example(queue: wakeq::Queue) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::Event;
    ///
    /// let main = Event::new("index", &"title")?;
    /// let subevents = vec![Event::new("index", &"a new post")?];
    /// let state = r#"{"title": "Emma"}"#;
    /// let emitted = queue.emit_on("work:1", main, subevents, Some(state)).await?;
    /// assert_eq!(emitted[1].link.unwrap().prev, emitted[0].link.unwrap().id);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn emit_on(
        &self,
        object: &str,
        main: Event,
        subevents: Vec<Event>,
        state: Option<&str>,
    ) -> Result<Vec<Emitted>, EmitError> {
        let Change { canvas, key, events } = self.change(object, main, subevents, state)?;
        let span = self.sending(&events, true);
        let emitting = async {
            let CheckedEvents { events, chosen, permit: _permit } = self.all_checked(events)?;
            let state = state.map(|state| NewState { canvas, object: &key, state });
            self.admit_with(&events, state, None).await?;
            let inserted = retry_busy(&events, || self.store.insert_on(&events, &chosen, state)).await;
            let inserted = self.counted(&events, inserted).map_err(|error| refused(&events, error))?;
            self.after_commit(&events, inserted).await
        };
        emitting.instrument(span).await
    }

    /// Like [`Queue::emit_on`], but answered once under a key: see [`Queue::emit_idempotent`],
    /// which does the same for events on no object or on several.
    pub async fn emit_on_idempotent(
        &self,
        key: &IdempotencyKey,
        object: &str,
        main: Event,
        subevents: Vec<Event>,
        state: Option<&str>,
        answer: impl FnOnce(&[Emitted]) -> String + Send,
    ) -> Result<Idempotent, EmitError> {
        let Change { canvas, key: object, events } = self.change(object, main, subevents, state)?;
        let span = self.sending(&events, true);
        let state = state.map(|state| NewState { canvas, object: &object, state });
        self.emit_once(key, events, state, answer).instrument(span).await
    }

    /// Like [`Queue::emit_on`], inside the caller's own transaction; see [`Queue::emit_in`]. Change
    /// several objects in one transaction in the order of their keys, so that two such transactions
    /// do not deadlock.
    pub async fn emit_on_in(
        &self,
        connection: &mut PgConnection,
        object: &str,
        main: Event,
        subevents: Vec<Event>,
        state: Option<&str>,
    ) -> Result<Vec<Receipt>, EmitError> {
        let Change { canvas, key, events } = self.change(object, main, subevents, state)?;
        let span = self.sending(&events, true);
        let inserting = async {
            let CheckedEvents { events, chosen, permit: _permit } = self.all_checked(events)?;
            let state = state.map(|state| NewState { canvas, object: &key, state });
            self.admit_beside(&events, state).await?;
            let inserted = add_with_state(connection, &events, &chosen, state, self.store.emission()).await;
            let inserted =
                inserted.map_err(|error| StoreError::from_sqlx("insert events on an object", error));
            let inserted = inserted.map_err(|error| refused(&events, error))?;
            let pairs = events.into_iter().zip(inserted);
            pairs.map(|(event, inserted)| self.receipt(Arc::new(event), inserted)).collect()
        };
        inserting.instrument(span).await
    }

    /// An object: the end of its chain and its state. `None` if no event was ever emitted on it.
    pub async fn object(&self, canvas: CanvasId, object: &str) -> Result<Option<Object>, EmitError> {
        let key: ObjectKey = object.parse().map_err(EventError::from)?;
        Ok(self.store.object(canvas, &key).await?)
    }

    fn change(
        &self,
        object: &str,
        main: Event,
        subevents: Vec<Event>,
        state: Option<&str>,
    ) -> Result<Change, EmitError> {
        let key: ObjectKey = object.parse().map_err(EventError::from)?;
        if let Some(state) = state {
            check_json(state).map_err(EventError::from)?;
            let (size_bytes, limit_bytes) = (state.len(), self.config.payload_limit_bytes);
            if size_bytes > limit_bytes {
                return Err(EventError::TooLarge { size_bytes, limit_bytes }.into());
            }
        }
        let canvas = main.canvas.unwrap_or(self.config.canvas);
        let all = std::iter::once(main).chain(subevents).map(|event| Event {
            canvas: Some(event.canvas.unwrap_or(canvas)),
            object: Some(key.clone()),
            ..event
        });
        let events: Vec<Event> = all.collect();
        if events.iter().any(|event| event.canvas != Some(canvas)) {
            return Err(EmitError::OtherCanvas);
        }
        Ok(Change { canvas, key, events })
    }
}

/// A main event and its subevents, with their object.
struct Change {
    canvas: CanvasId,
    key: ObjectKey,
    events: Vec<Event>,
}

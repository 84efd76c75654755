//! Questions of entities to handlers. Nothing here trusts what an event's value says about the
//! entity that asked: it is compared with the record when the question is answered.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::event::EntityId;
use crate::store::EntityQuestion;
use wakeq::{CanvasId, EventId, Execution, HandlerError};

/// The value of an event that asks, as it is emitted.
#[derive(Serialize, Deserialize)]
pub(super) struct QuestionValue<T> {
    /// For readers that do not use wakeq; nothing here trusts it.
    #[serde(default)]
    pub(super) canvas: CanvasId,
    pub(super) entity_type: String,
    pub(super) entity: String,
    pub(super) event_id: EventId,
    pub(super) correlation_id: Uuid,
    pub(super) value: T,
}

/// A question of an entity, from [`Asked::asked`]: the entity to answer, with
/// [`Entities::answer`](crate::Entities::answer), and the value of the question. It can't be made
/// from an event's value alone:
///
/// ```compile_fail
/// let asked: wakeq_streams::entities::Question<u32> = serde_json::from_str("{}").unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Question<T> {
    asking: EventId,
    entity: EntityId,
    event_id: EventId,
    correlation_id: Uuid,
    value: T,
}

impl<T> Question<T> {
    /// The event with the question.
    pub fn asking(&self) -> EventId {
        self.asking
    }

    /// The entity that asks, on the canvas of the execution. Whether it has asked this is checked
    /// when it is answered.
    pub fn entity(&self) -> &EntityId {
        &self.entity
    }

    /// The event that made it ask.
    pub fn event_id(&self) -> EventId {
        self.event_id
    }

    /// The id that connects everything that follows from one cause.
    pub fn correlation_id(&self) -> Uuid {
        self.correlation_id
    }

    /// The value of the question.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// The question as it is looked up.
    pub(super) fn question(&self) -> EntityQuestion<'_> {
        let Self { asking, entity, event_id, correlation_id, .. } = self;
        EntityQuestion { entity, event: *event_id, correlation_id: *correlation_id, asking: *asking }
    }

    /// The value of the question.
    pub fn into_value(self) -> T {
        self.value
    }
}

/// The question that an entity has asked an execution of a handler.
pub trait Asked {
    /// The question of an entity, if the event was emitted by
    /// [`Applied::ask`](crate::Applied::ask). A value of another shape is an operational error, so
    /// that the event ends among the dead events, where it can be seen.
    ///
    /// ```
    /// # use wakeq::{Execution, HandlerResult};
    /// # use wakeq_streams::{Asked, Entities, EntityEvent};
    /// async fn charge(entities: Entities, execution: Execution) -> HandlerResult {
    ///     let asked = execution.asked::<u32>()?;
    ///     entities.verify(&asked).await?;
    ///     // … charge the card of `asked.entity()` with `asked.value()` …
    ///     entities.answer(&asked, EntityEvent::new("charged", asked.value())?).await?;
    ///     Ok(())
    /// }
    /// ```
    fn asked<T: DeserializeOwned>(&self) -> Result<Question<T>, HandlerError>;
}

impl Asked for Execution {
    fn asked<T: DeserializeOwned>(&self) -> Result<Question<T>, HandlerError> {
        let QuestionValue { entity_type, entity, event_id, correlation_id, value, .. } = self.value()?;
        let entity = EntityId::new(self.address.scope.canvas, &entity_type, &entity);
        let entity = entity.map_err(|error| {
            HandlerError::operational(format!("the event's value does not name an entity to answer: {error}"))
        })?;
        Ok(Question { asking: self.id, entity, event_id, correlation_id, value })
    }
}

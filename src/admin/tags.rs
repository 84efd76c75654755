//! Tags of an event that was emitted.

use super::{Admin, AdminError, checked};
use crate::event::{Actor, CanvasId, EventId, TAGS_MAX, Tag};

impl Admin {
    /// Replaces the tags of an event that waits, runs or died; returns its id. Without any, it has
    /// none. A handler that has started sees the former ones. Copies in queues have no tags. Tags
    /// with which the event's options would have more than 4,096 bytes are refused.
    ///
    /// ```
    /// use wakeq::events::Tag;
    /// use wakeq::testing::TestKit;
    /// use wakeq::{Actor, CanvasId, Event};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut kit = TestKit::new();
    /// let id = kit.emit(Event::new("send-email", &42)?.tag("customer:7")?).await?.id;
    /// let tags: Vec<Tag> = vec!["customer:8".parse()?];
    /// kit.admin().set_tags(CanvasId::DEFAULT, id, &tags, &Actor::user("ada")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn set_tags(
        &self,
        canvas: CanvasId,
        id: EventId,
        tags: &[Tag],
        actor: &Actor,
    ) -> Result<EventId, AdminError> {
        checked(actor)?;
        let mut unique: Vec<Tag> = Vec::new();
        for tag in tags {
            if !unique.contains(tag) {
                unique.push(tag.clone());
            }
        }
        if unique.len() > TAGS_MAX {
            return Err(AdminError::Invalid("an event has at most 10 tags: leave some out"));
        }
        let id = self.own_id(canvas, id).await?;
        match self.store.set_tags(canvas, id, &unique, actor).await? {
            Some(true) => Ok(id),
            Some(false) => Err(AdminError::Invalid(
                "the options of the event would have more than 4,096 bytes with these tags: use fewer or \
                 shorter ones",
            )),
            None => Err(AdminError::NotFound(id)),
        }
    }
}

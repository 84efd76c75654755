//! Switches: rules that stop a whole canvas, or everything. What a rule on a handler does, they do
//! for every handler there is and will be; the rules of the handlers stay as they are.

use super::{Admin, AdminError, ResumeResult, Stop, StopResult};
use crate::event::{Actor, CanvasId, HandlerScope, RuleKind};
use crate::store::Rule;

impl Admin {
    /// Pauses a whole canvas: once this has returned, no worker can claim an event of it. One
    /// claimed just before may still be starting. Events are accepted and wait, crons go on
    /// ticking, and consumers of the log go on reading. Pausing again replaces reason and end.
    ///
    /// Copies in [queues](crate::queues::NewQueue) are held only if their queue shows them to the
    /// canvas.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::{Actor, CanvasId, Stop};
    ///
    /// let ada = Actor::user("ada");
    /// let stop = Stop { reason: Some("wrong prices".to_owned()), until: None };
    /// admin.pause_canvas(CanvasId::DEFAULT, &ada, &stop).await?;
    /// let resumed = admin.unpause_canvas(CanvasId::DEFAULT, &ada).await?;
    /// println!("{} events woken", resumed.woken);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn pause_canvas(
        &self,
        canvas: CanvasId,
        actor: &Actor,
        stop: &Stop,
    ) -> Result<StopResult, AdminError> {
        self.stop(RuleKind::Pause, &whole(canvas)?, actor, stop).await
    }

    /// Lifts the pause of a whole canvas and wakes the events that it held, except those of
    /// handlers that are paused or blocked themselves. If there was none, nothing is done or
    /// recorded.
    pub async fn unpause_canvas(&self, canvas: CanvasId, actor: &Actor) -> Result<ResumeResult, AdminError> {
        self.lift(RuleKind::Pause, &whole(canvas)?, actor).await
    }

    /// Blocks a whole canvas, whatever its users do. Only for admins.
    pub async fn block_canvas(
        &self,
        canvas: CanvasId,
        actor: &Actor,
        stop: &Stop,
    ) -> Result<StopResult, AdminError> {
        self.stop(RuleKind::Block, &whole(canvas)?, actor, stop).await
    }

    /// Lifts the block of a whole canvas and wakes the events that it held. Only for admins.
    pub async fn unblock_canvas(&self, canvas: CanvasId, actor: &Actor) -> Result<ResumeResult, AdminError> {
        self.lift(RuleKind::Block, &whole(canvas)?, actor).await
    }

    /// Blocks everything: every event of every canvas, and the copies in every queue. Only for
    /// admins, and callers check that they may act on every canvas.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::{Actor, Stop};
    ///
    /// let ops = Actor::admin("ops");
    /// let stop = Stop { reason: Some("the mail provider bills us twice".to_owned()), until: None };
    /// admin.block_all(&ops, &stop).await?;
    /// admin.unblock_all(&ops).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn block_all(&self, actor: &Actor, stop: &Stop) -> Result<StopResult, AdminError> {
        self.stop(RuleKind::Block, &HandlerScope::of_everything(), actor, stop).await
    }

    /// Lifts the block of everything and wakes the events that it held, of all canvases side by
    /// side. Only for admins.
    pub async fn unblock_all(&self, actor: &Actor) -> Result<ResumeResult, AdminError> {
        self.lift(RuleKind::Block, &HandlerScope::of_everything(), actor).await
    }

    /// The rules in force on the whole canvas, and on everything: a block before a pause, and that
    /// on everything first.
    pub async fn switches(&self, canvas: CanvasId) -> Result<Vec<Rule>, AdminError> {
        Ok(self.store.rules_over(&whole(canvas)?).await?)
    }
}

/// What the rules of a whole canvas are stored under. On the reserved canvas they would stop
/// everything.
fn whole(canvas: CanvasId) -> Result<HandlerScope, AdminError> {
    if canvas.is_reserved() {
        return Err(AdminError::Invalid(
            "the largest uuid is reserved, so no canvas has it: name another one",
        ));
    }
    Ok(HandlerScope::of_canvas(canvas))
}

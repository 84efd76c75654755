//! Handlers reached over HTTP.

use std::sync::Arc;

use uuid::Uuid;

use super::on_backing;
use crate::event::{Actor, CanvasId, HandlerAddress, Name, Timestamp};
use crate::store::kernel::{Store, StoreError};
use crate::store::targets::{FoundTarget, RegisteredTarget, TargetPosition};

impl Store {
    /// The targets of a canvas, or of one handler of it, after a position, by address; at most
    /// `limit`.
    pub(crate) async fn targets(
        &self,
        canvas: CanvasId,
        handler: Option<(&Name, &Name)>,
        modifier: Option<&Name>,
        after: Option<&TargetPosition>,
        limit: i64,
    ) -> Result<Vec<RegisteredTarget>, StoreError> {
        on_backing!(self.targets(canvas, handler, modifier, after, limit))
    }

    /// The current targets at these addresses; `None` for each that has none, or whose target has
    /// answered 410 Gone.
    #[doc(hidden)]
    pub async fn targets_at(
        &self,
        addresses: &[HandlerAddress],
    ) -> Result<Vec<Option<Arc<FoundTarget>>>, StoreError> {
        on_backing!(self.targets_at(addresses))
    }

    /// Where the events of a handler are sent, if that is over HTTP, and since when that is held
    /// because the target answered 410 Gone.
    pub(crate) async fn target_url(
        &self,
        address: &HandlerAddress,
    ) -> Result<Option<(String, Option<Timestamp>)>, StoreError> {
        on_backing!(self.target_url(address))
    }

    /// Holds a target that was removed (it answered 410), and no other, not even of the same
    /// handler; returns whether this call did. Nothing is done if the target was replaced or
    /// deleted since it was called.
    ///
    /// It does not wait for older claims: their deliveries get the same answer.
    pub(crate) async fn hold_gone(
        &self,
        address: &HandlerAddress,
        revision: Option<Uuid>,
        reason: &str,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        on_backing!(self.hold_gone(address, revision, reason, actor))
    }
}

//! Addresses and notifications, from and as the columns of statements. No SQL.

use uuid::Uuid;

use crate::event::{CanvasId, EventId, HandlerAddress, HandlerScope, InvalidName, Notification};

/// A handler's address from its columns, which the schema's domains hold to the same rules.
pub(in crate::store) fn address(
    canvas_id: Uuid,
    module: &str,
    name: &str,
    modifier: &str,
) -> Result<HandlerAddress, InvalidName> {
    let scope = HandlerScope { canvas: CanvasId(canvas_id), module: module.parse()?, name: name.parse()? };
    Ok(HandlerAddress { scope, modifier: modifier.parse()? })
}

/// The modules and the names of handlers, as two arrays of a statement.
pub(in crate::store) fn handler_columns(handlers: &[HandlerScope]) -> (Vec<String>, Vec<String>) {
    let modules = handlers.iter().map(|scope| scope.module.as_str().to_owned());
    let names = handlers.iter().map(|scope| scope.name.as_str().to_owned());
    (modules.collect(), names.collect())
}

/// Notifications from columns of a statement, which have the same length.
pub(in crate::store) fn notifications(ids: Vec<Uuid>, canvases: Vec<Uuid>) -> Vec<Notification> {
    let pairs = ids.into_iter().zip(canvases);
    pairs.map(|(id, canvas)| Notification::new(EventId(id), CanvasId(canvas))).collect()
}

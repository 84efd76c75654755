//! Targets: there are none in memory, where handlers are functions; but a handler may report that
//! it is gone.

use std::sync::Arc;

use uuid::Uuid;

use super::Tables;
use crate::event::{Actor, CanvasId, EventId, HandlerAddress, Name, RuleKind, Timestamp};
use crate::store::kernel::StoreError;
use crate::store::targets::{FoundTarget, RegisteredTarget, TargetPosition};

impl Tables {
    pub(in crate::store) fn target_url(
        &self,
        _address: &HandlerAddress,
    ) -> Result<Option<(String, Option<Timestamp>)>, StoreError> {
        Ok(None)
    }

    pub(in crate::store) fn targets_at(
        &self,
        addresses: &[HandlerAddress],
    ) -> Result<Vec<Option<Arc<FoundTarget>>>, StoreError> {
        Ok(vec![None; addresses.len()])
    }

    pub(in crate::store) fn wake_registered(&self, _ids: &[EventId]) -> Result<(), StoreError> {
        Ok(())
    }

    pub(in crate::store) fn targets(
        &self,
        _canvas: CanvasId,
        _handler: Option<(&Name, &Name)>,
        _modifier: Option<&Name>,
        _after: Option<&TargetPosition>,
        _limit: i64,
    ) -> Result<Vec<RegisteredTarget>, StoreError> {
        Ok(Vec::new())
    }

    pub(in crate::store) fn hold_gone(
        &mut self,
        address: &HandlerAddress,
        _revision: Option<Uuid>,
        reason: &str,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        let handler = Some((&address.scope.module, &address.scope.name));
        let stands = self.rules(Some(address.scope.canvas), handler, None, 2)?;
        if stands.iter().any(|rule| rule.kind == RuleKind::Pause) {
            return Ok(false);
        }
        self.add_rule(RuleKind::Pause, &address.scope, Some(reason), None, actor).map(|_| true)
    }
}

//! Handlers reached over HTTP: the table `http_targets`. Whether a URL may be called is not decided
//! here.

mod lookup;
mod own;
mod registered;
mod resealing;

use uuid::Uuid;

use super::{Store, StoreError};
use crate::event::{Actor, HandlerAddress};

pub use lookup::FoundTarget;
pub use registered::RegisteredTarget;
pub(in crate::store) use registered::put_within;
pub(crate) use registered::{NewTargetRow, PutOutcome, TargetPosition};
pub use resealing::SecretCounts;

impl Store {
    /// Where the events of a handler are sent, if that is over HTTP.
    pub(crate) async fn target_url(&self, address: &HandlerAddress) -> Result<Option<String>, StoreError> {
        in_memory!(self, target_url());
        let query = sqlx::query_scalar!(
            "select url from wakeq.http_targets where canvas_id = $1 and module = $2 and name = $3 and modifier = $4",
            address.scope.canvas.0,
            address.scope.module.as_str() as _,
            address.scope.name.as_str() as _,
            address.modifier.as_str() as _
        );
        self.session().await?.optional("look for a target", query).await
    }

    /// Pauses a handler whose target was removed (it answered 410); returns whether this call did.
    /// Nothing is done if the target was replaced or deleted since it was called, or if the handler
    /// is already paused: that pause's reason and end take precedence.
    ///
    /// It does not wait for older claims: their deliveries get the same answer.
    pub(crate) async fn pause_gone(
        &self,
        address: &HandlerAddress,
        revision: Option<Uuid>,
        reason: &str,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        in_memory!(self, pause_gone(address, reason, actor));
        let query = sqlx::query_scalar!(
            r#"with patience as (
                   select set_config('lock_timeout', '4s', true) as set
               ), put as (
                   insert into wakeq.scheduling_rules as r
                       (rule_type, canvas_id, event_space, handler_name, reason, created_by)
                   select 'pause', t.canvas_id, t.module, t.name, $6, $7
                     from patience, wakeq.http_targets t
                    where t.canvas_id = $1 and t.module = $2 and t.name = $3 and t.modifier = $4 and t.revision = $5
                       on conflict on constraint scheduling_rules_one_of_a_kind
                       do update set reason = excluded.reason, until = null, created_by = excluded.created_by,
                                     created_at = now()
                                where r.until <= now()
                returning canvas_id, event_space, handler_name
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, detail)
                   select canvas_id, $7, 'pause', event_space, handler_name, 'done', $6 from put
               )
               select exists (select from put) as "paused!""#,
            address.scope.canvas.0,
            address.scope.module.as_str() as _,
            address.scope.name.as_str() as _,
            address.modifier.as_str() as _,
            revision,
            reason,
            actor.name()
        );
        self.session().await?.one("pause a handler whose target was removed", query).await
    }
}

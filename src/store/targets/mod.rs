//! Handlers reached over HTTP: the table `http_targets`. Whether a URL may be called is not decided
//! here.

mod headers;
mod lookup;
mod named;
mod own;
mod pulled;
mod registered;
mod resealing;
mod slowed;

use uuid::Uuid;

use crate::event::{Actor, HandlerAddress, Timestamp};
use crate::store::kernel::{Sql, StoreError};

pub(crate) use headers::SealedHeaders;
pub use lookup::FoundTarget;
pub(in crate::store) use lookup::kept_for;
pub use pulled::PulledHandler;
pub(crate) use pulled::{PulledDeletion, PulledPut};
pub use registered::RegisteredTarget;
pub(crate) use registered::{NewTargetRow, PutOutcome, TargetPosition};
pub(in crate::store) use registered::{PutRefusal, put_within};
pub use resealing::SecretCounts;
pub use slowed::SlowedTarget;

impl Sql<'_> {
    pub(in crate::store) async fn target_url(
        &self,
        address: &HandlerAddress,
    ) -> Result<Option<(String, Option<Timestamp>)>, StoreError> {
        let query = sqlx::query!(
            r#"select url, gone_at from wakeq.http_targets
                where canvas_id = $1 and module = $2 and name = $3 and modifier = $4"#,
            address.scope.canvas.0,
            address.scope.module.as_str() as _,
            address.scope.name.as_str() as _,
            address.modifier.as_str() as _
        );
        let found = self.session().await?.optional("look for a target", query).await?;
        Ok(found.map(|found| (found.url, found.gone_at)))
    }

    pub(in crate::store) async fn hold_gone(
        &self,
        address: &HandlerAddress,
        revision: Option<Uuid>,
        reason: &str,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with held as (
                   update wakeq.http_targets t set gone_at = now()
                    where t.canvas_id = $1 and t.module = $2 and t.name = $3 and t.modifier = $4 and t.revision = $5
                      and t.gone_at is null
                returning t.canvas_id, t.module, t.name, t.modifier
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, detail)
                   select canvas_id, $7, 'pause', module, name, 'done',
                          left('modifier ' || modifier || '; ' || $6::text, 1000) from held
               )
               select exists (select from held) as "held!""#,
            address.scope.canvas.0,
            address.scope.module.as_str() as _,
            address.scope.name.as_str() as _,
            address.modifier.as_str() as _,
            revision,
            reason,
            actor.name()
        );
        self.session().await?.one("hold a target that was removed", query).await
    }
}

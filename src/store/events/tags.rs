//! Changes the tags of an event.

use crate::event::{Actor, CanvasId, EventId, Tag};
use crate::store::kernel::{Sql, StoreError};

impl Sql<'_> {
    /// Options that are written with more than 4,096 bytes don't grow. Those of an emit may be, as
    /// the database writes a space after each comma and colon.
    pub(in crate::store) async fn set_tags(
        &self,
        canvas: CanvasId,
        id: EventId,
        tags: &[Tag],
        actor: &Actor,
    ) -> Result<Option<bool>, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with live as (
                   update wakeq.events_v2 e
                      set options = nullif(coalesce(e.options, '{}') - 'tags' || $3::text::jsonb, '{}')
                    where e.id = $1 and e.canvas_id is not distinct from $2 and e.queue is null
                      and octet_length((coalesce(e.options, '{}') - 'tags' || $3::text::jsonb)::text)
                          <= greatest(4096, octet_length(e.options::text))
                returning e.module, e.name
               ), dead as (
                   update wakeq.dead_events d
                      set options = nullif(coalesce(d.options, '{}') - 'tags' || $3::text::jsonb, '{}')
                    where d.canvas_id = $2 and d.id = $1 and d.queue is null
                      and octet_length((coalesce(d.options, '{}') - 'tags' || $3::text::jsonb)::text)
                          <= greatest(4096, octet_length(d.options::text))
                returning d.module, d.name
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, event_id, outcome, request_id, detail)
                   select $2, $4, 'set-tags', module, name, $1, 'done', $5, $6
                     from (select * from live union all select * from dead) as tagged limit 1
               )
               select case when exists (select from live) or exists (select from dead) then true
                           when exists (select from wakeq.events_v2 e
                                         where e.id = $1 and e.canvas_id = $2 and e.queue is null)
                             or exists (select from wakeq.dead_events d
                                         where d.canvas_id = $2 and d.id = $1 and d.queue is null) then false
                            end as fits"#,
            id.0,
            canvas.0,
            json(tags),
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        self.session().await?.one("set the tags of an event", query).await
    }
}

/// The part of the options that holds the tags.
fn json(tags: &[Tag]) -> String {
    if tags.is_empty() { "{}".to_owned() } else { serde_json::json!({ "tags": tags }).to_string() }
}

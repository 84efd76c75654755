//! Pulled handlers as operators see them: registered, listed and deleted, without the secrets that
//! make the tokens of their leases.

use std::time::Duration;

use sqlx::{Connection, PgConnection};

use super::lookup::{kept_for, kept_times, milliseconds};
use crate::event::{Actor, CanvasId, HandlerScope, Name, PullPolicy, RuleKind, Timestamp};
use crate::store::kernel::{Store, StoreError};
use crate::store::quotas::serialize_on_canvas;

/// Maximum number of pulled handlers of a canvas.
const HANDLERS_MAX: i64 = 1000;

/// Where a page of pulled handlers ended: the last module and name.
pub(super) type PulledPosition = (Name, Name);

/// A handler whose events programs lease over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PulledHandler {
    /// The handler, with all its modifiers.
    pub scope: HandlerScope,
    /// How its events are tried again, and whether a death halts its object.
    pub policy: PullPolicy,
    /// Since when it has been pulled.
    pub created_at: Timestamp,
    /// Who registered it then.
    pub created_by: String,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Who changed it last.
    pub updated_by: String,
}

/// The outcome of a registration.
#[derive(Debug)]
pub(crate) struct PulledPut {
    /// Whether it was not pulled before.
    pub(crate) new: bool,
    pub(crate) handler: PulledHandler,
    /// The rule that is in force on the handler.
    pub(crate) rule: Option<RuleKind>,
}

/// The outcome of a deletion.
#[derive(Debug)]
pub(crate) struct PulledDeletion {
    /// Whether the handler was pulled.
    pub(crate) deleted: bool,
    /// The job that wakes its events for others.
    pub(crate) job: Option<i64>,
}

struct PulledPutRow {
    new: bool,
    created_at: Timestamp,
    created_by: String,
    updated_at: Timestamp,
    rule: Option<String>,
}

impl Store {
    /// Registers a pulled handler, or replaces its policy. `None` if the canvas has no room for
    /// another.
    pub(crate) async fn put_pulled(
        &self,
        scope: &HandlerScope,
        policy: &PullPolicy,
        actor: &Actor,
    ) -> Result<Option<PulledPut>, StoreError> {
        let mut session = self.session().await?.for_statements(4);
        let row = session.limit(|connection| put(connection, scope, policy, actor)).await;
        let row = session.answered("register a pulled handler", row).await?;
        Ok(row.map(|row| row.into_outcome(scope, policy, actor)))
    }

    /// Deletes the registration of a pulled handler, and creates the job that wakes its events.
    pub(crate) async fn delete_pulled(
        &self,
        scope: &HandlerScope,
        actor: &Actor,
    ) -> Result<PulledDeletion, StoreError> {
        let query = sqlx::query!(
            r#"with gone as (
                   delete from wakeq.pulled_handlers where canvas_id = $1 and module = $2 and name = $3
                returning canvas_id, module, name
               ), job as (
                   insert into wakeq.resume_jobs (kind, canvas_id, module, name, created_at)
                   select 'registered', canvas_id, module, name, clock_timestamp() from gone returning id
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, detail, request_id)
                   select canvas_id, $4, 'delete-pull', module, name, 'done', $5, $6 from gone
               )
               select exists (select from gone) as "deleted!", (select id from job) as job"#,
            scope.canvas.0,
            scope.module.as_str() as _,
            scope.name.as_str() as _,
            actor.name(),
            actor.credential_id(),
            actor.request_id()
        );
        let row = self.session().await?.one("delete a pulled handler", query).await?;
        Ok(PulledDeletion { deleted: row.deleted, job: row.job })
    }

    /// The pulled handlers of a canvas, or the one that is named, by module and name.
    pub(crate) async fn pulled_handlers(
        &self,
        canvas: CanvasId,
        handler: Option<(&Name, &Name)>,
        after: Option<&PulledPosition>,
        limit: i64,
    ) -> Result<Vec<PulledHandler>, StoreError> {
        let query = sqlx::query!(
            r#"select module::text as "module!", name::text as "name!", retries, delay_ms, factor, delay_max_ms, halts,
                      keep_s::integer[] as keep_s, created_at, created_by, updated_at, updated_by
                 from wakeq.pulled_handlers
                where canvas_id = $1 and ($2::text is null or module = $2) and ($3::text is null or name = $3)
                  and (module, name) > ($4::text, $5::text)
                order by module, name limit $6"#,
            canvas.0,
            handler.map(|(module, _)| module.as_str()),
            handler.map(|(_, name)| name.as_str()),
            after.map_or("", |(module, _)| module.as_str()),
            after.map_or("", |(_, name)| name.as_str()),
            limit
        );
        let rows = self.session().await?.all("list pulled handlers", query).await?;
        let handlers = rows.into_iter().filter_map(|row| {
            Some(PulledHandler {
                scope: HandlerScope {
                    canvas,
                    module: row.module.parse().ok()?,
                    name: row.name.parse().ok()?,
                },
                policy: PullPolicy {
                    retries: row.retries.cast_unsigned(),
                    delay: milliseconds(row.delay_ms),
                    factor: row.factor.cast_unsigned(),
                    delay_max: milliseconds(row.delay_max_ms),
                    halts: row.halts,
                    keep: kept_for(row.keep_s.as_deref()),
                },
                created_at: row.created_at,
                created_by: row.created_by,
                updated_at: row.updated_at,
                updated_by: row.updated_by,
            })
        });
        Ok(handlers.collect())
    }
}

/// Writes the row while no other registration of the canvas does, so that they are no more than
/// the canvas may have.
async fn put(
    connection: &mut PgConnection,
    scope: &HandlerScope,
    policy: &PullPolicy,
    actor: &Actor,
) -> Result<Option<PulledPutRow>, sqlx::Error> {
    let keep = kept_times(policy.keep);
    let mut transaction = connection.begin().await?;
    serialize_on_canvas(&mut transaction, scope.canvas).await?;
    let query = sqlx::query_as!(
        PulledPutRow,
        r#"with others as (
               select count(*) as count from (
                   select from wakeq.pulled_handlers where canvas_id = $1 and (module, name) <> ($2, $3)
                    limit $10::bigint) as counted
           ), put as (
               insert into wakeq.pulled_handlers
                   (canvas_id, module, name, retries, delay_ms, factor, delay_max_ms, halts, created_by, updated_by, keep_s)
               select $1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $13::integer[] from others where count < $10::bigint
                   on conflict (canvas_id, module, name) do update
                  set retries = excluded.retries, delay_ms = excluded.delay_ms, factor = excluded.factor,
                      delay_max_ms = excluded.delay_max_ms, halts = excluded.halts, updated_by = excluded.updated_by,
                      updated_at = now(), keep_s = excluded.keep_s
            returning xmax = 0 as new, created_at, created_by, updated_at
           ), known as (
               delete from wakeq.unknown_handlers where canvas_id = $1 and module = $2 and name = $3
                  and exists (select from put)
           ), logged as (
               insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, request_id, detail)
               select $1, $9, 'put-pull', $2::text, $3::text, 'done', $11,
                      concat_ws('; ', $12::text, case when not new then 'it was registered already' end) from put
           )
           select new as "new!", created_at as "created_at!", created_by as "created_by!", updated_at as "updated_at!",
                  greatest(wakeq.switch_on($1, null, now()), (select max(r.rule_type) from wakeq.scheduling_rules r
                      where r.canvas_id = $1 and r.event_space = $2 and r.handler_name = $3
                        and (r.until is null or r.until > now())))::text as rule
             from put"#,
        scope.canvas.0,
        scope.module.as_str() as _,
        scope.name.as_str() as _,
        policy.retries.cast_signed(),
        in_milliseconds(policy.delay),
        policy.factor.cast_signed(),
        in_milliseconds(policy.delay_max),
        policy.halts,
        actor.name(),
        HANDLERS_MAX,
        actor.request_id(),
        actor.credential_id(),
        keep.as_deref()
    );
    let row = query.fetch_optional(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(row)
}

impl PulledPutRow {
    fn into_outcome(self, scope: &HandlerScope, policy: &PullPolicy, actor: &Actor) -> PulledPut {
        PulledPut {
            new: self.new,
            handler: PulledHandler {
                scope: scope.clone(),
                policy: policy.clone(),
                created_at: self.created_at,
                created_by: self.created_by,
                updated_at: self.updated_at,
                updated_by: actor.name().into(),
            },
            rule: self.rule.and_then(|kind| kind.parse().ok()),
        }
    }
}

fn in_milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

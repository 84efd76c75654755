//! Targets as operators see them: registered, listed and deleted, without their secrets and the
//! values of their headers.

use std::time::Duration;

use sqlx::{Connection, PgConnection};

use super::headers::{self, SealedHeaders};
use super::lookup::{kept_for, kept_times, milliseconds};
use super::slowed::SlowedTarget;
use crate::event::{
    Actor, CanvasId, HandlerAddress, HandlerScope, Name, Quota, QuotaExceeded, RuleKind, SealedSecret,
    Secret, SecretKeys, TargetPolicy, TargetUrl, Timestamp,
};
use crate::store::kernel::{Sql, Store, StoreError, address, handler_columns, interval};
use crate::store::quotas::{default_quota, serialize_on_canvas};

/// Where a page of targets ended: the last module, name and modifier.
pub(crate) type TargetPosition = (Name, Name, Name);

/// How long the previous secret still signs.
const PREVIOUS_FOR: Duration = Duration::from_secs(24 * 3600);

/// A handler that is reached over HTTP, as far as it may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredTarget {
    /// The handler whose events it receives.
    pub address: HandlerAddress,
    /// Where they are sent.
    pub url: String,
    /// Retries, delays, timeout and concurrency, and whether a death halts its object.
    pub policy: TargetPolicy,
    /// The audience of the OIDC token that is sent with each request.
    pub audience: Option<String>,
    /// The names of the headers that it adds to its requests, in lower case.
    pub header_names: Vec<String>,
    /// Until when requests are also signed with the previous secret.
    pub previous_secret_until: Option<Timestamp>,
    /// Since when nothing is sent there, because it answered 410 Gone; until it is registered again
    /// or a pause of its handler is lifted.
    pub gone_since: Option<Timestamp>,
    /// How fast it gets events, if it had no capacity; up to a minute old.
    pub slowed: Option<SlowedTarget>,
    /// Since when the address has had a target.
    pub created_at: Timestamp,
    /// Who registered it then.
    pub created_by: String,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Who changed it last.
    pub updated_by: String,
}

/// A target to register.
#[derive(Debug)]
pub(crate) struct NewTargetRow<'a> {
    pub(crate) address: &'a HandlerAddress,
    pub(crate) url: &'a TargetUrl,
    pub(crate) policy: &'a TargetPolicy,
    pub(crate) audience: Option<&'a str>,
    /// Used if the target is new, or if it is to replace the existing secret.
    pub(crate) secret: Secret,
    /// The same secret, as the row stores it.
    pub(crate) sealed: SealedSecret,
    /// The keys that open the existing secret, to see whether it is the same.
    pub(crate) keys: &'a SecretKeys,
    pub(crate) replaces_secret: bool,
    /// What replaces its headers; `None` to keep them.
    pub(crate) headers: Option<SealedHeaders>,
    pub(crate) actor: &'a Actor,
}

/// Why a registration changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum PutRefusal {
    /// The canvas has no room for another target.
    Full,
    /// The headers that it keeps would be sent to another origin.
    HeadersLeave,
}

/// The outcome of a registration.
#[derive(Debug)]
pub(crate) struct PutOutcome {
    /// Whether the address had no target.
    pub(crate) new: bool,
    pub(crate) target: RegisteredTarget,
    /// Whether the new secret signs from now on.
    pub(crate) secret_taken: bool,
    /// The rule that is in force on the handler.
    pub(crate) rule: Option<RuleKind>,
    /// The job that wakes the waiting events; `None` if none waited.
    pub(crate) job: Option<i64>,
}

struct PutRow {
    new: bool,
    taken: bool,
    created_at: Timestamp,
    created_by: String,
    updated_at: Timestamp,
    job: Option<i64>,
    previous_until: Option<Timestamp>,
    header_names: Vec<String>,
    rule: Option<String>,
}

struct TargetRow {
    module: String,
    name: String,
    modifier: String,
    url: String,
    retries: i32,
    delay_ms: i64,
    factor: i32,
    delay_max_ms: i64,
    timeout_ms: i64,
    concurrency: Option<i32>,
    halts: bool,
    keep_s: Option<Vec<i32>>,
    audience: Option<String>,
    header_names: Vec<String>,
    previous_until: Option<Timestamp>,
    gone_at: Option<Timestamp>,
    created_at: Timestamp,
    created_by: String,
    updated_at: Timestamp,
    updated_by: String,
}

impl Store {
    /// Registers a target, or replaces the existing one, and creates the job that wakes the events
    /// that waited for it. `None` if it would send the headers that it keeps to another origin.
    /// Errors: [`StoreError::Quota`] if the canvas has no room for another.
    pub(crate) async fn put_target(&self, new: &NewTargetRow<'_>) -> Result<Option<PutOutcome>, StoreError> {
        let mut session = self.session().await?.for_statements(7);
        let row = session.limit(|connection| put(connection, new)).await;
        match session.answered("register a target", row).await? {
            Ok(row) => return Ok(Some(row.into_outcome(new))),
            Err(PutRefusal::HeadersLeave) => return Ok(None),
            Err(PutRefusal::Full) => {}
        }
        let canvas = new.address.scope.canvas;
        let limit = self.quota(canvas, Quota::Targets).await?;
        Err(QuotaExceeded { canvas, quota: Quota::Targets, limit, used: limit, wanted: 1 }.into())
    }

    /// Deletes a target; returns whether there was one.
    pub(crate) async fn delete_target(
        &self,
        address: &HandlerAddress,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        let HandlerAddress { scope, modifier } = address;
        let query = sqlx::query_scalar!(
            r#"with gone as (
                   delete from wakeq.http_targets
                    where canvas_id = $1 and module = $2 and name = $3 and modifier = $4
                returning canvas_id, module, name, modifier
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, detail, request_id)
                   select canvas_id, $5, 'delete-target', module, name, 'done',
                          concat_ws('; ', $6::text, 'modifier ' || modifier), $7 from gone
               )
               select exists (select from gone) as "deleted!""#,
            scope.canvas.0,
            scope.module.as_str() as _,
            scope.name.as_str() as _,
            modifier.as_str() as _,
            actor.name(),
            actor.credential_id(),
            actor.request_id()
        );
        self.session().await?.one("delete a target", query).await
    }

    /// The first targets of these handlers of a canvas, in the given order; at most `each` of one.
    pub(crate) async fn targets_of(
        &self,
        canvas: CanvasId,
        handlers: &[HandlerScope],
        each: i64,
    ) -> Result<Vec<RegisteredTarget>, StoreError> {
        let (modules, names) = handler_columns(handlers);
        let query = sqlx::query_as!(
            TargetRow,
            r#"select target.module as "module!", target.name as "name!", target.modifier as "modifier!",
                      target.url as "url!", target.retries as "retries!", target.delay_ms as "delay_ms!",
                      target.factor as "factor!", target.delay_max_ms as "delay_max_ms!",
                      target.timeout_ms as "timeout_ms!", target.concurrency, target.halts as "halts!",
                      target.keep_s, target.audience, target.header_names as "header_names!", target.previous_until, target.gone_at,
                      target.created_at as "created_at!",
                      target.created_by as "created_by!", target.updated_at as "updated_at!",
                      target.updated_by as "updated_by!"
                 from (select at, module::wakeq.name as module, name::wakeq.name as name
                         from unnest($2::text[], $3::text[]) with ordinality as given (module, name, at)) as wanted
                cross join lateral (
                    select t.module::text as module, t.name::text as name, t.modifier::text as modifier, t.url, t.retries,
                           t.delay_ms, t.factor, t.delay_max_ms, t.timeout_ms, t.concurrency, t.halts,
                           t.keep_s::integer[] as keep_s, t.audience, t.header_names,
                           case when t.previous_until > now() then t.previous_until end as previous_until,
                           t.gone_at, t.created_at, t.created_by, t.updated_at, t.updated_by
                      from wakeq.http_targets t
                     where t.canvas_id = $1 and t.module = wanted.module and t.name = wanted.name
                     order by t.canvas_id, t.module, t.name, t.modifier limit $4) as target
                order by wanted.at, target.modifier"#,
            canvas.0,
            &modules,
            &names,
            each
        );
        let rows = self.session().await?.all("list the targets of handlers", query).await?;
        self.with_rates(canvas, rows).await
    }

    /// The targets of these rows of a canvas, with how fast they get events.
    async fn with_rates(
        &self,
        canvas: CanvasId,
        rows: Vec<TargetRow>,
    ) -> Result<Vec<RegisteredTarget>, StoreError> {
        let mut targets: Vec<_> = rows.into_iter().filter_map(|row| row.into_target(canvas)).collect();
        let addresses: Vec<_> = targets.iter().map(|target| &target.address).collect();
        let slowed = self.slowed_targets(canvas, &addresses).await?;
        for target in &mut targets {
            target.slowed = slowed.get(&target.address).copied();
        }
        Ok(targets)
    }
}

impl Sql<'_> {
    pub(in crate::store) async fn targets(
        &self,
        canvas: CanvasId,
        handler: Option<(&Name, &Name)>,
        modifier: Option<&Name>,
        after: Option<&TargetPosition>,
        limit: i64,
    ) -> Result<Vec<RegisteredTarget>, StoreError> {
        let query = sqlx::query_as!(
            TargetRow,
            r#"select module::text as "module!", name::text as "name!", modifier::text as "modifier!", url, retries, delay_ms,
                      factor, delay_max_ms, timeout_ms, concurrency, halts, keep_s::integer[] as keep_s, audience, header_names,
                      case when previous_until > now() then previous_until end as previous_until,
                      gone_at, created_at, created_by, updated_at, updated_by
                 from wakeq.http_targets
                where canvas_id = $1 and ($2::text is null or module = $2) and ($3::text is null or name = $3)
                  and ($4::text is null or modifier = $4) and (module, name, modifier) > ($6::text, $7::text, $8::text)
                order by module, name, modifier limit $5"#,
            canvas.0,
            handler.map(|(module, _)| module.as_str()),
            handler.map(|(_, name)| name.as_str()),
            modifier.map(Name::as_str),
            limit,
            after.map_or("", |(module, _, _)| module.as_str()),
            after.map_or("", |(_, name, _)| name.as_str()),
            after.map_or("", |(_, _, modifier)| modifier.as_str())
        );
        let rows = self.session().await?.all("list targets", query).await?;
        self.with_rates(canvas, rows).await
    }
}

/// As [`Store::put_target`], within the caller's transaction.
pub(in crate::store) async fn put_within(
    connection: &mut PgConnection,
    new: &NewTargetRow<'_>,
) -> Result<Result<PutOutcome, PutRefusal>, sqlx::Error> {
    Ok(put(connection, new).await?.map(|row| row.into_outcome(new)))
}

/// Registers a target once no process is deferring events of its handler.
async fn put(
    connection: &mut PgConnection,
    new: &NewTargetRow<'_>,
) -> Result<Result<PutRow, PutRefusal>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    serialize_on_canvas(&mut transaction, new.address.scope.canvas).await?;
    let is_awaited = hold_note(&mut transaction, new.address).await?;
    if new.headers.is_none() && headers::would_leave(&mut transaction, new.address, new.url).await? {
        transaction.rollback().await?;
        return Ok(Err(PutRefusal::HeadersLeave));
    }
    let repeats = new.replaces_secret && stands_already(&mut transaction, new).await?;
    let row = write(&mut transaction, new, TargetFacts { is_awaited, repeats }).await?;
    let Some(mut row) = row else {
        transaction.rollback().await?;
        return Ok(Err(PutRefusal::Full));
    };
    if let Some(headers) = &new.headers {
        headers::replace(&mut transaction, new.address, headers).await?;
        row.header_names.clone_from(&headers.names);
    }
    transaction.commit().await?;
    Ok(Ok(row))
}

/// Whether the secret already signs. Each encryption gives another ciphertext, so this is compared
/// outside of the statement. Registrations of an address are serialized by its note.
async fn stands_already(connection: &mut PgConnection, new: &NewTargetRow<'_>) -> Result<bool, sqlx::Error> {
    let HandlerAddress { scope, modifier } = new.address;
    let standing = sqlx::query_as!(
        SealedSecret,
        "select secret_key as key, secret as bytes from wakeq.http_targets
          where canvas_id = $1 and module = $2 and name = $3 and modifier = $4",
        scope.canvas.0,
        scope.module.as_str() as _,
        scope.name.as_str() as _,
        modifier.as_str() as _
    );
    let standing = standing.fetch_optional(connection).await?;
    let standing = standing.and_then(|sealed| new.keys.open_any(new.address, &sealed).ok());
    Ok(standing.is_some_and(|secret| secret.as_bytes() == new.secret.as_bytes()))
}

/// The state before a target is written, which can't change until then.
struct TargetFacts {
    /// Whether events may wait for the target.
    is_awaited: bool,
    /// Whether its secret is the existing one.
    repeats: bool,
}

/// The row; `None` if the canvas has no room for it.
type Written = Result<Option<PutRow>, sqlx::Error>;

/// Writes the target and the audit log, and deletes the note.
async fn write(connection: &mut PgConnection, new: &NewTargetRow<'_>, facts: TargetFacts) -> Written {
    let (HandlerAddress { scope, modifier }, keep) = (new.address, kept_times(new.policy.keep));
    sqlx::query_as!(
        PutRow,
        r#"with others as (
               select count(*) as count from (
                   select from wakeq.http_targets where canvas_id = $1 and (module, name, modifier) <> ($2, $3, $4)
                    limit wakeq.quota_of($1, 'targets', $15)) as counted
           ), put as (
               insert into wakeq.http_targets as t
                   (canvas_id, module, name, modifier, url, retries, delay_ms, factor, delay_max_ms, timeout_ms,
                    concurrency, audience, secret, secret_key, created_by, updated_by, halts, keep_s)
               select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::integer, $12::text, $13, $24::text, $17, $17, $22, $25::integer[]
                 from others where count < wakeq.quota_of($1, 'targets', $15) on conflict (canvas_id, module, name, modifier) do update
                  set url = excluded.url, retries = excluded.retries, delay_ms = excluded.delay_ms, halts = excluded.halts,
                      factor = excluded.factor, delay_max_ms = excluded.delay_max_ms, timeout_ms = excluded.timeout_ms,
                      concurrency = excluded.concurrency, audience = excluded.audience, revision = excluded.revision,
                      updated_by = excluded.updated_by, updated_at = now(), gone_at = null, keep_s = excluded.keep_s,
                      secret = case when $14 then excluded.secret else t.secret end,
                      secret_key = case when $14 then excluded.secret_key else t.secret_key end,
                      (previous_secret, previous_key, previous_until) = (
                          select t.secret, t.secret_key, now() + $16::interval where $14 and not $23 union all
                          select t.previous_secret, t.previous_key, t.previous_until where not $14 or $23)
            returning xmax = 0 as new, xmax = 0 or $14 as taken, previous_until, header_names, created_at, created_by, updated_at
           ), known as (
               delete from wakeq.unknown_handlers where canvas_id = $1 and module = $2 and name = $3 and modifier = $4
                  and exists (select from put) returning canvas_id, module, name
           ), job as (
               insert into wakeq.resume_jobs (kind, canvas_id, module, name, created_at)
               select 'registered', canvas_id, module, name, clock_timestamp() from known where $21 returning id
           ), logged as (
               insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, request_id, detail)
               select $1, $17, 'put-target', $2::text, $3::text, 'done', $20,
                      concat_ws('; ', $18::text, $19::text, case when not new then 'it was registered already' end,
                                case when taken then 'with a secret of its own' end) from put
           )
           select new as "new!", taken as "taken!", created_at as "created_at!", created_by as "created_by!",
                  updated_at as "updated_at!", header_names as "header_names!", (select id from job) as job,
                  case when previous_until > now() then previous_until end as previous_until,
                  greatest(wakeq.switch_on($1, null, now()), (select max(r.rule_type) from wakeq.scheduling_rules r where r.canvas_id = $1
                      and r.event_space = $2 and r.handler_name = $3 and (r.until is null or r.until > now())))::text as rule
             from put"#,
        scope.canvas.0,
        scope.module.as_str() as _,
        scope.name.as_str() as _,
        modifier.as_str() as _,
        new.url.as_str(),
        integer(new.policy.retries),
        in_milliseconds(new.policy.delay),
        integer(new.policy.factor),
        in_milliseconds(new.policy.delay_max),
        in_milliseconds(new.policy.timeout),
        new.policy.concurrency.map(integer),
        new.audience,
        new.sealed.bytes.as_slice(),
        new.replaces_secret,
        default_quota(Quota::Targets),
        interval(PREVIOUS_FOR),
        new.actor.name(),
        new.actor.credential_id(),
        told(new),
        new.actor.request_id(),
        facts.is_awaited,
        new.policy.halts,
        facts.repeats,
        new.sealed.key.as_deref(), keep.as_deref()
    )
    .fetch_optional(connection)
    .await
}

/// What the audit log says of a registration.
fn told(new: &NewTargetRow<'_>) -> String {
    let headers = new.headers.as_ref().map(|headers| format!("; {}", headers.told())).unwrap_or_default();
    format!("modifier {}; {}{headers}", new.address.modifier, new.url.origin())
}

/// Locks the note of a handler that a worker did not know, creating it if there is none; returns
/// whether there was one.
///
/// Deferring writes the note as well. So the next statement sees events that were deferred before,
/// and their note. A later deferral waits for the commit of the target, which
/// [`Store::wake_registered`] then sees.
async fn hold_note(connection: &mut PgConnection, address: &HandlerAddress) -> Result<bool, sqlx::Error> {
    let HandlerAddress { scope, modifier } = address;
    sqlx::query_scalar!(
        r#"insert into wakeq.unknown_handlers as u (canvas_id, module, name, modifier) values ($1, $2, $3, $4)
               on conflict (canvas_id, module, name, modifier) do update set last_seen = u.last_seen
        returning xmax <> 0 as "existed!""#,
        scope.canvas.0,
        scope.module.as_str() as _,
        scope.name.as_str() as _,
        modifier.as_str() as _
    )
    .fetch_one(connection)
    .await
}

impl PutRow {
    fn into_outcome(self, new: &NewTargetRow<'_>) -> PutOutcome {
        PutOutcome {
            new: self.new,
            target: RegisteredTarget {
                address: new.address.clone(),
                url: new.url.to_string(),
                policy: new.policy.clone(),
                audience: new.audience.map(Into::into),
                header_names: self.header_names,
                previous_secret_until: self.previous_until,
                gone_since: None,
                slowed: None,
                created_at: self.created_at,
                created_by: self.created_by,
                updated_at: self.updated_at,
                updated_by: new.actor.name().into(),
            },
            secret_taken: self.taken,
            rule: self.rule.and_then(|kind| kind.parse().ok()),
            job: self.job,
        }
    }
}

impl TargetRow {
    fn into_target(self, canvas: CanvasId) -> Option<RegisteredTarget> {
        Some(RegisteredTarget {
            address: address(canvas.0, &self.module, &self.name, &self.modifier).ok()?,
            url: self.url,
            policy: TargetPolicy {
                retries: self.retries.cast_unsigned(),
                delay: milliseconds(self.delay_ms),
                factor: self.factor.cast_unsigned(),
                delay_max: milliseconds(self.delay_max_ms),
                timeout: milliseconds(self.timeout_ms),
                concurrency: self.concurrency.map(i32::cast_unsigned),
                halts: self.halts,
                keep: kept_for(self.keep_s.as_deref()),
            },
            audience: self.audience,
            header_names: self.header_names,
            previous_secret_until: self.previous_until,
            gone_since: self.gone_at,
            slowed: None,
            created_at: self.created_at,
            created_by: self.created_by,
            updated_at: self.updated_at,
            updated_by: self.updated_by,
        })
    }
}

fn integer(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn in_milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

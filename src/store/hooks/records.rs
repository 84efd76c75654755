//! Hooks as operators see them: put, listed and deleted, without their secrets.

use std::time::Duration;

use sqlx::{Connection, PgConnection};

use crate::event::{
    Actor, CanvasId, HandlerAddress, HookKind, HookSecret, Name, Quota, QuotaExceeded, SealedSecret,
    SecretKeys, Timestamp,
};
use crate::store::kernel::{Store, StoreError, address, interval};
use crate::store::quotas::{default_quota, serialize_on_canvas};

/// How long the previous secret is still accepted.
const PREVIOUS_FOR: Duration = Duration::from_secs(24 * 3600);

/// A hook, as far as it may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisteredHook {
    /// Its name.
    pub name: Name,
    /// How its sender signs.
    pub kind: HookKind,
    /// The handler that its events are for.
    pub address: HandlerAddress,
    /// Whether the value is a CloudEvent around the body, and not the body alone.
    pub enveloped: bool,
    /// Until when the previous secret is accepted, too.
    pub previous_secret_until: Option<Timestamp>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Who created it.
    pub created_by: String,
    /// When it was last replaced.
    pub updated_at: Timestamp,
    /// Who replaced it last.
    pub updated_by: String,
}

/// A hook to put.
#[derive(Debug)]
pub(crate) struct NewHookRow<'a> {
    pub(crate) name: &'a Name,
    pub(crate) kind: HookKind,
    /// Its canvas, too.
    pub(crate) address: &'a HandlerAddress,
    pub(crate) enveloped: bool,
    /// The secret that is used if the hook is new or its secret is to be replaced, and the same as
    /// the row stores it. `None` if only an existing hook can be put.
    pub(crate) secret: Option<(&'a HookSecret, &'a SealedSecret)>,
    /// The keys that open the existing secret, to see whether it is the same.
    pub(crate) keys: &'a SecretKeys,
    pub(crate) replaces_secret: bool,
    /// Whether a previous secret, including the one that is replaced now, is no longer accepted.
    pub(crate) drops_previous: bool,
    pub(crate) actor: &'a Actor,
}

/// A hook that was put.
#[derive(Debug)]
pub(crate) struct HookOutcome {
    /// Whether there was none of this name.
    pub(crate) new: bool,
    /// Whether the given secret is the hook's from now on.
    pub(crate) taken: bool,
    pub(crate) hook: RegisteredHook,
}

/// Why a hook was not put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookRefusal {
    /// The canvas has no room for another.
    Full,
    /// The hook of this name is of this kind, and a kind does not change.
    OtherKind(HookKind),
    /// There is none of this name, and no secret for a new one.
    NoSecret,
}

/// What is written of a secret.
struct SecretChange {
    /// Stored if the hook is new, or if its secret is to be replaced.
    sealed: SealedSecret,
    /// Whether it is the existing one.
    repeats: bool,
}

/// A hook that exists.
struct Standing {
    kind: String,
    secret: Vec<u8>,
    secret_key: Option<String>,
}

struct PutRow {
    new: bool,
    taken: bool,
    previous_until: Option<Timestamp>,
    created_at: Timestamp,
    created_by: String,
    updated_at: Timestamp,
}

struct HookRow {
    name: String,
    kind: String,
    module: String,
    handler: String,
    modifier: String,
    enveloped: bool,
    previous_until: Option<Timestamp>,
    created_at: Timestamp,
    created_by: String,
    updated_at: Timestamp,
    updated_by: String,
}

impl Store {
    /// Creates a hook, or replaces the one of the same name. Errors: [`StoreError::Quota`] if the
    /// canvas has no room for another.
    pub(crate) async fn put_hook(
        &self,
        new: &NewHookRow<'_>,
    ) -> Result<Result<HookOutcome, HookRefusal>, StoreError> {
        let mut session = self.session().await?.for_statements(4);
        let put = session.limit(|connection| put(connection, new)).await;
        let put = session.answered("put a hook", put).await?;
        if !matches!(put, Err(HookRefusal::Full)) {
            return Ok(put);
        }
        let canvas = new.address.scope.canvas;
        let limit = self.quota(canvas, Quota::Hooks).await?;
        Err(QuotaExceeded { canvas, quota: Quota::Hooks, limit, used: limit, wanted: 1 }.into())
    }

    /// Deletes a hook; returns whether there was one.
    pub(crate) async fn delete_hook(
        &self,
        canvas: CanvasId,
        name: &Name,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with gone as (
                   delete from wakeq.hooks where canvas_id = $1 and name = $2
                returning canvas_id, name, module, handler
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, detail, request_id)
                   select canvas_id, $3, 'delete-hook', module, handler, 'done',
                          concat_ws('; ', $4::text, 'hook ' || name), $5 from gone
               )
               select exists (select from gone) as "deleted!""#,
            canvas.0,
            name.as_str() as _,
            actor.name(),
            actor.credential_id(),
            actor.request_id()
        );
        self.session().await?.one("delete a hook", query).await
    }

    /// The hooks of a canvas by name, or the one of this name; at most `limit`, after a name.
    pub(crate) async fn hooks(
        &self,
        canvas: CanvasId,
        name: Option<&Name>,
        after: Option<&Name>,
        limit: i64,
    ) -> Result<Vec<RegisteredHook>, StoreError> {
        let query = sqlx::query_as!(
            HookRow,
            r#"select name::text as "name!", kind, module::text as "module!", handler::text as "handler!",
                      modifier::text as "modifier!", enveloped,
                      case when previous_until > now() then previous_until end as previous_until,
                      created_at, created_by, updated_at, updated_by
                 from wakeq.hooks
                where canvas_id = $1 and ($2::text is null or name = $2) and name > $3::text
                order by name limit $4"#,
            canvas.0,
            name.map(Name::as_str),
            after.map_or("", Name::as_str),
            limit
        );
        let rows = self.session().await?.all("list hooks", query).await?;
        Ok(rows.into_iter().filter_map(|row| row.into_hook(canvas)).collect())
    }
}

type Put = Result<Result<HookOutcome, HookRefusal>, sqlx::Error>;

/// Puts a hook. Those of a canvas are put one by one.
async fn put(connection: &mut PgConnection, new: &NewHookRow<'_>) -> Put {
    let mut transaction = connection.begin().await?;
    serialize_on_canvas(&mut transaction, new.address.scope.canvas).await?;
    let put = match SecretChange::of(new, standing(&mut transaction, new).await?) {
        Ok(change) => write(&mut transaction, new, &change).await?.ok_or(HookRefusal::Full),
        Err(refusal) => Err(refusal),
    };
    match &put {
        Ok(_) => transaction.commit().await?,
        Err(_) => transaction.rollback().await?,
    }
    Ok(put.map(|row| row.into_outcome(new)))
}

/// The hook that has the name, locked until the transaction ends.
async fn standing(
    connection: &mut PgConnection,
    new: &NewHookRow<'_>,
) -> Result<Option<Standing>, sqlx::Error> {
    sqlx::query_as!(
        Standing,
        "select kind, secret, secret_key from wakeq.hooks where canvas_id = $1 and name = $2 for update",
        new.address.scope.canvas.0,
        new.name.as_str() as _
    )
    .fetch_optional(connection)
    .await
}

impl SecretChange {
    /// Each encryption gives another ciphertext, so the secret is compared here, and not by the
    /// statement that replaces it.
    fn of(new: &NewHookRow<'_>, standing: Option<Standing>) -> Result<Self, HookRefusal> {
        let Some(Standing { kind, secret, secret_key }) = standing else {
            let (_, sealed) = new.secret.ok_or(HookRefusal::NoSecret)?;
            return Ok(Self { sealed: sealed.clone(), repeats: false });
        };
        if let Some(kind) = kind.parse::<HookKind>().ok().filter(|kind| *kind != new.kind) {
            return Err(HookRefusal::OtherKind(kind));
        }
        let stored = SealedSecret { key: secret_key, bytes: secret };
        let Some((given, sealed)) = new.secret else {
            return Ok(Self { sealed: stored, repeats: false });
        };
        let owner = (new.address.scope.canvas, new.name, new.kind);
        let opened = new.keys.open_any_hook(owner, &stored);
        let repeats = opened.is_ok_and(|opened| opened.reveal() == given.reveal());
        Ok(Self { sealed: sealed.clone(), repeats })
    }
}

/// Writes the hook and the audit log; `None` if the canvas has no room for another.
async fn write(
    connection: &mut PgConnection,
    new: &NewHookRow<'_>,
    secret: &SecretChange,
) -> Result<Option<PutRow>, sqlx::Error> {
    let HandlerAddress { scope, modifier } = new.address;
    sqlx::query_as!(
        PutRow,
        r#"with others as (
               select count(*) as count from (
                   select from wakeq.hooks where canvas_id = $1 and name <> $2
                    limit wakeq.quota_of($1, 'hooks', $3)) as counted
           ), put as (
               insert into wakeq.hooks as h
                   (canvas_id, name, kind, module, handler, modifier, enveloped, secret, secret_key, created_by, updated_by)
               select $1, $2, $4, $5, $6, $7, $8, $9, $10::text, $11, $11
                 from others where count < wakeq.quota_of($1, 'hooks', $3) on conflict (canvas_id, name) do update
                  set module = excluded.module, handler = excluded.handler, modifier = excluded.modifier,
                      enveloped = excluded.enveloped, updated_by = excluded.updated_by, updated_at = now(),
                      secret = case when $12 then excluded.secret else h.secret end,
                      secret_key = case when $12 then excluded.secret_key else h.secret_key end,
                      (previous_secret, previous_key, previous_until) = (
                          select h.secret, h.secret_key, now() + $13::interval where $12 and not $14 and not $15 union all
                          select h.previous_secret, h.previous_key, h.previous_until where (not $12 or $14) and not $15)
            returning xmax = 0 as new, xmax = 0 or $12 as taken, previous_until, created_at, created_by, updated_at
           ), logged as (
               insert into wakeq.audit_log (canvas_id, actor, action, module, name, outcome, request_id, detail)
               select $1, $11, 'put-hook', $5::text, $6::text, 'done', $16,
                      concat_ws('; ', $17::text, $18::text, case when not new then 'it was there already' end,
                                case when taken then 'with a secret of its own' end,
                                case when $15 then 'no previous secret is accepted' end) from put
           )
           select new as "new!", taken as "taken!", created_at as "created_at!", created_by as "created_by!",
                  updated_at as "updated_at!",
                  case when previous_until > now() then previous_until end as previous_until
             from put"#,
        scope.canvas.0,
        new.name.as_str() as _,
        default_quota(Quota::Hooks),
        new.kind.as_str(),
        scope.module.as_str() as _,
        scope.name.as_str() as _,
        modifier.as_str() as _,
        new.enveloped,
        secret.sealed.bytes.as_slice(),
        secret.sealed.key.as_deref(),
        new.actor.name(),
        new.replaces_secret,
        interval(PREVIOUS_FOR),
        secret.repeats,
        new.drops_previous,
        new.actor.request_id(),
        new.actor.credential_id(),
        format!("hook {}; {}; modifier {modifier}", new.name, new.kind)
    )
    .fetch_optional(connection)
    .await
}

impl PutRow {
    fn into_outcome(self, new: &NewHookRow<'_>) -> HookOutcome {
        let hook = RegisteredHook {
            name: new.name.clone(),
            kind: new.kind,
            address: new.address.clone(),
            enveloped: new.enveloped,
            previous_secret_until: self.previous_until,
            created_at: self.created_at,
            created_by: self.created_by,
            updated_at: self.updated_at,
            updated_by: new.actor.name().into(),
        };
        HookOutcome { new: self.new, taken: self.taken, hook }
    }
}

impl HookRow {
    /// A row that was not written by wakeq and is not a hook counts as none.
    fn into_hook(self, canvas: CanvasId) -> Option<RegisteredHook> {
        Some(RegisteredHook {
            name: self.name.parse().ok()?,
            kind: self.kind.parse().ok()?,
            address: address(canvas.0, &self.module, &self.handler, &self.modifier).ok()?,
            enveloped: self.enveloped,
            previous_secret_until: self.previous_until,
            created_at: self.created_at,
            created_by: self.created_by,
            updated_at: self.updated_at,
            updated_by: self.updated_by,
        })
    }
}

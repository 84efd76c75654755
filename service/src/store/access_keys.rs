//! API keys as they are stored: at most two live ones per canvas and holder, also when several are
//! created at once.

use std::time::Duration;

use sqlx::Connection;
use uuid::Uuid;

use super::{ServiceStore, StoreError, default_quota, interval, quota_exceeded, serialize_on_canvas};
use wakeq::control::{Quota, QuotaExceeded};
use wakeq::{Actor, CanvasId, Timestamp};

/// A new key.
#[derive(Debug)]
pub(crate) struct NewKeyRow<'a> {
    pub(crate) id: &'a str,
    pub(crate) secret_sha256: &'a [u8],
    /// `None`: every canvas.
    pub(crate) canvas: Option<CanvasId>,
    pub(crate) holder: &'a str,
    pub(crate) scopes: &'a [String],
    pub(crate) actor: &'a Actor,
    pub(crate) lifetime: Duration,
}

/// The stored data of a key that a request needs.
#[derive(Clone, Debug)]
pub(crate) struct KeyForUse {
    pub(crate) secret_sha256: Vec<u8>,
    /// `None`: every canvas.
    pub(crate) canvas_id: Option<Uuid>,
    pub(crate) holder: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) revoked: bool,
    /// Seconds until it expires; negative if it has expired.
    pub(crate) expires_in_s: f64,
    /// Whether no use was recorded within the last minute.
    pub(crate) use_to_note: bool,
}

/// A key as operators see it.
#[derive(Clone, Debug)]
pub(crate) struct KeyRow {
    pub(crate) id: String,
    /// `None`: every canvas.
    pub(crate) canvas_id: Option<Uuid>,
    pub(crate) holder: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) created_by: String,
    pub(crate) expires_at: Timestamp,
    pub(crate) revoked_at: Option<Timestamp>,
    pub(crate) last_used_at: Option<Timestamp>,
    pub(crate) expired: bool,
}

/// Which keys or accounts: those of one canvas, those that are valid on every canvas, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowsOf {
    /// All of them.
    All,
    /// Those of this canvas; `None`: those that are valid on every canvas.
    Reach(Option<CanvasId>),
}

impl RowsOf {
    pub(super) fn canvas(self) -> (bool, Option<Uuid>) {
        match self {
            Self::All => (true, None),
            Self::Reach(canvas) => (false, canvas.map(|canvas| canvas.0)),
        }
    }
}

impl ServiceStore {
    /// Stores a new key; returns when it was created and when it expires. `None`: no slot was free,
    /// the canvas's quota is used up, or another caller has just taken the free slot, so that
    /// another attempt may succeed.
    pub(crate) async fn add_key(
        &self,
        key: &NewKeyRow<'_>,
    ) -> Result<Option<(Timestamp, Timestamp)>, StoreError> {
        let mut session = self.session().await?.for_statements(4);
        let query = sqlx::query!(
            r#"with freed as (
                   update wakeq.access_keys set slot = null
                    where canvas_id is not distinct from $3 and holder = $4 and slot is not null and expires_at <= now()
                returning id
               ), taken as (
                   select slot from wakeq.access_keys k
                    where k.canvas_id is not distinct from $3 and k.holder = $4 and k.slot is not null
                      and not exists (select from freed where freed.id = k.id)
               ), free as (
                   select min(place) as slot from unnest(array[1, 2]::smallint[]) place
                    where place not in (select slot from taken)
                      and ($3::uuid is null
                           or (select count(*) from wakeq.access_keys where canvas_id = $3) < wakeq.quota_of($3, 'keys', $10))
               ), made as (
                   insert into wakeq.access_keys (id, secret_sha256, canvas_id, holder, scopes, created_by, expires_at, slot)
                   select $1, $2, $3, $4, $5, $6, now() + $7::interval, slot from free where slot is not null
                       on conflict do nothing
                returning id, canvas_id, holder, scopes, created_at, expires_at
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
                   select canvas_id, $6, 'create-key', 'done', $8,
                          concat_ws('; ', $9::text, 'wakeq_' || id || ' for ' || holder || ': ' || array_to_string(scopes, ' '))
                     from made
               )
               select created_at as "created_at!", expires_at as "expires_at!" from made"#,
            key.id,
            key.secret_sha256,
            key.canvas.map(|canvas| canvas.0),
            key.holder,
            key.scopes,
            key.actor.name(),
            interval(key.lifetime),
            key.actor.request_id(),
            key.actor.credential_id(),
            default_quota(Quota::Keys)
        );
        let added = session
            .limit(async |connection| {
                let mut transaction = connection.begin().await?;
                if let Some(canvas) = key.canvas {
                    serialize_on_canvas(&mut transaction, canvas).await?;
                }
                let added = query.fetch_optional(&mut *transaction).await?;
                transaction.commit().await?;
                Ok(added)
            })
            .await;
        let added = session.answered("add a key", added).await?;
        Ok(added.map(|row| (row.created_at, row.expires_at)))
    }

    /// Whether both slots of a holder are taken by live keys.
    pub(crate) async fn has_two_live_keys(
        &self,
        canvas: Option<CanvasId>,
        holder: &str,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select count(*) >= 2 as "two!" from wakeq.access_keys
                where canvas_id is not distinct from $1 and holder = $2 and slot is not null and expires_at > now()"#,
            canvas.map(|canvas| canvas.0),
            holder
        );
        self.session().await?.one("count live keys", query).await
    }

    /// The canvas's quota of keys, if it is used up.
    pub(crate) async fn key_quota_exceeded(
        &self,
        canvas: CanvasId,
    ) -> Result<Option<QuotaExceeded>, StoreError> {
        let query = sqlx::query!(
            r#"select (select count(*) from wakeq.access_keys where canvas_id = $1) as "keys!",
                      wakeq.quota_of($1, 'keys', $2) as "most!""#,
            canvas.0,
            default_quota(Quota::Keys)
        );
        let row = self.session().await?.one("count the keys of a canvas", query).await?;
        Ok(quota_exceeded(canvas, Quota::Keys, (row.keys, 1, row.most)))
    }

    /// A key as a request needs it, revoked and expired ones included. Read over a lookup
    /// connection.
    pub(crate) async fn key_for_use(&self, id: &str) -> Result<Option<KeyForUse>, StoreError> {
        let query = sqlx::query_as!(
            KeyForUse,
            r#"select secret_sha256, canvas_id, holder, scopes, revoked_at is not null as "revoked!",
                      extract(epoch from expires_at - now())::float8 as "expires_in_s!",
                      (last_used_at is null or last_used_at < now() - interval '1 minute') as "use_to_note!"
                 from wakeq.access_keys where id = $1"#,
            id
        );
        self.lookup_session().await?.optional("look for a key", query).await
    }

    /// Records that a key is in use, unless that was recorded within the last minute.
    pub(crate) async fn note_use_of_key(&self, id: &str) -> Result<(), StoreError> {
        let query = sqlx::query!(
            "update wakeq.access_keys set last_used_at = now()
              where id = $1 and (last_used_at is null or last_used_at < now() - interval '1 minute')",
            id
        );
        self.session().await?.execute("record the use of a key", query).await.map(drop)
    }

    /// One key, live or not.
    pub(crate) async fn key(&self, of: RowsOf, id: &str) -> Result<Option<KeyRow>, StoreError> {
        let (all, canvas) = of.canvas();
        let query = sqlx::query_as!(
            KeyRow,
            r#"select id, canvas_id, holder, scopes, created_at, created_by, expires_at, revoked_at, last_used_at,
                      expires_at <= now() as "expired!"
                 from wakeq.access_keys where id = $3 and ($1 or canvas_id is not distinct from $2)"#,
            all,
            canvas,
            id
        );
        self.session().await?.optional("look at a key", query).await
    }

    /// Keys, live or not, newest first, after the last key of the previous page. At most `limit`.
    pub(crate) async fn keys(
        &self,
        of: RowsOf,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<KeyRow>, StoreError> {
        let (all, canvas) = of.canvas();
        let query = sqlx::query_as!(
            KeyRow,
            r#"select id, canvas_id, holder, scopes, created_at, created_by, expires_at, revoked_at, last_used_at,
                      expires_at <= now() as "expired!"
                 from wakeq.access_keys
                where ($1 or canvas_id is not distinct from $2)
                  and ($3::text is null
                       or (created_at, id) < (select a.created_at, a.id from wakeq.access_keys a
                                                where a.id = $3 and ($1 or a.canvas_id is not distinct from $2)))
                order by created_at desc, id desc limit $4"#,
            all,
            canvas,
            after,
            limit
        );
        self.session().await?.all("list keys", query).await
    }

    /// Revokes a key; returns whether there was one that was not yet revoked.
    pub(crate) async fn revoke_key(&self, of: RowsOf, id: &str, actor: &Actor) -> Result<bool, StoreError> {
        let (all, canvas) = of.canvas();
        let query = sqlx::query_scalar!(
            r#"with revoked as (
                   update wakeq.access_keys set revoked_at = now(), revoked_by = $4, slot = null
                    where id = $3 and ($1 or canvas_id is not distinct from $2) and revoked_at is null
                returning id, canvas_id, holder
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
                   select canvas_id, $4, 'revoke-key', 'done', $5, concat_ws('; ', $6::text, 'wakeq_' || id || ' of ' || holder)
                     from revoked
               )
               select exists (select from revoked) as "revoked!""#,
            all,
            canvas,
            id,
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        self.session().await?.one("revoke a key", query).await
    }
}

//! Re-encrypts the secrets of hooks under another key, page by page, while webhooks are received.

use uuid::Uuid;

use crate::event::{Actor, CanvasId, HookKind, Name, SealError, SealedSecret, SecretKeys};
use crate::store::kernel::{Store, StoreError};

/// How many hooks one statement changes.
const PAGE: i64 = 100;

/// The outcome of a page.
#[derive(Debug, Default)]
pub struct ResealedHooks {
    /// The last hook of the page; `None` if there was nothing after the previous one.
    pub last: Option<HookCursor>,
    /// Hooks that were changed.
    pub changed: u64,
    /// Hooks with a secret that these keys don't open, and why not.
    pub unopened: Vec<String>,
}

/// Where the next page begins.
#[derive(Clone, Debug, Default)]
pub struct HookCursor {
    canvas: Uuid,
    name: String,
}

struct SealedRow {
    canvas_id: Uuid,
    name: String,
    kind: String,
    secret: Vec<u8>,
    secret_key: Option<String>,
    previous_secret: Option<Vec<u8>>,
    previous_key: Option<String>,
}

/// The rows to write back, as columns.
#[derive(Default)]
struct SealedColumns {
    canvases: Vec<Uuid>,
    names: Vec<String>,
    were: Vec<Vec<u8>>,
    secrets: Vec<Vec<u8>>,
    keys: Vec<Option<String>>,
    previous: Vec<Option<Vec<u8>>>,
    previous_keys: Vec<Option<String>>,
}

enum ResealError {
    Open(String),
    Seal(SealError),
}

impl Store {
    /// Encrypts secrets that are not under the first key, for a page of hooks after `after`, with a
    /// line in the audit log. A hook that is put meanwhile stays as that leaves it.
    #[doc(hidden)]
    pub async fn reseal_hooks(
        &self,
        after: Option<&HookCursor>,
        actor: &Actor,
    ) -> Result<Result<ResealedHooks, SealError>, StoreError> {
        let rows = self.hooks_not_under(self.secret_keys().ids().first().copied(), after).await?;
        let mut resealed =
            ResealedHooks { last: rows.last().map(SealedRow::place), ..ResealedHooks::default() };
        let mut columns = SealedColumns::default();
        for row in rows {
            match row.resealed(self.secret_keys()) {
                Ok((was, row)) => columns.push(was, row),
                Err(ResealError::Open(words)) => resealed.unopened.push(words),
                Err(ResealError::Seal(unsealed)) => return Ok(Err(unsealed)),
            }
        }
        if !columns.canvases.is_empty() {
            resealed.changed = self.write_resealed_hooks(&columns, actor).await?;
        }
        Ok(Ok(resealed))
    }

    async fn hooks_not_under(
        &self,
        key: Option<&str>,
        after: Option<&HookCursor>,
    ) -> Result<Vec<SealedRow>, StoreError> {
        let start = after.cloned().unwrap_or_default();
        let query = sqlx::query_as!(
            SealedRow,
            r#"select canvas_id, name::text as "name!", kind, secret, secret_key, previous_secret, previous_key
                 from wakeq.hooks
                where (secret_key is distinct from $1 or previous_secret is not null and previous_key is distinct from $1)
                  and ($2 or (canvas_id, name::text) > ($3, $4))
                order by canvas_id, name::text limit $5"#,
            key,
            after.is_none(),
            start.canvas,
            start.name,
            PAGE
        );
        self.session().await?.all("read secrets of hooks under other keys", query).await
    }

    /// Writes only where the secret is still the one that was read; one that was put meanwhile is
    /// under the first key already.
    async fn write_resealed_hooks(&self, columns: &SealedColumns, actor: &Actor) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with changed as (
                   update wakeq.hooks h
                      set secret = new.secret, secret_key = new.key,
                          previous_secret = case when h.previous_until is not null then new.previous end,
                          previous_key = case when h.previous_until is not null then new.previous_key end,
                          previous_until = case when new.previous is not null then h.previous_until end
                     from unnest($1::uuid[], $2::text[], $3::bytea[], $4::bytea[], $5::text[], $6::bytea[], $7::text[])
                          as new (canvas_id, name, was, secret, key, previous, previous_key)
                    where h.canvas_id = any (array[new.canvas_id]) and h.name = new.name and h.secret = new.was
                returning h.canvas_id
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, times, request_id, detail)
                   select canvas_id, $8, 'rotate-secrets', 'done', count(*), $9, concat_ws('; ', $10::text, 'of hooks')
                     from changed group by canvas_id order by canvas_id
               )
               select count(*) as "changed!" from changed"#,
            &columns.canvases,
            &columns.names,
            &columns.were,
            &columns.secrets,
            &columns.keys as &[Option<String>],
            &columns.previous as &[Option<Vec<u8>>],
            &columns.previous_keys as &[Option<String>],
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        let changed = self.session().await?.one("encrypt secrets of hooks under another key", query).await?;
        Ok(changed.unsigned_abs())
    }
}

impl SealedRow {
    fn place(&self) -> HookCursor {
        HookCursor { canvas: self.canvas_id, name: self.name.clone() }
    }

    /// The secret that the row has, and the row with its secrets under the first key. A previous
    /// secret that does not open is dropped: it could not verify anything anyway.
    fn resealed(self, keys: &SecretKeys) -> Result<(Vec<u8>, Self), ResealError> {
        let canvas = CanvasId(self.canvas_id);
        let (Ok(name), Ok(kind)) = (self.name.parse::<Name>(), self.kind.parse::<HookKind>()) else {
            let words = format!("hook {} of canvas {canvas}: not a hook of this release", self.name);
            return Err(ResealError::Open(words));
        };
        let owner = (canvas, &name, kind);
        let was = self.secret.clone();
        let current = reseal(keys, owner, &SealedSecret { key: self.secret_key, bytes: self.secret })?;
        let previous = self.previous_secret.map(|bytes| {
            let previous = SealedSecret { key: self.previous_key, bytes };
            reseal(keys, owner, &previous)
        });
        let previous = match previous {
            Some(Ok(previous)) => Some(previous),
            Some(Err(ResealError::Seal(unsealed))) => return Err(ResealError::Seal(unsealed)),
            Some(Err(ResealError::Open(_))) | None => None,
        };
        let (previous_secret, previous_key) =
            previous.map_or((None, None), |previous| (Some(previous.bytes), previous.key));
        let (secret, secret_key) = (current.bytes, current.key);
        Ok((was, Self { secret, secret_key, previous_secret, previous_key, ..self }))
    }
}

fn reseal(
    keys: &SecretKeys,
    owner: (CanvasId, &Name, HookKind),
    sealed: &SealedSecret,
) -> Result<SealedSecret, ResealError> {
    let (canvas, name, _) = owner;
    let secret = keys
        .open_any_hook(owner, sealed)
        .map_err(|unopened| ResealError::Open(format!("hook {name} of canvas {canvas}: {unopened}")))?;
    keys.seal_hook(canvas, name, &secret).map_err(ResealError::Seal)
}

impl SealedColumns {
    fn push(&mut self, was: Vec<u8>, row: SealedRow) {
        self.canvases.push(row.canvas_id);
        self.names.push(row.name);
        self.were.push(was);
        self.secrets.push(row.secret);
        self.keys.push(row.secret_key);
        self.previous.push(row.previous_secret);
        self.previous_keys.push(row.previous_key);
    }
}

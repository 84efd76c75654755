//! Re-encrypts signing secrets and headers under another key, page by page, while deliveries
//! continue. The revision of a target stays the same.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::event::{Actor, HandlerAddress, OpenError, SealError, SealedSecret, SecretKeys};
use crate::store::kernel::{Store, StoreError, address};

/// How many targets one statement changes.
const PAGE: i64 = 100;

/// How many secrets there are under each key; `None`: unencrypted.
pub type SecretCounts = BTreeMap<Option<String>, i64>;

/// The outcome of a page.
#[derive(Debug, Default)]
pub struct ResealOutcome {
    /// The last address of the page; `None` if there was nothing after the previous one.
    pub last: Option<TargetCursor>,
    /// Targets that were changed.
    pub changed: u64,
    /// Targets with a secret that these keys don't open, and why not.
    pub unopened: Vec<String>,
}

/// Where the next page begins.
#[derive(Clone, Debug, Default)]
pub struct TargetCursor {
    canvas: Uuid,
    module: String,
    name: String,
    modifier: String,
}

struct SealedRow {
    canvas_id: Uuid,
    module: String,
    name: String,
    modifier: String,
    secret: Vec<u8>,
    secret_key: Option<String>,
    previous_secret: Option<Vec<u8>>,
    previous_key: Option<String>,
    headers: Option<Vec<u8>>,
    headers_key: Option<String>,
}

/// The secret and the headers that a row has: it is written only where it still has them.
struct Before {
    secret: Vec<u8>,
    headers: Option<Vec<u8>>,
}

/// The rows to write back, as columns.
#[derive(Default)]
struct SealedColumns {
    canvases: Vec<Uuid>,
    modules: Vec<String>,
    names: Vec<String>,
    modifiers: Vec<String>,
    were: Vec<Vec<u8>>,
    secrets: Vec<Vec<u8>>,
    keys: Vec<Option<String>>,
    previous: Vec<Option<Vec<u8>>>,
    previous_keys: Vec<Option<String>>,
    headers_were: Vec<Option<Vec<u8>>>,
    headers: Vec<Option<Vec<u8>>>,
    headers_keys: Vec<Option<String>>,
}

impl Store {
    /// Encrypts secrets that are not under the first key, for a page of targets after `after`, with
    /// a line in the audit log. A target that is registered again meanwhile stays as that leaves
    /// it.
    #[doc(hidden)]
    pub async fn reseal(
        &self,
        after: Option<&TargetCursor>,
        actor: &Actor,
    ) -> Result<Result<ResealOutcome, SealError>, StoreError> {
        let rows = self.not_under(self.secret_keys().ids().first().copied(), after).await?;
        let mut resealed =
            ResealOutcome { last: rows.last().map(SealedRow::place), ..ResealOutcome::default() };
        let mut columns = SealedColumns::default();
        for row in rows {
            match row.resealed(self.secret_keys()) {
                Ok((was, row)) => columns.push(was, row),
                Err(ResealError::Open(words)) => resealed.unopened.push(words),
                Err(ResealError::Seal(unsealed)) => return Ok(Err(unsealed)),
            }
        }
        if !columns.canvases.is_empty() {
            resealed.changed = self.write_resealed(&columns, actor).await?;
        }
        Ok(Ok(resealed))
    }

    async fn not_under(
        &self,
        key: Option<&str>,
        after: Option<&TargetCursor>,
    ) -> Result<Vec<SealedRow>, StoreError> {
        let start = after.cloned().unwrap_or_default();
        let query = sqlx::query_as!(
            SealedRow,
            r#"select canvas_id, module::text as "module!", name::text as "name!", modifier::text as "modifier!",
                      secret, secret_key, previous_secret, previous_key, headers, headers_key
                 from wakeq.http_targets
                where (secret_key is distinct from $1 or previous_secret is not null and previous_key is distinct from $1
                       or headers is not null and headers_key is distinct from $1)
                  and ($2 or (canvas_id, module::text, name::text, modifier::text) > ($3, $4, $5, $6))
                order by canvas_id, module::text, name::text, modifier::text limit $7"#,
            key,
            after.is_none(),
            start.canvas,
            start.module,
            start.name,
            start.modifier,
            PAGE
        );
        self.session().await?.all("read secrets under other keys", query).await
    }

    /// Writes only where secret and headers are still those that were read. What was registered
    /// meanwhile is under the first key already, and what that kept is found by the next call.
    async fn write_resealed(&self, columns: &SealedColumns, actor: &Actor) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with changed as (
                   update wakeq.http_targets t
                      set secret = new.secret, secret_key = new.key,
                          previous_secret = case when t.previous_until is not null then new.previous end,
                          previous_key = case when t.previous_until is not null then new.previous_key end,
                          previous_until = case when new.previous is not null then t.previous_until end,
                          headers = new.headers, headers_key = new.headers_key
                     from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::bytea[], $7::text[],
                                 $8::bytea[], $9::text[], $13::bytea[], $14::bytea[], $15::text[])
                          as new (canvas_id, module, name, modifier, was, secret, key, previous, previous_key,
                                  headers_were, headers, headers_key)
                    where t.canvas_id = any (array[new.canvas_id])
                      and (t.module, t.name, t.modifier) = (new.module, new.name, new.modifier)
                      and t.secret = new.was and t.headers is not distinct from new.headers_were
                returning t.canvas_id
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, times, request_id, detail)
                   select canvas_id, $10, 'rotate-secrets', 'done', count(*), $11, $12
                     from changed group by canvas_id order by canvas_id
               )
               select count(*) as "changed!" from changed"#,
            &columns.canvases,
            &columns.modules,
            &columns.names,
            &columns.modifiers,
            &columns.were,
            &columns.secrets,
            &columns.keys as &[Option<String>],
            &columns.previous as &[Option<Vec<u8>>],
            &columns.previous_keys as &[Option<String>],
            actor.name(),
            actor.request_id(),
            actor.credential_id(),
            &columns.headers_were as &[Option<Vec<u8>>],
            &columns.headers as &[Option<Vec<u8>>],
            &columns.headers_keys as &[Option<String>]
        );
        Ok(self.session().await?.one("encrypt secrets under another key", query).await?.unsigned_abs())
    }

    /// How many secrets there are under each key: signing secrets, including previous ones that are
    /// still valid, headers of targets, and secrets of hooks.
    #[doc(hidden)]
    pub async fn secret_counts(&self) -> Result<SecretCounts, StoreError> {
        let query = sqlx::query!(
            r#"select key, count(*) as "count!" from (
                   select secret_key as key from wakeq.http_targets
                    union all
                   select previous_key from wakeq.http_targets where previous_until > now()
                    union all
                   select headers_key from wakeq.http_targets where headers is not null
                    union all
                   select secret_key from wakeq.hooks
                    union all
                   select previous_key from wakeq.hooks where previous_until > now()) as secrets
                group by key"#
        );
        let rows = self.session().await?.all("count secrets", query).await?;
        Ok(rows.into_iter().map(|row| (row.key, row.count)).collect())
    }
}

enum ResealError {
    Open(String),
    Seal(SealError),
}

impl SealedRow {
    fn place(&self) -> TargetCursor {
        TargetCursor {
            canvas: self.canvas_id,
            module: self.module.clone(),
            name: self.name.clone(),
            modifier: self.modifier.clone(),
        }
    }

    /// What the row has, and the row with its secrets under the first key. A previous secret that
    /// does not open is dropped: it could not sign anyway.
    fn resealed(self, keys: &SecretKeys) -> Result<(Before, Self), ResealError> {
        let Ok(address) = address(self.canvas_id, &self.module, &self.name, &self.modifier) else {
            let words = format!("{}/{}/{}: not a handler's address", self.module, self.name, self.modifier);
            return Err(ResealError::Open(words));
        };
        let seal = |bytes: Vec<u8>, key: Option<String>| reseal(keys, &address, SealedSecret { key, bytes });
        let was = Before { secret: self.secret.clone(), headers: self.headers.clone() };
        let current = seal(self.secret, self.secret_key)?;
        let previous = match self.previous_secret.map(|bytes| seal(bytes, self.previous_key)) {
            Some(Ok(previous)) => Some(previous),
            Some(Err(ResealError::Seal(unsealed))) => return Err(ResealError::Seal(unsealed)),
            Some(Err(ResealError::Open(_))) | None => None,
        };
        let (previous_secret, previous_key) =
            previous.map_or((None, None), |previous| (Some(previous.bytes), previous.key));
        let headers = match self.headers {
            Some(bytes) => {
                Some(reseal_headers(keys, &address, &SealedSecret { key: self.headers_key, bytes })?)
            }
            None => None,
        };
        let (headers, headers_key) =
            headers.map_or((None, None), |headers| (Some(headers.bytes), headers.key));
        let (secret, secret_key) = (current.bytes, current.key);
        Ok((was, Self { secret, secret_key, previous_secret, previous_key, headers, headers_key, ..self }))
    }
}

fn reseal(
    keys: &SecretKeys,
    address: &HandlerAddress,
    sealed: SealedSecret,
) -> Result<SealedSecret, ResealError> {
    let secret = keys.open_any(address, &sealed).map_err(|unopened| not_opened(address, &unopened))?;
    keys.seal(address, &secret).map_err(ResealError::Seal)
}

fn reseal_headers(
    keys: &SecretKeys,
    address: &HandlerAddress,
    sealed: &SealedSecret,
) -> Result<SealedSecret, ResealError> {
    let headers =
        keys.open_any_headers(address, sealed).map_err(|unopened| not_opened(address, &unopened))?;
    keys.seal_headers(address, &headers).map_err(ResealError::Seal)
}

fn not_opened(address: &HandlerAddress, unopened: &OpenError) -> ResealError {
    ResealError::Open(format!("{address} of canvas {}: {unopened}", address.scope.canvas))
}

impl SealedColumns {
    fn push(&mut self, was: Before, row: SealedRow) {
        self.canvases.push(row.canvas_id);
        self.modules.push(row.module);
        self.names.push(row.name);
        self.modifiers.push(row.modifier);
        self.were.push(was.secret);
        self.secrets.push(row.secret);
        self.keys.push(row.secret_key);
        self.previous.push(row.previous_secret);
        self.previous_keys.push(row.previous_key);
        self.headers_were.push(was.headers);
        self.headers.push(row.headers);
        self.headers_keys.push(row.headers_key);
    }
}

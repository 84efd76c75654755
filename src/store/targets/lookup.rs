//! Targets as workers need them, which is many in one query, by their addresses, with their
//! secrets and headers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::event::{
    CanvasId, EndedOutcome, HandlerAddress, Keep, OpenError, OwnDeployment, SealedSecret, SecretKeys,
    Secrets, Target, TargetHeaders, TargetPolicy,
};
use crate::store::kernel::{Sql, StoreError, address};

/// A target to call.
#[derive(Debug)]
pub struct FoundTarget {
    /// Where it is, and how it is called.
    pub target: Target,
    /// Identifies the registration of the address.
    pub revision: Uuid,
    /// The deployment that sends to it.
    pub own: OwnDeployment,
}

struct FoundRow {
    canvas_id: Uuid,
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
    secret: Vec<u8>,
    secret_key: Option<String>,
    previous_secret: Option<Vec<u8>>,
    previous_key: Option<String>,
    headers: Option<Vec<u8>>,
    headers_key: Option<String>,
    revision: Uuid,
    namespace: Uuid,
    own_names: Vec<String>,
}

impl Sql<'_> {
    pub(in crate::store) async fn targets_at(
        &self,
        addresses: &[HandlerAddress],
    ) -> Result<Vec<Option<Arc<FoundTarget>>>, StoreError> {
        let canvases: Vec<Uuid> = addresses.iter().map(|address| address.scope.canvas.0).collect();
        let texts = |part: fn(&HandlerAddress) -> &str| -> Vec<String> {
            addresses.iter().map(|address| part(address).to_owned()).collect()
        };
        let query = sqlx::query_as!(
            FoundRow,
            r#"select t.canvas_id, t.module::text as "module!", t.name::text as "name!",
                      t.modifier::text as "modifier!", t.url, t.retries, t.delay_ms, t.factor, t.delay_max_ms, t.timeout_ms,
                      t.concurrency, t.halts, t.keep_s::integer[] as keep_s, t.audience, t.secret, t.secret_key, t.previous_key,
                      t.headers, t.headers_key, t.revision,
                      d.namespace, d.names as own_names,
                      case when t.previous_until > now() then t.previous_secret end as previous_secret
                 from (select distinct * from unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
                                              as given (canvas_id, module, name, modifier)) as asked
                 join wakeq.http_targets t
                   on t.canvas_id = any (array[asked.canvas_id])
                  and (t.module, t.name, t.modifier) = (asked.module, asked.name, asked.modifier)
                   and t.gone_at is null
                cross join wakeq.deployment d
                where d.sole"#,
            &canvases,
            &texts(|address| address.scope.module.as_str()),
            &texts(|address| address.scope.name.as_str()),
            &texts(|address| address.modifier.as_str())
        );
        let rows = self.session().await?.all("look for targets", query).await?;
        let found: HashMap<HandlerAddress, Arc<FoundTarget>> =
            rows.into_iter().filter_map(|row| row.into_target(self.secret_keys())).collect();
        Ok(addresses.iter().map(|address| found.get(address).cloned()).collect())
    }
}

impl FoundRow {
    /// A row that was not written by wakeq and is not a target counts as none. So does one whose
    /// secret or headers can't be used: its events then wait, without using up attempts, for a
    /// process that has the key.
    fn into_target(self, keys: &SecretKeys) -> Option<(HandlerAddress, Arc<FoundTarget>)> {
        let address = address(self.canvas_id, &self.module, &self.name, &self.modifier).ok()?;
        let CanvasId(canvas) = address.scope.canvas;
        let Ok(url) = self.url.parse() else {
            tracing::error!(%canvas, handler = %address, "the URL of this target can't be read: register it again");
            return None;
        };
        let complain = |unopened: &OpenError| {
            tracing::error!(%canvas, handler = %address, "a secret of this target can't be used: {unopened}");
        };
        let current = SealedSecret { key: self.secret_key, bytes: self.secret };
        let current = keys.open(&address, &current).inspect_err(complain).ok()?;
        let previous = self.previous_secret.and_then(|bytes| {
            let previous = SealedSecret { key: self.previous_key, bytes };
            keys.open(&address, &previous).inspect_err(complain).ok()
        });
        let headers = match self.headers {
            Some(bytes) => {
                let sealed = SealedSecret { key: self.headers_key, bytes };
                keys.open_headers(&address, &sealed).inspect_err(complain).ok()?
            }
            None => TargetHeaders::default(),
        };
        let policy = TargetPolicy {
            retries: self.retries.cast_unsigned(),
            delay: milliseconds(self.delay_ms),
            factor: self.factor.cast_unsigned(),
            delay_max: milliseconds(self.delay_max_ms),
            timeout: milliseconds(self.timeout_ms),
            concurrency: self.concurrency.map(i32::cast_unsigned),
            halts: self.halts,
            keep: kept_for(self.keep_s.as_deref()),
        };
        let secrets = Secrets { current, previous };
        let target = Target { url, policy, audience: self.audience, secrets, headers };
        let own = OwnDeployment::new(self.namespace, self.own_names);
        Some((address, Arc::new(FoundTarget { target, revision: self.revision, own })))
    }
}

/// How long events are kept, from a row.
pub(in crate::store) fn kept_for(keep_s: Option<&[i32]>) -> Keep {
    let time = |at: usize| keep_s.and_then(|times| times.get(at)).map_or(0, |time| time.unsigned_abs());
    let [completed, failed, cancelled] = [0, 1, 2].map(|at| Duration::from_secs(time(at).into()));
    Keep { completed, failed, cancelled }
}

/// How long events are kept, as a row has it; `None` for not at all.
pub(super) fn kept_times(keep: Keep) -> Option<Vec<i32>> {
    let seconds = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
    let times = EndedOutcome::ALL.map(|outcome| seconds(keep.time(outcome)));
    times.iter().any(|time| *time > 0).then(|| times.to_vec())
}

/// A duration from a row; a constraint keeps it from being negative.
pub(super) fn milliseconds(milliseconds: i64) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
}

//! The limits themselves: setting them per canvas, with a line in the audit log; and how much of
//! each is in use.

use std::time::Duration;

use super::measure::{default_quota, number};
use crate::event::{Actor, CanvasId, Quota};
use crate::store::kernel::usage::{Measurement, QuotaPair};
use crate::store::kernel::{Store, StoreError};

/// How long an answer about usage is valid for all callers, at least.
const HOLDS: Duration = Duration::from_secs(5);
/// It is also valid for this many times as long as it took, so that asking often costs little.
const HOLDS_TIMES: u32 = 20;

/// A quota of a canvas, and how much of it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaUse {
    /// The kind of quota.
    pub quota: Quota,
    /// The limit.
    pub limit: u64,
    /// Whether an operator has set the limit for this canvas.
    pub set: bool,
    /// How much is in use, counted up to one beyond the limit. Bytes are estimated, and so are rows
    /// that take too long to count.
    pub used: u64,
}

/// A limit that was set for a canvas.
#[derive(Clone, Copy, Debug)]
struct SetQuota {
    quota: Quota,
    most: u64,
}

impl Store {
    /// All quotas of a canvas. Those of data that may be numerous are measured at most every five
    /// seconds.
    #[doc(hidden)]
    pub async fn quotas(&self, canvas: CanvasId) -> Result<Vec<QuotaUse>, StoreError> {
        let set = self.set_quotas(canvas).await?;
        let mut used = self.count_small(canvas).await?;
        for measured in QuotaPair::ALL {
            let pair = self.used_lately(canvas, measured).await?;
            let named = measured.quotas().into_iter().zip(pair);
            used.extend(named.filter_map(|(quota, used)| Some((quota?, used))));
        }
        let quotas = Quota::ALL.into_iter().map(|quota| {
            let own = set.iter().find(|set| set.quota == quota);
            let used = used.iter().find(|(of, _)| *of == quota).map_or(0, |(_, used)| *used);
            let limit = own.map_or(quota.default_limit(), |own| own.most);
            QuotaUse { quota, limit, set: own.is_some(), used }
        });
        Ok(quotas.collect())
    }

    /// One quota of a canvas; measures nothing else, apart from what is measured with it.
    #[doc(hidden)]
    pub async fn quota_use(&self, canvas: CanvasId, quota: Quota) -> Result<QuotaUse, StoreError> {
        let own = self.set_quotas(canvas).await?.into_iter().find(|set| set.quota == quota);
        let measured = QuotaPair::ALL.into_iter().find(|pair| pair.quotas().contains(&Some(quota)));
        let used = match measured {
            Some(pair) => {
                let used = self.used_lately(canvas, pair).await?;
                pair.quotas().into_iter().zip(used).find(|(of, _)| *of == Some(quota)).map(|(_, used)| used)
            }
            None => {
                let small = self.count_small(canvas).await?;
                small.into_iter().find(|(of, _)| *of == quota).map(|(_, used)| used)
            }
        };
        let limit = own.map_or(quota.default_limit(), |own| own.most);
        Ok(QuotaUse { quota, limit, set: own.is_some(), used: used.unwrap_or_default() })
    }

    async fn used_lately(&self, canvas: CanvasId, measured: QuotaPair) -> Result<[u64; 2], StoreError> {
        let known = self.quotas.of(canvas, measured);
        let mut method = known.method.lock().await;
        let is_fresh = |seen: &Measurement| seen.at.elapsed() < HOLDS.max(seen.took * HOLDS_TIMES);
        if let Some(used) = known.with(|headroom| {
            headroom.measurement().filter(|measurement| is_fresh(measurement)).and_then(|_| headroom.used())
        }) {
            return Ok(used);
        }
        self.look(canvas, measured, &known, &mut method).await
    }

    async fn set_quotas(&self, canvas: CanvasId) -> Result<Vec<SetQuota>, StoreError> {
        let query = sqlx::query!(
            "select quota, most from wakeq.canvas_quotas where canvas_id = $1 order by quota",
            canvas.0
        );
        let rows = self.session().await?.all("find what quotas were set", query).await?;
        // A quota that this release does not know is ignored.
        let known = rows
            .into_iter()
            .filter_map(|row| Some(SetQuota { quota: row.quota.parse().ok()?, most: number(row.most) }));
        Ok(known.collect())
    }

    /// Counts what is never numerous.
    async fn count_small(&self, canvas: CanvasId) -> Result<Vec<(Quota, u64)>, StoreError> {
        let query = sqlx::query!(
            r#"select (select count(*) from wakeq.cron_records where canvas_id = $1) as "crons!",
                      (select coalesce(sum(minute_ticks), 0) from wakeq.cron_records where canvas_id = $1) as "ticks!",
                      (select count(*) from wakeq.access_keys where canvas_id = $1) as "keys!",
                      (select count(*) from wakeq.http_targets where canvas_id = $1) as "targets!",
                      (select count(*) from wakeq.hooks where canvas_id = $1) as "hooks!",
                      (select count(*) from wakeq.batches where canvas_id = $1 and over_at is null) as "batches!",
                      (select count(*) from wakeq.scheduling_rules where canvas_id = $1 and event_space <> 'CANVAS') as "rules!""#,
            canvas.0
        );
        let row = self.session().await?.one("count what a canvas has registered", query).await?;
        Ok(vec![
            (Quota::Crons, number(row.crons)),
            (Quota::CronTicks, number(row.ticks)),
            (Quota::Keys, number(row.keys)),
            (Quota::Targets, number(row.targets)),
            (Quota::Hooks, number(row.hooks)),
            (Quota::Batches, number(row.batches)),
            (Quota::Rules, number(row.rules)),
        ])
    }

    /// The limit of a canvas for a quota.
    pub(crate) async fn quota(&self, canvas: CanvasId, quota: Quota) -> Result<u64, StoreError> {
        let query = sqlx::query_scalar!(
            r#"select wakeq.quota_of($1, $2, $3) as "most!""#,
            canvas.0,
            quota.as_str(),
            default_quota(quota)
        );
        self.session().await?.one("look at a quota", query).await.map(number)
    }

    /// Sets a quota of a canvas, and records that in the audit log.
    pub(crate) async fn set_quota(
        &self,
        canvas: CanvasId,
        quota: Quota,
        most: u64,
        actor: &Actor,
    ) -> Result<(), StoreError> {
        let query = sqlx::query!(
            r#"with set as (
                   insert into wakeq.canvas_quotas as q (canvas_id, quota, most, set_by) values ($1, $2, $3, $4)
                       on conflict (canvas_id, quota) do update set most = excluded.most, set_at = now(), set_by = excluded.set_by
               )
               insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
               values ($1, $4, 'set-quota', 'done', $5, concat_ws('; ', $6::text, $2::text || ' to ' || $3::bigint))"#,
            canvas.0,
            quota.as_str(),
            i64::try_from(most).unwrap_or(i64::MAX),
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        self.session().await?.execute("set a quota", query).await?;
        self.quotas.forget(canvas);
        Ok(())
    }

    /// Removes the limit that was set for a canvas, so that the default applies again; returns
    /// whether one was set.
    pub(crate) async fn unset_quota(
        &self,
        canvas: CanvasId,
        quota: Quota,
        actor: &Actor,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query_scalar!(
            r#"with gone as (
                   delete from wakeq.canvas_quotas where canvas_id = $1 and quota = $2 returning quota
               ), logged as (
                   insert into wakeq.audit_log (canvas_id, actor, action, outcome, request_id, detail)
                   select $1, $3, 'unset-quota', 'done', $4, concat_ws('; ', $5::text, quota) from gone
               )
               select exists (select from gone) as "unset!""#,
            canvas.0,
            quota.as_str(),
            actor.name(),
            actor.request_id(),
            actor.credential_id()
        );
        let unset = self.session().await?.one("unset a quota", query).await?;
        self.quotas.forget(canvas);
        Ok(unset)
    }
}

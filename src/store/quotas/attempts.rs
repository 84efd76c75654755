//! The bound on attempts that have rows: looked at like a quota, but nothing is refused for it.
//! Attempts beyond it are not recorded.
//!
//! A handler that fails decides how many rows it leaves, and with which errors, and they stay when
//! its events are gone (docs/adr/0084-attempts.md).

use tokio::time::Instant;

use super::measure::number;
use super::sample::{SampledPage, at_least};
use crate::event::CanvasId;
#[cfg(test)]
use crate::store::kernel::usage::Quotas;
use crate::store::kernel::usage::{Pair, QuotaPair, Verdict};
use crate::store::kernel::{Sql, Store, StoreError};

impl Sql<'_> {
    /// Decides in memory, and never waits: the next measurement is made in the background.
    pub(in crate::store) fn has_room_for_attempt(&self, canvas: CanvasId) -> bool {
        let known = self.quotas.of(canvas, QuotaPair::Attempts);
        let verdict = known.with(|headroom| headroom.ask([1, 0], QuotaPair::Attempts.free(), Instant::now()));
        if matches!(verdict, Verdict::GoAndMeasure | Verdict::Measure) {
            self.measure_in_background(canvas, QuotaPair::Attempts, &known);
        }
        match verdict {
            Verdict::Go | Verdict::GoAndMeasure => true,
            Verdict::Full(_) => false,
            // Until that is known, as much as was seen last.
            Verdict::Measure | Verdict::Wait(_) => {
                known.with(|headroom| headroom.used().is_none_or(|[rows, _]| rows < self.quotas.attempts_max))
            }
        }
    }
}

impl Store {
    /// The attempts of a canvas that have rows, counted in their index up to the bound.
    pub(super) async fn measure_attempts(&self, canvas: CanvasId) -> Result<(Pair, Pair), StoreError> {
        let query = sqlx::query_scalar!(
            r#"select count(*) as "attempts!" from (
                   select from wakeq.attempts where canvas_id = $1 limit $2::bigint) as counted"#,
            canvas.0,
            i64::try_from(self.quotas.attempts_max).unwrap_or(i64::MAX)
        );
        let attempts = self.session().await?.one("count the attempts of a canvas", query).await?;
        Ok(([number(attempts), 0], self.attempts_bound()))
    }

    /// The same, estimated. Pages of the same number in two partitions count as one.
    pub(super) async fn sample_attempts(
        &self,
        canvas: CanvasId,
        pages: i64,
    ) -> Result<(Pair, Pair), StoreError> {
        let query = sqlx::query_as!(
            SampledPage,
            r#"with part as materialized (
                   select least(1, $2::bigint * current_setting('block_size')::float8 / greatest(1, (
                              select sum(pg_relation_size(p.relid))
                                from pg_partition_tree('wakeq.attempts') as p)::float8)) as part
               )
               select count(*) as "rows!", 0::bigint as "bytes!", (select part from part) as "part!"
                 from wakeq.attempts tablesample system ((select 100 * part from part))
                where canvas_id = $1 group by (ctid::text::point)[0]"#,
            canvas.0,
            pages
        );
        let sampled = self.session().await?.all("sample the attempts of a canvas", query).await?;
        Ok((at_least(&sampled), self.attempts_bound()))
    }

    /// Sets another bound.
    #[cfg(test)]
    pub(crate) fn bound_attempts(&mut self, most: u64) {
        let quotas = Quotas { attempts_max: most, ..Quotas::patient() };
        self.quotas = std::sync::Arc::new(quotas);
    }

    fn attempts_bound(&self) -> Pair {
        [self.quotas.attempts_max, u64::MAX]
    }
}

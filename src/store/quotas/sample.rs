//! How much a canvas keeps, estimated from random pages of the tables: for what takes too long to
//! count. Never reads an index.
//!
//! The pages are read as they are, so rows that are gone cost nothing beyond their place on a page,
//! and the statements have one plan, whatever the statistics say (docs/adr/0070). A table that has
//! no more pages than asked for is read as a whole, and what is found is exact.

use crate::event::CanvasId;
use crate::store::kernel::usage::Pair;
use crate::store::kernel::{Store, StoreError};

/// What a page holds of a canvas, among those that were read.
struct SampledPage {
    rows: i64,
    bytes: i64,
    /// Which part of all pages was read.
    part: f64,
}

/// The rows and bytes in the whole table, minus two standard errors, so that no canvas is refused
/// by chance. What is on only three or four of the pages that were read counts as nothing.
fn at_least(pages: &[SampledPage]) -> Pair {
    let part = pages.first().map_or(1.0, |page| page.part);
    let whole = |amount: fn(&SampledPage) -> i64| {
        let (mut sum, mut squares) = (0.0, 0.0);
        for page in pages {
            // Exact enough for an estimate.
            let amount = amount(page) as f64;
            sum += amount;
            squares += amount * amount;
        }
        // Less than nothing becomes 0.
        ((sum - 2.0 * ((1.0 - part) * squares).sqrt()) / part) as u64
    };
    [whole(|page| page.rows), whole(|page| page.bytes)]
}

impl Store {
    /// Events that wait or run, and the bytes of their values.
    pub(super) async fn sample_events(&self, canvas: CanvasId, pages: i64) -> Result<Pair, StoreError> {
        let query = sqlx::query_as!(
            SampledPage,
            r#"with part as materialized (
                   select least(1, $2::bigint * current_setting('block_size')::float8
                                   / greatest(1, pg_relation_size('wakeq.events_v2'))) as part
               )
               select count(*) as "rows!", sum(octet_length(value)) as "bytes!", (select part from part) as "part!"
                 from wakeq.events_v2 tablesample system ((select 100 * part from part))
                where canvas_id = $1 group by (ctid::text::point)[0]"#,
            canvas.0,
            pages
        );
        Ok(at_least(&self.session().await?.all("sample the events of a canvas", query).await?))
    }

    /// Dead events, and the bytes of their values and errors.
    pub(super) async fn sample_dead_events(&self, canvas: CanvasId, pages: i64) -> Result<Pair, StoreError> {
        let query = sqlx::query_as!(
            SampledPage,
            r#"with part as materialized (
                   select least(1, $2::bigint * current_setting('block_size')::float8
                                   / greatest(1, pg_relation_size('wakeq.dead_events'))) as part
               )
               select count(*) as "rows!", sum(octet_length(value) + coalesce(octet_length(last_error), 0)) as "bytes!", (select part from part) as "part!"
                 from wakeq.dead_events tablesample system ((select 100 * part from part))
                where canvas_id = $1 group by (ctid::text::point)[0]"#,
            canvas.0,
            pages
        );
        Ok(at_least(&self.session().await?.all("sample the dead events of a canvas", query).await?))
    }

    /// Objects, and the bytes of their states.
    pub(super) async fn sample_objects(&self, canvas: CanvasId, pages: i64) -> Result<Pair, StoreError> {
        let query = sqlx::query_as!(
            SampledPage,
            r#"with part as materialized (
                   select least(1, $2::bigint * current_setting('block_size')::float8
                                   / greatest(1, pg_relation_size('wakeq.objects'))) as part
               )
               select count(*) as "rows!", sum(coalesce(octet_length(state), 0)) as "bytes!", (select part from part) as "part!"
                 from wakeq.objects tablesample system ((select 100 * part from part))
                where canvas_id = $1 group by (ctid::text::point)[0]"#,
            canvas.0,
            pages
        );
        Ok(at_least(&self.session().await?.all("sample the objects of a canvas", query).await?))
    }

    /// Chosen ids.
    pub(super) async fn sample_ids(&self, canvas: CanvasId, pages: i64) -> Result<u64, StoreError> {
        let query = sqlx::query_as!(
            SampledPage,
            r#"with part as materialized (
                   select least(1, $2::bigint * current_setting('block_size')::float8
                                   / greatest(1, pg_relation_size('wakeq.emitted_ids'))) as part
               )
               select count(*) as "rows!", 0::bigint as "bytes!", (select part from part) as "part!"
                 from wakeq.emitted_ids tablesample system ((select 100 * part from part))
                where canvas_id = $1 group by (ctid::text::point)[0]"#,
            canvas.0,
            pages
        );
        let [found, _] =
            at_least(&self.session().await?.all("sample the chosen ids of a canvas", query).await?);
        Ok(found)
    }

    /// Idempotency keys.
    pub(super) async fn sample_keys(&self, canvas: CanvasId, pages: i64) -> Result<u64, StoreError> {
        let query = sqlx::query_as!(
            SampledPage,
            r#"with part as materialized (
                   select least(1, $2::bigint * current_setting('block_size')::float8
                                   / greatest(1, pg_relation_size('wakeq.idempotency_keys'))) as part
               )
               select count(*) as "rows!", 0::bigint as "bytes!", (select part from part) as "part!"
                 from wakeq.idempotency_keys tablesample system ((select 100 * part from part))
                where canvas_id = $1 group by (ctid::text::point)[0]"#,
            canvas.0,
            pages
        );
        let [found, _] =
            at_least(&self.session().await?.all("sample the idempotency keys of a canvas", query).await?);
        Ok(found)
    }

    /// Streams of the log.
    pub(super) async fn sample_streams(&self, canvas: CanvasId, pages: i64) -> Result<u64, StoreError> {
        let query = sqlx::query_as!(
            SampledPage,
            r#"with part as materialized (
                   select least(1, $2::bigint * current_setting('block_size')::float8
                                   / greatest(1, pg_relation_size('wakeq.log_streams'))) as part
               )
               select count(*) as "rows!", 0::bigint as "bytes!", (select part from part) as "part!"
                 from wakeq.log_streams tablesample system ((select 100 * part from part))
                where canvas_id = $1 group by (ctid::text::point)[0]"#,
            canvas.0,
            pages
        );
        let [found, _] = at_least(&self.session().await?.all("sample the streams of a canvas", query).await?);
        Ok(found)
    }

    /// Entities.
    pub(super) async fn sample_entities(&self, canvas: CanvasId, pages: i64) -> Result<u64, StoreError> {
        let query = sqlx::query_as!(
            SampledPage,
            r#"with part as materialized (
                   select least(1, $2::bigint * current_setting('block_size')::float8
                                   / greatest(1, pg_relation_size('wakeq.entities'))) as part
               )
               select count(*) as "rows!", 0::bigint as "bytes!", (select part from part) as "part!"
                 from wakeq.entities tablesample system ((select 100 * part from part))
                where canvas_id = $1 group by (ctid::text::point)[0]"#,
            canvas.0,
            pages
        );
        let [found, _] =
            at_least(&self.session().await?.all("sample the entities of a canvas", query).await?);
        Ok(found)
    }

    /// Events that wait in entities' inboxes.
    pub(super) async fn sample_inboxes(&self, canvas: CanvasId, pages: i64) -> Result<u64, StoreError> {
        let query = sqlx::query_as!(
            SampledPage,
            r#"with part as materialized (
                   select least(1, $2::bigint * current_setting('block_size')::float8
                                   / greatest(1, pg_relation_size('wakeq.entity_events'))) as part
               )
               select count(*) as "rows!", 0::bigint as "bytes!", (select part from part) as "part!"
                 from wakeq.entity_events tablesample system ((select 100 * part from part))
                where canvas_id = $1 and status = 'accepted' group by (ctid::text::point)[0]"#,
            canvas.0,
            pages
        );
        let [found, _] = at_least(&self.session().await?.all("sample the inboxes of a canvas", query).await?);
        Ok(found)
    }

    /// Lines of the audit log of callers that are known.
    pub(super) async fn sample_lines(&self, canvas: CanvasId, pages: i64) -> Result<u64, StoreError> {
        let query = sqlx::query_as!(
            SampledPage,
            r#"with part as materialized (
                   select least(1, $2::bigint * current_setting('block_size')::float8
                                   / greatest(1, pg_relation_size('wakeq.audit_log'))) as part
               )
               select count(*) as "rows!", 0::bigint as "bytes!", (select part from part) as "part!"
                 from wakeq.audit_log tablesample system ((select 100 * part from part))
                where canvas_id = $1 and actor <> 'unauthenticated' group by (ctid::text::point)[0]"#,
            canvas.0,
            pages
        );
        let [found, _] =
            at_least(&self.session().await?.all("sample the audit lines of a canvas", query).await?);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages with so many rows of ten bytes.
    fn pages(rows: impl IntoIterator<Item = i64>, part: f64) -> Vec<SampledPage> {
        rows.into_iter().map(|rows| SampledPage { rows, bytes: 10 * rows, part }).collect()
    }

    #[test]
    fn a_table_that_was_read_as_a_whole_is_counted() {
        assert_eq!(at_least(&[]), [0, 0]);
        assert_eq!(at_least(&pages([3, 20, 1], 1.0)), [24, 240]);
    }

    #[test]
    fn a_sample_stands_for_the_whole_minus_two_standard_errors() {
        let found = at_least(&pages([20; 400], 0.1));
        assert_eq!(found, [72_410, 724_105], "of 80,000, with a standard error of 3,794");
    }

    /// Where few of the pages that were read have rows of a canvas, there may be none elsewhere.
    #[test]
    fn what_may_be_chance_is_nothing() {
        assert_eq!(at_least(&pages([20; 3], 0.001)), [0, 0]);
        assert!(at_least(&pages([20; 5], 0.001)) > [0, 0]);
    }
}

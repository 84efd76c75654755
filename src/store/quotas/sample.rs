//! How much a canvas keeps, estimated from random pages of the tables, where a count takes too
//! long. Never reads an index.
//!
//! The pages are read as they are, so rows that are gone cost nothing beyond their place on a page,
//! and the statements have one plan, whatever the statistics say (docs/adr/0070). A table that has
//! no more pages than asked for is read as a whole, and the result is exact.

use crate::event::CanvasId;
use crate::store::kernel::usage::Pair;
use crate::store::kernel::{Store, StoreError};

/// The rows and bytes of a canvas on one of the pages that were read.
pub(super) struct SampledPage {
    pub(super) rows: i64,
    pub(super) bytes: i64,
    /// Which part of all pages was read.
    pub(super) part: f64,
}

/// The rows and bytes in the whole table, minus two standard errors, so that no canvas is refused
/// by chance. Rows on only three or four of the pages that were read count as nothing.
pub(super) fn at_least(pages: &[SampledPage]) -> Pair {
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

/// A method for each table: its rows of a canvas that a condition chooses, and the bytes of those.
macro_rules! samples {
    ($($(#[$doc:meta])* $name:ident: $bytes:literal in $table:literal $and:literal, $what:literal;)+) => {
        impl Store {
            $($(#[$doc])*
            pub(super) async fn $name(&self, canvas: CanvasId, pages: i64) -> Result<Pair, StoreError> {
                let query = sqlx::query_as!(
                    SampledPage,
                    r#"with part as materialized (
                   select least(1, $2::bigint * current_setting('block_size')::float8
                                   / greatest(1, pg_relation_size('"# + $table + r#"'))) as part
               )
               select count(*) as "rows!", "# + $bytes + r#" as "bytes!", (select part from part) as "part!"
                 from "# + $table + r#" tablesample system ((select 100 * part from part))
                where canvas_id = $1"# + $and + " group by (ctid::text::point)[0]",
                    canvas.0,
                    pages
                );
                Ok(at_least(&self.session().await?.all($what, query).await?))
            })+
        }
    };
}

samples! {
    /// Events that wait or run, and the bytes of their values, errors and options.
    sample_events: "sum(octet_length(value) + coalesce(octet_length(last_error), 0)
                             + coalesce(octet_length(options::text), 0))"
        in "wakeq.events_v2" "", "sample the events of a canvas";
    /// Dead events, and the bytes of their values, errors and options.
    sample_dead_events: "sum(octet_length(value) + coalesce(octet_length(last_error), 0)
                             + coalesce(octet_length(options::text), 0))"
        in "wakeq.dead_events" "", "sample the dead events of a canvas";
    /// Checkpoints, and their bytes.
    sample_checkpoints: "sum(octet_length(value))"
        in "wakeq.checkpoints" "", "sample the checkpoints of a canvas";
    /// Objects, and the bytes of their states.
    sample_objects: "sum(coalesce(octet_length(state), 0))"
        in "wakeq.objects" "", "sample the objects of a canvas";
    /// Chosen ids.
    sample_ids: "0::bigint"
        in "wakeq.emitted_ids" "", "sample the chosen ids of a canvas";
    /// Idempotency keys.
    sample_keys: "0::bigint"
        in "wakeq.idempotency_keys" "", "sample the idempotency keys of a canvas";
    /// Unique keys that are remembered.
    sample_unique_keys: "0::bigint"
        in "wakeq.unique_keys" "", "sample the unique keys of a canvas";
    /// Batches, also those that are over.
    sample_batches: "0::bigint"
        in "wakeq.batches" "", "sample the batches of a canvas";
    /// Keys and other names of limits that are in use.
    sample_limit_states: "0::bigint"
        in "wakeq.limit_states" "", "sample the limits in use of a canvas";
    /// Streams of the log.
    sample_streams: "0::bigint"
        in "wakeq.log_streams" "", "sample the streams of a canvas";
    /// Entities.
    sample_entities: "0::bigint"
        in "wakeq.entities" "", "sample the entities of a canvas";
    /// Events that wait in entities' inboxes.
    sample_inboxes: "0::bigint"
        in "wakeq.entity_events" " and status = 'accepted'", "sample the inboxes of a canvas";
    /// Lines of the audit log of callers that are known.
    sample_lines: "0::bigint"
        in "wakeq.audit_log" " and actor <> 'unauthenticated'", "sample the audit lines of a canvas";
}

impl Store {
    /// Events that are kept after they have ended, and the bytes of all that is kept of them. Pages
    /// of the same number in two partitions count as one.
    pub(super) async fn sample_ended_events(&self, canvas: CanvasId, pages: i64) -> Result<Pair, StoreError> {
        let query = sqlx::query_as!(
            SampledPage,
            r#"with part as materialized (
                   select least(1, $2::bigint * current_setting('block_size')::float8 / greatest(1, (
                              select sum(pg_relation_size(p.relid))
                                from pg_partition_tree('wakeq.ended_events') as p)::float8)) as part
               )
               select count(*) as "rows!",
                      sum(octet_length(value) + coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0)
                          + coalesce(octet_length(attempts::text), 0)
                          + coalesce(octet_length(options::text), 0)) as "bytes!",
                      (select part from part) as "part!"
                 from wakeq.ended_events tablesample system ((select 100 * part from part))
                where canvas_id = $1 group by (ctid::text::point)[0]"#,
            canvas.0,
            pages
        );
        Ok(at_least(&self.session().await?.all("sample the ended events of a canvas", query).await?))
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
    fn a_canvas_on_too_few_sampled_pages_counts_as_empty() {
        assert_eq!(at_least(&pages([20; 3], 0.001)), [0, 0]);
        assert!(at_least(&pages([20; 5], 0.001)) > [0, 0]);
    }
}

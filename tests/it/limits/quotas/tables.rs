//! Every table of the schema, and what bounds what one canvas can put into it. A new table fails
//! here until that is answered.

use wakeq::control::Quota;
use wakeq::internals::ATTEMPTS_MAX;

use crate::support::{Stage, Statements};

/// What bounds the rows of one canvas.
enum Bound {
    /// Its rows, or their bytes, count for these quotas.
    Quotas(&'static [Quota]),
    /// The rows of another table, of which each has a few at most.
    With(&'static str),
    /// So many rows at most: why.
    Stated(u64, &'static str),
    /// Operators and processes fill it, canvases do not.
    Platform,
}

use Bound::{Platform, Quotas, Stated, With};

/// The most rows that any stated bound may have: as many as the record has lines by default.
const ROWS_MAX: u64 = 10_000_000;

const TABLES: &[(&str, Bound)] = &[
    ("_migrations", Platform),
    ("access_keys", Quotas(&[Quota::Keys])),
    ("attempts", Stated(ATTEMPTS_MAX, "further ones are not recorded, until some have expired")),
    ("audit_log", Quotas(&[Quota::AuditLines])),
    (
        "batch_ends",
        Stated(
            7_000_000,
            "a row per member that ended since the minute's pass summed: of 1,000,000 that waited, and \
             of what a lone canvas emits in a minute",
        ),
    ),
    ("batches", Quotas(&[Quota::Batches, Quota::IdempotencyKeys])),
    ("canvas_quotas", Platform),
    ("canvas_turns", Stated(1, "one row per canvas")),
    ("checkpoints", Quotas(&[Quota::EventBytes])),
    ("chores", Platform),
    ("claim_gate", Platform),
    ("consumer_dead", With("log")),
    ("consumer_groups", Platform),
    ("consumer_positions", Platform),
    ("cron_records", Quotas(&[Quota::Crons])),
    ("dead_event_tags", With("dead_events")),
    ("dead_events", Quotas(&[Quota::Events, Quota::EventBytes])),
    ("deployment", Platform),
    ("emitted_ids", Quotas(&[Quota::ChosenIds])),
    ("emitters", Platform),
    ("ended_events", Quotas(&[Quota::Events, Quota::EventBytes])),
    ("entities", Quotas(&[Quota::Entities])),
    ("entity_asides", With("entities")),
    ("entity_events", With("log")),
    ("entity_owners", Platform),
    ("event_tags", With("events_v2")),
    ("events_v2", Quotas(&[Quota::Events, Quota::EventBytes])),
    ("facet_settings", Platform),
    ("facets", With("queues")),
    ("halted_lanes", With("dead_events")),
    ("hooks", Quotas(&[Quota::Hooks])),
    ("hour_statistics", Stated(1_001 * 24 * 15, "1,001 rows per canvas and hour, for 14 days")),
    ("http_targets", Quotas(&[Quota::Targets])),
    ("idempotency_keys", Quotas(&[Quota::IdempotencyKeys])),
    ("idle_cursor", Platform),
    ("idle_marks", Platform),
    ("known_errors", Stated(1_000, "further ones are refused")),
    ("least_kept", Platform),
    ("limit_states", Quotas(&[Quota::IdempotencyKeys])),
    ("limit_waits", With("events_v2")),
    ("limits", Stated(1_000, "further ones are refused")),
    ("locks", Platform),
    ("log", Quotas(&[Quota::LogBytes])),
    ("log_gate", Platform),
    ("log_partitioning", Platform),
    ("log_pins", Platform),
    ("log_streams", Quotas(&[Quota::LogStreams])),
    ("minute_statistics", Stated(1_001 * 60 * 25, "1,001 rows per canvas and minute, for a day")),
    ("nodes", Platform),
    ("objects", Quotas(&[Quota::Objects, Quota::ObjectBytes])),
    ("operations", Stated(1_000, "of which 10 are open; ended ones go after 14 days")),
    ("page_sessions", Stated(50 * 1_000, "50 for each of its keys; those that nobody uses go after an hour")),
    ("programs", Stated(1_000, "seen within five minutes; further ones are not noted")),
    ("pulled_handlers", Stated(1_000, "further ones are refused")),
    ("queue_patterns", Platform),
    ("queue_registry", Platform),
    ("queue_turns", Platform),
    ("queue_wakes", Platform),
    ("queues", Platform),
    (
        "resume_jobs",
        Stated(
            2_000_010,
            "two per handler, with as many handlers as events may wait, until they are awake, and one \
             per open operation",
        ),
    ),
    ("scheduling_rules", Quotas(&[Quota::Rules])),
    ("service_accounts", Platform),
    ("settings", Platform),
    ("single_groups", Platform),
    ("subscribers", Platform),
    ("subscriptions", Platform),
    ("tombstones", Stated(100_000, "the hourly pass removes the oldest beyond that")),
    ("unique_keys", Quotas(&[Quota::IdempotencyKeys])),
    ("unknown_handlers", Stated(10_000, "the next ones are not noted")),
    ("workers", Platform),
];

#[tokio::test]
async fn every_table_that_a_canvas_can_grow_has_a_bound() {
    let (stage, _) = Stage::memory().await;
    let tables: Vec<String> = stage
        .pool
        .values(
            "select relname::text from pg_class
              where relnamespace = 'wakeq'::regnamespace and relkind in ('r', 'p') and not relispartition order by 1",
        )
        .await;
    let answered: Vec<&str> = TABLES.iter().map(|(table, _)| *table).collect();
    assert_eq!(tables, answered, "what bounds the rows of one canvas in a new table?");
    let of_canvases: Vec<String> = stage
        .pool
        .values(
            "select c.relname::text from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'canvas_id'
              where c.relnamespace = 'wakeq'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition order by 1",
        )
        .await;
    let by_operators =
        ["canvas_quotas", "emitters", "facet_settings", "idle_cursor", "queue_wakes", "service_accounts"];
    let mut counted = Vec::new();
    for (table, bound) in TABLES {
        match bound {
            Platform => assert!(
                !of_canvases.iter().any(|of| of == table) || by_operators.contains(table),
                "{table} has canvases"
            ),
            Quotas(quotas) => counted.extend_from_slice(quotas),
            With(other) => assert!(answered.contains(other), "{table} with {other}"),
            Stated(rows, why) => {
                assert!(!why.is_empty() && (1..=ROWS_MAX).contains(rows), "{table}: {rows} rows");
            }
        }
    }
    // Two are no rows of their own: what waits in inboxes, and how often crons tick.
    let elsewhere = [Quota::EntityEvents, Quota::CronTicks];
    for quota in Quota::ALL {
        assert!(counted.contains(&quota) || elsewhere.contains(&quota), "{quota} bounds no table");
    }
}

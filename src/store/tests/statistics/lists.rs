//! What statements may read: which tables whole, how many pages, and what else there is to fill.

/// Statements that read all of an index or of a table: how each begins, which tables, how many
/// pages at most, and why it may. The events take some 12,000 pages, and a row that is found by an
/// index is on another page than the one before.
pub(super) const WHOLE: [(&str, &str, u64, &str); 16] = [
    (
        SHIFT,
        "events_v2 dead_events emitted_ids idempotency_keys unique_keys checkpoints unknown_handlers http_targets \
         limits limit_states limit_waits operations batches",
        0,
        "tests shift all events",
    ),
    (
        "select min(moment) from",
        "events_v2 limit_waits",
        300_000,
        "tests look for the next moment of any event",
    ),
    ("select count(*) as \"count!\" from wakeq.events_v2", "events_v2", 200_000, "tests count all events"),
    (
        "insert into wakeq.resume_jobs (kind, canvas_id, module, name) select distinct",
        "events_v2",
        200_000,
        "reads what is parked",
    ),
    (
        "with recursive named as",
        "events_v2 halted_lanes",
        300_000,
        "the first copy of each queue that is not parked; lanes of queues that have ended",
    ),
    (
        "select array( select coalesce(host(client_addr)",
        "events_v2",
        200_000,
        "looks for any claim, before durations are changed",
    ),
    (
        "delete from wakeq.unknown_handlers u using ( select",
        "unknown_handlers",
        200_000,
        "looks for old ones",
    ),
    ("update wakeq.http_targets t set previous_secret = null", "http_targets", 50_000, "looks for old ones"),
    ("delete from wakeq.programs p using ( select", "programs", 50_000, "looks for silent ones"),
    (
        "with page as materialized ( select canvas_id, name from wakeq.batches",
        "batches",
        50_000,
        "looks at 500 of those that are not over",
    ),
    ("select extract(epoch from least(", "batches", 50_000, "looks whether any may be over"),
    (
        "with locked as ( select canvas_id, module",
        "unknown_handlers",
        200_000,
        "a worker has started: which are known",
    ),
    ("select module || '/' || name || '/' || modifier", "unknown_handlers", 50_000, "lists them"),
    (
        "select module::text as \"module!\", name::text as \"name!\", count(*)",
        "halted_lanes",
        50_000,
        "reads any",
    ),
    ("select key, count(*) as", "http_targets", 50_000, "an operator looks for secrets by their keys"),
    (
        "select canvas_id, module::text as \"module!\"",
        "http_targets",
        50_000,
        "an operator seals secrets anew",
    ),
];

/// How the statement begins by which tests shift all events.
const SHIFT: &str = "with events as ( update wakeq.events_v2 set delay_until = delay_until -";

/// Statements that are not run: how each begins, and why.
pub(super) const NOT_RUN: [(&str, &str); 1] =
    [(SHIFT, "it writes every event, and what it leaves behind is read by the others")];

/// Statements that refuse all arguments that this test makes up, so that only their plans are
/// looked at: how each begins, and why.
pub(super) const REFUSED: &[(&str, &str)] = &[
    ("with others as ( select count(*) as count from ( select from wakeq.pulled_handlers", CHECKED),
    ("with put as ( insert into wakeq.cron_records", CHECKED),
    (
        "with at as materialized ( select date_trunc('minute', now() - interval '30 seconds') as minute ), kept as",
        CHECKED,
    ),
    ("insert into wakeq.unknown_handlers as u (canvas_id, module, name, modifier) values", CHECKED),
    ("insert into wakeq.entities as e (entity_type, canvas_id, id, version", CHECKED),
    ("insert into wakeq.entity_events as e (canvas_id, event_id, correlation_id", CHECKED),
    ("insert into wakeq.entity_events (canvas_id, event_id, correlation_id", CHECKED),
    ("with job as ( insert into wakeq.resume_jobs (kind, canvas_id, module, name) values", CHECKED),
];

const CHECKED: &str = "it refuses all values that this test makes up";

/// Texts for statements that refuse the usual ones: states, kinds and causes, which are names as
/// well, and texts that are not names.
pub(super) const OTHER_WORDS: [&str; 14] = [
    "retries",
    "pause",
    "wait",
    "skip",
    "dead",
    "completed",
    "failed",
    "lifted",
    "done",
    "WORKER",
    "1",
    "[]",
    "00000000-0000-0000-0000-000000000000",
    "https://example.com",
];

/// Tables of which statements ask whether they have any row: an index without a condition, in a
/// query of its own, is read up to the first.
pub(super) const ANY_ROW: [&str; 3] = ["limits", "limit_waits", "batches"];

/// Rows of each other table.
pub(super) const OTHER_ROWS: u32 = 20_000;

/// Maximum number of pages that any other statement reads for ten events of 100,000.
pub(super) const PAGES_MAX: u64 = 2000;

/// Statements that read more pages: how each begins, how many, and why.
pub(super) const MANY: [(&str, u64, &str); 31] = [
    ("with recursive waited as ( (select canvas_id, name, 1 as number", 20_000, "skips from limit to limit"),
    ("select id as \"id!\", canvas_id as \"canvas_id!\"", 50_000, "passes over copies that wait in lanes"),
    ("select id, canvas_id, notify_at as", 20_000, "reads a page of promises"),
    ("select notify_at as \"notify_at!\", id as", 20_000, "looks at 10,000 promises"),
    ("with others as ( select exists (select from wakeq.settings", 50_000, "moves 1,000 promises"),
    ("with page as ( select id from wakeq.events_v2 where notify_at > now()", 50_000, "moves 1,000 promises"),
    ("with page as materialized ( select id, notify_at from", 20_000, "makes a page of promises due"),
    ("with live as", 400_000, "counts the events of a canvas, after a vacuum in the index alone"),
    ("with asked as materialized", 40_000, "counts up to 20,000 copies"),
    ("with recursive canvases as ( (select canvas_id, 1 as number", 40_000, "counts up to 10,000 copies"),
    ("with limits as materialized ( select wakeq.quota_of($1, 'events'", 200_000, "counts a canvas's events"),
    (
        "with limits as materialized ( select wakeq.quota_of($1, 'chosen-ids'",
        120_000,
        "counts chosen ids and keys",
    ),
    ("with shown as materialized", 250_000, "the same by handler, with the dead events and the halted lanes"),
    ("select live.due", 250_000, "counts the dead events of ten handlers, each among all of the canvas"),
    ("select id, canvas_id, module::text as \"module!\"", 50_000, "looks for a handler's dead events"),
    ("select count(*) as \"count!\" from ( select from wakeq.dead_events", 50_000, "counts such ones"),
    ("with gone as ( delete from wakeq.dead_events", 50_000, "deletes such ones"),
    ("select id, object::text as object from wakeq.dead_events", 50_000, "redrives such ones"),
    ("with looked as ( select d.*", 50_000, "looks at a canvas's dead events, at most 10,000 at once"),
    ("with looked as ( select d.error_group", 50_000, "groups a canvas's dead events, at most 100,000"),
    ("with looked as ( select d.died_at", 50_000, "counts those of a group"),
    ("select c.name::text as", 20_000, "lists the crons of a canvas"),
    ("select clock_timestamp() as \"now!\", count(*)", 20_000, "counts the crons of a canvas"),
    ("select (select count(*) from wakeq.cron_records", 50_000, "counts what a canvas has registered"),
    ("with old as materialized ( select m.at", 20_000, "adds 1,000 minutes to their hours"),
    ("delete from wakeq.hour_statistics", 20_000, "deletes 1,000 hours"),
    ("with seen as ( update wakeq.programs", 20_000, "looks at a canvas's programs, which are 1,000 at most"),
    ("select canvas_id, id, kind, arguments", 50_000, "lists a canvas's operations, which are 1,000 at most"),
    ("select count(*) as \"open!\" from wakeq.operations", 50_000, "counts those that are open"),
    ("delete from wakeq.operations where canvas_id", 100_000, "deletes the oldest"),
    (
        "with looked as materialized ( (select id, modifier::text",
        25_000,
        "looks at 5,000 events of a handler, and for the attempts at some of them in the part of each day",
    ),
];

/// Other tables that a canvas fills: their columns, and a row of them.
pub(super) const OTHERS: [(&str, &str, &str); 23] = [
    ("objects", "canvas_id, object, last_seq", "c, 'o' || n, n"),
    (
        "dead_events",
        "canvas_id, id, module, name, modifier, value, retries, enqueued_at, claims, losses, cause, object, seq, prev",
        "c, gen_random_uuid(), 'WORKER', 'h' || n % 5, '_', '1', 0, now(), 1, 0, 'poison', 'o' || n, n, n - 1",
    ),
    (
        "halted_lanes",
        "canvas_id, object, module, name, event_id, seq, prev",
        "c, 'o' || n, 'WORKER', 'h' || n % 5, gen_random_uuid(), n, n - 1",
    ),
    ("tombstones", "canvas_id, object, seq, prev, cause", "c, 'o' || n, n, n - 1, 'dead'"),
    ("emitted_ids", "canvas_id, id", "c, gen_random_uuid()"),
    ("idempotency_keys", "canvas_id, holder, key, fingerprint, answer", "c, 'ada', n::text, '1', '1'"),
    (
        "unique_keys",
        "canvas_id, module, name, key, event_id, until",
        "c, 'WORKER', 'h' || n % 5, n::text, gen_random_uuid(), now() + interval '1 h'",
    ),
    ("checkpoints", "canvas_id, event_id, claims, value", "c, gen_random_uuid(), 1, '1'"),
    ("known_errors", "canvas_id, error_group, known_by", "c, gen_random_uuid(), 'test'"),
    ("limits", "canvas_id, name, concurrency, created_by, updated_by", "c, 'k' || n, 1, 'test', 'test'"),
    ("limit_states", "canvas_id, name", "c, 'k' || n"),
    ("limit_waits", "event_id, canvas_id, name, due", "gen_random_uuid(), c, 'k' || n, now()"),
    ("programs", "canvas_id, module, name, worker", "c, 'WORKER', 'h' || n % 5, 'w' || n"),
    ("operations", "canvas_id, kind, filter, cut_off, author, job", "c, 'cancel', '{}', now(), 'test', n"),
    (
        "batches",
        "canvas_id, name, event_id, module, handler, modifier, value",
        "c, 'b' || n, gen_random_uuid(), 'WORKER', 'h1', '_', '1'",
    ),
    ("unknown_handlers", "canvas_id, module, name, modifier", "c, 'WORKER', 'u' || n, '_'"),
    ("log_streams", "canvas_id, category, stream, position, last_seq", "c, 'work', 'o' || n, 0, n"),
    ("entities", "canvas_id, entity_type, id, version, last_link", "c, 'account', 'o' || n, 1, 1"),
    (
        "entity_events",
        "canvas_id, event_id, correlation_id, entity_type, entity, name, link_id, link_prev",
        "c, gen_random_uuid(), gen_random_uuid(), 'account', 'o' || n, 'poke', n, n - 1",
    ),
    (
        "http_targets",
        "canvas_id, module, name, modifier, url, retries, delay_ms, factor, delay_max_ms, timeout_ms, secret, created_by,
         updated_by",
        "c, 'WORKER', 'h' || n, '_', 'https://example.com', 1, 1000, 2, 10000, 1000, sha256('1'), 'test', 'test'",
    ),
    (
        "cron_records",
        "canvas_id, name, expression, zone, modifier, value, missed, next_at, created_by, created_at, changed_at",
        "c, 'c' || n, '* * * * * *', 'UTC', '_', '1', 'skip', now() + interval '1 h', 'test', now(), now()",
    ),
    (
        "minute_statistics",
        COUNTED,
        "date_trunc('minute', now()) - n % 1500 * interval '1 min', c, 'WORKER', 'h' || n, 1, 1, 0, 0, 0, 5, 5, '{1}', '{1}'",
    ),
    (
        "hour_statistics",
        COUNTED,
        "date_trunc('hour', now()) - n % 300 * interval '1 h', c, 'WORKER', 'h' || n, 1, 1, 0, 0, 0, 5, 5, '{1}', '{1}'",
    ),
];

pub(super) const COUNTED: &str =
    "at, canvas_id, module, name, emitted, completed, failed, retried, dead, wait_us, run_us, wait_bins,
                       run_bins";

/// By table: how a condition on the id of a row begins, and the index that is for such conditions.
pub(super) const BY_ID: [(&str, &str, &str); 5] = [
    ("events_v2", "(id = ", "events_v2_pkey"),
    ("dead_events", "(id = ", "dead_events_pkey"),
    ("halted_lanes", "(event_id = ", "halted_lanes_event"),
    ("entity_events", "(event_id = ", "entity_events_pkey"),
    ("tombstones", "(object)::text = ", "tombstones_pkey"),
];

/// Tables that may be read whole beside another one: they have one row, or those that operators
/// registered.
pub(super) const FEW_ROWS: [&str; 4] = ["log_seq", "log_partitioning", "queues", "queue_patterns"];

/// Tables of which what is found by an index may be hashed: a holder has two keys.
pub(super) const HASHED: [&str; 1] = ["access_keys"];

/// What a statement that is about events contains, or calls.
pub(super) const ABOUT_EVENTS: [&str; 15] = [
    "wakeq.events_v2",
    "wakeq.take_turns",
    "wakeq.pull_turns",
    "wakeq.lease_events",
    "wakeq.has_leasable",
    "wakeq.write_unique",
    "wakeq.check_repeats",
    "wakeq.announce(",
    "wakeq.recall_held",
    "wakeq.enter_due",
    "wakeq.room_in_facet",
    "wakeq.due_facets",
    "wakeq.claim_limited",
    "wakeq.wake_waiting",
    "wakeq.limits_with_room",
];

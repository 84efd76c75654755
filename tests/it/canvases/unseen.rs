//! Why no test here notices that a condition on a canvas is missing, by condition. What a tenant
//! could notice is tested in this folder instead, wherever its tests can reach it.

use regex::Regex;

use super::conditions::{Condition, conditions};

use SurvivalReason::{NotReached, WithoutEffect};

/// Why no test here notices that a condition is missing.
#[derive(Clone, Copy)]
pub(super) enum SurvivalReason {
    /// A tenant can't notice the difference.
    WithoutEffect(&'static str),
    /// No test here sends the statement, or not in a state in which the condition matters.
    NotReached(&'static str),
}

type Unseen = (&'static str, &'static str, SurvivalReason);

const SAME_EVENT: SurvivalReason =
    WithoutEffect("the rows are of one event, whose id is of one canvas: the canvas is for the index");
const KNOWN: SurvivalReason =
    WithoutEffect("`known_event`, which is asked before, has found the event on the canvas");
const OWN_IDS: SurvivalReason = WithoutEffect("the ids are of rows that were read on the canvas");
const OF_QUEUES: SurvivalReason = WithoutEffect("no tenant can register a target of the queues' module");
const NOTES: SurvivalReason = WithoutEffect("a note of an unknown handler is made anew at the next look");
const NOTED: SurvivalReason =
    NotReached("only canvases with 10,000 unknown handlers are asked: `store::tests::registering`");
const DEPLOYMENT: SurvivalReason = NotReached("figures of the whole deployment");
const OPERATOR: SurvivalReason = NotReached("only an operator of all canvases asks it");
const NEAR: SurvivalReason = NotReached("it is asked near a limit only: `quotas`");
const AGAIN: SurvivalReason =
    NotReached("it is asked when a processor meets an event again: `entities::reposts`");
const SENT_AGAIN: SurvivalReason =
    NotReached("it is asked when an event that has ended is sent again: `store::tests::entities`");
const ISOLATED: SurvivalReason = NotReached("it is asked of isolated entities: `store::tests::isolated`");
const LIMITED: SurvivalReason = NotReached("asked where a limited facet was full: `store::tests::turns`");
const OLD: SurvivalReason = NotReached("what is old is found by the minute's pass: `store::tests::idle`");
const COUNTED: SurvivalReason =
    NotReached("only canvases with 1,000 handlers in a minute or an hour are asked: `store::tests::counted`");
const HELD: SurvivalReason =
    NotReached("it is asked while another session holds a row: `store::tests::resuming`");
const COLD: SurvivalReason = NotReached("it is asked of an entity that has left memory: `entities::memory`");
const IN_TURN: SurvivalReason =
    WithoutEffect("an inbox is worked in its order: nobody has decided upon anything later than the erasure");
const OUTSIDE: SurvivalReason = NotReached("it ends outside a worker: `store::tests::history`");
const OF_OPERATIONS: SurvivalReason =
    WithoutEffect("the id of an operation is random, and is that of the job, which is of one canvas");
const SUMS: SurvivalReason = WithoutEffect("only the sum of a batch's ends counts, not their rows");
const REGISTERED_MEANWHILE: SurvivalReason =
    NotReached("it is for a registration at the very moment of a look: `store::tests::registering`");
const SILENT: SurvivalReason =
    NotReached("it is asked of silent programs, or a thousand of a canvas: `store::tests::programs`");
const SQL_ROLES: SurvivalReason = NotReached("it is asked for roles that are not the owner: `roles`");
const ONE_TAG: SurvivalReason =
    NotReached("events of the two tenants have one tag each: `store::tests::search` has more");

/// By file and a part of the line.
const UNSEEN: [Unseen; 123] = [
    ("src/store/events/cancelling.rs", "e.id = $1 and e.canvas_id = $2", KNOWN),
    ("src/store/events/cancelling.rs", "id = $1 and canvas_id = $2", KNOWN),
    ("src/store/events/checkpoints.rs", "id = $1 and canvas_id = $2", KNOWN),
    ("src/store/events/checkpoints.rs", "asked.canvas_id", KNOWN),
    ("src/store/events/checkpoints.rs", "canvas_id = $1", OWN_IDS),
    ("src/store/events/control.rs", "id = $1 and canvas_id = $2", KNOWN),
    ("src/store/events/dead_events.rs", "id = $1 and canvas_id = $2", KNOWN),
    ("src/store/events/history.rs", "where canvas_id = $1 and id = $2", KNOWN),
    ("src/store/events/history.rs", "d.canvas_id = $1 and d.id = $2", KNOWN),
    ("src/store/events/history.rs", "e.id = $2 and e.canvas_id = $1", KNOWN),
    ("migrations/0013_history.sql", "a.canvas_id = attempts_at.canvas", KNOWN),
    ("migrations/0013_history.sql", "p.canvas_id = event.canvas_id", OUTSIDE),
    ("migrations/0013_history.sql", "t.canvas_id = event.canvas_id", OUTSIDE),
    ("src/store/events/last_attempts.rs", "b.canvas_id = $1 and b.event_id", OWN_IDS),
    (
        "src/store/events/last_attempts.rs",
        "canvas_id = $1 and module = $2",
        WithoutEffect("the attempts at what is found are looked up on the canvas"),
    ),
    ("src/store/events/load.rs", "id = $1 and canvas_id = $2", KNOWN),
    ("src/store/events/tags.rs", "e.canvas_id is not distinct from $2", KNOWN),
    ("src/store/events/tags.rs", "d.canvas_id = $2 and d.id = $1", KNOWN),
    ("src/store/events/list.rs", "x.id = t.id", OWN_IDS),
    ("src/store/events/search.rs", "x.id = t.id", OWN_IDS),
    ("src/store/events/search.rs", "id = any", OWN_IDS),
    (
        "src/store/events/search.rs",
        "d.options ->> 'batch'",
        NotReached("no member of a batch has died here: `testing::search_places` has some"),
    ),
    ("migrations/0016_search.sql", "t.canvas_id", ONE_TAG),
    ("migrations/0016_search.sql", "events_of_object.object", ONE_TAG),
    ("migrations/0016_search.sql", "e.options ->> 'batch' is not null", ONE_TAG),
    ("src/store/events/unique.rs", "id = $1 and canvas_id = $2", KNOWN),
    ("src/store/crons/records.rs", "id = any ($2) and canvas_id = $1", OWN_IDS),
    (
        "src/store/crons/last_events.rs",
        "r.canvas_id = e.canvas_id",
        NotReached("no cron has ticked here: `crons::last_events` has one of each tenant"),
    ),
    ("src/store/events/depth.rs", "h.canvas_id", DEPLOYMENT),
    ("src/store/events/limit_looks.rs", "", DEPLOYMENT),
    ("service/src/store/checkup/tables.rs", "w.canvas_id", DEPLOYMENT),
    ("src/store/queues/depth.rs", "", DEPLOYMENT),
    ("src/store/targets/named.rs", "next.canvas_id", DEPLOYMENT),
    ("src/store/queues/admin.rs", "", OPERATOR),
    ("src/store/queues/leases.rs", "", OPERATOR),
    ("src/store/queues/registration.rs", "", OF_QUEUES),
    ("src/store/queues/upkeep.rs", "t.canvas_id = $1", OF_QUEUES),
    (
        "src/store/queues/upkeep.rs",
        "f.canvas_id",
        WithoutEffect("a facet without copies that stays is a row more, in no rotation"),
    ),
    ("src/store/queues/pulls.rs", "id = $1 and canvas_id = $2", OPERATOR),
    (
        "migrations/0004_turns.sql",
        "any (f.running || f.recalled)",
        WithoutEffect("a facet names copies of its own canvas"),
    ),
    ("src/store/quotas/measure.rs", "id = any (array(select id from", OWN_IDS),
    (
        "src/store/quotas/measure.rs",
        "seq = p.seq",
        NotReached("only logs with more than 20,000 events are estimated"),
    ),
    ("src/store/quotas/measure.rs", "x.event_id = s.event_id", OWN_IDS),
    ("src/store/quotas/measure.rs", "wanted.", NEAR),
    (
        "src/store/quotas/measure.rs",
        "from wakeq.limit_states where",
        NotReached("no event with a limit has run here: `store::tests::sampled_quotas`"),
    ),
    (
        "src/store/quotas/attempts.rs",
        "",
        NotReached("it is asked after 1,000 failed attempts: `store::tests::sampled_quotas`"),
    ),
    ("src/store/quotas/measure.rs", "object = $2 and state", NEAR),
    (
        "src/store/quotas/measure.rs",
        "from few) > $4",
        NotReached("only canvases with more than 100,000 chosen ids are estimated"),
    ),
    (
        "src/store/quotas/sample.rs",
        "",
        NotReached("it is asked while counting takes too long: `store::tests::quotas`"),
    ),
    ("src/store/events/rules.rs", "rules r where r.canvas_id = $2", NEAR),
    ("src/store/events/promises.rs", "u.canvas_id = c.canvas_id", NOTED),
    ("src/store/events/promises.rs", "u.canvas_id = d.canvas_id", NOTED),
    ("src/store/targets/mod.rs", "t.revision = $5", WithoutEffect("a revision is of one target")),
    ("src/store/targets/slowed.rs", "", WithoutEffect("a revision is of one target")),
    (
        "migrations/0020_pulled_handlers.sql",
        "e.canvas_id = of_canvas and e.delay_until = due",
        NotReached("it is asked where 1,000 events can't be leased: `store::tests::pulled`"),
    ),
    ("src/store/minute/programs.rs", "canvas_id = $1 and seen_at", SILENT),
    ("src/store/minute/programs.rs", "p.canvas_id", SILENT),
    ("src/store/targets/resealing.rs", "", OPERATOR),
    ("src/store/hooks/resealing.rs", "", OPERATOR),
    (
        "src/store/hooks/lookup.rs",
        "",
        NotReached("it is asked for webhooks, which have no key: `hooks::callers`"),
    ),
    (
        "src/store/hooks/records.rs",
        "for update",
        WithoutEffect("a secret is opened with its own canvas and name alone"),
    ),
    (
        "src/store/targets/registered.rs",
        "canvas_id = $1 and module = $2 and name = $3 and modifier = $4",
        WithoutEffect("a secret is opened with its own address alone"),
    ),
    ("src/store/events/promises.rs", "t.canvas_id = any", REGISTERED_MEANWHILE),
    ("src/store/events/promises.rs", "p.canvas_id = e.canvas_id", REGISTERED_MEANWHILE),
    ("src/store/events/operations/acts.rs", "id = any ($1)", OWN_IDS),
    ("src/store/events/operations/page.rs", "canvas_id = $1 and id = $2", OF_OPERATIONS),
    ("src/store/events/operations/rows.rs", "canvas_id = $1 and id = $2 and ended_at", OF_OPERATIONS),
    ("src/store/events/operations/rows.rs", "canvas_id = $1 and id = any", OWN_IDS),
    (
        "src/store/events/claims.rs",
        "e.canvas_id is not distinct from",
        NotReached("only a forged notification names another canvas than its event's"),
    ),
    (
        "src/store/events/claims.rs",
        "o.canvas_id = any (",
        WithoutEffect("with limits of others, each event is looked up on its canvas: it saves that"),
    ),
    // Of closing a batch. Cancelling one has the same line, which is noticed.
    (
        "src/store/batches/records.rs",
        "as \"there!\"",
        WithoutEffect("a batch that is said to be closed is then read on the canvas, and is missing there"),
    ),
    (
        "src/store/batches/ending.rs",
        "b.canvas_id = any (array[page.canvas_id])",
        WithoutEffect("a batch that is looked at too often ends no sooner"),
    ),
    ("src/store/batches/ending.rs", "e.canvas_id = l.canvas_id", SUMS),
    ("src/store/batches/ending.rs", "id <= coalesce((select e.id", SUMS),
    (
        "src/store/batches/ending.rs",
        "b.canvas_id = $1 and b.name = $2 and b.over_at is not null",
        WithoutEffect("it is asked once the batch has ended"),
    ),
    ("src/store/minute/expiry.rs", "e.canvas_id = any (array[ends.canvas_id])", OWN_IDS),
    ("src/store/limits/uses.rs", "e.id = $2 and e.canvas_id = $1", OWN_IDS),
    (
        "migrations/0021_room_in_limits.sql",
        "w.event_id = any (l.next)",
        WithoutEffect("an event waits for one limit only"),
    ),
    (
        "migrations/0021_room_in_limits.sql",
        "s.canvas_id = a.canvas",
        WithoutEffect("it only locks: what follows asks of the canvas"),
    ),
    (
        "src/store/events/counts.rs",
        "name = $3 and last_seen",
        NotReached("it is asked of a ready event that no worker here knows: `store::tests::parking`"),
    ),
    (
        "src/store/events/counts.rs",
        "> (longest.due, longest.id)",
        NotReached("only of handlers with 2,000 due events are the last ones read: `store::tests::cost`"),
    ),
    ("src/store/events/promises.rs", "u.canvas_id = any", NOTES),
    ("src/store/events/unknown_handlers.rs", "u.canvas_id = any", NOTES),
    (
        "src/store/events/load.rs",
        "r.canvas_id = e.canvas_id",
        WithoutEffect("`park`, which follows, looks for the rule itself"),
    ),
    (
        "src/store/events/promises.rs",
        "r.canvas_id = e.canvas_id",
        WithoutEffect("only what `load` found under a rule is parked"),
    ),
    (
        "src/store/crons/ticks.rs",
        "$2::uuid is null",
        WithoutEffect("what is due ticks at the next pass, whichever process made it"),
    ),
    ("src/store/minute/idle.rs", "l.canvas_id", WithoutEffect("the object itself is asked the same")),
    ("src/store/minute/idle.rs", "u.canvas_id", OLD),
    ("src/store/minute/idle.rs", "old.canvas_id", OLD),
    ("src/store/minute/expiry.rs", "old.canvas_id", OLD),
    ("src/store/minute/expiry.rs", "c.event_id", OLD),
    (
        "src/store/minute/expiry.rs",
        "error_group = ",
        NotReached("what is old is found by the hourly pass: `store::tests::error_groups`"),
    ),
    ("src/store/minute/expiry.rs", "p.event_id", OLD),
    ("src/store/statistics/write.rs", "", COUNTED),
    ("src/store/statistics/upkeep.rs", "canvas_id = h.canvas_id", COUNTED),
    (
        "src/store/statistics/upkeep.rs",
        "old.canvas_id",
        WithoutEffect("what is old on one canvas is as old on another"),
    ),
    (
        "streams/src/store/entities/send.rs",
        "wanted.canvas_id",
        WithoutEffect("rows are kept by their canvas, and looked up so"),
    ),
    ("streams/src/store/entities/batch.rs", "passed.canvas_id", AGAIN),
    ("streams/src/store/entities/outcomes.rs", "status <> 'accepted'", AGAIN),
    ("streams/src/store/entities/outcomes.rs", "category = $2 and stream", SENT_AGAIN),
    ("streams/src/store/entities/batch.rs", "entity_type = $1 and canvas_id = $2 and id = $3", ISOLATED),
    ("streams/src/store/entities/isolated.rs", "", ISOLATED),
    ("streams/src/store/entities/erase.rs", "entity_type = $1 and canvas_id = $2", IN_TURN),
    (
        "migrations/0006_consumers.sql",
        "l.seq = erasure",
        NotReached("an owner names the canvas of the erasure: `entities::erasure` names another"),
    ),
    (
        "migrations/0006_consumers.sql",
        "l.category = repository",
        WithoutEffect("what is found is deleted under its own canvas"),
    ),
    (
        "migrations/0006_consumers.sql",
        "l.seq > after and l.seq < up_to",
        WithoutEffect("what is found is deleted under its own canvas"),
    ),
    ("migrations/0006_consumers.sql", "l.seq = any (seqs)", OWN_IDS),
    ("migrations/0003_queues.sql", "facet_was_full", LIMITED),
    (
        "migrations/0004_turns.sql",
        "any (array(select e.canvas_id",
        WithoutEffect("copies that were asked for are looked up by their ids, and kept by their canvas"),
    ),
    (
        "src/store/targets/lookup.rs",
        "asked.canvas_id",
        WithoutEffect("what is found is kept under its own address"),
    ),
    ("src/store/events/resume.rs", "from job where kind", HELD),
    ("src/store/events/resume.rs", "from over where held", HELD),
    (
        "migrations/0001_events.sql",
        "new.canvas_id",
        NotReached("a trigger asks it, of jobs that are open: `store::tests::resuming`"),
    ),
    (
        "migrations/0001_events.sql",
        "o.canvas_id = c.canvas_id",
        WithoutEffect("a job wakes the events of its own canvas, whichever it is listed for"),
    ),
    ("src/store/minute/expiry.rs", "t.canvas_id", OLD),
    ("src/store/minute/expiry.rs", "h.canvas_id", OLD),
    ("streams/src/store/entities/load.rs", "w.canvas_id", COLD),
    (
        "streams/src/store/entities/answer.rs",
        "event_id = $2 and entity_type = $3",
        NotReached("it is asked when an event answers an entity's question: `entities::forged`"),
    ),
    (
        "src/store/events/idempotency.rs",
        "set answer = $4",
        NotReached("its holder has the same key on two canvases: `http::idempotency`"),
    ),
    ("migrations/0008_access.sql", "pg_has_role", SQL_ROLES),
    ("migrations/0008_access.sql", "e.id = event_id", SAME_EVENT),
    ("migrations/0008_access.sql", "d.id = event_id", SAME_EVENT),
    ("migrations/0011_unique.sql", "c.event_id = change_unique.holder", SAME_EVENT),
];

/// The reason that is listed for a condition, if any.
pub(super) fn unseen(condition: &Condition) -> Option<SurvivalReason> {
    let same = Regex::new(r"\b[a-z]+\.(id|event_id) = (any \()?[a-z_]+\.(id|follow_ups)\b").unwrap();
    if same.is_match(&condition.line) {
        return Some(SAME_EVENT);
    }
    UNSEEN.iter().find(|listed| is_of(listed, condition)).map(|(.., unseen)| *unseen)
}

fn is_of((file, part, _): &Unseen, condition: &Condition) -> bool {
    condition.place.starts_with(file) && condition.line.contains(part)
}

/// One that is left over would excuse a later condition that nobody has looked at.
#[test]
fn each_reason_is_of_a_condition() {
    let (all, _) = conditions();
    for listed in &UNSEEN {
        let (file, part, _) = listed;
        let is_used = all.iter().any(|condition| is_of(listed, condition));
        assert!(is_used, "no condition of {file} has {part:?} in its line: remove it, or correct it");
    }
}

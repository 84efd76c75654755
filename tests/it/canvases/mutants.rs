//! Makes each condition on a canvas true, one at a time: some test of this folder has to fail then.
//! Nothing is recompiled: a proxy changes the statement on its way to Postgres, and a function is
//! replaced in the test's database. Requests that never send a statement are not repeated without
//! its condition.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use regex::Regex;
use wakeq_service::access::Scope;

use super::answers::{Transcript, mask};
use super::conditions::{Condition, conditions};
use super::proxy::{Change, SentStatements};
use super::seed::{ATTACKER, VICTIM, Values};
use super::world::Frozen;
use super::{Findings, Part, SingleTenantWorld, SoloTranscripts, calls, functions, tallies, work};

/// The time-out for one mutant, so that one that hangs is noticed.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How many run at a time.
const AT_A_TIME: usize = 2;

use SurvivalReason::{NotReached, WithoutEffect};

/// Why no test here notices that a condition is missing.
#[derive(Clone, Copy)]
enum SurvivalReason {
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
const SQL_ROLES: SurvivalReason = NotReached("it is asked for roles that are not the owner: `roles`");

/// By file and a part of the line.
const UNSEEN: [Unseen; 92] = [
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
    ("migrations/0013_history.sql", "t.canvas_id = event.canvas_id", OUTSIDE),
    ("src/store/events/load.rs", "id = $1 and canvas_id = $2", KNOWN),
    ("src/store/events/tags.rs", "e.canvas_id is not distinct from $2", KNOWN),
    ("src/store/events/tags.rs", "d.canvas_id = $2 and d.id = $1", KNOWN),
    ("src/store/events/list.rs", "x.id = t.id", OWN_IDS),
    ("src/store/events/search.rs", "x.id = t.id", OWN_IDS),
    ("src/store/events/search.rs", "id = any", OWN_IDS),
    (
        "migrations/0016_search.sql",
        "",
        NotReached("events of the two tenants have one tag each: `store::tests::search` has more"),
    ),
    ("src/store/events/unique.rs", "id = $1 and canvas_id = $2", KNOWN),
    ("src/store/crons/records.rs", "id = any ($2) and canvas_id = $1", OWN_IDS),
    ("src/store/events/depth.rs", "h.canvas_id", DEPLOYMENT),
    ("src/store/events/limit_looks.rs", "", DEPLOYMENT),
    ("service/src/store/checkup/tables.rs", "w.canvas_id", DEPLOYMENT),
    ("src/store/queues/depth.rs", "", DEPLOYMENT),
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
    (
        "migrations/0020_pulled_handlers.sql",
        "e.canvas_id = of_canvas and e.delay_until = due",
        NotReached("it is asked where 1,000 events can't be leased: `store::tests::pulled`"),
    ),
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
    (
        "src/store/events/promises.rs",
        "t.canvas_id = any",
        NotReached("it is for a registration at the very moment of a look: `store::tests::registering`"),
    ),
    (
        "src/store/events/counts.rs",
        "name = $3 and last_seen",
        NotReached("it is asked of a ready event that no worker here knows: `store::tests::parking`"),
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

fn unseen(condition: &Condition) -> Option<SurvivalReason> {
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

/// What the tests are run on, created once.
struct Bench {
    both: Frozen,
    tenants: [Values; 2],
    alone: SoloTranscripts,
    calls: Transcript,
}

impl Bench {
    async fn set_up() -> Self {
        let all = [Scope::ALL.to_vec()];
        // Restarted after each tenant, like the world with both: processes write some lines late,
        // and once each.
        let begin = async |tenant| {
            let SingleTenantWorld { world, own } = SingleTenantWorld::begin(tenant).await;
            SingleTenantWorld { world: world.again().await, own }
        };
        let (attacker, calling) = (begin(&ATTACKER).await, begin(&ATTACKER).await.world);
        let SingleTenantWorld { world, own } = begin(&ATTACKER).await;
        let tenants = [own, world.seed(&VICTIM).await];
        let sequences = world.sequences().await;
        let both = world.freeze().await;
        let alone = SoloTranscripts {
            attacker: attacker.attack(&all, &tenants[1], &sequences).await,
            victim: begin(&VICTIM).await.goes_on().await,
        };
        calling.advance(&sequences).await;
        let calls = calls::said(&calling, &tenants[1]).await;
        calling.service.stop().await;
        Self { both, tenants, alone, calls }
    }

    /// The findings without these conditions, and the statements that were sent.
    async fn findings(&self, without: &[Condition], part: Part<'_>) -> (Findings, SentStatements) {
        let (mut functions, mut changes): (Vec<String>, Vec<Change>) = Default::default();
        for (at, condition) in without.iter().enumerate() {
            let is_of_it = |other: &&Condition| Arc::ptr_eq(&other.sql, &condition.sql);
            if without[..at].iter().any(|other| is_of_it(&other)) {
                continue;
            }
            let of_it: Vec<_> = without.iter().filter(is_of_it).cloned().collect();
            let changed = condition.sql.without(&of_it);
            if condition.sql.is_function {
                functions.push(changed.replacen("create function", "create or replace function", 1));
            } else {
                changes.push((condition.sql.text.clone(), changed));
            }
        }
        let [attacker, victim] = &self.tenants;
        let mut sent = SentStatements::new();
        let world = self.both.thaw(&functions, &changes).await;
        let all = [Scope::ALL.to_vec()];
        let mut findings = super::attack(&world, [attacker, victim], &all, &self.alone, part).await;
        if part.goes_on(&findings) {
            findings.extend(super::goes_on(&world, victim, &self.alone.victim, part).await);
        }
        if part.goes_on(&findings) && part.has("functions") {
            world.asked("functions");
            findings.extend(functions::goes_on(&world).await);
        }
        if part.goes_on(&findings) && part.has("work") {
            world.asked("work");
            findings.extend(work::goes_on(&world).await);
        }
        if part.goes_on(&findings) && part.has("tallies") {
            world.asked("tallies");
            findings.extend(tallies::goes_on(&world).await);
        }
        sent.extend(world.proxy.as_ref().unwrap().sent());
        world.service.stop().await;
        if part.goes_on(&findings) && part.has("calls") {
            let world = self.both.thaw(&functions, &changes).await;
            world.asked("calls");
            findings.extend(calls::findings(&world, victim, &self.calls).await);
            for (text, asked) in world.proxy.as_ref().unwrap().sent() {
                sent.entry(text).or_default().extend(asked);
            }
            world.service.stop().await;
        }
        (findings, sent)
    }
}

/// The first thing noticed without these conditions, if any.
async fn noticed(bench: &Arc<Bench>, without: &[Condition], known: &Baseline) -> Option<String> {
    let reach: BTreeSet<String> = without.iter().flat_map(|condition| known.reach(condition)).collect();
    if reach.is_empty() {
        return None;
    }
    let (bench, runtime, without) = (bench.clone(), tokio::runtime::Handle::current(), without.to_vec());
    // On a thread of its own: a panic also counts as noticed.
    let trying = tokio::task::spawn_blocking(move || {
        runtime.block_on(async { bench.findings(&without, Part::With(&reach)).await.0 })
    });
    match tokio::time::timeout(TIMEOUT, trying).await {
        Ok(Ok(findings)) => findings.into_iter().find(|finding| !known.usual.contains(&mask(finding))),
        Ok(Err(panic)) => Some(format!("a panic: {panic}")),
        Err(_) => Some("no end in time".to_owned()),
    }
}

/// What the tests find and send with all conditions in place.
struct Baseline {
    functions: Vec<String>,
    sent: SentStatements,
    usual: BTreeSet<String>,
}

impl Baseline {
    fn reach(&self, condition: &Condition) -> BTreeSet<String> {
        condition.sql.reach(&self.functions, &self.sent)
    }
}

/// Of the conditions that are not missed one by one, those that stand in for each other: once
/// others that are not missed together are gone, each of these is missed.
async fn in_place_of_others(bench: &Arc<Bench>, missed: &[Condition], known: &Baseline) -> Vec<Condition> {
    let mut found: Vec<Condition> = Vec::new();
    let forth = missed.iter().collect::<Vec<_>>();
    let back = forth.iter().rev().copied().collect();
    for order in [forth, back] {
        let mut gone: Vec<Condition> = Vec::new();
        for condition in order.into_iter().filter(|condition| !known.reach(condition).is_empty()) {
            gone.push(condition.clone());
            if gone.len() > 1 && noticed(bench, &gone, known).await.is_some() {
                gone.pop();
                if !found.contains(condition) {
                    found.push(condition.clone());
                }
            }
        }
        if found.is_empty() {
            break;
        }
    }
    found
}

/// Prints why these are not missed; returns how many of them have no effect.
fn explained(listed: &[Condition]) -> usize {
    let mut without_effect = 0;
    for condition in listed {
        match unseen(condition) {
            Some(WithoutEffect(why)) => {
                without_effect += 1;
                println!("no effect {}: {why}", condition.place);
            }
            Some(NotReached(why)) => println!("not reached {}: {why}", condition.place),
            None => {}
        }
    }
    without_effect
}

/// `WAKEQ_MUTANT` selects conditions by file and line, or a part of these.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "each condition in turn: `cargo xtask tenants` runs it"]
async fn every_condition_on_a_canvas_counts() {
    let wanted = std::env::var("WAKEQ_MUTANT").unwrap_or_default();
    let (all, functions) = conditions();
    let bench = Arc::new(Bench::set_up().await);
    let (usual, sent) = bench.findings(&[], Part::All).await;
    for finding in &usual {
        println!("as it is: {finding}");
    }
    let known = Baseline { functions, sent, usual: usual.iter().map(|finding| mask(finding)).collect() };
    let wanted: Vec<_> = all.iter().filter(|condition| condition.place.contains(&wanted)).cloned().collect();
    println!("{} conditions on a canvas, {} statements sent", wanted.len(), known.sent.len());
    let (bench, known) = (&bench, &known);
    let tried = stream::iter(wanted).map(|condition: Condition| async move {
        let begin = Instant::now();
        let finding = noticed(bench, std::slice::from_ref(&condition), known).await;
        let (place, seconds) = (&condition.place, begin.elapsed().as_secs_f64());
        match &finding {
            Some(finding) => {
                let finding: String = finding.chars().take(200).collect();
                println!("caught     {place} in {seconds:.1} s: {finding}");
            }
            None if known.reach(&condition).is_empty() => println!("never sent {place}: {}", condition.line),
            None => println!("survived   {place} in {seconds:.1} s: {}", condition.line),
        }
        (condition, finding.is_some())
    });
    let tried: Vec<_> = tried.buffer_unordered(AT_A_TIME).collect().await;
    let (caught, others): (Vec<_>, Vec<_>) = tried.into_iter().partition(|(_, caught)| *caught);
    let (listed, left): (Vec<_>, Vec<_>) =
        others.into_iter().map(|(condition, _)| condition).partition(|condition| unseen(condition).is_some());
    let paired = in_place_of_others(bench, &left, known).await;
    let mut missed = Vec::new();
    for condition in &left {
        let is_paired = paired.contains(condition);
        let kind = if is_paired { "with others" } else { "missed" };
        println!("{kind} {}: {}", condition.place, condition.line);
        if !is_paired {
            missed.push(&condition.place);
        }
    }
    let without_effect = explained(&listed);
    println!(
        "{} conditions: {} caught, {} with others, {without_effect} without effect, {} not reached, {} missed",
        all.len(),
        caught.len(),
        paired.len(),
        listed.len() - without_effect,
        missed.len()
    );
    super::pass(&usual);
    assert!(missed.is_empty(), "nothing fails without {} of the conditions", missed.len());
}

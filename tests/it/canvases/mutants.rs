//! Makes each condition on a canvas true, one at a time: some test of this folder has to fail then.
//! Nothing is recompiled: a proxy changes the statement on its way to Postgres, and a function is
//! replaced in the test's database. Requests that never send a statement are not repeated without
//! its condition.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use wakeq_service::access::Scope;

use super::answers::{Transcript, mask};
use super::conditions::{Condition, conditions};
use super::proxy::{Change, SentStatements};
use super::seed::{ATTACKER, VICTIM, Values};
use super::unseen::SurvivalReason::{NotReached, WithoutEffect};
use super::unseen::unseen;
use super::world::Frozen;
use super::{Findings, Part, SingleTenantWorld, SoloTranscripts, calls, functions, tallies, work};

/// The time-out for one mutant, so that one that hangs is noticed.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How many run at a time.
const AT_A_TIME: usize = 2;

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

//! The kit and a long-running worker: the same handlers and events, and the same results.

use std::collections::BTreeMap;
use std::time::Duration;

use wakeq::control::{DeadFilter, Explanation};
use wakeq::machine::Outcome;
use wakeq::testing::TestKit;
use wakeq::workers::RunReport;
use wakeq::{
    Actor, Event, EventId, Execution, HandlerError, HandlerResult, Handlers, RetryPolicy, Route, Stop, Timing,
};

use super::{doings, on_postgres};
use crate::support::{Stage, quick, scope};

/// Short, because the worker runs on real time.
const DELAY: Duration = Duration::from_millis(40);

const PLANS: [&str; 9] = ["ok", "value", "fails", "panics", "slow", "after", "limited", "unknown", "paused"];

async fn act(event: Execution) -> HandlerResult {
    let first = event.attempt == 1;
    match event.address.scope.name.as_str() {
        "value" => Err(HandlerError::value("no such address")),
        "fails" => Err(HandlerError::operational(format!("failure {}", event.attempt))),
        "panics" if first => panic!("at the first attempt"),
        "slow" if first => std::future::pending().await,
        "after" if first => Err(HandlerError::operational("busy").retry_after(2 * DELAY)),
        _ => Ok(()),
    }
}

fn handlers() -> Handlers {
    let retry = RetryPolicy { retries: 2, delay: DELAY, ..RetryPolicy::default() };
    let known = PLANS.into_iter().filter(|plan| *plan != "unknown");
    known.fold(Handlers::new(), |handlers, plan| {
        let route = Route::new(plan).retry(retry);
        let route = match plan {
            "slow" => route.timeout(DELAY),
            "limited" => route.concurrency(1),
            _ => route,
        };
        handlers.on(route, act)
    })
}

/// By plan: each attempt with what it did and its handler's error, and what is left of the event.
type Story = BTreeMap<&'static str, (Vec<String>, String)>;

fn story_of<'a>(
    ids: &BTreeMap<EventId, &'static str>,
    reports: impl Iterator<Item = &'a RunReport>,
) -> Story {
    let mut story: Story = PLANS.into_iter().map(|plan| (plan, Default::default())).collect();
    for report in reports.filter(|report| report.attempt.is_some()) {
        let error = report.error.as_deref().unwrap_or("fine");
        let line = format!("{:?}: {} ({error})", report.attempt, doings(&report.trail));
        story.get_mut(ids[&report.notification.id]).unwrap().0.push(line);
    }
    story
}

async fn emit(queue: &wakeq::Queue) -> BTreeMap<EventId, &'static str> {
    let mut ids = BTreeMap::new();
    for plan in PLANS {
        ids.insert(queue.emit(Event::new(plan, &1).unwrap()).await.unwrap().id, plan);
    }
    ids
}

async fn ends(story: &mut Story, ids: &BTreeMap<EventId, &'static str>, admin: &wakeq::Admin) {
    let dead = admin.dead(&DeadFilter::default(), None, 100).await.unwrap().items;
    for (id, plan) in ids {
        let dead = dead.iter().find(|dead| dead.id == *id);
        let words = dead
            .map(|dead| format!("dead of {}: {} retries, {:?}", dead.cause, dead.retries, dead.last_error));
        let live = match admin.explain(wakeq::CanvasId::DEFAULT, *id).await.unwrap() {
            Explanation::Live(live) => {
                format!("{} after {} retries", live.state.as_str(), live.retries)
            }
            Explanation::Dead(_)
            | Explanation::Ended(_)
            | Explanation::Gone { .. }
            | Explanation::Unknown => "gone".into(),
        };
        story.get_mut(plan).unwrap().1 = words.unwrap_or(live);
    }
}

async fn by_the_worker() -> Story {
    // No attempt may be lost to an expired lease, however late this machine answers a claim.
    let patient = Timing { lease: Duration::from_secs(30), ..quick() };
    let (stage, _) = Stage::memory_with(patient).await;
    let ada = Actor::user("ada");
    stage.admin.pause(&scope("paused"), &ada, &Stop::default()).await.unwrap();
    let ids = emit(&stage.queue).await;
    let mut running = stage.worker(handlers());
    let mut reports = Vec::new();
    let ended = |reports: &[RunReport], outcome| {
        reports.iter().filter(|report: &&RunReport| report.trail.last() == Some(&outcome)).count()
    };
    while ended(&reports, Outcome::RulePaused) < 1 || ended(&reports, Outcome::Deferred) < 1 {
        reports.push(running.report().await);
    }
    stage.admin.unpause(&scope("paused"), &ada).await.unwrap();
    while ended(&reports, Outcome::Deleted) < PLANS.len() - 1 {
        reports.push(running.report().await);
    }
    running.stop().await;
    let mut story = story_of(&ids, reports.iter());
    ends(&mut story, &ids, &stage.admin).await;
    story
}

async fn by_the_kit(mut kit: TestKit) -> Story {
    let ada = Actor::user("ada");
    kit.handlers(handlers()).unwrap();
    kit.admin().pause(&scope("paused"), &ada, &Stop::default()).await.unwrap();
    let ids = emit(&kit.queue()).await;
    let mut reports = kit.drain().await.unwrap().runs;
    kit.admin().unpause(&scope("paused"), &ada).await.unwrap();
    reports.extend(kit.drain_for(Duration::from_secs(10)).await.unwrap().runs);
    let mut story = story_of(&ids, reports.iter());
    ends(&mut story, &ids, kit.admin()).await;
    story
}

/// Attempts, errors, delays, rules and endings are those of the worker.
// Shows: KIT-02
#[tokio::test]
async fn the_kit_and_a_worker_do_the_same() {
    let worker = by_the_worker().await;
    assert_eq!(worker["fails"].0.len(), 3);
    assert_eq!(worker["fails"].1, "dead of retries: 2 retries, Some(\"failure 3\")");
    assert_eq!(worker["unknown"].1, "ready after 0 retries");
    assert_eq!(by_the_kit(TestKit::with_timing(quick()).unwrap()).await, worker, "in memory");
    let (_stage, kit) = on_postgres().await;
    assert_eq!(by_the_kit(kit).await, worker, "on Postgres");
}

//! What an event asks for in place of its handler's policy, in memory and on Postgres.

use std::time::Duration;

use wakeq::control::{DeadFilter, Explanation};
use wakeq::machine::Outcome;
use wakeq::testing::{TestKit, assert_dead};
use wakeq::{
    Actor, CanvasId, Event, EventId, Execution, HandlerError, HandlerResult, Handlers, RetryPolicy, Route,
    Stop,
};

use super::{doings, on_postgres};
use crate::support::{OTHER, scope};

const KILO: Duration = Duration::from_secs(1000);

async fn fails(_event: Execution) -> HandlerResult {
    Err(HandlerError::operational("no"))
}

/// A kit whose handler `fails` always fails, and is retried twice, ten kiloseconds apart.
fn failing(mut kit: TestKit) -> TestKit {
    let retry = RetryPolicy { retries: 2, delay: 10 * KILO, ..RetryPolicy::default() };
    kit.handlers(Handlers::new().on(Route::new("fails").retry(retry), fails)).unwrap();
    kit
}

fn event() -> Event {
    Event::new("fails", &1).unwrap()
}

/// How many attempts an event had until it was dead, and why it is.
async fn ends(kit: &TestKit, id: EventId) -> (usize, String) {
    let drained = kit.drain_for(1000 * KILO).await.unwrap();
    let dead = kit.dead().await.unwrap().into_iter().find(|dead| dead.id == id).expect("it is dead");
    (drained.of(id).filter(|run| run.attempt.is_some()).count(), dead.cause)
}

async fn asks_for_retries(kit: TestKit) {
    let kit = failing(kit);
    for (asked, attempts) in [(None, 3), (Some(0), 1), (Some(1), 2), (Some(5), 6)] {
        let event = asked.map_or(Ok(event()), |retries| event().retries(retries)).unwrap();
        let id = kit.emit(event).await.unwrap().id;
        assert_eq!(ends(&kit, id).await, (attempts, "retries".to_owned()), "{asked:?}");
    }
}

#[tokio::test]
async fn an_event_is_retried_as_often_as_its_emit_asked() {
    asks_for_retries(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    asks_for_retries(kit).await;
}

async fn asks_for_delays(kit: TestKit) {
    let kit = failing(kit);
    let asking = event().retries(3).unwrap().delays([KILO, 4 * KILO]).unwrap();
    let (asking, usual) = (kit.emit(asking).await.unwrap().id, kit.emit(event()).await.unwrap().id);
    kit.drain().await.unwrap();
    // The last delay counts for the third retry as well. The other event comes at its usual time.
    for (wait, attempts) in [(1_u32, [1, 0]), (4, [1, 0]), (4, [1, 0]), (1, [0, 1]), (10, [0, 1])] {
        let shortly = Duration::from_secs(100);
        kit.advance(wait * KILO - shortly).await.unwrap();
        assert_eq!(kit.drain().await.unwrap().attempts(), 0, "not before the {wait} kiloseconds");
        kit.advance(shortly).await.unwrap();
        let drained = kit.drain().await.unwrap();
        let of = |id| drained.of(id).filter(|run| run.attempt.is_some()).count();
        assert_eq!([of(asking), of(usual)], attempts, "after {wait}");
    }
    assert_dead!(kit, "fails", count = 2, error = "no");
}

#[tokio::test]
async fn an_event_is_retried_after_the_delays_that_its_emit_asked_for() {
    asks_for_delays(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    asks_for_delays(kit).await;
}

/// One that would start after its moment does not start; one that would be retried after it dies
/// without waiting; a redrive changes nothing about the moment.
async fn expires(kit: TestKit) {
    let kit = failing(kit);
    let in_kilos = async |kilos: u32| kit.now().await.unwrap() + kilos * KILO;
    let late = event().after(4 * KILO).unwrap().not_after(in_kilos(3).await).unwrap();
    let late = kit.emit(late).await.unwrap().id;
    let soon = kit.emit(event().not_after(in_kilos(3).await).unwrap()).await.unwrap().id;
    let theirs = event().not_after(in_kilos(30).await).unwrap().canvas(OTHER);
    let theirs = kit.emit(theirs).await.unwrap().id;

    let drained = kit.drain().await.unwrap();
    let run = drained.of(soon).next().unwrap();
    assert_eq!(doings(&run.trail), "Exception Expired Deleted");
    assert_dead!(kit, "fails", count = 1, error = "no");
    let Explanation::Live(waits) = kit.explain(late).await.unwrap() else { panic!("it waits") };
    assert_eq!(waits.next(), "runs when it is due");
    kit.advance(3 * KILO).await.unwrap();
    let Explanation::Live(waits) = kit.explain(late).await.unwrap() else { panic!("it waits") };
    assert!(waits.next().starts_with("dies as soon as it would run"), "{}", waits.next());
    kit.advance(KILO).await.unwrap();
    let drained = kit.drain().await.unwrap();
    let run = drained.of(late).last().unwrap();
    assert_eq!(run.attempt, None);
    assert_eq!(run.trail.last_chunk(), Some(&[Outcome::Expired, Outcome::Deleted]));
    for id in [soon, late] {
        let dead = kit.dead().await.unwrap().into_iter().find(|dead| dead.id == id).unwrap();
        assert_eq!(dead.cause, "expired");
        assert!(dead.options.unwrap().not_after().is_some());
    }

    kit.advance(Duration::from_millis(1)).await.unwrap();
    let only = DeadFilter { id: Some(late), ..DeadFilter::default() };
    assert_eq!(kit.admin().redrive(&only, &Actor::admin("ada"), false).await.unwrap().count, 1);
    let drained = kit.drain().await.unwrap();
    assert_eq!((drained.attempts(), drained.died), (0, 1));

    let Explanation::Live(live) = kit.admin().explain(OTHER, theirs).await.unwrap() else {
        panic!("it waits")
    };
    assert_eq!((live.retries, live.address.scope.canvas), (1, OTHER), "the other tenant's is retried");
    assert!(kit.admin().explain(CanvasId::DEFAULT, theirs).await.unwrap() == Explanation::Unknown);
}

#[tokio::test]
async fn no_attempt_starts_after_the_moment_that_its_emit_named() {
    expires(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    expires(kit).await;
}

/// What holds an event back may hold it for too long.
async fn expires_under_a_pause(kit: TestKit) {
    let kit = failing(kit);
    let ada = Actor::user("ada");
    kit.admin().pause(&scope("fails"), &ada, &Stop::default()).await.unwrap();
    let moment = kit.now().await.unwrap() + 3 * KILO;
    let id = kit.emit(event().not_after(moment).unwrap()).await.unwrap().id;
    kit.drain().await.unwrap();
    kit.advance(4 * KILO).await.unwrap();
    kit.admin().unpause(&scope("fails"), &ada).await.unwrap();
    assert_eq!(ends(&kit, id).await, (0, "expired".to_owned()));
}

#[tokio::test]
async fn an_event_may_expire_under_a_pause() {
    expires_under_a_pause(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    expires_under_a_pause(kit).await;
}

#[tokio::test]
async fn what_was_asked_for_is_seen_by_assertions_and_by_the_handler() {
    let mut kit = TestKit::new();
    let handler = |event: Execution| async move {
        let retries = event.options.as_deref().and_then(|options| options.retries());
        if retries == Some(7) { Ok(()) } else { Err(HandlerError::dead(format!("{retries:?}"))) }
    };
    kit.handlers(Handlers::new().on("asks", handler)).unwrap();
    let asking = Event::new("asks", &1).unwrap().retries(7).unwrap().limit("customer:7").unwrap().urgent();
    kit.emit(asking).await.unwrap();
    let options = kit.emitted()[0].options.clone().unwrap();
    assert_eq!((options.retries(), options.delays(), options.timeout()), (Some(7), None, None));
    assert_eq!((options.limits()[0].as_str(), options.limits().len()), ("customer:7", 1));
    assert!(options.is_urgent());
    assert_eq!(kit.drain().await.unwrap().completed, 1);
}

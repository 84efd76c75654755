//! Queues as services register them: replaced, weighted, drained and dropped, and what that means
//! for waiting copies.

use uuid::Uuid;
use wakeq::control::{DeadFilter, EventFilter};
use wakeq::machine::Outcome;
use wakeq::queues::{FacetSettings, NewQueue, WaitingCopies};
use wakeq::targets::{NewTarget, TargetPolicy};
use wakeq::testing::MemoryNotifier;
use wakeq::{
    Actor, Admin, AdminError, CanvasId, Event, Execution, HandlerAddress, HandlerError, Handlers, Name,
    Timing, WorkerConfig,
};
use wiremock::ResponseTemplate;

use crate::support::receiver::{Receiver, answering, calling, target};
use crate::support::{Stage, Statements, once, quick, wait_while};

fn name() -> Name {
    "email_events".parse().unwrap()
}

fn ada() -> Actor {
    Actor::user("ada")
}

fn canvas(number: u128) -> CanvasId {
    CanvasId(Uuid::from_u128(number))
}

fn of(patterns: &[&str]) -> NewQueue {
    let patterns = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
    NewQueue { patterns, ..NewQueue::default() }
}

fn emails() -> NewQueue {
    of(&[".*:email_event:.*"])
}

fn weighing(weight: u32, in_flight_max: Option<u32>) -> FacetSettings {
    FacetSettings { weight: Some(weight), in_flight_max }
}

/// Emits e-mail events that no handler of their own gets.
async fn emit(stage: &Stage, on: CanvasId, count: usize) {
    let event = |index: usize| {
        let event = Event::new("opened_email", &index).unwrap().module("email_event").unwrap();
        event.canvas(on).only_to_queues()
    };
    let emitted = stage.queue.emit_all((0..count).map(event).collect()).await.unwrap();
    assert!(emitted.iter().all(|emitted| emitted.copies == 1), "{emitted:?}");
}

fn working() -> Handlers {
    Handlers::new().on_queue(name().as_str(), |_| async { Ok(()) })
}

/// Drops the pending notifications, so that they wake nothing; returns how many there were.
fn taken(notifier: &MemoryNotifier) -> usize {
    let pending = notifier.pending();
    notifier.forget_everything();
    pending
}

const VERSION: &str = "select version from wakeq.queue_registry";
const RECORDED: &str = "select count(*) from wakeq.audit_log";

/// The same registration again changes nothing, not even the record; another list of patterns
/// replaces the first.
// Shows: DRV-20, DRV-22
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn registering_the_same_again_changes_nothing() {
    let (stage, _) = Stage::memory().await;
    let put = stage.admin.put_queue(&name(), &emails(), &ada()).await.unwrap();
    assert!(put.new && put.changed && put.queue.target.is_none());
    let before = (stage.count(VERSION).await, stage.count(RECORDED).await);
    let doubled = of(&[".*:email_event:.*", ".*:email_event:.*"]);
    let again = stage.admin.put_queue(&name(), &doubled, &Actor::user("bob")).await.unwrap();
    assert_eq!((again.new, again.changed, &again.queue), (false, false, &put.queue));
    assert_eq!((stage.count(VERSION).await, stage.count(RECORDED).await), before);

    let other = NewQueue { facets: weighing(3, Some(7)), ..of(&[":page:", "^0"]) };
    let replaced = stage.admin.put_queue(&name(), &other, &Actor::user("bob")).await.unwrap();
    assert_eq!((replaced.new, replaced.changed, replaced.woken), (false, true, 0));
    assert_eq!(replaced.queue.facets, weighing(3, Some(7)));
    assert_eq!((replaced.queue.created_by.as_str(), replaced.queue.updated_by.as_str()), ("ada", "bob"));
    let listed = stage.admin.queues().await.unwrap();
    assert_eq!(listed, [replaced.queue]);
    assert_eq!(listed[0].patterns.len(), 2);
}

// Shows: DRV-06
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn rejects_invalid_queue_settings() {
    let (stage, _) = Stage::memory().await;
    let many: Vec<String> = (0..21).map(|number| format!("p{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (queue, words) in [
        (of(&[]), "1 to 20 patterns"),
        (of(&many), "1 to 20 patterns"),
        (NewQueue { facets: weighing(1001, None), ..emails() }, "0 to 1,000"),
        (NewQueue { facets: weighing(1, Some(0)), ..emails() }, "1 to 10,000"),
        (NewQueue { facets: weighing(1, Some(10_001)), ..emails() }, "1 to 10,000"),
    ] {
        let refused = stage.admin.put_queue(&name(), &queue, &ada()).await.unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
    }
    let absent = || async { stage.admin.delete_queue(&name(), WaitingCopies::Drain, &ada()).await };
    assert!(matches!(absent().await, Err(AdminError::NoQueue(_))));
    assert!(matches!(stage.admin.queue(&name()).await, Err(AdminError::NoQueue(_))));
    assert!(matches!(stage.admin.facets(&name(), None, 10).await, Err(AdminError::NoQueue(_))));
    let settings = stage.admin.facet_settings(&name(), None, 10).await;
    assert!(matches!(settings, Err(AdminError::NoQueue(_))));
    let settings = FacetSettings::default();
    let set = stage.admin.set_facet(&name(), canvas(1), settings, &ada()).await;
    assert!(matches!(set, Err(AdminError::NoQueue(_))));
    for number in 0..100 {
        stage.admin.put_queue(&format!("q{number}").parse().unwrap(), &of(&["x"]), &ada()).await.unwrap();
    }
    let refused = stage.admin.put_queue(&name(), &emails(), &ada()).await.unwrap_err();
    assert!(matches!(refused, AdminError::TooManyQueues), "{refused}");
    assert_eq!(stage.admin.queues().await.unwrap().len(), 100);
}

/// With one more pattern of this kind, the total exceeds what emitters can hold.
const COSTLY: &str = "
    insert into wakeq.queues (name, created_by, updated_by)
    select 'q' || number, 'tests', 'tests' from generate_series(1, 99) number;
    insert into wakeq.queue_patterns (queue, pattern)
    select 'q' || number, '\\pL{5}' || number || 'x' || other
      from generate_series(1, 99) number, generate_series(1, 20) other";

/// Every emitter compiles all patterns together: a registration that would exceed what they can
/// hold is refused, before it stops them.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn patterns_that_emitters_could_not_hold_are_refused() {
    let (stage, _) = Stage::memory().await;
    sqlx::raw_sql(COSTLY).execute(&stage.pool).await.unwrap();
    let before = stage.count(VERSION).await;
    let refused = stage.admin.put_queue(&name(), &of(&[r"\pL{5}"]), &ada()).await.unwrap_err();
    assert!(matches!(refused, AdminError::TooCostlyPatterns), "{refused}");
    assert_eq!((stage.count(VERSION).await, stage.count(RECORDED).await), (before, 0));
    sqlx::raw_sql("delete from wakeq.queues").execute(&stage.pool).await.unwrap();
    stage.admin.put_queue(&name(), &of(&[r"\pL{5}"]), &ada()).await.unwrap();
    assert_eq!(stage.queue.emit(Event::new("greet", &1).unwrap()).await.unwrap().copies, 1, "emits go on");
}

/// Another release may have registered them: their queues get no copies, and the others do.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn patterns_that_this_release_can_t_read_stop_no_emit() {
    let (stage, _) = Stage::memory().await;
    for unreadable in ["(", "((a{1000}){1000}){100}"] {
        stage.admin.put_queue(&name(), &of(&["greet"]), &ada()).await.unwrap();
        let pattern = "insert into wakeq.queue_patterns (queue, pattern) values ($1, $2)";
        sqlx::query(pattern).bind(name().as_str()).bind(unreadable).execute(&stage.pool).await.unwrap();
        stage.pool.run("update wakeq.queue_registry set version = version + 1").await;
        let emitted = stage.queue.emit(Event::new("greet", &1).unwrap()).await.unwrap();
        assert_eq!(emitted.copies, 1, "{unreadable}");
        stage.admin.put_queue(&"beside".parse().unwrap(), &of(&["x"]), &ada()).await.unwrap();
        stage.pool.run("delete from wakeq.queues").await;
    }
}

/// They wait for each other, here as long as the test does.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn registrations_at_once_are_all_done() {
    let (stage, _) = Stage::memory().await;
    let store = stage.patient(Timing::default()).await;
    let (admin, queue) = (Admin::new(store, stage.notifier.clone()), of(&["x"]));
    let put = async |number: usize| {
        let name = format!("q{number}").parse().unwrap();
        admin.put_queue(&name, &queue, &ada()).await.unwrap()
    };
    let done = futures_util::future::join_all((0..40).map(put)).await;
    assert!(done.iter().all(|put| put.new && put.changed), "{done:?}");
    assert_eq!(stage.admin.queues().await.unwrap().len(), 40);
}

/// A registration is checked against all patterns registered when it commits, although it compiles
/// them before.
#[tokio::test]
async fn a_registration_is_judged_with_those_that_came_meanwhile() {
    let (stage, _) = Stage::memory().await;
    let admin = Admin::new(stage.patient(Timing::default()).await, stage.notifier.clone());
    let mut others = stage.pool.begin().await.unwrap();
    sqlx::query("update wakeq.queue_registry set version = version + 1").execute(&mut *others).await.unwrap();
    sqlx::raw_sql(COSTLY).execute(&mut *others).await.unwrap();
    let (name, queue, ada) = (name(), of(&[r"\pL{5}"]), ada());
    let put = admin.put_queue(&name, &queue, &ada);
    let meanwhile = async {
        wait_while!(stage.waiting_for_locks().await == 0, "nothing waits for the lock");
        others.commit().await.unwrap();
    };
    let (put, ()) = tokio::join!(put, meanwhile);
    assert!(matches!(put, Err(AdminError::TooCostlyPatterns)), "{put:?}");
    assert_eq!(stage.count("select count(*) from wakeq.queues").await, 99);
}

/// The listing has exactly the canvases with copies, page by page; weights and caps are shown with
/// it.
// Shows: DRV-04, DRV-08
#[tokio::test]
async fn facets_are_the_canvases_with_copies() {
    let (stage, _) = Stage::memory().await;
    stage.admin.put_queue(&name(), &emails(), &ada()).await.unwrap();
    assert_eq!(stage.admin.facets(&name(), None, 10).await.unwrap(), []);
    for (number, count) in [(1, 3), (2, 1), (3, 2)] {
        emit(&stage, canvas(number), count).await;
    }
    stage.admin.set_facet(&name(), canvas(2), weighing(0, Some(4)), &ada()).await.unwrap();
    stage.admin.set_facet(&name(), canvas(9), weighing(5, None), &ada()).await.unwrap();
    let page = stage.admin.facets(&name(), None, 2).await.unwrap();
    let rest = stage.admin.facets(&name(), Some(page[1].canvas), 2).await.unwrap();
    let facets: Vec<_> = page.iter().chain(&rest).map(|facet| (facet.canvas, facet.waiting)).collect();
    assert_eq!(facets, [(canvas(1), 3), (canvas(2), 1), (canvas(3), 2)]);
    assert_eq!(page[1].settings, weighing(0, Some(4)));
    let settings = stage.admin.facet_settings(&name(), None, 100).await.unwrap();
    assert_eq!(settings, [(canvas(2), weighing(0, Some(4))), (canvas(9), weighing(5, None))]);
    stage.admin.set_facet(&name(), canvas(9), FacetSettings::default(), &ada()).await.unwrap();
    assert_eq!(stage.admin.facet_settings(&name(), None, 100).await.unwrap(), settings[..1]);
    assert_eq!(stage.admin.facet_settings(&name(), Some(canvas(2)), 100).await.unwrap(), []);
    let reserved = CanvasId(Uuid::max());
    let refused = stage.admin.set_facet(&name(), reserved, weighing(1, None), &ada()).await;
    assert!(matches!(refused, Err(AdminError::Invalid(_))));
}

/// The copies of a canvas that is paused in a queue resume as soon as it is allowed turns.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn waiting_copies_resume_when_their_canvas_is_unpaused() {
    let (stage, notifier) = Stage::memory().await;
    stage.admin.put_queue(&name(), &emails(), &ada()).await.unwrap();
    stage.admin.set_facet(&name(), canvas(1), weighing(0, None), &ada()).await.unwrap();
    emit(&stage, canvas(1), 2500).await;
    assert_eq!(taken(&notifier), 2500);
    let mut worker = stage.worker(working());
    emit(&stage, canvas(2), 1).await;
    worker.until_count(1, Outcome::Deleted).await;
    assert_eq!(stage.rows().await, 2500);
    let set = stage.admin.set_facet(&name(), canvas(1), weighing(2, None), &ada()).await.unwrap();
    assert_eq!((set.woken, set.waking), (2500, false));
    worker.until_count(2500, Outcome::Deleted).await;
    assert_eq!(stage.rows().await, 0);
    let higher = stage.admin.set_facet(&name(), canvas(1), weighing(9, None), &ada()).await.unwrap();
    assert_eq!(higher.woken, 0, "nothing waited for that");
    worker.stop().await;
}

/// The same for a whole queue: paused, then processed by functions, then sent to a target, then
/// processed by functions again.
#[tokio::test]
async fn replacing_a_paused_queue_resumes_it() {
    let (stage, notifier) = Stage::memory_with(quick()).await;
    let mut receiver = Receiver::start().await;
    let paused = NewQueue { facets: weighing(0, None), ..emails() };
    stage.admin.put_queue(&name(), &paused, &ada()).await.unwrap();
    emit(&stage, canvas(1), 2).await;
    assert_eq!(taken(&notifier), 2);
    let put = stage.admin.put_queue(&name(), &emails(), &ada()).await.unwrap();
    assert_eq!((put.woken, put.waking), (2, false));

    let mut worker = calling(&stage.store, &stage, Handlers::new(), WorkerConfig::default());
    worker.until_count(2, Outcome::Deferred).await;
    let with_target = NewQueue { target: Some(target(&receiver.url)), ..emails() };
    let put = stage.admin.put_queue(&name(), &with_target, &ada()).await.unwrap();
    assert!(put.secret.is_some() && put.woken == 2, "{put:?}");
    let secret = put.secret.unwrap().reveal();
    for _ in 0..2 {
        let arrived = receiver.next().await;
        assert_eq!(arrived.header("ce-queue"), name().as_str());
        let origin: Uuid = arrived.header("ce-origin").parse().unwrap();
        assert_ne!(arrived.header("ce-id").parse::<Uuid>().unwrap(), origin, "a copy has an id of its own");
        assert_eq!(arrived.header("ce-source"), format!("/canvases/{}", canvas(1)));
        assert_eq!(arrived.header("ce-type"), "email_event/opened_email/_");
        assert_eq!(arrived.signed_by(&secret).0, 1);
        arrived.answer("204 No Content", &[]);
    }
    worker.until_count(2, Outcome::Deleted).await;
    let again = stage.admin.put_queue(&name(), &with_target, &ada()).await.unwrap();
    assert!(!again.changed && again.secret.is_none());
    let put = stage.admin.put_queue(&name(), &emails(), &ada()).await.unwrap();
    assert!(put.changed && put.queue.target.is_none());
    assert_eq!(stage.count("select count(*) from wakeq.http_targets").await, 0);
    worker.stop().await;
}

/// A target that answers 410 has failed: neither the queue nor the handler that the copy names is
/// paused.
// Shows: CARD-02
#[tokio::test]
async fn a_queues_target_that_is_gone_has_failed() {
    let (stage, _) = Stage::memory_with(quick()).await;
    let gone = answering([ResponseTemplate::new(410)]).await;
    let policy = TargetPolicy { retries: 0, ..TargetPolicy::default() };
    let target = NewTarget { policy, ..target(&gone.uri()) };
    let with_target = NewQueue { target: Some(target), ..emails() };
    stage.admin.put_queue(&name(), &with_target, &ada()).await.unwrap();
    let mut worker = calling(&stage.store, &stage, Handlers::new(), WorkerConfig::default());
    emit(&stage, canvas(1), 1).await;
    worker.until_count(1, Outcome::Deleted).await;
    assert_eq!(stage.count("select count(*) from wakeq.scheduling_rules").await, 0);
    let reason =
        "select count(*) from wakeq.dead_events where last_error like '%410 Gone%' and queue is not null";
    assert_eq!(stage.count(reason).await, 1);
    worker.stop().await;
}

/// Unregistering: waiting copies are processed or deleted; the minute's pass removes what is left
/// of the queue.
// Shows: DRV-08
#[tokio::test]
async fn a_queue_goes_with_its_last_copy() {
    let (stage, _) = Stage::memory().await;
    let with_target = NewQueue { target: Some(target("http://127.0.0.1:1/")), ..emails() };
    stage.admin.put_queue(&name(), &with_target, &ada()).await.unwrap();
    emit(&stage, canvas(1), 3).await;
    assert!(!stage.admin.delete_queue(&name(), WaitingCopies::Drain, &ada()).await.unwrap().gone);
    assert!(stage.admin.queue(&name()).await.unwrap().draining);
    let late = Event::new("opened_email", &0).unwrap().module("email_event").unwrap().only_to_queues();
    assert_eq!(stage.queue.emit(late).await.unwrap().copies, 0);
    let mut worker = stage.worker(working());
    worker.until_count(3, Outcome::Deleted).await;
    // Its own pass could be the one that the minute lets through, and would remove the queue after
    // this one returns.
    worker.stop().await;
    stage.admin.wake(false).await.unwrap();
    assert_eq!(stage.admin.queues().await.unwrap(), []);
    assert_eq!(stage.count("select count(*) from wakeq.http_targets").await, 0);
    assert_eq!(stage.count("select count(*) from wakeq.facets").await, 0);

    stage.admin.put_queue(&name(), &emails(), &ada()).await.unwrap();
    emit(&stage, canvas(1), 2100).await;
    assert!(!stage.admin.delete_queue(&name(), WaitingCopies::Drain, &ada()).await.unwrap().gone);
    assert!(stage.admin.delete_queue(&name(), WaitingCopies::Drop, &ada()).await.unwrap().gone);
    assert_eq!(stage.rows().await, 0);
    let refused = stage.admin.delete_queue(&name(), WaitingCopies::Drop, &ada()).await;
    assert!(matches!(refused, Err(AdminError::NoQueue(_))));
    // On no canvas: the tenant of the nil canvas does not see it, an operator does.
    let record = async |admin: Admin| {
        let lines = admin.audit(CanvasId::DEFAULT, None, 100).await.unwrap().items.into_iter().rev();
        let actions: Vec<_> =
            lines.map(|line| line.action).filter(|action| action.ends_with("-queue")).collect();
        actions.join(" ")
    };
    let actions = "put-queue delete-queue put-queue delete-queue delete-queue";
    assert_eq!(record(stage.admin.clone()).await, actions);
    assert_eq!(record(stage.admin.for_tenants()).await, "");
}

/// A copy from an emit that began before the queue was deleted, and was committed after its end.
#[tokio::test]
async fn a_copy_that_comes_late_brings_its_queue_back_to_be_drained() {
    let (stage, _) = Stage::memory().await;
    stage.admin.put_queue(&name(), &emails(), &ada()).await.unwrap();
    emit(&stage, canvas(1), 1).await;
    stage.pool.run("delete from wakeq.queues").await;
    stage.pool.run("update wakeq.chores set passes = 19, next_at = now() where name = 'minute'").await;
    stage.admin.wake(false).await.unwrap();
    let back = stage.admin.queue(&name()).await.unwrap();
    assert!(back.draining && back.patterns.is_empty());
    let mut worker = stage.worker(working());
    stage.admin.wake(true).await.unwrap();
    worker.until_count(1, Outcome::Deleted).await;
    worker.stop().await; // as above
    stage.admin.wake(false).await.unwrap();
    assert_eq!(stage.admin.queues().await.unwrap(), []);
}

/// Dead copies name their queue and their origin, and are redriven into their queue.
// Shows: DRV-21
#[tokio::test]
async fn a_dead_copy_names_its_queue_and_its_origin() {
    let (stage, _) = Stage::memory().await;
    stage.admin.put_queue(&name(), &emails(), &ada()).await.unwrap();
    let broken = |_: Execution| async { Err::<(), _>(HandlerError::operational("no room")) };
    let mut worker = stage.worker(Handlers::new().on_queue(once(name().as_str()), broken));
    let event = Event::new("opened_email", &1).unwrap().module("email_event").unwrap().only_to_queues();
    let origin = stage.queue.emit(event).await.unwrap().id;
    worker.until_count(1, Outcome::Deleted).await;
    worker.stop().await;
    let dead = stage.admin.dead(&DeadFilter::default(), None, 10).await.unwrap().items.pop().unwrap();
    let copy = dead.copy_of.clone().unwrap();
    assert_eq!((copy.queue, copy.origin), (name(), origin));
    stage.admin.redrive_one(CanvasId::DEFAULT, dead.id, &ada()).await.unwrap();
    let listed = stage.admin.events(CanvasId::DEFAULT, &EventFilter::default(), None, 10).await.unwrap();
    assert_eq!(listed.items[0].copy_of, dead.copy_of);
    let mut worker = stage.worker(working());
    worker.until(dead.id, Outcome::Deleted).await;
    worker.stop().await;
}

/// The target of a queue is registered with the queue, and in no other way.
#[tokio::test]
async fn queue_targets_can_only_be_registered_with_the_queue() {
    let (stage, _) = Stage::memory().await;
    let scope =
        wakeq::HandlerScope { canvas: CanvasId(Uuid::max()), module: "QUEUE".parse().unwrap(), name: name() };
    let address = HandlerAddress { scope, modifier: Name::no_modifier() };
    let refused = stage.admin.put_target(&address, &target("http://127.0.0.1:1/"), &ada()).await.unwrap_err();
    assert!(refused.to_string().contains("no canvas has this id"), "{refused}");
}

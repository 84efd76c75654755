//! Gaps in a chain, and what a consumer does about them: it skips them, and can find out why.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uuid::Uuid;
use wakeq::control::DeadFilter;
use wakeq::machine::{Consumption, Link, consume, pass_over};
use wakeq::order::ObjectKey;
use wakeq::queues::NewQueue;
use wakeq::{
    Actor, Admin, CanvasId, Event, EventId, Execution, HandlerError, Handlers, Name, RetryPolicy, Route,
};

use crate::support::child_processes::{Durations, Role, WORK_ONCE, Work};
use crate::support::crash_scene::CrashScene;
use crate::support::{Stage, Statements, scope, wait_while};

const OTHER: CanvasId = CanvasId(Uuid::from_u128(7));
const HANDLER: &str = "book";

fn key() -> ObjectKey {
    "work:1".parse().unwrap()
}

fn ada() -> Actor {
    Actor::admin("ada")
}

fn on(value: i64) -> Event {
    Event::new(HANDLER, &value).unwrap().on("work:1").unwrap()
}

/// A consumer of one object: what it has consumed and skipped, and why.
#[derive(Clone, Default)]
struct Consumer(Arc<Mutex<(i64, Vec<String>)>>);

impl Consumer {
    /// What the consumer does with an event.
    async fn take(&self, admin: &Admin, link: Link, queue: Option<&Name>) -> Consumption {
        let mut last = self.0.lock().unwrap().0;
        if consume(last, link) == Consumption::Delay {
            for gone in admin.tombstones(CanvasId::DEFAULT, &key(), queue, last, 1000).await.unwrap() {
                let passed = pass_over(last, [gone.link]);
                if passed > last {
                    self.0.lock().unwrap().1.push(gone.cause);
                }
                last = passed;
            }
        }
        let decided = consume(last, link);
        if decided == Consumption::Consume {
            let mut state = self.0.lock().unwrap();
            state.0 = link.id;
            state.1.push("consumed".into());
        }
        decided
    }

    /// A handler that consumes; an event with a negative value dies once.
    fn handlers(&self, admin: &Admin, route: Route) -> Handlers {
        let (consumer, admin) = (self.clone(), admin.clone());
        let died: Arc<Mutex<BTreeSet<EventId>>> = Arc::default();
        let never = RetryPolicy { retries: 0, ..RetryPolicy::default() };
        Handlers::new().on(route.retry(never), move |event: Execution| {
            let (consumer, admin, died) = (consumer.clone(), admin.clone(), Arc::clone(&died));
            async move {
                if event.value::<i64>()? < 0 && died.lock().unwrap().insert(event.id) {
                    return Err(HandlerError::operational("as told"));
                }
                let link = event.place.as_ref().unwrap().link;
                match consumer.take(&admin, link, None).await {
                    Consumption::Consume | Consumption::Done => Ok(()),
                    Consumption::Delay => Err(HandlerError::not_yet(Duration::from_millis(100))),
                }
            }
        })
    }

    fn log(&self) -> Vec<String> {
        self.0.lock().unwrap().1.clone()
    }
}

impl Stage {
    async fn emit_values(&self, values: &[i64]) -> Vec<(EventId, Link)> {
        let emitted = self.queue.emit_all(values.iter().map(|value| on(*value)).collect()).await.unwrap();
        emitted.into_iter().map(|emitted| (emitted.id, emitted.link.unwrap())).collect()
    }

    /// Runs a worker until this many events are left.
    async fn run(&self, handlers: Handlers, left: i64) {
        let worker = self.worker(handlers);
        self.admin.wake(true).await.unwrap();
        wait_while!(self.rows().await > left, "they end");
        worker.stop().await;
    }

    /// The tombstones that a consumer is shown, as causes and links.
    async fn missing(&self, canvas: CanvasId, queue: Option<&str>) -> Vec<(String, Link)> {
        let queue = queue.map(|name| name.parse::<Name>().unwrap());
        let found = self.admin.tombstones(canvas, &key(), queue.as_ref(), 0, 1000).await.unwrap();
        found.into_iter().map(|gone| (gone.cause, gone.link)).collect()
    }
}

/// Cancelled and purged events are skipped, with their causes; on another canvas nothing is
/// missing.
// Shows: ORD-04
#[tokio::test]
async fn consumers_skip_cancelled_and_purged_events() {
    let (stage, _) = Stage::memory().await;
    let consumer = Consumer::default();
    let handlers = || consumer.handlers(&stage.admin, Route::new(HANDLER));
    let later = |value| on(value).canvas(OTHER).after(Duration::from_secs(3600)).unwrap();
    stage.queue.emit_all(vec![later(1), later(2)]).await.unwrap();
    let emitted = stage.emit_values(&[1, 2, 3]).await;
    stage.admin.cancel(CanvasId::DEFAULT, emitted[1].0, &ada()).await.unwrap();
    stage.run(handlers(), 2).await;
    assert_eq!(consumer.log(), ["consumed", "cancelled", "consumed"]);

    let purged = stage.emit_values(&[4, 5]).await;
    assert_eq!(stage.admin.purge(&scope(HANDLER), &ada(), false).await.unwrap().count, 2);
    let gone = |cause: &str, at: Link| (cause.to_owned(), at);
    let expected =
        [gone("cancelled", emitted[1].1), gone("purged", purged[0].1), gone("purged", purged[1].1)];
    assert_eq!(stage.missing(CanvasId::DEFAULT, None).await, expected);
    assert_eq!(stage.missing(OTHER, None).await, []);
    assert_eq!(stage.missing(CanvasId::DEFAULT, Some("q")).await, []);
    stage.emit_values(&[6]).await;
    stage.run(handlers(), 2).await;
    assert_eq!(consumer.log()[3..], ["purged", "purged", "consumed"]);
}

/// A dead event is skipped; redriven, it comes last and is consumed. In queues its new link is a
/// gap, since it has no copy there.
// Shows: ORD-04
#[tokio::test]
async fn a_dead_event_is_skipped_and_comes_last_once_redriven() {
    let (stage, _) = Stage::memory().await;
    let consumer = Consumer::default();
    let handlers = consumer.handlers(&stage.admin, Route::new(HANDLER));
    let emitted = stage.emit_values(&[1, -1, 3]).await;
    stage.run(handlers, 0).await;
    assert_eq!(consumer.log(), ["consumed", "dead", "consumed"]);
    let dead = ("dead".to_owned(), emitted[1].1);
    assert_eq!(stage.missing(CanvasId::DEFAULT, None).await, std::slice::from_ref(&dead));
    stage.admin.redrive(&DeadFilter::default(), &ada(), false).await.unwrap();
    let again: i64 = stage.pool.value("select seq from wakeq.events_v2").await;
    let link = Link { id: again, prev: emitted[2].1.id };
    assert_eq!(consumer.take(&stage.admin, link, None).await, Consumption::Consume);
    assert_eq!(stage.missing(CanvasId::DEFAULT, None).await, [dead]);
    assert_eq!(stage.missing(CanvasId::DEFAULT, Some("q")).await, [("redriven".to_owned(), link)]);
    // Once it is cancelled as well, it is missing everywhere.
    stage.admin.cancel(CanvasId::DEFAULT, emitted[1].0, &ada()).await.unwrap();
    assert_eq!(stage.missing(CanvasId::DEFAULT, None).await[1], ("cancelled".to_owned(), link));
    assert_eq!(stage.missing(CanvasId::DEFAULT, Some("q")).await, [("redriven".to_owned(), link)]);
}

/// While an object is halted, none of its events is missing: a redriven event keeps its place. If
/// it is skipped, it becomes a gap.
#[tokio::test]
async fn an_event_that_halts_its_object_is_a_gap_only_once_skipped() {
    let (stage, _) = Stage::memory().await;
    let consumer = Consumer::default();
    let handlers = consumer.handlers(&stage.admin, Route::new(HANDLER).halt_on_death());
    stage.emit_values(&[1, -1, 3, -2, 5]).await;
    let worker = stage.worker(handlers);
    let halted = async || stage.admin.halted(CanvasId::DEFAULT, None, 10).await.unwrap().items.len();
    wait_while!(halted().await != 1, "it stands still");
    assert_eq!(stage.missing(CanvasId::DEFAULT, None).await, []);
    stage.admin.redrive(&DeadFilter::default(), &ada(), false).await.unwrap();
    wait_while!(consumer.log().len() < 3 || halted().await != 1, "it goes on, and stands still again");
    assert_eq!(consumer.log(), ["consumed"; 3]);
    assert_eq!(stage.missing(CanvasId::DEFAULT, None).await, []);
    let lane = stage.admin.halted(CanvasId::DEFAULT, None, 10).await.unwrap().items.remove(0).lane;
    assert!(stage.admin.skip(&lane, &ada()).await.unwrap());
    stage.until_empty().await;
    assert_eq!(consumer.log()[3..], ["dead", "consumed"]);
    worker.stop().await;
}

/// A cancelled copy is missing in its queue, and nowhere else; its canvas sees that only if the
/// queue shows its copies.
#[tokio::test]
async fn a_copy_is_missing_in_its_queue() {
    let (stage, _) = Stage::memory().await;
    for (name, tenant_visible) in [("hidden", false), ("shown", true)] {
        let queue =
            NewQueue { patterns: vec![":usage:".parse().unwrap()], tenant_visible, ..NewQueue::default() };
        stage.admin.put_queue(&name.parse().unwrap(), &queue, &ada()).await.unwrap();
    }
    let link = stage.queue.emit(on(1).module("usage").unwrap()).await.unwrap().link.unwrap();
    let copies: Vec<Uuid> = stage.pool.values("select id from wakeq.events_v2 where queue is not null").await;
    for copy in copies {
        stage.admin.cancel(CanvasId::DEFAULT, EventId(copy), &ada()).await.unwrap();
    }
    let gone = [("cancelled".to_owned(), link)];
    assert_eq!(stage.missing(CanvasId::DEFAULT, Some("hidden")).await, gone);
    assert_eq!(stage.missing(CanvasId::DEFAULT, Some("shown")).await, gone);
    assert_eq!(stage.missing(CanvasId::DEFAULT, None).await, []);
    assert_eq!(stage.missing(OTHER, Some("shown")).await, []);
    let tenants = stage.admin.for_tenants();
    let seen = async |queue: &str| {
        tenants
            .tombstones(CanvasId::DEFAULT, &key(), Some(&queue.parse().unwrap()), 0, 1000)
            .await
            .unwrap()
            .len()
    };
    assert_eq!((seen("hidden").await, seen("shown").await), (0, 1));
}

/// A worker is killed after an event has died and before the next one is handed over: the tombstone
/// exists, and the consumer of the next one sees it.
// Shows: ORD-04
#[tokio::test]
async fn a_tombstone_is_written_with_the_death() {
    let scene = CrashScene::new("tombstone", Durations::quick()).await;
    let role = Role::Worker { capacity: 8, shutdown_grace_ms: 1_000 };
    let victim = scene.start(&role, Some("link.removed"));
    let on = |work: Work| Event::new(WORK_ONCE, &work).unwrap().on("work:1").unwrap();
    let fails = Work { first_fails: true, ..Work::lasting(1) };
    let emitted = scene.queue.emit_all(vec![on(fails), on(Work::lasting(1))]).await.unwrap();
    victim.child.ended().await;
    scene.died(victim.pid()).await;
    let dead = "select count(*) from wakeq.dead_events d join wakeq.tombstones t using (canvas_id, object, seq, prev)";
    assert_eq!(scene.count(dead).await, 1);
    let gone = scene.admin.tombstones(CanvasId::DEFAULT, &key(), None, 0, 1000).await.unwrap();
    let links: Vec<Link> = emitted.iter().filter_map(|emitted| emitted.link).collect();
    assert_eq!(gone.iter().map(|gone| gone.link).collect::<Vec<_>>(), links[..1]);
    assert_eq!(consume(pass_over(0, [gone[0].link]), links[1]), Consumption::Consume);
    let _heir = scene.worker(8).await;
    scene.until_empty().await;
}

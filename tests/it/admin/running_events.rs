//! The worker of a running event, as it is recorded and shown.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use wakeq::control::{EventFilter, EventSummary, Explanation};
use wakeq::machine::{Link, Outcome};
use wakeq::order::{InHand, Lane, ObjectKey};
use wakeq::queues::NewQueue;
use wakeq::testing::MemoryNotifier;
use wakeq::{
    CanvasId, Event, EventId, Execution, HandlerError, Handlers, Name, Queue, QueueConfig, RetryPolicy,
    Route, WorkerConfig,
};

use crate::support::child_processes::{Durations, WORK, Work};
use crate::support::crash_scene::CrashScene;
use crate::support::{OTHER, RunningWorker, Stage, scope, wait_while};

fn key() -> ObjectKey {
    "work:1".parse().unwrap()
}

fn named(name: &str) -> WorkerConfig {
    WorkerConfig { name: Some(name.parse().unwrap()), ..WorkerConfig::default() }
}

fn event(handler: &str) -> Event {
    Event::new(handler, &1).unwrap()
}

fn on(handler: &str) -> Event {
    event(handler).on("work:1").unwrap()
}

/// Handlers of these names that wait for a permit.
fn waiting(names: &[&str]) -> (Handlers, mpsc::Receiver<EventId>, Arc<Semaphore>) {
    let (gate, (started, starts)) = (Arc::new(Semaphore::new(0)), mpsc::channel(100));
    let open = Arc::clone(&gate);
    let handler = move |event: Execution| {
        let (gate, started) = (Arc::clone(&open), started.clone());
        async move {
            started.send(event.id).await?;
            gate.acquire().await?.forget();
            Ok(())
        }
    };
    let handlers = names.iter().fold(Handlers::new(), |handlers, name| handlers.on(*name, handler.clone()));
    (handlers, starts, gate)
}

impl Stage {
    async fn worker_of(&self, id: EventId) -> Option<String> {
        match self.admin.explain(CanvasId::DEFAULT, id).await.unwrap() {
            Explanation::Live(live) => live.worker.map(|worker| worker.to_string()),
            Explanation::Dead(_)
            | Explanation::Ended(_)
            | Explanation::Gone { .. }
            | Explanation::Unknown => panic!("it is there"),
        }
    }

    /// The events of a worker, each with its object.
    async fn in_hand_of(&self, canvas: CanvasId, worker: &str) -> Vec<(EventId, Option<String>)> {
        let filter = EventFilter { worker: Some(worker.parse().unwrap()), ..EventFilter::default() };
        let page = self.admin.events(canvas, &filter, None, 100).await.unwrap();
        assert!(page.items.iter().all(|event| event.worker == filter.worker));
        let hand = |event: EventSummary| (event.id, event.place.map(|place| place.object.to_string()));
        sorted(page.items.into_iter().map(hand).collect())
    }

    async fn hands_on(&self, canvas: CanvasId) -> Vec<InHand> {
        self.admin.running(canvas, &key(), 1000).await.unwrap()
    }
}

fn hand(name: &str, event: EventId, link: Link, worker: &str) -> InHand {
    let lane = Lane { scope: scope(name), object: key(), queue: None };
    InHand { lane, event, link, worker: Some(worker.parse().unwrap()) }
}

fn sorted(mut found: Vec<(EventId, Option<String>)>) -> Vec<(EventId, Option<String>)> {
    found.sort();
    found
}

/// Each of two workers shows its running events and their objects, at most one per object and
/// handler; a waiting event has no worker, and an ended one leaves nothing.
// Shows: ORD-12, ORD-14, ORD-15
#[tokio::test]
async fn shows_which_worker_runs_an_object() {
    let (stage, _) = Stage::memory().await;
    let (first, mut firsts, first_gate) = waiting(&["index"]);
    let (second, mut seconds, second_gate) = waiting(&["mail", "free"]);
    // Each is notified only of its own events: a worker without the handler would defer them.
    let (own, store) = (Arc::new(MemoryNotifier::new()), stage.store.clone());
    let queue = Queue::new(store.clone(), own.clone(), QueueConfig::default());
    let workers =
        [stage.worker_with(first, named("one")), RunningWorker::start(store, own, second, named("two"))];
    let mut emitted = stage.queue.emit_all(vec![on("index"), on("index")]).await.unwrap();
    emitted.extend(queue.emit_all(vec![on("mail"), event("free")]).await.unwrap());
    let ids: Vec<EventId> = emitted.iter().map(|emitted| emitted.id).collect();
    let link = |at: usize| emitted[at].link.unwrap();
    assert_eq!(firsts.recv().await, Some(ids[0]));
    let started = BTreeSet::from([seconds.recv().await.unwrap(), seconds.recv().await.unwrap()]);
    assert_eq!(started, BTreeSet::from([ids[2], ids[3]]));

    let work = || Some("work:1".to_owned());
    assert_eq!(stage.in_hand_of(CanvasId::DEFAULT, "one").await, [(ids[0], work())]);
    let twos = sorted(vec![(ids[2], work()), (ids[3], None)]);
    assert_eq!(stage.in_hand_of(CanvasId::DEFAULT, "two").await, twos);
    assert_eq!(stage.in_hand_of(CanvasId::DEFAULT, "three").await, []);
    let both = [hand("index", ids[0], link(0), "one"), hand("mail", ids[2], link(2), "two")];
    assert_eq!(stage.hands_on(CanvasId::DEFAULT).await, both);
    assert_eq!(stage.worker_of(ids[0]).await.as_deref(), Some("one"));
    assert_eq!(stage.worker_of(ids[1]).await, None, "it is behind");
    assert_eq!((stage.in_hand_of(OTHER, "one").await, stage.hands_on(OTHER).await), (vec![], vec![]));

    first_gate.add_permits(1);
    assert_eq!(firsts.recv().await, Some(ids[1]), "its turn");
    assert_eq!(stage.in_hand_of(CanvasId::DEFAULT, "one").await, [(ids[1], work())]);
    assert_eq!(stage.hands_on(CanvasId::DEFAULT).await[0], hand("index", ids[1], link(1), "one"));
    first_gate.add_permits(1);
    second_gate.add_permits(2);
    for worker in workers {
        wait_while!(stage.rows().await > 0, "all of them end");
        worker.stop().await;
    }
    assert_eq!(stage.hands_on(CanvasId::DEFAULT).await, []);
}

/// An event that is given up no longer has a worker: retried, parked under a rule, or cut off by a
/// shutdown.
// Shows: ORD-12
#[tokio::test]
async fn released_events_have_no_worker() {
    let (stage, _) = Stage::memory().await;
    let patient = RetryPolicy { delay: std::time::Duration::from_secs(3600), ..RetryPolicy::default() };
    let fails = async |_: Execution| Err::<(), _>(HandlerError::operational("no"));
    let (waits, mut starts, _gate) = waiting(&["index"]);
    let handlers = waits.on(Route::new("fails").retry(patient), fails);
    let grace = std::time::Duration::ZERO;
    let mut worker = stage.worker_with(handlers, WorkerConfig { shutdown_grace: grace, ..named("one") });
    let failed = stage.queue.emit(on("fails")).await.unwrap().id;
    worker.until(failed, Outcome::RetryAllowed).await;
    assert_eq!(stage.worker_of(failed).await, None);
    let cut = stage.queue.emit(on("index")).await.unwrap().id;
    assert_eq!(starts.recv().await, Some(cut));
    assert_eq!(stage.worker_of(cut).await.as_deref(), Some("one"));
    worker.stop().await;
    assert_eq!(stage.worker_of(cut).await, None, "released");
    let by = wakeq::Actor::user("ada");
    stage.admin.pause(&scope("index"), &by, &wakeq::Stop::default()).await.unwrap();
    let (waits, _, _gate) = waiting(&["index"]);
    let mut worker: RunningWorker = stage.worker_with(waits, named("two"));
    stage.admin.wake(true).await.unwrap();
    worker.until(cut, Outcome::RulePaused).await;
    assert_eq!((stage.worker_of(cut).await, stage.hands_on(CanvasId::DEFAULT).await), (None, vec![]));
    worker.stop().await;
}

/// The event of a killed worker goes to another one, with another name.
// Shows: ORD-12, ORD-14, ORD-15
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_killed_worker_s_event_becomes_another_s() {
    let scene = CrashScene::new("heir", Durations::quick()).await;
    let of = "select worker::text from wakeq.events_v2";
    let owner = async || -> Option<String> { sqlx::query_scalar(of).fetch_one(&scene.pool).await.unwrap() };
    let victim = scene.worker(8).await;
    let on = Event::new(WORK, &Work::lasting(3_000)).unwrap().on("work:1").unwrap();
    scene.queue.emit(on).await.unwrap();
    scene.until_at_least("select count(*) from runs", 1).await;
    let before = owner().await.expect("it is the victim's");
    scene.kill_9(&victim).await;
    let _heir = scene.worker(8).await;
    scene.until_at_least("select count(*) from runs", 2).await;
    let after = owner().await.expect("it is the heir's");
    assert_ne!(before, after);
    let shown = scene.admin.running(CanvasId::DEFAULT, &key(), 1000).await.unwrap();
    let workers: Vec<_> = shown.iter().map(|hand| hand.worker.as_ref().map(Name::as_str)).collect();
    assert_eq!(workers, [Some(&*after)]);
    scene.until_empty().await;
    assert_eq!(scene.admin.running(CanvasId::DEFAULT, &key(), 1000).await.unwrap(), []);
}

/// A canvas sees which worker works on its own object of that name, but not on another's;
/// copies only if their queue shows them.
// Shows: ORD-12
#[tokio::test]
async fn a_canvas_sees_only_workers_of_its_own_objects() {
    let (stage, _) = Stage::memory().await;
    let by = wakeq::Actor::admin("ada");
    for (name, tenant_visible) in [("hidden", false), ("shown", true)] {
        let queue =
            NewQueue { patterns: vec![":usage:".parse().unwrap()], tenant_visible, ..NewQueue::default() };
        stage.admin.put_queue(&name.parse().unwrap(), &queue, &by).await.unwrap();
    }
    let copied = |name| on(name).module("usage").unwrap().only_to_queues();
    for name in ["a", "c", "e"] {
        stage.queue.emit(on(name).canvas(OTHER)).await.unwrap();
    }
    let own = vec![on("b"), on("d"), copied("b"), copied("a").canvas(OTHER)];
    let first = stage.queue.emit_all(own).await.unwrap()[1].id;
    let claim = "update wakeq.events_v2 set locked_at = now(), claims = 1, worker = 'of-' || right(canvas_id::text, 1)";
    stage.execute(claim).await;
    stage.queue.emit(on("d")).await.unwrap();
    let seen = async |admin: &wakeq::Admin, canvas| {
        let shown = |hand: InHand| {
            let queue = hand.lane.queue.map(|queue| format!(" in {queue}")).unwrap_or_default();
            format!("{}{queue}: {}", hand.lane.scope.name, hand.worker.unwrap())
        };
        let hands = admin.running(canvas, &key(), 1000).await.unwrap();
        hands.into_iter().map(shown).collect::<Vec<_>>()
    };
    let tenants = stage.admin.for_tenants();
    assert_eq!(seen(&tenants, CanvasId::DEFAULT).await, ["b: of-0", "d: of-0", "b in shown: of-0"]);
    assert_eq!(seen(&tenants, OTHER).await, ["a: of-7", "c: of-7", "e: of-7", "a in shown: of-7"]);
    let all = seen(&stage.admin, CanvasId::DEFAULT).await;
    assert_eq!(all, ["b: of-0", "d: of-0", "b in hidden: of-0", "b in shown: of-0"]);
    assert_eq!(stage.hands_on(CanvasId::DEFAULT).await[1].event, first, "the first of its lane");
}

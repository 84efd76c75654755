//! Order, from the emit to the handler: chains, lanes, hand-overs, and halts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use wakeq::machine::{CheckResult, Consumption, Link, Outcome, consume};
use wakeq::notify::{Notification, Notifier};
use wakeq::order::{Lane, ObjectKey, Place};
use wakeq::testing::TestKit;
use wakeq::{
    Actor, CanvasId, EmitError, Emitted, Event, EventError, EventId, Execution, HandlerError, HandlerResult,
    Handlers, Queue, QueueConfig, RetryPolicy, Route, Store, StoreConfig,
};

use crate::support::crash_scene::{figure, size};
use crate::support::handlers::answering;
use crate::support::{Stage, TIMEOUT, capacity, patient, quick, scope, stop_all};

const HANDLER: &str = "index";

fn key(object: &str) -> ObjectKey {
    object.parse().unwrap()
}

fn on(object: &str, value: i64) -> Event {
    Event::new(HANDLER, &value).unwrap().on(object).unwrap()
}

/// Emits these values on an object, in one batch.
async fn emit_on(stage: &Stage, object: &str, values: std::ops::Range<i64>) -> Vec<Emitted> {
    stage.queue.emit_all(values.map(|value| on(object, value)).collect()).await.unwrap()
}

/// What was run, in order.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<(ObjectKey, Link)>>>);

impl Log {
    fn handler(&self) -> Handlers {
        let log = self.clone();
        Handlers::new().on(HANDLER, answering(move |event| log.write(event)).0)
    }

    /// Fails with these values, and halts the object of an event that dies.
    fn halting(&self, retry: RetryPolicy, fails: Arc<Mutex<BTreeSet<i64>>>) -> Handlers {
        let log = self.clone();
        let (handler, _) =
            answering(move |event| match fails.lock().unwrap().contains(&event.value::<i64>()?) {
                true => Err(HandlerError::operational("broken")),
                false => log.write(event),
            });
        Handlers::new().on(Route::new(HANDLER).retry(retry).halt_on_death(), handler)
    }

    fn write(&self, event: &Execution) -> HandlerResult {
        let Place { object, link } = event.place.clone().expect("it is on an object");
        self.0.lock().unwrap().push((object, link));
        Ok(())
    }

    /// The links of each object, in the order in which they ran.
    fn chains(&self) -> BTreeMap<ObjectKey, Vec<Link>> {
        let mut chains: BTreeMap<ObjectKey, Vec<Link>> = BTreeMap::new();
        for (object, link) in self.0.lock().unwrap().iter() {
            chains.entry(object.clone()).or_default().push(*link);
        }
        chains
    }
}

#[track_caller]
fn assert_chain(links: &[Link], count: usize) {
    assert_eq!(links.len(), count, "each once");
    let mut last = 0;
    for link in links {
        assert_eq!((link.prev, consume(last, *link)), (last, Consumption::Consume), "{links:?}");
        last = link.id;
    }
}

/// ORD-07: whatever emits and runs them, however often and in whatever order the notifications
/// come, the events of each object run in the order of its chain, without a gap, each once.
// Shows: ORD-01, ORD-03, ORD-13, ORD-29
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn events_of_an_object_run_in_their_order() {
    let (stage, notifier) = Stage::memory_with(patient()).await;
    let (objects, each) = (12, 20_i64);
    let mut emitters = tokio::task::JoinSet::new();
    for emitter in 0..4 {
        let queue = stage.queue.clone();
        emitters.spawn(async move {
            for value in 0..each / 4 {
                for object in 0..objects {
                    let emitted = queue.emit(on(&format!("work:{object}"), value)).await.unwrap();
                    let link = emitted.link.unwrap();
                    assert!(link.prev < link.id, "emitter {emitter}: {link:?}");
                }
            }
        });
    }
    let log = Log::default();
    let workers: Vec<_> = (0..4).map(|_| stage.worker(log.handler())).collect();
    while let Some(ended) = emitters.join_next().await {
        ended.unwrap();
    }
    // Once more, in reverse.
    let mut again = notifier.published();
    again.reverse();
    notifier.publish(&again).await.unwrap();
    stage.until_empty().await;
    let chains = log.chains();
    assert_eq!(chains.len(), objects as usize);
    chains.values().for_each(|links| assert_chain(links, each as usize));
    stop_all(workers).await;
}

/// An object with a slow event delays no other object, no other handler, and nothing without an
/// object.
// Shows: ORD-05, ORD-20
#[tokio::test]
async fn a_slow_object_delays_no_other() {
    let (stage, _) = Stage::memory().await;
    let (gate, (started, mut starts)) = (Arc::new(Semaphore::new(0)), mpsc::channel(100));
    let open = Arc::clone(&gate);
    let handler = move |event: Execution| {
        let (gate, started) = (Arc::clone(&open), started.clone());
        async move {
            started.send(event.value::<i64>()?).await?;
            if event.place.is_some_and(|place| place.object.as_str() == "slow") {
                let _permit = gate.acquire().await?;
            }
            Ok(())
        }
    };
    let mut worker = stage.worker(Handlers::new().on(HANDLER, handler.clone()).on("other", handler));
    stage.queue.emit(on("slow", 1)).await.unwrap();
    assert_eq!(starts.recv().await, Some(1));
    let behind = stage.queue.emit(on("slow", 2)).await.unwrap().id;
    worker.until(behind, Outcome::EarlierLeft).await;
    stage.queue.emit(on("quick", 3)).await.unwrap();
    assert_eq!(starts.recv().await, Some(3));
    stage.queue.emit(Event::new(HANDLER, &4).unwrap()).await.unwrap();
    assert_eq!(starts.recv().await, Some(4));
    stage.queue.emit(Event::new("other", &5).unwrap().on("slow").unwrap()).await.unwrap();
    assert_eq!(starts.recv().await, Some(5), "another handler's lane");
    let live = stage.live(CanvasId::DEFAULT, behind).await;
    assert_eq!(live.state, CheckResult::Behind);
    assert!(live.first.is_some_and(|(first, _)| first != behind));
    gate.add_permits(1);
    assert_eq!(starts.recv().await, Some(2), "its turn");
    worker.stop().await;
}

/// The next event of an object starts on the worker where the one before it ended, and no
/// notification is published for that.
// Shows: ORD-21
#[tokio::test]
async fn the_next_event_goes_on_at_the_same_worker() {
    let (stage, notifier) = Stage::memory().await;
    let count = 30;
    let emitted = emit_on(&stage, "work:1", 0..count).await;
    let ids: Vec<EventId> = emitted.into_iter().map(|emitted| emitted.id).collect();
    // Only the first one's notification is delivered.
    notifier.forget_everything();
    notifier.publish(&[Notification::new(ids[0], CanvasId::DEFAULT)]).await.unwrap();
    let published = notifier.published().len();
    let log = Log::default();
    let mut worker = stage.worker_with(log.handler(), capacity(1));
    let runs = worker.until_count(count as usize, Outcome::HandedOver).await;
    assert_eq!(runs.iter().map(|run| run.notification.id).collect::<Vec<_>>(), ids);
    assert_eq!(notifier.published().len(), published);
    assert_chain(&log.chains()[&key("work:1")], count as usize);
    worker.stop().await;
}

/// A long chain does not keep its capacity slot: others have their turn in between.
#[tokio::test]
async fn a_long_chain_lets_others_in() {
    let (stage, notifier) = Stage::memory().await;
    let first = emit_on(&stage, "work:1", 0..200).await[0].id;
    let last = stage.emit("other").await;
    // Only the notifications of these two are delivered.
    notifier.forget_everything();
    let canvas = CanvasId::DEFAULT;
    notifier.publish(&[first, last].map(|id| Notification::new(id, canvas))).await.unwrap();
    let log = Log::default();
    let (other, mut others) = mpsc::channel(1);
    let (seen, runs) = (log.clone(), log.clone());
    let handlers = seen.handler().on("other", move |_| {
        let (other, at) = (other.clone(), runs.0.lock().unwrap().len());
        async move { Ok(other.send(at).await?) }
    });
    let worker = stage.worker_with(handlers, capacity(1));
    let at = tokio::time::timeout(TIMEOUT, others.recv()).await.unwrap().unwrap();
    assert!(at < 200, "it ran after {at} of the chain");
    worker.stop().await;
}

/// The object is halted, is shown, and resumes with the event that died, or without it.
#[tokio::test]
async fn a_halted_object_waits_for_an_operator() {
    let (stage, _) = Stage::memory().await;
    let (log, broken) = (Log::default(), Arc::new(Mutex::new(BTreeSet::from([0, 1]))));
    let retry = RetryPolicy { retries: 0, ..RetryPolicy::default() };
    let mut worker = stage.worker(log.halting(retry, Arc::clone(&broken)));
    let emitted = emit_on(&stage, "work:1", 0..4).await;
    worker.until(emitted[0].id, Outcome::HandedOver).await;
    let halted = stage.admin.halted(CanvasId::DEFAULT, None, 10).await.unwrap().items;
    let lane = Lane { scope: scope(HANDLER), object: key("work:1"), queue: None };
    let halted: Vec<_> = halted.iter().map(|halted| (&halted.lane, halted.event)).collect();
    assert_eq!(halted, [(&lane, emitted[0].id)]);
    assert_eq!(stage.admin.stats(&scope(HANDLER)).await.unwrap().unwrap().halted, 1);
    worker.until(stage.queue.emit(on("work:2", 9)).await.unwrap().id, Outcome::HandedOver).await;
    let live = stage.live(CanvasId::DEFAULT, emitted[1].id).await;
    assert_eq!((live.state, live.state.outcome()), (CheckResult::Halted, Outcome::ObjectHalted));
    // The first is mended and redriven: it runs before those that waited. The second dies in its
    // turn.
    broken.lock().unwrap().remove(&0);
    stage.admin.redrive_one(CanvasId::DEFAULT, emitted[0].id, &Actor::admin("ops")).await.unwrap();
    worker.until(emitted[1].id, Outcome::HandedOver).await;
    assert_eq!(log.chains()[&key("work:1")], [emitted[0].link.unwrap()]);
    assert!(stage.admin.skip(&lane, &Actor::admin("ops")).await.unwrap());
    worker.until(emitted[3].id, Outcome::HandedOver).await;
    let ran: Vec<Link> = [0, 2, 3].map(|at| emitted[at].link.unwrap()).to_vec();
    assert_eq!(log.chains()[&key("work:1")], ran);
    assert!(!stage.admin.skip(&lane, &Actor::admin("ops")).await.unwrap());
    worker.stop().await;
}

/// In the caller's own transaction, together with its other work; a rollback leaves nothing.
// Shows: ORD-06, ORD-19
#[tokio::test]
async fn a_change_is_part_of_the_callers_transaction() {
    let (stage, _) = Stage::memory().await;
    for commits in [false, true] {
        let mut transaction = stage.pool.begin().await.unwrap();
        let (main, subevents) = (Event::new(HANDLER, &1).unwrap(), vec![Event::new(HANDLER, &2).unwrap()]);
        let state = Some(r#"{"title":"Emma"}"#);
        let receipts =
            stage.queue.emit_on_in(&mut transaction, "work:1/post:7", main, subevents, state).await.unwrap();
        let links: Vec<Link> = receipts.iter().map(|receipt| receipt.link().unwrap()).collect();
        assert_eq!((links[0].prev, links[1].prev), (0, links[0].id));
        let object = async || stage.queue.object(CanvasId::DEFAULT, "work:1").await.unwrap();
        if commits {
            transaction.commit().await.unwrap();
            let object = object().await.unwrap();
            assert_eq!((object.last_id, object.state.as_deref()), (links[1].id, state));
            for receipt in receipts {
                assert!(receipt.notify().await.notified);
            }
        } else {
            transaction.rollback().await.unwrap();
            assert_eq!((object().await, stage.rows().await), (None, 0));
        }
    }
}

#[tokio::test]
async fn rejects_invalid_changes_of_an_object() {
    let (stage, _) = Stage::memory().await;
    let event = || Event::new(HANDLER, &1).unwrap();
    let queue = &stage.queue;
    assert!(matches!(event().on("a b"), Err(EventError::Object(_))));
    let refused = queue.emit_on("a b", event(), Vec::new(), None).await;
    assert!(matches!(refused, Err(EmitError::Event(EventError::Object(_)))), "{refused:?}");
    let refused = queue.emit_on("a", event(), Vec::new(), Some("no json")).await;
    assert!(matches!(refused, Err(EmitError::Event(EventError::Value(_)))), "{refused:?}");
    let elsewhere = event().canvas(CanvasId(uuid::Uuid::from_u128(7)));
    let refused = queue.emit_on("a", event(), vec![elsewhere], None).await;
    assert!(matches!(refused, Err(EmitError::OtherCanvas)), "{refused:?}");
    let large = format!("\"{}\"", "x".repeat(300 * 1024));
    let refused = queue.emit_on("a", event(), Vec::new(), Some(&large)).await;
    assert!(matches!(refused, Err(EmitError::Event(EventError::TooLarge { .. }))), "{refused:?}");
    assert_eq!((stage.rows().await, queue.object(CanvasId::DEFAULT, "a").await.unwrap()), (0, None));
}

/// Objects of the same name on two canvases are independent.
#[tokio::test]
async fn objects_of_two_canvases_are_two() {
    let (stage, _) = Stage::memory().await;
    let elsewhere = CanvasId(uuid::Uuid::from_u128(7));
    let here = stage.queue.emit(on("work:1", 1)).await.unwrap().link.unwrap();
    let there = stage.queue.emit(on("work:1", 2).canvas(elsewhere)).await.unwrap();
    assert_eq!((here.prev, there.link.unwrap().prev), (0, 0));
    let log = Log::default();
    let mut worker = stage.worker(log.handler());
    worker.until(there.id, Outcome::HandedOver).await;
    worker.stop().await;
}

/// Two consumers receive an object's events in arbitrary orders, and consume the same in the same
/// order.
// Shows: ORD-02
#[tokio::test]
async fn two_consumers_see_the_same_order() {
    let (stage, _) = Stage::memory().await;
    let emitted = emit_on(&stage, "work:1", 0..10).await;
    let links: Vec<Link> = emitted.into_iter().filter_map(|emitted| emitted.link).collect();
    let consumed = |sent: Vec<Link>| {
        let (mut waiting, mut last, mut consumed) = (std::collections::VecDeque::from(sent), 0, Vec::new());
        while let Some(link) = waiting.pop_front() {
            match consume(last, link) {
                Consumption::Consume => {
                    last = link.id;
                    consumed.push(link);
                }
                Consumption::Delay => waiting.push_back(link),
                Consumption::Done => {}
            }
        }
        consumed
    };
    let backwards = links.iter().rev().copied().collect();
    let doubled = links.iter().skip(3).chain(&links).copied().collect();
    assert_eq!((consumed(backwards), consumed(doubled)), (links.clone(), links));
}

/// 32 emitters, each with a connection of its own: no fork, no `prev` that is not smaller, and no
/// id that is committed after a larger one of its object.
// Shows: ORD-07, ORD-08, ORD-10
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn ids_grow_in_the_order_of_the_commits() {
    let (stage, notifier) = Stage::memory().await;
    let (count, emitters, objects) = (size(2_000, 20_000), 32, 20);
    let ends: Arc<Vec<AtomicI64>> = Arc::new((0..objects).map(|_| AtomicI64::new(0)).collect());
    let started = tokio::time::Instant::now();
    let mut emitting = tokio::task::JoinSet::new();
    for emitter in 0..emitters {
        let config = StoreConfig { max_connections: 1, ..StoreConfig::default() };
        let store = Store::connect(stage.database.url(), config).await.unwrap();
        let queue = Queue::new(store, notifier.clone(), QueueConfig::default());
        let ends = Arc::clone(&ends);
        emitting.spawn(async move {
            for at in 0..count / emitters {
                let object = (emitter * 7 + at * 3) % objects;
                let known = ends[object].load(Ordering::SeqCst);
                let event = on(&format!("work:{object}"), at as i64);
                let link = until_free(&queue, event).await;
                assert!(known <= link.prev && link.prev < link.id, "{link:?} after {known} was committed");
                ends[object].fetch_max(link.id, Ordering::SeqCst);
            }
        });
    }
    // The largest visible id of each object at each look, and the number of its events then.
    let looked = "select object::text, max(seq), count(*) from wakeq.events_v2 group by object";
    let mut seen: BTreeSet<(String, i64, i64)> = BTreeSet::new();
    let mut looks = 0;
    while !emitting.is_empty() {
        let rows: Vec<(String, i64, i64)> = sqlx::query_as(looked).fetch_all(&stage.pool).await.unwrap();
        seen.extend(rows);
        looks += 1;
        while let Some(ended) = emitting.try_join_next() {
            ended.unwrap();
        }
    }
    let took = started.elapsed();
    let (objects_seen, (largest, with)): (Vec<String>, (Vec<i64>, Vec<i64>)) =
        seen.iter().map(|(object, id, count)| (object.clone(), (*id, *count))).unzip();
    // How many there are now up to that id: more, if one was committed later.
    let inverted =
        "with chains as (select object, seq, row_number() over (partition by object order by seq) as nth from wakeq.events_v2)
         select count(*) from unnest($1::text[], $2::bigint[], $3::bigint[]) as seen (object, largest, with_it)
             left join chains on chains.object = seen.object and chains.seq = seen.largest
          where chains.nth is distinct from seen.with_it";
    let inverted = sqlx::query_scalar(inverted).bind(&objects_seen).bind(&largest).bind(&with);
    let inverted: i64 = inverted.fetch_one(&stage.pool).await.unwrap();
    assert_eq!(inverted, 0, "ids were committed after larger ones");
    let whole = "select count(*) from (
        select prev, lag(seq, 1, 0::bigint) over (partition by object order by seq) as before from wakeq.events_v2) as e
          where prev = before";
    let emitted = count / emitters * emitters;
    assert_eq!(stage.count(whole).await, emitted as i64, "links of {objects} chains without gap or fork");
    figure("events by 32 emitters", format!("{emitted} on {objects} objects, in {took:.1?}"));
    figure("ends of chains that were seen on the way", format!("{} in {looks} looks", seen.len()));
}

/// Emits, repeating as long as the object is busy; returns the link.
async fn until_free(queue: &Queue, event: Event) -> Link {
    loop {
        match queue.emit(event.clone()).await {
            Ok(emitted) => return emitted.link.unwrap(),
            Err(EmitError::ObjectBusy(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The kit's tables in memory do the same as Postgres.
// Shows: ORD-09
#[tokio::test]
async fn the_kit_runs_objects_in_order() {
    let (stage, _) = Stage::memory_with(quick()).await;
    for mut kit in [TestKit::new(), TestKit::on(stage.store.clone())] {
        let log = Log::default();
        let retry = RetryPolicy { retries: 1, delay: Duration::from_secs(60), ..RetryPolicy::default() };
        kit.handlers(log.halting(retry, Arc::new(Mutex::new(BTreeSet::from([2]))))).unwrap();
        let main = Event::new(HANDLER, &1).unwrap();
        let subevents = vec![Event::new(HANDLER, &2).unwrap(), Event::new(HANDLER, &3).unwrap()];
        let emitted = kit.queue().emit_on("work:1", main, subevents, Some("7")).await.unwrap();
        kit.emit(on("work:2", 4)).await.unwrap();
        let drained = kit.drain_for(Duration::from_secs(3600)).await.unwrap();
        let counts = (drained.completed, drained.retried, drained.died, drained.waiting);
        assert_eq!(counts, (2, 1, 1, 1), "{drained}");
        let object = kit.queue().object(CanvasId::DEFAULT, "work:1").await.unwrap().unwrap();
        assert_eq!((object.last_id, object.state.as_deref()), (emitted[2].link.unwrap().id, Some("7")));
        let halted = kit.admin().halted(CanvasId::DEFAULT, None, 10).await.unwrap().items;
        assert_eq!((halted.len(), halted[0].event), (1, emitted[1].id));
        assert!(kit.admin().skip(&halted[0].lane, &Actor::admin("ops")).await.unwrap());
        let drained = kit.drain().await.unwrap();
        assert_eq!((drained.completed, drained.waiting), (1, 0), "{drained}");
        let ran: Vec<Link> = [0, 2].map(|at| emitted[at].link.unwrap()).to_vec();
        assert_eq!(log.chains()[&key("work:1")], ran);
    }
}

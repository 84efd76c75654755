//! Rounds with an effect that their stage can't perform.

use super::stage::Candidate;
use super::*;
use crate::event::{Actor, CanvasId, Claim, EventId, HandlerScope, LimitName, NewEvent, NewLimit, Timing};
use crate::machine::Removal;
use crate::notify::LocalNotifier;
use crate::store::{ClaimLimits, LimitedClaim, Store};
use crate::worker::permits::{PermitKind, Shortage};
use crate::worker::{Handlers, QueueWorker, Route, WorkerConfig};

fn worker() -> QueueWorker {
    let store = Store::in_memory(Timing::default()).unwrap();
    let handlers = Handlers::new().on(Route::new("export").concurrency(1), |_event| async { Ok(()) });
    QueueWorker::new(store, Arc::new(LocalNotifier::new()), handlers, WorkerConfig::default()).unwrap()
}

fn runner(worker: &QueueWorker) -> Runner {
    worker.runner(worker.leases(), 1)
}

fn row() -> Box<LoadedRow> {
    let [module, name, modifier] = ["WORKER", "export", "_"].map(|part| part.parse().unwrap());
    let scope = HandlerScope { canvas: CanvasId::DEFAULT, module, name };
    let address = HandlerAddress { scope, modifier };
    Box::new(LoadedRow {
        address,
        queue: None,
        is_pulled: false,
        losses: 0,
        value_bytes: 2,
        is_limited: false,
    })
}

fn notification() -> Notification {
    Notification::new(EventId::new(), CanvasId::DEFAULT)
}

/// A run is moved into its task, and each worker holds thousands: what is rare in it is boxed. What
/// an event asks for is in the machine's claim, and takes 40 of these bytes; the class of its
/// notification and the answers of limits take 300.
#[tokio::test]
async fn a_run_is_small() {
    let runner = runner(&worker());
    let run = runner.run(notification(), Permits::default());
    let bytes = size_of_val(&run);
    assert!(bytes < 4096 + 384, "{bytes} bytes: box the statement that was added");
}

#[tokio::test]
async fn an_impossible_effect_puts_the_notification_back() {
    let runner = runner(&worker());
    let notification = notification();
    let claim = Claim { id: notification.id, claims: 1, nonce: 0 };
    let mut run = Run { runner: &runner, notification, permits: Permits::default(), woken: false };
    for effect in [
        Effect::ClaimLock,
        Effect::RunHandler,
        Effect::PauseHandler,
        Effect::SaveRetry { claim, retries: 1, delay: Duration::ZERO },
        Effect::Release(claim),
        Effect::Remove(claim, Removal::Completed),
        Effect::Remove(claim, Removal::Cancelled),
        Effect::HandOver,
    ] {
        let (stage, answer) = run.perform(Stage::Row(row()), effect).await;
        assert!(matches!(answer, Err(RunEnd::Answer(Answer::PutBack))), "{answer:?}");
        assert_eq!(stage.name(), "Row");
        assert_eq!(stage.summary().address, Some(row().address));
    }
    let unexpected = UnexpectedEffect { stage: Stage::Arrival.name(), effect: Effect::HandOver };
    assert_eq!(unexpected.to_string(), "HandOver is impossible at the stage Arrival");
}

/// A round that ends before the claim reports the event all the same.
#[tokio::test]
async fn a_candidate_that_waits_for_room_keeps_what_is_known() {
    let worker = worker();
    let runner = runner(&worker);
    let handler = Arc::clone(worker.registry.find(&row().address).unwrap());
    let room = Arc::clone(handler.concurrency.as_ref().unwrap());
    let _busy = room.try_acquire_owned().unwrap();
    let (notification, permits) = (notification(), Permits::default());
    let mut run = Run { runner: &runner, notification, permits, woken: false };
    let candidate = Stage::Candidate(Candidate { row: row(), handler });
    let (stage, answer) = run.perform(candidate, Effect::ClaimLock).await;
    assert!(
        matches!(answer, Err(RunEnd::NeedsRoom(Shortage::Permits(PermitKind::Handler, _, 1)))),
        "{answer:?}"
    );
    assert_eq!(stage.name(), "Candidate");
    assert_eq!(stage.summary().address, Some(row().address));
}

/// A place is kept for an event that was woken. If there is no room for its handler here, the next
/// one gets it.
#[tokio::test]
async fn an_event_that_waits_for_room_leaves_its_place_of_a_limit_to_the_next() {
    let (worker, canvas) = (worker(), CanvasId::DEFAULT);
    let (runner, store) = (runner(&worker), &worker.store);
    let one = NewLimit { concurrency: Some(1), ..NewLimit::default() };
    store.put_limit(canvas, &LimitName::of_canvas(), &one, &Actor::user("ada")).await.unwrap();
    let event = || Arc::new(NewEvent::new(row().address, "1".into()));
    let events = [event(), event(), event()];
    store.insert(&events).await.unwrap();
    let told: Vec<_> = events.iter().map(|event| Notification::new(event.id, canvas)).collect();
    let limits = ClaimLimits {
        handlers: vec!["WORKER/export/_".to_owned()].into(),
        canvas_handlers: Vec::new(),
        losses_below: 5,
        value_max: i32::MAX,
    };
    let claims = store.claim_limited(&told, &limits).await.unwrap().claims;
    let [LimitedClaim::Claimed(running), LimitedClaim::Full(_), LimitedClaim::Full(_)] = &claims[..] else {
        panic!("there is one place: {claims:?}")
    };
    assert_eq!(store.complete(&[running.claim]).await.unwrap(), [true]);
    let woken = store.wake_waiting(running.held.as_deref().unwrap()).await.unwrap();
    let handler = Arc::clone(worker.registry.find(&row().address).unwrap());
    let room = Arc::clone(handler.concurrency.as_ref().unwrap());
    let _busy = room.try_acquire_owned().unwrap();
    let finished = runner.run(woken[0], Permits::default()).await;
    assert!(matches!(finished.end, RunEnd::NeedsRoom(_)), "{:?}", finished.end);
    let next = told[1..].iter().find(|next| **next != woken[0]).unwrap();
    let claims = store.claim_limited(&[*next], &limits).await.unwrap().claims;
    assert!(matches!(claims[..], [LimitedClaim::Claimed(_)]), "{claims:?}");
}

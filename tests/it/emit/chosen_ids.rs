//! Ids that callers choose count within their canvas: actions under an id never affect another
//! canvas's event, whether that canvas chose the same id or its event has that very id. And a
//! notification is not trusted about another canvas.

use uuid::Uuid;
use wakeq::control::{DeadFilter, Explanation};
use wakeq::events::{IdempotencyKey, Idempotent};
use wakeq::machine::Outcome;
use wakeq::notify::{Notification, Notifier};
use wakeq::queues::NewQueue;
use wakeq::{
    Actor, AdminError, CanvasId, EmitError, Event, EventId, Execution, HandlerError, Handlers, RetryPolicy,
    Route, StoreError,
};

use crate::support::{RunningWorker, Stage, Statements};

const MINE: CanvasId = CanvasId::DEFAULT;
const THEIRS: CanvasId = CanvasId(Uuid::from_u128(7));

fn ada() -> Actor {
    Actor::user("ada")
}

fn debit(canvas: CanvasId, object: &str) -> Event {
    Event::new("debit", &1).unwrap().canvas(canvas).on(object).unwrap()
}

/// A worker on which every debit dies and halts its object.
fn failing(stage: &Stage) -> RunningWorker {
    let never = RetryPolicy { retries: 0, ..RetryPolicy::default() };
    let route = Route::new("debit").retry(never).halt_on_death();
    let fails = |_: Execution| async { Err::<(), _>(HandlerError::operational("no money")) };
    stage.worker(Handlers::new().on(route, fails))
}

/// Emits an event that dies; returns its id.
async fn dies(stage: &Stage, worker: &mut RunningWorker, event: Event) -> EventId {
    let emitted = stage.queue.emit(event).await.unwrap();
    assert!(!emitted.duplicate, "it is nobody's on its canvas");
    worker.until(emitted.id, Outcome::HandedOver).await;
    emitted.id
}

/// Asserts that my event is still dead and still halts its object.
async fn untouched(stage: &Stage, mine: EventId) {
    let explained = stage.admin.explain(MINE, mine).await.unwrap();
    let Explanation::Dead(dead) = explained else { panic!("it is among the dead events") };
    assert_eq!((dead.id, dead.halts, dead.address.scope.canvas), (mine, true, MINE));
    let halted = stage.admin.halted(MINE, None, 10).await.unwrap().items;
    assert!(halted.iter().any(|lane| lane.event == mine), "{halted:?}");
    let filter = DeadFilter { canvas: MINE, ..DeadFilter::default() };
    let listed = stage.admin.dead(&filter, None, 10).await.unwrap().items;
    assert!(listed.iter().any(|dead| dead.id == mine), "{listed:?}");
}

/// Neither a death, nor a redrive, nor a deletion under my event's id removes it or resumes its
/// object.
#[tokio::test]
async fn other_canvases_cannot_affect_an_event_by_reusing_its_id() {
    let (stage, _) = Stage::memory().await;
    let mut worker = failing(&stage);
    let id = EventId::new();
    let mine = dies(&stage, &mut worker, debit(MINE, "acct:1").id(id)).await;
    assert_eq!(mine, EventId::chosen(MINE, id));
    for (number, chosen) in [id, mine].into_iter().enumerate() {
        let theirs = dies(&stage, &mut worker, debit(THEIRS, &format!("acct:{number}")).id(chosen)).await;
        assert_ne!(theirs, mine);
        untouched(&stage, mine).await;
        assert_eq!(stage.admin.redrive_one(THEIRS, chosen, &ada()).await.unwrap(), theirs);
        worker.until(theirs, Outcome::HandedOver).await;
        untouched(&stage, mine).await;
        let only = DeadFilter { canvas: THEIRS, id: Some(chosen), ..DeadFilter::default() };
        assert_eq!(stage.admin.delete_dead(&only, &ada(), false).await.unwrap().count, 1);
        untouched(&stage, mine).await;
    }
    for chosen in [id, mine] {
        let asked = stage.admin.redrive_one(THEIRS, chosen, &ada()).await;
        assert!(matches!(asked, Err(AdminError::NotFound(_))), "{asked:?}");
    }
    worker.stop().await;
    assert_eq!(stage.admin.redrive_one(MINE, id, &ada()).await.unwrap(), mine, "by the id that was chosen");
    assert!(stage.admin.halted(MINE, None, 10).await.unwrap().items.is_empty());
}

/// An event that waits for a hundred years under my event's id prevents neither redriving mine nor
/// emitting it.
#[tokio::test]
async fn other_canvases_cannot_reserve_an_id() {
    let (stage, _) = Stage::memory().await;
    let mut worker = failing(&stage);
    let (dead, id) = (EventId::new(), EventId::new());
    let mine = dies(&stage, &mut worker, debit(MINE, "acct:1").id(dead)).await;
    worker.stop().await;
    for chosen in [dead, mine, id, EventId::chosen(MINE, id)] {
        let far_off = Event::new("y", &1).unwrap().canvas(THEIRS).id(chosen);
        let far_off = far_off.at("2125-01-01T00:00:00Z".parse().unwrap()).unwrap();
        assert!(!stage.queue.emit(far_off).await.unwrap().duplicate, "{chosen}");
    }
    let all = DeadFilter { canvas: MINE, ..DeadFilter::default() };
    let redriven = stage.admin.redrive(&all, &ada(), false).await.unwrap();
    assert_eq!((redriven.count, redriven.more), (1, false));
    let explained = stage.admin.explain(MINE, dead).await.unwrap();
    assert!(matches!(explained, Explanation::Live(live) if live.id == mine));

    let event = || Event::new("y", &1).unwrap().id(id);
    assert!(!stage.queue.emit(event()).await.unwrap().duplicate);
    let batch = stage.queue.emit_all(vec![event(), event().canvas(THEIRS)]).await.unwrap();
    let duplicates: Vec<bool> = batch.iter().map(|one| one.duplicate).collect();
    assert_eq!(duplicates, [true, true], "each canvas its own");
    let [eight, nine] = [8, 9].map(|number| CanvasId(Uuid::from_u128(number)));
    let changed = stage.queue.emit_on("work:1", event().canvas(eight), vec![], None).await;
    assert!(!changed.unwrap()[0].duplicate);
    let key = IdempotencyKey::new(nine, "ada", "k", b"x").unwrap();
    let kept =
        stage.queue.emit_idempotent(&key, vec![event().canvas(nine)], |_| String::new()).await.unwrap();
    assert!(matches!(&kept, Idempotent::First { emitted, .. } if !emitted[0].duplicate), "{kept:?}");
}

/// A dead event keeps its id while it is kept: emitting the id again is a repeat, and overwrites
/// nothing.
#[tokio::test]
async fn a_dead_event_is_not_emitted_over() {
    let (stage, _) = Stage::memory().await;
    let mut worker = failing(&stage);
    let id = EventId::new();
    let mine = dies(&stage, &mut worker, debit(MINE, "acct:1").id(id)).await;
    stage.execute("delete from wakeq.emitted_ids").await;
    assert!(stage.queue.emit(debit(MINE, "acct:2").id(id)).await.unwrap().duplicate);
    assert!(stage.queue.emit(Event::new("debit", &2).unwrap().id(id)).await.unwrap().duplicate);
    untouched(&stage, mine).await;
    assert_eq!(stage.admin.value(MINE, id).await.unwrap().as_deref(), Some("1"));
    worker.stop().await;
}

/// Whatever has become of the first event, and however the second is emitted, which has no effect.
/// For the same handler it is a repeat.
async fn is_for_one_handler(stage: &Stage, id: EventId, mine: (EventId, &str)) {
    let (rows, event) = (stage.rows().await, |name: &str| Event::new(name, &1).unwrap());
    let other = || event("other").id(id);
    let taken = |error: EmitError| {
        let EmitError::Store(StoreError::IdTaken(taken)) = error else { panic!("{error}") };
        assert_eq!((taken.id, taken.name.as_str()), mine);
    };
    taken(stage.queue.emit(other()).await.unwrap_err());
    taken(stage.queue.emit(other().on("acct:1").unwrap()).await.unwrap_err());
    taken(stage.queue.emit_all(vec![event("before"), other(), event("after")]).await.unwrap_err());
    taken(stage.queue.emit_on("acct:1", event("main"), vec![other()], Some("1")).await.unwrap_err());
    let key = IdempotencyKey::new(MINE, "ada", "k", b"x").unwrap();
    let kept = stage.queue.emit_idempotent(&key, vec![event("before"), other()], |_| String::new()).await;
    taken(kept.unwrap_err());
    let mut transaction = stage.pool.begin().await.unwrap();
    taken(stage.queue.emit_in(&mut transaction, other()).await.map(|receipt| receipt.id()).unwrap_err());
    transaction.rollback().await.unwrap();
    let sql = sqlx::query("select from wakeq.emit('other', '1', id => $1)").bind(id.0);
    let raised = sql.execute(&stage.pool).await.unwrap_err();
    let raised = raised.as_database_error().unwrap();
    assert_eq!(
        (raised.code().as_deref(), raised.constraint()),
        (Some("23505"), Some("emitted_ids_one_handler"))
    );
    let again = stage.queue.emit(event(mine.1).modifier("eu").unwrap().id(id)).await.unwrap();
    assert_eq!((again.id, again.duplicate), (mine.0, true));
    assert_eq!(stage.rows().await, rows, "nothing was emitted");
}

/// While its event waits, when it is dead, and when only its id is left. What another canvas has
/// emitted under the same choice is not in the way, and stays.
#[tokio::test]
async fn a_chosen_id_is_for_one_handler() {
    let (stage, _) = Stage::memory().await;
    let (id, short) = (EventId::new(), EventId::new());
    let theirs = || Event::new("other", &1).unwrap().canvas(THEIRS).id(id);
    assert!(!stage.queue.emit(theirs()).await.unwrap().duplicate);
    let mine = stage.queue.emit(debit(MINE, "acct:2").id(id)).await.unwrap().id;
    is_for_one_handler(&stage, id, (mine, "debit")).await;
    let mut worker = failing(&stage);
    worker.until(mine, Outcome::HandedOver).await;
    worker.stop().await;
    stage.execute("delete from wakeq.emitted_ids").await;
    is_for_one_handler(&stage, id, (mine, "debit")).await;
    untouched(&stage, mine).await;

    let completed = stage.queue.emit(Event::new("greet", &1).unwrap().id(short)).await.unwrap().id;
    stage.execute("delete from wakeq.events_v2 where name = 'greet'").await;
    is_for_one_handler(&stage, short, (completed, "greet")).await;
    assert!(stage.queue.emit(theirs()).await.unwrap().duplicate);
}

/// Nothing of such a call is left, so that its id is free.
#[tokio::test]
async fn one_call_cannot_choose_an_id_for_two_handlers() {
    let (stage, _) = Stage::memory().await;
    let id = EventId::new();
    let event = |name: &str| Event::new(name, &1).unwrap().id(id);
    for second in [event("b"), event("b").on("acct:1").unwrap()] {
        let refused = stage.queue.emit_all(vec![event("a"), second]).await;
        assert!(matches!(refused, Err(EmitError::Store(StoreError::IdTaken(_)))), "{refused:?}");
    }
    assert_eq!(stage.rows().await, 0);
    let all = stage.queue.emit_all(vec![event("b"), event("b"), event("b").canvas(THEIRS)]).await.unwrap();
    assert_eq!(all.iter().map(|one| one.duplicate).collect::<Vec<_>>(), [false, true, false]);
}

/// A message with the id of one canvas's event and another canvas names no event: nothing runs or
/// gets a turn.
#[tokio::test]
async fn a_notification_for_another_canvas_changes_nothing() {
    let (stage, notifier) = Stage::memory().await;
    let emails = NewQueue { patterns: vec![":email_event:".parse().unwrap()], ..NewQueue::default() };
    stage.admin.put_queue(&"emails".parse().unwrap(), &emails, &ada()).await.unwrap();
    let event = stage.emit("greet").await;
    let copied = Event::new("opened", &1).unwrap().module("email_event").unwrap().only_to_queues();
    assert_eq!(stage.queue.emit(copied).await.unwrap().copies, 1);
    let copy: Uuid = stage.pool.value("select id from wakeq.events_v2 where queue is not null").await;
    let rows = "select string_agg(e::text, ' ' order by id) from wakeq.events_v2 e";
    let before: String = stage.pool.value(rows).await;
    notifier.forget_everything();
    let done = |_: Execution| async { Ok(()) };
    let handlers = Handlers::new().on("greet", done).on_queue("emails", done);
    let mut worker = stage.worker(handlers);
    for id in [event, EventId(copy)] {
        notifier.publish(&[Notification::new(id, THEIRS)]).await.unwrap();
        let report = worker.report().await;
        assert_eq!((report.notification.id, &report.trail[..]), (id, &[Outcome::EventMissing][..]));
    }
    let after: String = stage.pool.value(rows).await;
    assert_eq!(after, before);
    // Genuine ones run their events.
    notifier.publish(&[event, EventId(copy)].map(|id| Notification::new(id, MINE))).await.unwrap();
    worker.until_count(2, Outcome::Deleted).await;
    worker.stop().await;
    assert_eq!(stage.rows().await, 0);
}

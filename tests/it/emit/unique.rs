//! Unique keys from the library: the answers, what is refused, transactions of the caller, and what
//! workers, listeners and operators see of it.

use std::sync::Arc;
use std::time::Duration;

use wakeq::control::{DeadFilter, Explanation};
use wakeq::events::{IdempotencyKey, Idempotent, InvalidUnique, OnConflict, Unique, UniqueOutcome};
use wakeq::listeners::ListenItem;
use wakeq::machine::Outcome;
use wakeq::testing::MemoryNotifier;
use wakeq::{
    Actor, CanvasId, EmitError, Emitted, Event, EventError, EventId, HandlerError, Queue, QueueConfig, Stop,
    Timing,
};

use crate::support::{OTHER, Stage, TIMEOUT, once, patient, promised_late, scope};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

fn key() -> Unique {
    Unique::key("invoice:42").unwrap()
}

fn greeting() -> Event {
    Event::new("greet", "x").unwrap()
}

fn keyed(unique: Unique) -> Event {
    greeting().unique(unique).unwrap()
}

async fn emit(stage: &Stage, event: Event) -> (EventId, UniqueOutcome) {
    let emitted = stage.queue.emit(event).await.unwrap();
    assert!(!emitted.duplicate && emitted.link.is_none());
    (emitted.id, emitted.unique.expect("it has a key"))
}

/// The answer always says the id of the event that stands, and what was done. Another tenant's same
/// key is not concerned.
#[tokio::test]
async fn an_answer_says_which_event_stands_and_why() {
    let (stage, notifier) = Stage::memory().await;
    let first = stage.queue.emit(keyed(key())).await.unwrap();
    let inserted = Emitted {
        id: first.id,
        duplicate: false,
        link: None,
        copies: 0,
        notified: true,
        unique: Some(UniqueOutcome::Inserted),
    };
    assert_eq!(first, inserted);
    let kept = Emitted { notified: false, unique: Some(UniqueOutcome::Kept), ..first };
    assert_eq!(stage.queue.emit(keyed(key())).await.unwrap(), kept);
    let (theirs, outcome) = emit(&stage, keyed(key()).canvas(OTHER)).await;
    assert_eq!(outcome, UniqueOutcome::Inserted);

    let replaced = Event::new("greet", "y").unwrap().unique(key().on_conflict(OnConflict::Replace)).unwrap();
    assert_eq!(emit(&stage, replaced).await, (first.id, UniqueOutcome::Replaced));
    assert_eq!(notifier.published().len(), 2, "one of each event");
    let quiet = OnConflict::Postpone { by: 5 * SECOND, at_most: 60 * SECOND };
    let (id, postponed) = emit(&stage, keyed(key().on_conflict(quiet))).await;
    let live = stage.live(CanvasId::DEFAULT, first.id).await;
    assert_eq!((id, postponed), (first.id, UniqueOutcome::Postponed { due: live.delay_until }));
    assert!(live.delay_until - live.enqueued_at >= chrono::TimeDelta::seconds(5));
    assert_eq!(live.unique_key.as_deref(), Some("invoice:42"));
    assert_eq!(stage.admin.value(OTHER, theirs).await.unwrap().as_deref(), Some("\"x\""));
    let plain = stage.queue.emit(greeting()).await.unwrap();
    assert_eq!((plain.unique, stage.rows().await), (None, 3));
    assert_eq!(stage.live(CanvasId::DEFAULT, plain.id).await.unique_key, None);
}

/// A debounce delays the first event as well, unless that has a due time of its own.
#[tokio::test]
async fn a_debounce_delays_its_first_event() {
    let (stage, _) = Stage::memory().await;
    let quiet = || key().on_conflict(OnConflict::Postpone { by: HOUR, at_most: 2 * HOUR });
    let (id, _) = emit(&stage, keyed(quiet())).await;
    let live = stage.live(CanvasId::DEFAULT, id).await;
    assert_eq!(live.delay_until - live.enqueued_at, chrono::TimeDelta::hours(1));
    let own = keyed(quiet()).canvas(OTHER).after(SECOND).unwrap();
    let (id, _) = emit(&stage, own).await;
    let live = stage.live(OTHER, id).await;
    assert_eq!(live.delay_until - live.enqueued_at, chrono::TimeDelta::seconds(1));
}

#[tokio::test]
async fn what_excludes_a_key_is_refused() {
    let (stage, _) = Stage::memory().await;
    for (event, words) in [
        (keyed(key()).id(EventId::new()), "have an id of the caller's choice"),
        (keyed(key()).on("work:1").unwrap(), "be on an object"),
        (keyed(key()).only_to_queues(), "be only for queues"),
        (keyed(key()).logged(), "be appended to the log"),
    ] {
        for refused in [
            stage.queue.emit(event.clone()).await.unwrap_err(),
            stage.queue.emit_all(vec![greeting(), event.clone()]).await.unwrap_err(),
        ] {
            let expected = format!("an event with a unique key can't {words}: leave one of them out");
            assert!(
                matches!(refused, EmitError::Event(EventError::Unique(InvalidUnique::With(_)))),
                "{refused}"
            );
            assert_eq!(refused.to_string(), expected);
        }
    }
    let on_object = stage.queue.emit_on("work:1", keyed(key()), vec![], None).await.unwrap_err();
    assert!(on_object.to_string().contains("be on an object"), "{on_object}");
    assert_eq!(stage.rows().await, 0);
    let refused = |unique: Unique| greeting().unique(unique).unwrap_err().to_string();
    let words = "a unique key can be remembered for a microsecond to 366 days";
    assert_eq!(refused(key().remembered_for(Duration::ZERO)), words);
    let no_wait = OnConflict::Postpone { by: Duration::ZERO, at_most: SECOND };
    assert!(
        refused(key().on_conflict(no_wait)).contains("its longest wait must not be"),
        "its bounds are said"
    );
    assert!(Unique::key("no blanks").unwrap_err().to_string().contains("1 to 255 visible ASCII characters"));
}

/// Thirty-two emitters at once, over connections of several processes, make one event of each key,
/// and none gets an error, while a worker completes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_emitters_get_no_error() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let (worker, mut seen) = stage.recording("greet");
    let mut queues = vec![stage.queue.clone()];
    for _ in 0..2 {
        let store = stage.patient(patient()).await;
        queues.push(Queue::new(store, stage.notifier.clone(), QueueConfig::default()));
    }
    for round in 0..5 {
        let unique = || Unique::key(&format!("round:{round}")).unwrap().remembered_for(HOUR);
        let emits = (0..32).map(|number: usize| {
            let (queue, event) = (queues[number % queues.len()].clone(), keyed(unique()));
            tokio::spawn(async move { queue.emit(event).await.unwrap() })
        });
        let emitted: Vec<Emitted> =
            futures_util::future::join_all(emits).await.into_iter().map(|one| one.unwrap()).collect();
        assert!(emitted.iter().all(|one| one.id == emitted[0].id), "{emitted:?}");
        let new = emitted.iter().filter(|one| one.unique == Some(UniqueOutcome::Inserted)).count();
        assert_eq!((new, seen.next().await.id), (1, emitted[0].id));
    }
    worker.stop().await;
    assert_eq!((stage.rows().await, seen.rest().len()), (0, 0));
}

/// The handler gets the last value, once, although its first notification was for an earlier time.
#[tokio::test]
async fn a_postponed_event_runs_once_with_the_last_value() {
    let (stage, notifier) = Stage::memory_with(promised_late()).await;
    let (worker, mut seen) = stage.recording("greet");
    let quiet = OnConflict::Postpone { by: 3 * SECOND, at_most: 30 * SECOND };
    let mut last = None;
    for number in 0..20 {
        let event = Event::new("greet", &number).unwrap().unique(key().on_conflict(quiet)).unwrap();
        last = Some(emit(&stage, event).await);
    }
    let Some((id, UniqueOutcome::Postponed { due })) = last else { panic!("{last:?}") };
    let ran = seen.next().await;
    assert_eq!((ran.id, ran.json.as_str()), (id, "19"));
    assert!(ran.claimed_at >= due, "{} before {due}", ran.claimed_at);
    worker.stop().await;
    assert_eq!((seen.rest().len(), stage.rows().await, notifier.published().len()), (0, 0, 1));
}

/// An event that is made due earlier starts at once, although its worker waits for the later time.
#[tokio::test]
async fn a_replaced_event_starts_at_its_new_time() {
    let (stage, _) = Stage::memory_with(promised_late()).await;
    let (mut worker, mut seen) = stage.recording("greet");
    let (id, _) = emit(&stage, keyed(key()).after(30 * SECOND).unwrap()).await;
    worker.until(id, Outcome::DelayNotYet).await;
    let now = Event::new("greet", "now").unwrap().unique(key().on_conflict(OnConflict::Replace)).unwrap();
    let replaced = stage.queue.emit(now).await.unwrap();
    assert_eq!((replaced.id, replaced.unique), (id, Some(UniqueOutcome::Replaced)));
    assert!(replaced.notified, "it has to be woken");
    let ran = seen.next().await;
    assert_eq!((ran.id, ran.json.as_str()), (id, "\"now\""));
    assert!(ran.claimed_at - ran.enqueued_at < chrono::TimeDelta::seconds(30));
    worker.stop().await;
}

/// While one runs another can wait, and no third: the second runs after the first has begun.
#[tokio::test]
async fn one_runs_and_one_waits() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let (mut worker, mut door) = stage.door("greet");
    let (first, _) = emit(&stage, keyed(key())).await;
    assert_eq!(door.arrived.next().await.id, first);
    stage.admin.pause(&scope("greet"), &Actor::user("ada"), &Stop::default()).await.unwrap();
    let (second, outcome) = emit(&stage, keyed(key())).await;
    assert_eq!(outcome, UniqueOutcome::Inserted);
    for _ in 0..3 {
        assert_eq!(emit(&stage, keyed(key())).await, (second, UniqueOutcome::Kept));
    }
    assert_eq!(stage.live(CanvasId::DEFAULT, first).await.unique_key, None, "it has given its key on");
    door.open(2);
    worker.until(first, Outcome::Deleted).await;
    stage.admin.unpause(&scope("greet"), &Actor::user("ada")).await.unwrap();
    worker.until(second, Outcome::Deleted).await;
    worker.stop().await;
    assert_eq!(stage.rows().await, 0);
}

/// A dead event frees its key, and comes back without it beside the one that has it now.
#[tokio::test]
async fn a_dead_event_comes_back_without_its_key() {
    let (stage, _) = Stage::memory_with(patient()).await;
    let (mut worker, _seen) = stage.answering(once("greet"), |_| Err(HandlerError::operational("no")));
    let (first, _) = emit(&stage, keyed(key().until_ended())).await;
    worker.until(first, Outcome::Deleted).await;
    worker.stop().await;
    assert!(matches!(stage.admin.explain(CanvasId::DEFAULT, first).await.unwrap(), Explanation::Dead(_)));
    let (second, outcome) = emit(&stage, keyed(key().until_ended())).await;
    assert_eq!(outcome, UniqueOutcome::Inserted);
    let all = DeadFilter::default();
    assert_eq!(stage.admin.redrive(&all, &Actor::user("ada"), false).await.unwrap().count, 1);
    assert_eq!(stage.live(CanvasId::DEFAULT, first).await.unique_key, None);
    assert_eq!(emit(&stage, keyed(key().until_ended())).await, (second, UniqueOutcome::Kept));
}

/// In the caller's transaction: after a commit the key is taken, after a rollback it is as before.
#[tokio::test]
async fn a_key_shares_the_fate_of_the_callers_transaction() {
    let (stage, notifier) = Stage::memory().await;
    for commits in [false, true] {
        let mut transaction = stage.pool.begin().await.unwrap();
        let first = stage.queue.emit_in(&mut transaction, keyed(key())).await.unwrap();
        assert_eq!(first.unique(), Some(UniqueOutcome::Inserted));
        let again = stage.queue.emit_in(&mut transaction, keyed(key())).await.unwrap();
        assert_eq!((again.id(), again.unique()), (first.id(), Some(UniqueOutcome::Kept)));
        if commits {
            transaction.commit().await.unwrap();
            assert!(first.notify().await.notified && !again.notify().await.notified);
        } else {
            transaction.rollback().await.unwrap();
            assert_eq!((stage.rows().await, notifier.published().len()), (0, 0));
        }
    }
    let standing = emit(&stage, keyed(key())).await;
    assert_eq!((standing.1, stage.rows().await), (UniqueOutcome::Kept, 1));
    let mut transaction = stage.pool.begin().await.unwrap();
    let replaced = Event::new("greet", "y").unwrap().unique(key().on_conflict(OnConflict::Replace)).unwrap();
    let receipt = stage.queue.emit_in(&mut transaction, replaced).await.unwrap();
    assert_eq!((receipt.id(), receipt.unique()), (standing.0, Some(UniqueOutcome::Replaced)));
    transaction.rollback().await.unwrap();
    let value = stage.admin.value(CanvasId::DEFAULT, standing.0).await.unwrap();
    assert_eq!(value.as_deref(), Some("\"x\""));
}

/// A transaction that has the key for longer than emitters wait: they are told what holds them up.
#[tokio::test]
async fn an_emitter_does_not_wait_for_ever() {
    let (stage, _) = Stage::memory().await;
    let mut transaction = stage.pool.begin().await.unwrap();
    let held = stage.queue.emit_in(&mut transaction, keyed(key())).await.unwrap();
    let error = stage.queue.emit(keyed(key())).await.unwrap_err();
    assert!(matches!(error, EmitError::ObjectBusy(_)), "{error}");
    assert!(error.to_string().contains("unique key"), "{error}");
    assert_eq!(emit(&stage, keyed(key()).canvas(OTHER)).await.1, UniqueOutcome::Inserted);
    stage.queue.emit(greeting()).await.unwrap();
    transaction.rollback().await.unwrap();
    drop(held);
    assert_eq!(emit(&stage, keyed(key())).await.1, UniqueOutcome::Inserted);
}

/// Of two events with the same key in one call, the second meets the first.
#[tokio::test]
async fn events_of_one_call_meet_each_other() {
    let (stage, _) = Stage::memory().await;
    let valued = |value: &str, conflict| {
        Event::new("greet", value).unwrap().unique(key().on_conflict(conflict)).unwrap()
    };
    let events = vec![
        valued("a", OnConflict::Keep),
        greeting(),
        valued("b", OnConflict::Keep),
        valued("c", OnConflict::Replace),
        valued("d", OnConflict::Keep).canvas(OTHER),
    ];
    let emitted = stage.queue.emit_all(events).await.unwrap();
    let outcomes: Vec<_> = emitted.iter().map(|one| one.unique).collect();
    let (inserted, kept, replaced) = (UniqueOutcome::Inserted, UniqueOutcome::Kept, UniqueOutcome::Replaced);
    assert_eq!(outcomes, [Some(inserted), None, Some(kept), Some(replaced), Some(inserted)]);
    assert!([2, 3].iter().all(|at| emitted[*at].id == emitted[0].id) && emitted[4].id != emitted[0].id);
    let notified: Vec<_> = emitted.iter().map(|one| one.notified).collect();
    assert_eq!(notified, [true, true, false, false, true]);
    let value = stage.admin.value(CanvasId::DEFAULT, emitted[0].id).await.unwrap();
    assert_eq!((value.as_deref(), stage.rows().await), (Some("\"c\""), 3));
}

/// A request that is repeated under an idempotency key gets the first answer, whatever has become
/// of the unique key since.
#[tokio::test]
async fn an_idempotency_key_repeats_what_was_done() {
    let (stage, _) = Stage::memory().await;
    let asked = IdempotencyKey::new(CanvasId::DEFAULT, "ada", "k", b"body").unwrap();
    let other = IdempotencyKey::new(CanvasId::DEFAULT, "ada", "other", b"body").unwrap();
    let answer = |emitted: &[Emitted]| format!("{} {:?}", emitted[0].id, emitted[0].unique);
    let once =
        async |asked: &IdempotencyKey| stage.queue.emit_idempotent(asked, vec![keyed(key())], answer).await;
    let Idempotent::First { answer: first, emitted } = once(&asked).await.unwrap() else {
        panic!("it is new")
    };
    assert_eq!(emitted[0].unique, Some(UniqueOutcome::Inserted));
    let Idempotent::First { emitted: again, .. } = once(&other).await.unwrap() else { panic!("it is new") };
    assert_eq!((again[0].id, again[0].unique), (emitted[0].id, Some(UniqueOutcome::Kept)));
    stage.execute("delete from wakeq.events_v2").await;
    assert_eq!(once(&asked).await.unwrap(), Idempotent::Replayed { answer: first });
    assert_eq!(stage.rows().await, 0);
}

/// Listeners are told of an event when it is new, and not again.
#[tokio::test]
async fn listeners_hear_of_new_events() {
    let notifier = Arc::new(MemoryNotifier::new().broadcasting());
    let stage = Stage::with(notifier, Timing::default()).await;
    let mut listener = stage.queue.subscribe("*:WORKER:greet").await.unwrap();
    let (first, _) = emit(&stage, keyed(key())).await;
    emit(&stage, keyed(key())).await;
    emit(&stage, keyed(key().on_conflict(OnConflict::Replace))).await;
    let plain = stage.queue.emit(greeting()).await.unwrap().id;
    for expected in [first, plain] {
        let heard = tokio::time::timeout(TIMEOUT, listener.next()).await.unwrap();
        let Some(ListenItem::Event(heard)) = heard else { panic!("{heard:?}") };
        assert_eq!(heard.id, expected);
    }
}

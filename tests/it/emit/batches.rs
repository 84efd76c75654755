//! Batches with workers: callers that close at once, follow-ups, the caller's own transactions, and
//! processes that die between the end of a member and the look.

use std::sync::Arc;

use tokio::task::JoinSet;
use wakeq::events::BatchState;
use wakeq::{CanvasId, Event, EventError, Handlers};

use crate::support::handlers::recording;
use crate::support::{OTHER, Stage};

const MEMBERS: usize = 200;

fn member(value: usize) -> Event {
    Event::new("row", &value).unwrap().batch("import").unwrap()
}

/// Two workers race on the last members, and thirty-two callers close the batch while they do: one
/// event, with the right counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_ends_once_however_many_look() {
    let (stage, _) = Stage::memory().await;
    let stage = Arc::new(stage);
    let (imported, mut ends) = recording();
    let handlers = || Handlers::new().on("row", |_event| async { Ok(()) }).on("imported", imported.clone());
    let workers = [stage.worker(handlers()), stage.worker(handlers())];
    let batch = stage.queue.batch("import").unwrap();
    batch.open(Event::new("imported", &7).unwrap()).await.unwrap();
    let theirs = batch.clone().canvas(OTHER);
    theirs.open(Event::new("imported", &8).unwrap()).await.unwrap();
    stage.queue.emit_all((0..MEMBERS).map(member).collect()).await.unwrap();
    let mut closers = JoinSet::new();
    for _ in 0..32 {
        let batch = batch.clone();
        closers.spawn(async move { batch.close().await.unwrap() });
    }
    closers.join_all().await;
    let event = ends.next().await;
    let value: serde_json::Value = event.value().unwrap();
    assert_eq!((&value["completed"], &value["total"]), (&MEMBERS.into(), &MEMBERS.into()));
    assert_eq!((&value["batch"], &value["value"]), (&"import".into(), &7.into()));
    stage.until_empty().await;
    assert!(ends.rest().is_empty(), "it was emitted once");
    assert_eq!(theirs.progress().await.unwrap().batch.state, BatchState::Open);
    for worker in workers {
        worker.stop().await;
    }
}

/// The processes that ended the last members have died before they looked.
#[tokio::test]
async fn the_minutes_pass_ends_what_no_process_has_looked_at() {
    let (stage, notifier) = Stage::memory().await;
    let batch = stage.queue.batch("import").unwrap();
    batch.open(Event::new("imported", &7).unwrap()).await.unwrap();
    stage.queue.emit(member(1)).await.unwrap();
    batch.close().await.unwrap();
    stage.execute("delete from wakeq.events_v2").await;
    assert_eq!(batch.progress().await.unwrap().batch.state, BatchState::Closed);
    stage.admin.wake(true).await.unwrap();
    let ended = batch.progress().await.unwrap();
    assert_eq!((ended.batch.state, ended.counts.completed), (BatchState::Ended, 1));
    let event = ended.batch.event;
    let published = notifier.published().iter().filter(|told| told.id == event).count();
    assert_eq!(published, 1, "its event was published");
    let live = stage.live(CanvasId::DEFAULT, event).await;
    assert_eq!(live.address.scope.name.as_str(), "imported");
    stage.admin.wake(true).await.unwrap();
    assert_eq!(stage.rows().await, 1);
}

/// A member that is emitted in a transaction is one from its commit on; rolled back, it never was.
#[tokio::test]
async fn members_are_emitted_in_transactions() {
    let (stage, _) = Stage::memory().await;
    let batch = stage.queue.batch("import").unwrap();
    batch.open(Event::new("imported", &7).unwrap()).await.unwrap();
    for commits in [true, false] {
        let mut transaction = stage.pool.begin().await.unwrap();
        let receipt = stage.queue.emit_in(&mut transaction, member(1)).await.unwrap();
        if commits {
            transaction.commit().await.unwrap();
            receipt.notify().await;
        } else {
            transaction.rollback().await.unwrap();
        }
    }
    assert_eq!(batch.progress().await.unwrap().left, 1);
    let mut transaction = stage.pool.begin().await.unwrap();
    let elsewhere = member(1).canvas(OTHER);
    let refused = stage.queue.emit_in(&mut transaction, elsewhere).await.err().unwrap().to_string();
    assert!(refused.contains("was never opened"), "{refused}");
}

#[tokio::test]
async fn what_excludes_a_batch_is_refused() {
    let (stage, _) = Stage::memory().await;
    let key = wakeq::events::Unique::key("k").unwrap();
    for (event, words) in [
        (member(1).unique(key).unwrap(), "have a unique key"),
        (member(1).only_to_queues(), "be only for queues"),
    ] {
        let refused = stage.queue.emit(event).await.unwrap_err().to_string();
        assert_eq!(refused, format!("an event of a batch can't {words}: leave one of them out"));
    }
    let refused = Event::new("row", &1).unwrap().batch("a b").unwrap_err();
    assert!(matches!(refused, EventError::Options(_)), "{refused}");
    // Plain SQL is held to the same.
    let emit = "select wakeq.emit('row', '1', options => '{\"batch\": \"import\"}')";
    let refused = sqlx::query(emit).execute(&stage.pool).await.unwrap_err().to_string();
    assert!(refused.contains("the batch import is over, or was never opened"), "{refused}");
    let batch = stage.queue.batch("import").unwrap();
    batch.open(Event::new("imported", &7).unwrap()).await.unwrap();
    stage.execute(emit).await;
    assert_eq!(batch.progress().await.unwrap().left, 1);
    let emit = "select wakeq.emit_unique('row', '1', 'k', options => '{\"batch\": \"import\"}')";
    let refused = sqlx::query(emit).execute(&stage.pool).await.unwrap_err().to_string();
    assert!(refused.contains("an event of a batch can't have a unique key"), "{refused}");
}

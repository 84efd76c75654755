//! Handlers that complete their events in transactions of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::{PgConnection, PgPool};
use tokio::sync::Notify;
use wakeq::machine::Outcome;
use wakeq::workers::CompleteError;
use wakeq::{Event, Execution, HandlerError, HandlerResult, Handlers, RetryPolicy, Route};

use crate::support::{Stage, quick, until};

const DELAY: Duration = Duration::from_millis(50);
const BOOKINGS: &str = "create table bookings (event uuid not null)";
const BOOKED: &str = "select count(*) from bookings";

fn book() -> Route {
    Route::new("book").retry(RetryPolicy { delay: DELAY, ..RetryPolicy::default() })
}

async fn stage() -> Stage {
    let (stage, _) = Stage::memory().await;
    stage.execute(BOOKINGS).await;
    stage
}

async fn insert(transaction: &mut PgConnection, event: &Execution) -> Result<(), sqlx::Error> {
    let query = sqlx::query("insert into bookings (event) values ($1)").bind(event.id.0);
    query.execute(transaction).await.map(drop)
}

/// Books and completes in one transaction.
async fn booked(pool: PgPool, event: Execution) -> HandlerResult {
    let mut transaction = pool.begin().await?;
    insert(&mut transaction, &event).await?;
    event.complete_in(&mut transaction).await?;
    transaction.commit().await?;
    Ok(())
}

#[tokio::test]
async fn the_effect_and_the_end_of_an_event_are_one_commit() {
    let stage = stage().await;
    let pool = stage.pool.clone();
    let mut worker = stage.worker(Handlers::new().on(book(), move |event| booked(pool.clone(), event)));
    let id = stage.emit("book").await;
    let report = worker.until(id, Outcome::Deleted).await;
    assert_eq!(report.trail[report.trail.len() - 2..], [Outcome::ExecutesToCompletion, Outcome::Deleted]);
    assert_eq!((stage.rows().await, stage.count(BOOKED).await), (0, 1));
    worker.stop().await;
}

/// Whatever the handler returns after its commit, the event has completed.
#[tokio::test]
async fn a_committed_event_has_completed_though_its_handler_fails() {
    let stage = stage().await;
    let pool = stage.pool.clone();
    let handlers = Handlers::new().on(book(), move |event: Execution| {
        let booking = booked(pool.clone(), event);
        async move {
            booking.await?;
            Err::<(), _>(HandlerError::operational("the mail server does not answer"))
        }
    });
    let mut worker = stage.worker(handlers);
    let id = stage.emit("book").await;
    let report = worker.until(id, Outcome::Deleted).await;
    assert!(!report.trail.contains(&Outcome::Exception), "{report:?}");
    assert_eq!((stage.rows().await, stage.count(BOOKED).await), (0, 1));
    worker.stop().await;
}

/// An `Ok` without a commit does not complete the event: its effect is not there.
#[tokio::test]
async fn a_transaction_that_was_not_committed_leaves_the_event_to_be_retried() {
    let stage = stage().await;
    let (pool, first) = (stage.pool.clone(), Arc::new(AtomicBool::new(true)));
    let handlers = Handlers::new().on(book(), move |event: Execution| {
        let (pool, first) = (pool.clone(), Arc::clone(&first));
        async move {
            let mut transaction = pool.begin().await?;
            insert(&mut transaction, &event).await?;
            event.complete_in(&mut transaction).await?;
            if first.swap(false, Ordering::Relaxed) {
                transaction.rollback().await?;
            } else {
                transaction.commit().await?;
            }
            HandlerResult::Ok(())
        }
    });
    let mut worker = stage.worker(handlers);
    let id = stage.emit("book").await;
    let failed = worker.until(id, Outcome::RetryAllowed).await;
    let error = "the transaction that was to complete the event was not committed";
    assert_eq!(failed.error.as_deref(), Some(error));
    worker.until(id, Outcome::Deleted).await;
    assert_eq!((stage.rows().await, stage.count(BOOKED).await), (0, 1));
    worker.stop().await;
}

/// The handler ends while its commit has yet to come: what it does decides, and is waited for.
#[tokio::test]
async fn a_commit_that_is_under_way_is_waited_for() {
    for commits in [true, false] {
        let stage = stage().await;
        let (pool, go) = (stage.pool.clone(), Arc::new(Notify::new()));
        let opened = Arc::clone(&go);
        let handlers = Handlers::new().on(book(), move |event: Execution| {
            let (pool, go) = (pool.clone(), Arc::clone(&opened));
            async move {
                let mut transaction = pool.begin().await?;
                event.complete_in(&mut transaction).await?;
                tokio::spawn(async move {
                    go.notified().await;
                    if commits { transaction.commit().await } else { transaction.rollback().await }
                });
                HandlerResult::Ok(())
            }
        });
        let mut worker = stage.worker(handlers);
        let id = stage.emit("book").await;
        until("the look waits for the row", async || (stage.waiting_for_locks().await > 0).then_some(()))
            .await;
        go.notify_one();
        let outcome = if commits { Outcome::Deleted } else { Outcome::RetryAllowed };
        worker.until(id, outcome).await;
        worker.stop().await;
    }
}

/// A renewal that waits for the transaction finds no row after its commit, which ends nothing.
#[tokio::test]
async fn a_renewal_may_meet_the_open_transaction() {
    // Renewals come every three seconds, and a busy machine has six more for the commit.
    let timing = wakeq::Timing { lease: Duration::from_secs(9), ..wakeq::Timing::default() };
    let (stage, _) = Stage::memory_with(timing).await;
    stage.execute(BOOKINGS).await;
    let (pool, go) = (stage.pool.clone(), Arc::new(Notify::new()));
    let opened = Arc::clone(&go);
    let handlers = Handlers::new().on(book(), move |event: Execution| {
        let (pool, go) = (pool.clone(), Arc::clone(&opened));
        async move {
            let mut transaction = pool.begin().await?;
            insert(&mut transaction, &event).await?;
            event.complete_in(&mut transaction).await?;
            go.notified().await;
            transaction.commit().await?;
            sqlx::query("insert into bookings (event) values (gen_random_uuid())").execute(&pool).await?;
            HandlerResult::Ok(())
        }
    });
    let mut worker = stage.worker(handlers);
    let id = stage.emit("book").await;
    until("a renewal waits for the row", async || (stage.waiting_for_locks().await > 0).then_some(())).await;
    go.notify_one();
    let report = worker.until(id, Outcome::Deleted).await;
    assert!(!report.trail.contains(&Outcome::LeaseLost), "{report:?}");
    assert_eq!((stage.rows().await, stage.count(BOOKED).await), (0, 2));
    worker.stop().await;
}

/// Both attempts of an event whose lease ran out try to commit: the later one does.
#[tokio::test]
async fn an_attempt_that_lost_its_claim_commits_nothing() {
    let (stage, _) = Stage::memory_with(quick()).await;
    stage.execute(BOOKINGS).await;
    let (pool, lost) = (stage.pool.clone(), Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&lost);
    let handlers = Handlers::new().on(book(), move |event: Execution| {
        let (pool, lost) = (pool.clone(), Arc::clone(&seen));
        async move {
            // As if another worker had taken the event over, and then died.
            let taken =
                sqlx::query("update wakeq.events_v2 set claims = claims + 1 where id = $1 and losses = 0");
            taken.bind(event.id.0).execute(&pool).await?;
            let mut transaction = pool.begin().await?;
            insert(&mut transaction, &event).await?;
            match event.complete_in(&mut transaction).await {
                Err(CompleteError::ClaimLost) => lost.store(true, Ordering::Relaxed),
                completed => {
                    completed?;
                    transaction.commit().await?;
                }
            }
            HandlerResult::Ok(())
        }
    });
    let mut worker = stage.worker(handlers);
    let id = stage.emit("book").await;
    let report = worker.until(id, Outcome::LeaseLost).await;
    assert!(!report.trail.contains(&Outcome::Deleted), "{report:?}");
    assert_eq!((stage.rows().await, stage.count(BOOKED).await), (1, 0));
    worker.until(id, Outcome::Deleted).await;
    assert!(lost.load(Ordering::Relaxed));
    assert_eq!((stage.rows().await, stage.count(BOOKED).await), (0, 1));
    worker.stop().await;
}

/// What is emitted in the transaction is part of the commit, and the next event of the object
/// follows at once.
#[tokio::test]
async fn an_object_is_handed_over_after_the_commit() {
    let stage = stage().await;
    let (pool, queue) = (stage.pool.clone(), stage.queue.clone());
    let handlers = Handlers::new()
        .on(book(), move |event: Execution| {
            let (pool, queue) = (pool.clone(), queue.clone());
            async move {
                let mut transaction = pool.begin().await?;
                insert(&mut transaction, &event).await?;
                let receipt = queue.emit_in(&mut transaction, Event::new("confirm", &1)?).await?;
                event.complete_in(&mut transaction).await?;
                transaction.commit().await?;
                receipt.notify().await;
                HandlerResult::Ok(())
            }
        })
        .on("confirm", |_| async { Ok(()) });
    let mut worker = stage.worker(handlers);
    let events = (0..5).map(|number| Event::new("book", &number).unwrap().on("work:1").unwrap());
    stage.queue.emit_all(events.collect()).await.unwrap();
    worker.until_count(5, Outcome::HandedOver).await;
    stage.until_empty().await;
    assert_eq!(stage.count(BOOKED).await, 5);
    worker.stop().await;
}

/// A handler may go on after its commit, for longer than a renewal takes to find no row.
#[tokio::test]
async fn a_handler_is_not_cut_off_because_its_row_is_gone() {
    let timing = wakeq::Timing { lease: Duration::from_secs(3), ..wakeq::Timing::default() };
    let (stage, _) = Stage::memory_with(timing).await;
    stage.execute(BOOKINGS).await;
    let pool = stage.pool.clone();
    let handlers = Handlers::new().on(book(), move |event: Execution| {
        let pool = pool.clone();
        async move {
            booked(pool.clone(), event).await?;
            // Renewals come every second.
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            sqlx::query("insert into bookings (event) values (gen_random_uuid())").execute(&pool).await?;
            HandlerResult::Ok(())
        }
    });
    let mut worker = stage.worker(handlers);
    worker.until(stage.emit("book").await, Outcome::Deleted).await;
    assert_eq!(stage.count(BOOKED).await, 2);
    worker.stop().await;
}

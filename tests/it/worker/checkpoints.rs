//! Handlers that leave to the next attempt how far they have come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use wakeq::machine::Outcome;
use wakeq::workers::CheckpointError;
use wakeq::{CanvasId, Event, Execution, HandlerError, HandlerResult, Handlers, RetryPolicy, Route};

use crate::support::{OTHER, Stage, quick};

const CHECKPOINTS: &str = "select count(*) from wakeq.checkpoints";
/// The pages of an import.
const PAGES: u32 = 5;

fn import() -> Route {
    let retry = RetryPolicy { retries: 10, delay: Duration::from_millis(50), ..RetryPolicy::default() };
    Route::new("import").retry(retry)
}

/// Reads the pages that are left, and fails after each one that it has noted, but the last.
async fn imported(event: Execution, read: Arc<AtomicU32>) -> HandlerResult {
    let page: u32 = event.last_checkpoint().await?.unwrap_or(0);
    if page + 1 < event.attempt {
        return Err(HandlerError::dead(format!("attempt {} begins at page {page}", event.attempt)));
    }
    read.fetch_add(1, Ordering::Relaxed);
    if page + 1 == PAGES {
        return Ok(());
    }
    event.checkpoint(&(page + 1)).await?;
    let noted: Option<u32> = event.last_checkpoint().await?;
    Err(HandlerError::operational(format!("after {noted:?}")))
}

/// Each page is read once, though every attempt fails but the last. Then nothing is left of the
/// checkpoint, and the other tenant's event goes its own way.
#[tokio::test]
async fn an_attempt_goes_on_where_the_last_one_was() {
    let (stage, _) = Stage::memory_with(quick()).await;
    let read = Arc::new(AtomicU32::new(0));
    let reading = Arc::clone(&read);
    let handlers = Handlers::new().on(import(), move |event| imported(event, Arc::clone(&reading)));
    let mut worker = stage.worker(handlers);
    let id = stage.emit("import").await;
    let theirs = Event::new("import", &1).unwrap().canvas(OTHER);
    let theirs = stage.queue.emit(theirs).await.unwrap().id;
    for _ in 0..2 {
        let report = worker.until_count(1, Outcome::Deleted).await.remove(0);
        assert!(
            [id, theirs].contains(&report.notification.id) && report.attempt == Some(PAGES),
            "{report:?}"
        );
    }
    assert_eq!(read.load(Ordering::Relaxed), 2 * PAGES);
    assert_eq!((stage.rows().await, stage.count(CHECKPOINTS).await), (0, 0));
    assert_eq!(stage.count("select count(*) from wakeq.dead_events").await, 0);
    worker.stop().await;
}

/// What the handler writes and what it leaves are one commit, or neither is there.
#[tokio::test]
async fn a_transaction_that_is_rolled_back_stores_nothing() {
    let (stage, _) = Stage::memory_with(quick()).await;
    stage.execute("create table pages (number bigint primary key)").await;
    let pool = stage.pool.clone();
    let handlers = Handlers::new().on(import(), move |event: Execution| {
        let pool = pool.clone();
        async move {
            let page: i64 = event.last_checkpoint().await?.unwrap_or(0);
            let mut transaction = pool.begin().await?;
            let insert = sqlx::query("insert into pages (number) values ($1)").bind(page);
            insert.execute(&mut *transaction).await?;
            event.checkpoint_in(&mut transaction, &(page + 1)).await?;
            match event.attempt {
                1 => drop(transaction),
                2 => transaction.commit().await?,
                _ => {
                    transaction.commit().await?;
                    return HandlerResult::Ok(());
                }
            }
            Err(HandlerError::operational(format!("page {page}")))
        }
    });
    let mut worker = stage.worker(handlers);
    let id = stage.emit("import").await;
    for expected in ["page 0", "page 0"] {
        let failed = worker.until(id, Outcome::RetryAllowed).await;
        assert_eq!(failed.error.as_deref(), Some(expected));
    }
    worker.until(id, Outcome::Deleted).await;
    assert_eq!(stage.count("select sum(number)::bigint from pages").await, 1, "pages 0 and 1");
    assert_eq!(stage.count(CHECKPOINTS).await, 0);
    worker.stop().await;
}

/// As if another worker had taken the event over.
#[tokio::test]
async fn an_attempt_that_lost_its_claim_stores_nothing() {
    let (stage, _) = Stage::memory_with(quick()).await;
    let pool = stage.pool.clone();
    let handlers = Handlers::new().on(import(), move |event: Execution| {
        let pool = pool.clone();
        async move {
            if event.losses > 0 {
                let left: Option<Value> = event.last_checkpoint().await?;
                let expected = Some(json!({"page": 1}));
                assert_eq!(left, expected);
                return HandlerResult::Ok(());
            }
            event.checkpoint(&json!({"page": 1})).await?;
            let taken = sqlx::query("update wakeq.events_v2 set claims = claims + 1 where id = $1");
            taken.bind(event.id.0).execute(&pool).await?;
            let lost = event.checkpoint(&json!({"page": 2})).await;
            assert!(matches!(lost, Err(CheckpointError::ClaimLost)), "{lost:?}");
            let mut transaction = pool.begin().await?;
            let lost = event.checkpoint_in(&mut transaction, &3).await;
            assert!(matches!(lost, Err(CheckpointError::ClaimLost)), "{lost:?}");
            std::future::pending().await
        }
    });
    let mut worker = stage.worker(handlers);
    let id = stage.emit("import").await;
    worker.until(id, Outcome::Deleted).await;
    assert_eq!((stage.rows().await, stage.count(CHECKPOINTS).await), (0, 0));
    worker.stop().await;
}

#[tokio::test]
async fn a_value_that_is_no_checkpoint_is_refused() {
    let (stage, _) = Stage::memory().await;
    let handlers = Handlers::new().on(import(), |event: Execution| async move {
        event.checkpoint(&"x".repeat(65_534)).await?;
        let large = event.checkpoint(&"x".repeat(65_535)).await.unwrap_err();
        let nul = event.checkpoint("\0").await.unwrap_err();
        let shape = event.last_checkpoint::<u32>().await.unwrap_err();
        Err::<(), _>(HandlerError::dead(format!("{large}; {nul}; {shape}")))
    });
    let mut worker = stage.worker(handlers);
    let id = stage.emit("import").await;
    let report = worker.until(id, Outcome::Deleted).await;
    let error = report.error.unwrap();
    for part in ["65537 bytes exceeds 65,536", "has a NUL character", "does not fit the handler"] {
        assert!(error.contains(part), "{error}");
    }
    let kept = stage.admin.checkpoint(CanvasId::DEFAULT, id).await.unwrap().unwrap();
    assert_eq!(kept.json.len(), 65_536, "a dead event keeps its checkpoint");
    assert_eq!(stage.admin.checkpoint(OTHER, id).await.unwrap(), None);
    worker.stop().await;
}

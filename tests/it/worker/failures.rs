//! Handlers that fail, and everything that fails under a handler: leases, rows, connections.

use std::time::Duration;

use sqlx::Connection;
use tokio::time::timeout;
use wakeq::control::{DeadFilter, Explanation};
use wakeq::machine::Outcome;
use wakeq::workers::{RunReport, Verdict};
use wakeq::{
    CanvasId, Event, EventId, Execution, HandlerError, Handlers, RetryPolicy, Route, Timestamp, Timing,
};

use crate::support::handlers::recording;
use crate::support::{RunningWorker, Stage, Statements, once, quick, wait_while};

const DELAY: Duration = Duration::from_millis(200);

fn retried(name: &str) -> Route {
    Route::new(name).retry(RetryPolicy { delay: DELAY, ..RetryPolicy::default() })
}

/// The columns that a retry writes.
#[derive(Debug, sqlx::FromRow)]
struct Row {
    retries: i32,
    locked: bool,
    last_error: Option<String>,
    delay_s: f64,
    promise_s: f64,
}

async fn row(stage: &Stage, id: EventId) -> Row {
    let query = "select retries, locked_at is not null as locked, last_error,
                        extract(epoch from delay_until - now())::float8 as delay_s,
                        extract(epoch from notify_at - delay_until)::float8 as promise_s
                   from wakeq.events_v2 where id = $1";
    sqlx::query_as(query).bind(id.0).fetch_one(&stage.pool).await.unwrap()
}

/// Asserts attempts 1, 2, 3, each at least a delay after the one before.
fn assert_three_attempts(attempts: &[Execution]) {
    let numbers: Vec<_> = attempts.iter().map(|attempt| attempt.attempt).collect();
    assert_eq!(numbers, [1, 2, 3]);
    for pair in attempts.windows(2) {
        let gap = (pair[1].claimed_at - pair[0].claimed_at).to_std().unwrap();
        assert!(gap >= DELAY, "{gap:?}");
        assert!(pair[1].claimed_at >= pair[1].due_at);
    }
}

// Shows: EV2-12, EV2-35, EV2-45, EV2-59, EV2-60, EV2-61
#[tokio::test]
async fn an_error_is_tried_again_twice_and_then_the_event_is_dead() {
    let (stage, _) = Stage::memory().await;
    let error = "no room on the disk";
    let (mut worker, mut seen) =
        stage.answering(retried("fails"), move |_| Err(HandlerError::operational(error)));
    let id = stage.emit("fails").await;
    let mut reports: Vec<RunReport> = Vec::new();
    for retries in 1..=2 {
        reports.push(worker.until(id, Outcome::RetryAllowed).await);
        let row = row(&stage, id).await;
        assert_eq!((row.retries, row.last_error.as_deref()), (retries, Some(error)));
    }
    reports.push(worker.until(id, Outcome::Deleted).await);
    let ended = [Outcome::LockClaimed, Outcome::Exception, Outcome::RetryTooMany, Outcome::Deleted];
    assert_eq!(&reports[2].trail[5..], ended);
    assert_three_attempts(&seen.rest());
    assert!(reports.iter().all(|report| report.error.as_deref() == Some(error)));
    let dead = stage.admin.dead(&DeadFilter::default(), None, 10).await.unwrap().items;
    let dead = dead.into_iter().find(|dead| dead.id == id).unwrap();
    assert_eq!((dead.cause.as_str(), dead.retries, dead.losses), ("retries", 2, 0));
    assert_eq!(dead.last_error.as_deref(), Some(error));
    assert_eq!(stage.admin.explain(CanvasId::DEFAULT, id).await.unwrap(), Explanation::Dead(Box::new(dead)));
    assert_eq!(stage.rows().await, 0);
    worker.stop().await;
}

fn nothing_there() -> wakeq::HandlerResult {
    panic!("nothing there")
}

/// Before the first await, too.
// Shows: EV2-59
#[tokio::test]
async fn a_panic_counts_as_an_error() {
    let (stage, _) = Stage::memory().await;
    let (handler, mut seen) = recording();
    let handlers = Handlers::new()
        .on(retried("at-once"), |event: Execution| -> std::future::Ready<wakeq::HandlerResult> {
            panic!("attempt {}", event.attempt)
        })
        .on(retried("later"), move |event: Execution| {
            let running = handler(event);
            async move {
                running.await?;
                nothing_there()
            }
        });
    let mut worker = stage.worker(handlers);
    let ids = [stage.emit("at-once").await, stage.emit("later").await];
    worker.until_count(2, Outcome::Deleted).await;
    assert_three_attempts(&seen.rest());
    let dead = stage.admin.dead(&DeadFilter::default(), None, 10).await.unwrap().items;
    let error = |id| dead.iter().find(|dead| dead.id == id).unwrap().last_error.clone().unwrap();
    assert_eq!(ids.map(error), ["panicked: attempt 3", "panicked: nothing there"]);
    worker.stop().await;
}

/// EV2-X18: an attempt that takes too long is cut off.
#[tokio::test]
async fn a_timeout_counts_as_an_error() {
    let (stage, _) = Stage::memory().await;
    let policy = RetryPolicy { retries: 1, delay: DELAY, ..RetryPolicy::default() };
    let (mut worker, mut door) =
        stage.door(Route::new("slow").retry(policy).timeout(Duration::from_millis(100)));
    let report = worker.until(stage.emit("slow").await, Outcome::Deleted).await;
    assert_eq!(report.error.as_deref(), Some("timed out after 100ms"));
    assert_eq!(door.left.take(2).await, [false, false], "each attempt was dropped");
    worker.stop().await;
}

/// By default the next attempt is five minutes later, and there are two retries.
// Shows: EV2-12
#[tokio::test]
async fn by_default_the_next_attempt_is_five_minutes_later() {
    let (stage, _) = Stage::memory().await;
    let (mut worker, _seen) = stage.answering("fails", |_| Err(HandlerError::operational("no")));
    let id = stage.emit("fails").await;
    let report = worker.until(id, Outcome::RetryAllowed).await;
    let Verdict::Waits(wait) = report.verdict else { panic!("{:?}", report.verdict) };
    assert!((300..=360).contains(&wait.as_secs()), "with its jitter: {wait:?}");
    let row = row(&stage, id).await;
    assert!((wait.as_secs_f64() - 5.0..=wait.as_secs_f64()).contains(&row.delay_s), "{row:?}");
    assert_eq!((row.retries, row.locked, row.promise_s), (1, false, 30.0), "due, and a grace later promised");
    assert_eq!(RetryPolicy::default().retries, 2);
    worker.stop().await;
}

/// A handler may ask for a longer delay than its policy's, within the policy's longest.
#[tokio::test]
async fn a_handler_may_say_when_to_try_again() {
    let (stage, _) = Stage::memory().await;
    let (delay, delay_max) = (Duration::from_secs(5), Duration::from_secs(100));
    let policy = RetryPolicy { delay, delay_max, jitter_percent: 0, ..RetryPolicy::default() };
    let (mut worker, _seen) = stage.answering(Route::new("busy").retry(policy), |event| {
        let wanted: u64 = event.value()?;
        Err(HandlerError::operational("busy").retry_after(Duration::from_secs(wanted)))
    });
    for (wanted, waits) in [(0, 5), (7, 7), (1000, 100)] {
        let id = stage.queue.emit(Event::new("busy", &wanted).unwrap()).await.unwrap().id;
        let report = worker.until(id, Outcome::RetryAllowed).await;
        assert_eq!(report.verdict, Verdict::Waits(Duration::from_secs(waits)));
    }
    worker.stop().await;
}

// Shows: EV2-11
#[tokio::test]
async fn an_error_value_completes_the_event() {
    let (stage, notifier) = Stage::memory().await;
    let (mut worker, mut seen) = stage.answering("greet", |_| Err(HandlerError::value("no e-mail address")));
    let report = worker.until(stage.emit("greet").await, Outcome::Deleted).await;
    assert_eq!(&report.trail[6..], [Outcome::ExecutesToCompletion, Outcome::Deleted]);
    assert_eq!(report.error.as_deref(), Some("no e-mail address"));
    notifier.drained().await;
    assert_eq!((stage.rows().await, seen.rest().len()), (0, 1));
    assert!(stage.admin.dead(&DeadFilter::default(), None, 10).await.unwrap().items.is_empty());
    worker.stop().await;
}

/// An event whose value does not fit its handler dies, with a message that says so.
#[tokio::test]
async fn a_value_that_does_not_fit_ends_among_the_dead() {
    let (stage, _) = Stage::memory().await;
    let (mut worker, _seen) = stage.answering(once("number"), |event| event.value::<u32>().map(drop));
    let report = worker.until(stage.emit("number").await, Outcome::Deleted).await;
    let error = report.error.unwrap();
    assert!(error.starts_with("the event's value does not fit the handler: invalid type: string"), "{error}");
    worker.stop().await;
}

/// The row vanished while its handler failed; the notification is put back, and later dropped
/// harmlessly.
// Shows: EV2-62
#[tokio::test]
async fn a_retry_of_a_row_that_is_gone_is_harmless() {
    check_row_gone(Err(HandlerError::operational("no")), &[Outcome::Exception, Outcome::Exception]).await;
}

/// The same for a completion.
#[tokio::test]
async fn a_completion_of_a_row_that_is_gone_is_harmless() {
    check_row_gone(Ok(()), &[Outcome::ExecutesToCompletion, Outcome::FencedOut]).await;
}

async fn check_row_gone(verdict: wakeq::HandlerResult, trail: &[Outcome]) {
    let (stage, notifier) = Stage::memory().await;
    let (mut worker, mut door) = stage.door("greet");
    let id = stage.emit("greet").await;
    door.arrived.next().await;
    stage.pool.run("delete from wakeq.events_v2").await;
    door.answer(verdict);
    let report = worker.report().await;
    assert_eq!((&report.trail[6..], report.verdict), (trail, Verdict::PutBack));
    assert_eq!(worker.until(id, Outcome::EventMissing).await.verdict, Verdict::Acknowledged);
    notifier.drained().await;
    worker.stop().await;
}

/// EV2-35: contention costs no attempt.
#[tokio::test]
async fn a_locked_event_costs_no_attempt() {
    let (stage, notifier) = Stage::memory_with(quick()).await;
    let (handler, mut seen) = recording();
    let id = stage.queue.emit(Event::new("greet", "x").unwrap()).await.unwrap().id;
    // Another worker claimed it and died.
    stage.pool.run("update wakeq.events_v2 set claims = 1, locked_at = now()").await;
    let mut worker = stage.worker(Handlers::new().on("greet", handler));
    let report = worker.until(id, Outcome::IsLocked).await;
    assert!(matches!(report.verdict, Verdict::Waits(left) if left <= quick().lease), "{:?}", report.verdict);
    assert_eq!(notifier.unanswered(), 0);
    let report = worker.until(id, Outcome::Deleted).await;
    assert!(report.trail.contains(&Outcome::LockExpired), "{:?}", report.trail);
    assert_eq!(seen.next().await.attempt, 1);
    worker.stop().await;
}

/// EV2-10: a lost lease stops the handler, which writes nothing; the event is put back.
// Shows: EV2-13
#[tokio::test]
async fn a_lost_lease_stops_the_handler() {
    let (stage, _) = Stage::memory_with(quick()).await;
    let (mut worker, mut door) = stage.door("greet");
    let id = stage.emit("greet").await;
    door.arrived.next().await;
    // As if another worker had taken it over.
    stage.pool.run("update wakeq.events_v2 set claims = claims + 1, losses = 1, locked_at = now()").await;
    assert_eq!(worker.until(id, Outcome::LeaseLost).await.verdict, Verdict::PutBack);
    assert!(!door.left.next().await, "the handler was dropped");
    assert_eq!(stage.rows().await, 1, "what another claimed is left alone");
    door.arrived.next().await;
    door.open(1);
    assert_eq!(worker.until(id, Outcome::Deleted).await.attempt, Some(1), "a loss is no attempt");
    worker.stop().await;
}

/// A row locked by another session does not cost the other handlers their leases.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_locked_row_costs_only_its_own_lease() {
    // Long enough that a busy machine does not cost the others theirs.
    let (stage, _) = Stage::memory_with(Timing { lease: Duration::from_secs(6), ..quick() }).await;
    let (mut worker, mut door) = stage.door("greet");
    stage.emit_many("greet", 4).await;
    let held = door.arrived.take(4).await[2].id;
    let mut transaction = stage.pool.begin().await.unwrap();
    let lock = "select 1 from wakeq.events_v2 where id = $1 for update";
    sqlx::query(lock).bind(held.0).execute(&mut *transaction).await.unwrap();
    let report = worker.report().await;
    assert_eq!((report.notification.id, report.trail.last()), (held, Some(&Outcome::LeaseLost)));
    transaction.rollback().await.unwrap();
    door.open(4);
    worker.until_count(4, Outcome::Deleted).await;
    assert_eq!(worker.counters.outcome(Outcome::FencedOut), 0, "nobody else had them");
    let left = door.left.rest();
    let cut_off = left.iter().filter(|let_out| !**let_out).count();
    assert_eq!((cut_off, left.len()), (1, 5), "the other three ran on, and each ended once: {left:?}");
    worker.stop().await;
}

/// Renewed as long as it runs.
// Shows: EV2-13
#[tokio::test]
async fn a_handler_may_run_longer_than_its_lease() {
    let (stage, _) = Stage::memory_with(quick()).await;
    let (mut worker, mut door) = stage.door("greet");
    let id = stage.emit("greet").await;
    let claimed_at = door.arrived.next().await.claimed_at;
    let lease_over = "select locked_at > $2 and now() > $2 from wakeq.events_v2 where id = $1";
    let end: Timestamp = claimed_at + quick().lease + Duration::from_millis(500);
    let renewed = async || -> bool {
        let query = sqlx::query_scalar(lease_over).bind(id.0).bind(end);
        query.fetch_one(&stage.pool).await.unwrap()
    };
    wait_while!(!renewed().await, "the lease was not renewed");
    door.open(1);
    worker.until(id, Outcome::Deleted).await;
    assert_eq!((door.most(), door.left.rest()), (1, vec![true]));
    worker.stop().await;
}

/// A database that accepts no connections until it is opened again.
struct ClosedDatabase<'a> {
    stage: &'a Stage,
    server: sqlx::PgConnection,
}

impl<'a> ClosedDatabase<'a> {
    async fn new(stage: &'a Stage) -> Self {
        let (server, _) = stage.database.url().rsplit_once('/').unwrap();
        let mut server = sqlx::PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
        allow(stage, &mut server, false).await;
        let end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1";
        sqlx::query(end).bind(stage.database.name()).execute(&mut server).await.unwrap();
        Self { stage, server }
    }

    async fn end(mut self) {
        allow(self.stage, &mut self.server, true).await;
    }
}

async fn allow(stage: &Stage, server: &mut sqlx::PgConnection, allowed: bool) {
    let alter = format!("alter database \"{}\" allow_connections {allowed}", stage.database.name());
    sqlx::raw_sql(sqlx::AssertSqlSafe(alter)).execute(server).await.unwrap();
}

/// A completion that finds Postgres unreachable is repeated until the lease ends: the handler does
/// not run again.
#[tokio::test]
async fn a_completion_waits_for_the_database() {
    let (stage, _) = Stage::memory().await;
    let (mut worker, mut door) = stage.door("greet");
    let id = stage.emit("greet").await;
    door.arrived.next().await;
    let shut_out = ClosedDatabase::new(&stage).await;
    door.open(1);
    door.left.next().await;
    let early = timeout(Duration::from_millis(500), worker.report()).await;
    assert!(early.is_err(), "it can't have ended: {early:?}");
    shut_out.end().await;
    let report = worker.until(id, Outcome::Deleted).await;
    assert_eq!(&report.trail[6..], [Outcome::ExecutesToCompletion, Outcome::Deleted]);
    assert!(door.arrived.rest().is_empty());
    worker.stop().await;
}

/// Without a database, runs wait before they try again, and then all of them succeed.
#[tokio::test]
async fn without_a_database_runs_do_not_spin() {
    let (stage, notifier) = Stage::memory().await;
    let (mut worker, mut seen) = stage.recording("greet");
    worker.until(stage.emit("greet").await, Outcome::Deleted).await;
    seen.next().await;
    notifier.pause();
    stage.emit_many("greet", 5).await;
    let shut_out = ClosedDatabase::new(&stage).await;
    notifier.resume();
    for _ in 0..5 {
        assert_failed(&worker.report().await);
    }
    let again = failures_within(&mut worker, Duration::from_millis(1500)).await;
    assert!(again <= 10, "each at most once a second: {again}");
    shut_out.end().await;
    seen.take(5).await;
    worker.until_count(5, Outcome::Deleted).await;
    worker.stop().await;
}

fn assert_failed(report: &RunReport) {
    assert!(matches!(report.verdict, Verdict::Failed(_)), "{report:?}");
}

async fn failures_within(worker: &mut RunningWorker, span: Duration) -> usize {
    let mut failed = 0;
    let count = async {
        loop {
            assert_failed(&worker.report().await);
            failed += 1;
        }
    };
    let _ = timeout(span, count).await;
    failed
}

/// An event of another canvas is not listed on the default canvas, which is a canvas like any
/// other.
#[tokio::test]
async fn dead_events_of_other_canvases_are_not_listed() {
    let (stage, _) = Stage::memory().await;
    let (mut worker, _seen) = stage.answering(once("fails"), |_| Err(HandlerError::operational("no")));
    let canvas = CanvasId(uuid::Uuid::new_v4());
    let id = stage.queue.emit(Event::new("fails", "x").unwrap().canvas(canvas)).await.unwrap().id;
    worker.until(id, Outcome::Deleted).await;
    assert!(stage.admin.dead(&DeadFilter::default(), None, 10).await.unwrap().items.is_empty());
    let theirs = DeadFilter { canvas, ..DeadFilter::default() };
    let dead = stage.admin.dead(&theirs, None, 10).await.unwrap().items;
    assert_eq!(dead.iter().map(|dead| dead.id).collect::<Vec<_>>(), [id]);
    worker.stop().await;
}

/// A handler that answers "not yet" is called again and again, without an attempt being counted, on
/// whatever canvas.
// Shows: ORD-04
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_event_that_is_too_early_comes_again_and_is_not_counted() {
    let (stage, notifier) = Stage::memory().await;
    let (mut worker, mut door) = stage.door(once("greet"));
    for canvas in [CanvasId::DEFAULT, CanvasId(uuid::Uuid::from_u128(7))] {
        let id = stage.queue.emit(Event::new("greet", "x").unwrap().canvas(canvas)).await.unwrap().id;
        for _ in 0..3 {
            assert_eq!(door.arrived.next().await.attempt, 1);
            door.answer(Err(HandlerError::not_yet(Duration::from_secs(1))));
            assert_eq!(worker.until(id, Outcome::Postponed).await.error.as_deref(), Some("not yet"));
            assert_eq!(row(&stage, id).await.retries, 0);
        }
        assert_eq!(door.arrived.next().await.attempt, 1);
        door.open(1);
        worker.until(id, Outcome::Deleted).await;
    }
    assert_eq!((stage.rows().await, notifier.unanswered()), (0, 0));
    worker.stop().await;
}

/// "Not yet" counts as a failure once the event has been postponed for its handler's patience.
#[tokio::test]
async fn patience_ends_some_time_after_the_first_postponement() {
    let (stage, _) = Stage::memory().await;
    let retry = RetryPolicy { retries: 1, delay: Duration::from_millis(100), ..RetryPolicy::default() };
    let route = Route::new("greet").retry(retry).patience(Duration::ZERO);
    let early = Duration::from_millis(100);
    let (mut worker, mut seen) = stage.answering(route, move |_| Err(HandlerError::not_yet(early)));
    let id = stage.emit("greet").await;
    worker.until(id, Outcome::RetryAllowed).await;
    let report = worker.until(id, Outcome::Deleted).await;
    assert!(report.trail.contains(&Outcome::RetryTooMany), "{:?}", report.trail);
    let attempts: Vec<u32> = seen.take(2).await.iter().map(|event| event.attempt).collect();
    assert_eq!(attempts, [1, 2]);
    assert!(report.error.unwrap().starts_with("not yet, and it has been postponed"));
    worker.stop().await;
}

//! The durations of a deployment: the first process writes them, others agree or are refused.

use std::time::Duration;

use wakeq::database::TimingMode;
use wakeq::machine::Outcome;
use wakeq::workers::WorkerError;
use wakeq::{
    AdminError, Execution, HandlerError, Handlers, RetryPolicy, Route, Store, StoreConfig, StoreError,
    Timing, WorkerConfig,
};

use crate::support::{RunningWorker, Stage, Statements, connect, database, fit, once, patient, quick};

fn with_lease(seconds: u64, timing_mode: TimingMode) -> StoreConfig {
    let timing = Timing { lease: Duration::from_secs(seconds), ..Timing::default() };
    fit(StoreConfig { timing: Some(timing), timing_mode, ..StoreConfig::default() })
}

#[tokio::test]
async fn a_process_with_other_durations_is_refused() {
    let database = database().await;
    let connect = async |seconds, mode| Store::connect(database.url(), with_lease(seconds, mode)).await;
    let early = connect(5, TimingMode::Follow).await.unwrap();
    assert_eq!(early.timing().lease, Duration::from_secs(5), "nobody has written any yet");
    connect(30, TimingMode::Agree).await.unwrap();
    connect(30, TimingMode::Agree).await.unwrap();
    let refused = connect(60, TimingMode::Agree).await.unwrap_err();
    assert!(matches!(refused, StoreError::OtherTiming { name: "lease", .. }), "{refused:?}");
    let words = refused.to_string();
    assert!(words.contains("`lease` is 1m here, and 30s in"), "{words}");
    assert!(words.contains("wakeq settings set"), "{words}");
    assert_eq!(connect(60, TimingMode::Follow).await.unwrap().timing().lease, Duration::from_secs(30));
    connect(60, TimingMode::Replace).await.unwrap();
    connect(60, TimingMode::Agree).await.unwrap();
    assert!(connect(30, TimingMode::Agree).await.is_err());
    let given_none = Store::connect(database.url(), fit(StoreConfig::default())).await.unwrap();
    assert_eq!(given_none.timing().lease, Duration::from_secs(60), "the deployment's");
}

/// A deployment's longest delay before a retry applies to the policy of every handler, in a process
/// that was given no durations as well.
#[tokio::test]
async fn retries_wait_no_longer_than_the_deployment_allows() {
    let timing = Timing { retry_delay_max: Duration::from_millis(200), ..quick() };
    let (stage, notifier) = Stage::memory_with(timing).await;
    let follower = Store::connect(stage.database.url(), fit(StoreConfig::default())).await.unwrap();
    let hourly = RetryPolicy { retries: 2, delay: Duration::from_secs(3600), ..RetryPolicy::default() };
    let handler = async |event: Execution| match event.attempt {
        1 | 2 => Err(HandlerError::operational("busy")),
        _ => Ok(()),
    };
    let handlers = Handlers::new().on(Route::new("flaky").retry(hourly), handler);
    let mut worker = RunningWorker::start(follower, notifier, handlers, WorkerConfig::default());
    let id = stage.emit("flaky").await;
    assert_eq!(worker.until(id, Outcome::Deleted).await.attempt, Some(3));
    worker.stop().await;
}

/// If two first processes have different durations, one is refused, and the stored ones are all
/// from the other.
#[tokio::test]
async fn two_first_processes_do_not_mix_their_durations() {
    let database = database().await;
    let config = |seconds| {
        let all = Duration::from_secs(seconds);
        let timing = Timing {
            lease: all,
            horizon: all,
            grace: all,
            probe_period: all,
            probe_backoff: all,
            probe_backoff_max: all,
            unknown_handler_wait: all,
            retry_delay_max: all,
        };
        fit(StoreConfig { timing: Some(timing), ..StoreConfig::default() })
    };
    let (one, other) =
        tokio::join!(Store::connect(database.url(), config(7)), Store::connect(database.url(), config(8)));
    assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    let pool = sqlx::PgPool::connect(database.url()).await.unwrap();
    let kinds: (i64, i64) = pool.row("select count(*), count(distinct value_us) from wakeq.settings").await;
    assert_eq!(kinds, (8, 1));
}

/// A worker whose durations were replaced while it had no session ends at its next pass, and cuts
/// off what it runs, since others no longer wait for its lease; one with the new durations goes on,
/// and runs that event.
#[tokio::test]
async fn a_worker_ends_whose_durations_were_replaced() {
    let before = patient();
    let (stage, notifier) = Stage::memory_with(before.clone()).await;
    let (old, mut door) = stage.door(once("greet"));
    let id = stage.emit("greet").await;
    door.arrived.next().await;

    let after = Timing { lease: Duration::from_secs(5), ..before.clone() };
    stage.execute("update wakeq.settings set value_us = 5000000 where name = 'lease'").await;
    let store = connect(stage.database.url(), after).await;
    let handlers = Handlers::new().on(once("greet"), |_: Execution| async { Ok(()) });
    let mut new = RunningWorker::start(store, notifier, handlers, WorkerConfig::default());
    let ended = old.fails().await;
    let WorkerError::Store(StoreError::OtherTiming { name: "lease", ours, deployment }) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!((ours, deployment), (before.lease, Duration::from_secs(5)));
    let run = new.until(id, Outcome::Deleted).await;
    assert_eq!(run.attempt, Some(1), "what was cut off counts as no attempt");
    drop(door);
    stage.emit("greet").await;
    new.until_count(1, Outcome::Deleted).await;
    new.stop().await;
}

/// Nothing of a pass is done by a process with other durations.
#[tokio::test]
async fn a_pass_with_other_durations_moves_nothing() {
    let (stage, _notifier) = Stage::memory_with(quick()).await;
    stage.execute("update wakeq.settings set value_us = 7000000 where name = 'grace'").await;
    let chores = "select passes from wakeq.chores where name = 'minute'";
    let before = stage.count(chores).await;
    let AdminError::Wake(error) = stage.admin.wake(false).await.unwrap_err() else { panic!("another error") };
    assert!(matches!(error.of_store(), Some(StoreError::OtherTiming { name: "grace", .. })), "{error:?}");
    assert_eq!(stage.count(chores).await, before);
    stage.execute("update wakeq.settings set value_us = 1000000 where name = 'grace'").await;
    stage.admin.wake(false).await.unwrap();
    assert_eq!(stage.count(chores).await, before + 1);
}

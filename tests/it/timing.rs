//! The durations of a deployment: the first process writes them, others agree or are refused.

use std::time::Duration;

use wakeq::database::TimingMode;
use wakeq::{Store, StoreConfig, StoreError, Timing};

use crate::support::{Statements, database, fit};

fn with_lease(seconds: u64, timing_mode: TimingMode) -> StoreConfig {
    let timing = Timing { lease: Duration::from_secs(seconds), ..Timing::default() };
    fit(StoreConfig { timing, timing_mode, ..StoreConfig::default() })
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
    assert!(words.contains("`lease` is 60s here, and 30s in"), "{words}");
    assert!(words.contains("wakeq settings set"), "{words}");
    assert_eq!(connect(60, TimingMode::Follow).await.unwrap().timing().lease, Duration::from_secs(30));
    connect(60, TimingMode::Replace).await.unwrap();
    connect(60, TimingMode::Agree).await.unwrap();
    assert!(connect(30, TimingMode::Agree).await.is_err());
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
        };
        fit(StoreConfig { timing, ..StoreConfig::default() })
    };
    let (one, other) =
        tokio::join!(Store::connect(database.url(), config(7)), Store::connect(database.url(), config(8)));
    assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    let pool = sqlx::PgPool::connect(database.url()).await.unwrap();
    let kinds: (i64, i64) = pool.row("select count(*), count(distinct value_us) from wakeq.settings").await;
    assert_eq!(kinds, (7, 1));
}

//! Lifting a rule: how long the caller waits, and that waking continues without it.

use std::time::Duration;

use wakeq::machine::Outcome;
use wakeq::{Actor, Handlers, Stop};

use crate::support::{Stage, TIMEOUT, scope, wait_while};

/// A stage with a pause and this many parked events.
async fn parked(count: usize) -> (Stage, std::sync::Arc<wakeq::testing::MemoryNotifier>) {
    let (stage, notifier) = Stage::memory().await;
    stage.admin.pause(&scope("h"), &Actor::user("ada"), &Stop::default()).await.unwrap();
    let mut worker = stage.worker(Handlers::new().on("h", async |_| Ok(())));
    stage.emit_many("h", count).await;
    worker.until_count(count, Outcome::RulePaused).await;
    worker.stop().await;
    (stage, notifier)
}

async fn until_published(notifier: &wakeq::testing::MemoryNotifier, count: usize) {
    wait_while!(notifier.published().len() < count, "waking did not go on");
}

/// A caller with little patience learns that waking continues, and it does, without the minute's
/// pass.
#[tokio::test]
async fn waking_goes_on_after_the_callers_patience() {
    let (stage, notifier) = parked(2500).await;
    let before = notifier.published().len();
    let resumed =
        stage.admin.clone().patience(Duration::ZERO).unpause(&scope("h"), &Actor::user("ada")).await.unwrap();
    assert!(resumed.lifted && resumed.waking && resumed.woken < 2500, "{resumed:?}");
    until_published(&notifier, before + 2500).await;
    let again = stage.admin.patience(TIMEOUT).unpause(&scope("h"), &Actor::user("ada")).await.unwrap();
    assert!(!again.lifted && !again.waking, "{again:?}");
}

/// A caller that hangs up while pages are published stops nothing.
#[tokio::test]
async fn waking_goes_on_when_the_caller_hangs_up() {
    let (stage, notifier) = parked(2500).await;
    let before = notifier.published().len();
    let (admin, ada, handler) = (stage.admin.clone(), Actor::user("ada"), scope("h"));
    let mut lifting = Box::pin(admin.unpause(&handler, &ada));
    while notifier.published().len() == before {
        let pending = tokio::time::timeout(Duration::from_millis(1), &mut lifting).await.is_err();
        assert!(pending, "it ended with its first page");
    }
    drop(lifting);
    until_published(&notifier, before + 2500).await;
}

//! The life of one event: emitted, notified, loaded, claimed, run, deleted, acknowledged.

use tokio::sync::mpsc;
use wakeq::machine::Outcome;
use wakeq::workers::Verdict;
use wakeq::{Execution, Handlers};

use crate::support::Stage;

// Shows: EV2-20, EV2-23, EV2-41, EV2-53
#[tokio::test]
async fn an_event_passes_every_state_and_its_row_is_gone() {
    let (stage, _) = Stage::memory().await;
    let (seen, mut handled) = mpsc::channel(8);
    let handlers = Handlers::new().on("greet", move |event: Execution| {
        let seen = seen.clone();
        async move {
            seen.send((event.id, event.value::<String>()?, event.attempt)).await?;
            Ok(())
        }
    });
    let mut worker = stage.worker(handlers);
    let id = stage.emit("greet").await;
    let report = worker.until(id, Outcome::Deleted).await;
    assert_eq!(handled.recv().await, Some((id, "value".to_owned(), 1)));
    assert_eq!(
        report.trail,
        [
            Outcome::EventPresent,
            Outcome::DelayNone,
            Outcome::LockNone,
            Outcome::RuleNone,
            Outcome::HandlerKnown,
            Outcome::LockClaimed,
            Outcome::ExecutesToCompletion,
            Outcome::Deleted,
        ]
    );
    assert_eq!(report.verdict, Verdict::Acknowledged);
    assert_eq!(stage.rows().await, 0);
    worker.stop().await;
}

//! A target that is registered while a run that looked for it defers its event.

use wakeq::CanvasId;
use wakeq::machine::Outcome;

use super::share::{put, worker};
use crate::support::receiver::Receiver;
use crate::support::{Stage, wait_while};

/// It is registered after the look for it and before the event is deferred: the event is due at
/// once all the same.
// Shows: TARGET-02
#[tokio::test]
async fn a_target_registered_after_its_lookup_is_not_missed() {
    let (stage, _) = Stage::memory().await;
    let receiver = Receiver::start().await;
    let id = stage.emit("greet").await;
    let mut held = stage.pool.begin().await.unwrap();
    let hold = sqlx::query("select from wakeq.events_v2 where id = $1 for update").bind(id.0);
    hold.execute(&mut *held).await.unwrap();
    let mut running = worker(&stage, Default::default(), None);
    wait_while!(stage.waiting_for_locks().await == 0, "nothing is put off");
    put(&stage, CanvasId::DEFAULT, "greet", &receiver).await;
    held.rollback().await.unwrap();
    running.until(id, Outcome::Deferred).await;
    let wait = "select extract(epoch from notify_at - now())::float8 from wakeq.events_v2 where id = $1";
    let wait: f64 = sqlx::query_scalar(wait).bind(id.0).fetch_one(&stage.pool).await.unwrap();
    assert!(wait <= 0.0, "{wait} s");
    running.stop().await;
}

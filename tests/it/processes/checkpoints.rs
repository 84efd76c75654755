//! Checkpoints of handlers whose processes die.

use wakeq::Event;

use crate::support::OTHER;
use crate::support::child_processes::{Durations, IMPORT, PAGES, Role};
use crate::support::crash_scene::CrashScene;

/// The first process dies after a commit, and the second before one: each page is there once.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_import_goes_on_though_its_processes_die() {
    let scene = CrashScene::new("checkpoints", Durations::quick()).await;
    // One at a time, so that the deaths of one event are not losses of the other.
    for event in [Event::new(IMPORT, &1).unwrap(), Event::new(IMPORT, &1).unwrap().canvas(OTHER)] {
        scene.queue.emit(event).await.unwrap();
        for _ in 0..2 {
            let worker = scene.start(&Role::Worker { capacity: 1, shutdown_grace_ms: 3_000 }, None);
            assert!(!worker.child.ended().await.success(), "it should have died");
        }
        let heir = scene.worker(1).await;
        scene.until_empty().await;
        scene.until_at_least("select -count(*) from wakeq.checkpoints", 0).await;
        scene.kill_9(&heir).await;
    }
    let booked = scene.count("select count(*) from bookings").await;
    assert_eq!(booked, 2 * PAGES, "each page of both events, once");
}

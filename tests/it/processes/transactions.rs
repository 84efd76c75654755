//! Handlers that complete their events in transactions of their own, while workers are killed and
//! frozen beyond their leases, Postgres is killed, and no byte passes between them for a while.

use std::time::Duration;

use wakeq::Event;

use crate::support::child_processes::{BOOK, Durations, Role, Work};
use crate::support::cluster;
use crate::support::crash_scene::{CrashScene, figure, size};
use crate::support::wire::Wire;

const SILENCE: Duration = Duration::from_secs(5);
/// One in so many workers is frozen instead of killed.
const FREEZE_EVERY: usize = 4;

const BOOKED: &str = "select count(*) from bookings";
const BOOKED_EVENTS: &str = "select count(distinct event) from bookings";

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_effect_is_there_exactly_once_whatever_is_killed() {
    let Some(mut cluster) = cluster("a test that kills Postgres").await else { return };
    let mut scene = CrashScene::on("exactly-once", Durations::quick(), Some(&cluster), None).await;
    let wire = Wire::to_url(&cluster.url("postgres")).await;
    scene.pass_through(&wire);
    // Of the kills every fourth is a freeze: at full size 60 are `kill -9`.
    let (count, kills, falls) = (size(300, 20_000), size(4, 80), size(1, 3));
    let freezes = kills / FREEZE_EVERY;
    let mut workers = vec![scene.worker(32).await, scene.worker(32).await];
    scene.emit_many(BOOK, count, Work::lasting(20)).await;
    for kill in 1..=kills {
        scene.until_at_least(BOOKED, (count * kill / (kills + 1)) as i64).await;
        let victim = workers.remove(0);
        if kill % FREEZE_EVERY == 0 {
            // Its leases of 2 s end, others take its events over, and then it goes on.
            victim.child.freeze();
            tokio::time::sleep(Duration::from_secs(5)).await;
            victim.child.thaw();
            workers.push(victim);
        } else {
            scene.kill_9(&victim).await;
            workers.push(scene.worker(32).await);
        }
        if kill == kills / 2 {
            // Longer than the leases. What was connected stays dead, and says nothing of it.
            wire.silence();
            tokio::time::sleep(SILENCE).await;
            wire.mend();
        }
        if kill % (kills / falls) == 0 {
            cluster.kill_9().await.unwrap();
            cluster.start_again().await.unwrap();
        }
    }
    let took = scene.until_empty().await;
    let booked = (scene.count(BOOKED).await, scene.count(BOOKED_EVENTS).await);
    assert_eq!(booked, (count as i64, count as i64), "each event's effect, once");
    figure("events", count);
    figure("kills of workers", kills - freezes);
    figure("workers frozen beyond their leases", freezes);
    figure("kills of Postgres", falls);
    figure("silence between them and Postgres", format!("{SILENCE:?}"));
    figure("all complete after the last kill", format!("{took:.1?}"));
}

/// The worker dies right after the commit: nobody hands the object over, and the next event's
/// promise starts it.
#[tokio::test]
async fn an_object_goes_on_though_the_worker_dies_after_the_commit() {
    let scene = CrashScene::new("commit-hand-over", Durations::quick()).await;
    let events = (0..3).map(|_| Event::new(BOOK, &Work::default()).unwrap().on("work:1").unwrap());
    let worker =
        scene.start(&Role::Worker { capacity: 4, shutdown_grace_ms: 3_000 }, Some("transaction.ended"));
    scene.queue.emit_all(events.collect()).await.unwrap();
    assert!(!worker.child.ended().await.success(), "it should have died");
    assert_eq!(
        (scene.count(BOOKED).await, scene.count("select count(*) from wakeq.events_v2").await),
        (1, 2)
    );
    let _heir = scene.worker(4).await;
    scene.until_empty().await;
    assert_eq!((scene.count(BOOKED).await, scene.count(BOOKED_EVENTS).await), (3, 3));
}

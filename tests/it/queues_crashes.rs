//! Queues, while emitters and workers are processes, and die.

use wakeq::{CanvasId, EventId, Notification};

use crate::children::{Durations, QUEUE, Role, Work};
use crate::theatre::{Theatre, figure, list, size};

const ENDED: &str = "select count(distinct event) from runs where ended_at is not null";

async fn register(theatre: &Theatre) {
    let statements = [
        "insert into wakeq.queues (name, in_flight_max, created_by, updated_by) values ($1, 40, 'test', 'test')",
        "insert into wakeq.queue_patterns (queue, pattern) values ($1, ':queued$')",
    ];
    for statement in statements {
        sqlx::query(statement).bind(QUEUE).execute(&theatre.pool).await.unwrap();
    }
    let version = "update wakeq.queue_registry set version = version + 1";
    sqlx::query(version).execute(&theatre.pool).await.unwrap();
}

/// DRV-12: emitters and workers that are killed, and doubled notifications: what was copied is completed, each copy once
/// but for those in flight at a kill.
#[tokio::test]
async fn copies_outlive_the_processes() {
    let theatre = Theatre::new("queue-kills", Durations::crowd()).await;
    register(&theatre).await;
    let (canvases, each, kills) = (size(10, 50), size(25, 500), size(2, 8));
    let count = 4 * canvases * each;
    let mut workers = Vec::new();
    for _ in 0..4 {
        workers.push(theatre.worker(16).await);
    }
    let role = Role::EmitterToQueue { canvases, each, work: Work::lasting(2) };
    let emitters: Vec<_> = (0..4).map(|_| theatre.start(&role, None)).collect();
    // What one that is killed has emitted is not known; the others tell.
    theatre.until_at_least(ENDED, 20).await;
    theatre.kill_9(&emitters[0]).await;
    for kill in 1..=kills {
        theatre.until_at_least(ENDED, (count * kill / (2 * kills + 2)) as i64).await;
        let victim = workers.remove(kill % workers.len());
        theatre.kill_9(&victim).await;
        let live: Vec<(uuid::Uuid, uuid::Uuid)> =
            sqlx::query_as("select id, canvas_id from wakeq.events_v2 limit 1000")
                .fetch_all(&theatre.pool)
                .await
                .unwrap();
        let again =
            live.into_iter().map(|(id, canvas)| Notification { id: EventId(id), canvas: CanvasId(canvas) });
        theatre.notifier.publish(&again.collect::<Vec<_>>()).await.unwrap();
        workers.push(theatre.worker(16).await);
    }
    for emitter in &emitters[1..] {
        emitter.says("emitted").await;
    }
    let took = theatre.until_empty().await;
    let completed = theatre.completed().await;
    assert!((3 * count / 4..=count).contains(&(completed as usize)), "{completed} of {count}");
    assert_eq!(theatre.count("select count(distinct event) from runs").await, completed, "each run ended");
    assert_eq!(theatre.count("select count(*) from wakeq.dead_events").await, 0);
    figure("copies", format!("{completed} of {canvases} canvases, one emitter of four killed"));
    figure("kills", kills);
    figure("all complete after the last emit", format!("{took:.1?}"));
    list(&theatre.extra_runs().await);
}

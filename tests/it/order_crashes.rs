//! Order, while emitters and workers are processes, and die.

use std::time::Duration;

use wakeq::{CanvasId, Event, Notification};

use crate::children::{Durations, Role, WORK, Work};
use crate::theatre::{Theatre, figure, list, size};

const ENDED: &str = "select count(distinct event) from runs where ended_at is not null";
/// Events that started before the one before them on the object had ended, or that are no links of one chain.
const OUT_OF_ORDER: &str = "with events as (
        select object, link, prev, min(claimed_at) as started_at, max(ended_at) as ended_at from runs group by object, link, prev
    ), pairs as (
        select started_at, prev, lag(ended_at) over (partition by object order by link) as ended_before,
               lag(link, 1, 0::bigint) over (partition by object order by link) as link_before
          from events)
    select count(*) from pairs where ended_before > started_at or prev <> link_before";

/// ORD-01, ORD-17, ORD-20, ORD-21, ORD-29, ORD-34: four emitters and four workers, of which some are killed at random
/// moments, and every notification twice: each object's events run in the order of its chain, none is left out, and only
/// what was in flight at a kill runs twice.
#[tokio::test]
async fn order_outlives_the_processes() {
    let theatre = Theatre::new("order", Durations::crowd()).await;
    let (objects, each, kills) = (size(10, 50), size(5, 50), size(2, 8));
    let count = 4 * objects * each;
    let mut workers = Vec::new();
    for _ in 0..4 {
        workers.push(theatre.worker(8).await);
    }
    let role = Role::EmitterOn { objects, each, work: Work::lasting(5) };
    let emitters: Vec<_> = (0..4).map(|_| theatre.start(&role, None)).collect();
    for kill in 1..=kills {
        theatre.until_at_least(ENDED, (count * kill / (kills + 2)) as i64).await;
        let victim = workers.remove(kill % workers.len());
        theatre.kill_9(&victim).await;
        let live =
            sqlx::query_scalar("select id from wakeq.events_v2 limit 1000").fetch_all(&theatre.pool).await;
        let notification = |id| Notification { id: wakeq::EventId(id), canvas: CanvasId::DEFAULT };
        let again: Vec<Notification> = live.unwrap().into_iter().map(notification).collect();
        theatre.notifier.publish(&again).await.unwrap();
        workers.push(theatre.worker(8).await);
    }
    for emitter in &emitters {
        emitter.says("emitted").await;
    }
    let took = theatre.until_empty().await;
    assert_eq!(theatre.completed().await, count as i64);
    assert_eq!(theatre.count(OUT_OF_ORDER).await, 0);
    let whole = "select count(*) from wakeq.objects o
                  where last_seq = (select max(link) from runs r where r.object = o.object)";
    assert_eq!(theatre.count(whole).await, objects as i64);
    figure("events on objects", format!("{count} on {objects}"));
    figure("kills", kills);
    figure("all complete after the last emit", format!("{took:.1?}"));
    list(&theatre.extra_runs().await);
}

/// ORD-17, ORD-22: a worker dies between the removal of an event and the hand-over. The next one has waited for so long that
/// its own promise was an hour away; the removal made it again.
#[tokio::test]
async fn a_worker_dies_before_it_hands_over() {
    let theatre = Theatre::new("hand-over", Durations::quick()).await;
    let victim = theatre.start(&Role::Worker { capacity: 8, shutdown_grace_ms: 1_000 }, Some("link.removed"));
    victim.says("ready").await;
    let on = |ms| Event::new(WORK, &Work::lasting(ms)).unwrap().on("work:1").unwrap();
    theatre.queue.emit(on(2_000)).await.unwrap();
    theatre.until_at_least("select count(*) from runs", 1).await;
    let next = theatre.queue.emit(on(0)).await.unwrap().id;
    victim.says(&format!("ended {next} EarlierLeft")).await;
    let far = sqlx::query("update wakeq.events_v2 set notify_at = now() + interval '1 h' where id = $1");
    far.bind(next.0).execute(&theatre.pool).await.unwrap();
    theatre.until_at_least(ENDED, 1).await;
    let gone = "select (count(*) = 1)::integer::bigint from wakeq.events_v2";
    theatre.until_at_least(gone, 1).await;
    theatre.died(victim.pid()).await;
    let heir = theatre.worker(8).await;
    let took = theatre.until_empty().await;
    assert_eq!((theatre.completed().await, theatre.count(OUT_OF_ORDER).await), (2, 0));
    assert!(took < Duration::from_secs(30), "{took:?}");
    drop(heir);
}

//! Two concurrent schedulers, which are killed now and then: each tick has one event.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use wakeq::crons::MissedTicks;
use wakeq::{Admin, AdminError};

use super::ticks::{CANVAS, FakeClockDatabase, ada, new};
use crate::support::TIMEOUT;
use crate::support::child_processes::{Durations, Role};
use crate::support::crash_scene::{CrashScene, figure};

/// Polls a future up to this many times, then drops it wherever it is: like a killed process, it
/// leaves its work undone.
async fn cut_off<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// A pass of one scheduler; one in two is killed if it takes long enough.
async fn pass(admin: &Admin, random: &mut u64, kills: &mut u32) {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let draw = *random >> 33;
    let polls = if draw.is_multiple_of(2) { (draw / 2 % 16) as usize } else { usize::MAX };
    match cut_off(admin.wake(false), polls).await {
        Some(passed) => {
            let refused =
                passed.err().filter(|error| !matches!(error, AdminError::Wake(_) | AdminError::Store(_)));
            assert!(refused.is_none(), "{refused:?}");
        }
        None => *kills += 1,
    }
}

/// A tick every six seconds, over 100 minutes in which daylight saving begins in its zone.
// Shows: EV2-48
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: `cargo xtask long` runs it"]
async fn two_schedulers_emit_each_of_a_thousand_ticks_once() {
    let clockwork = FakeClockDatabase::at("2027-03-28T00:20:00Z").await;
    let ((one, _), (other, _)) = (clockwork.process().await, clockwork.process().await);
    let cron = new("often", "*/6 * * * * *", "Europe/Berlin").missed(MissedTicks::All);
    one.put_cron(CANVAS, &cron, &ada()).await.unwrap();
    let (mut random, mut kills) = ((7_u64, 8_u64), (0, 0));
    for _ in 0..100 {
        clockwork.passes(60).await;
        tokio::join!(pass(&one, &mut random.0, &mut kills.0), pass(&other, &mut random.1, &mut kills.1));
    }
    // What a killed pass held is released once its server has noticed.
    let due = "select count(*) from wakeq.cron_records where next_at <= (select moment from clockwork.shows)";
    let ending = async {
        while clockwork.number(due).await > 0 {
            // It may still wait for a lock of a dead one.
            one.wake(false).await.ok();
        }
    };
    tokio::time::timeout(TIMEOUT, ending).await.expect("ticks are left");
    let ticks =
        "from wakeq.events_v2 where module = 'CRON' and delay_until <= (select moment from clockwork.shows)";
    let count = sqlx::AssertSqlSafe(format!("select count(*), count(distinct delay_until) {ticks}"));
    let counted: (i64, i64) = sqlx::query_as(count).fetch_one(&clockwork.pool).await.unwrap();
    figure("passes that were cut off", kills.0 + kills.1);
    assert_eq!(counted, (1000, 1000));
    assert!(kills.0 + kills.1 >= 20, "{kills:?}");
    let ahead = clockwork.number("select count(*) - count(distinct delay_until) from wakeq.events_v2").await;
    assert_eq!(ahead, 0, "none twice ahead either");
    let sql = "select count(*) - max(ticks) from wakeq.events_v2, wakeq.cron_records";
    assert_eq!(clockwork.number(sql).await, 0);
}

/// A pause amid passes: once it has returned, no tick is left ahead of its time, and none comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_amid_passes_leaves_nothing_ahead() {
    let clockwork = FakeClockDatabase::at("2027-03-01T08:00:00Z").await;
    let ((one, _), (other, _)) = (clockwork.process().await, clockwork.process().await);
    let (name, ada) = ("often".parse().unwrap(), ada());
    one.put_cron(CANVAS, &new("often", "* * * * * *", "UTC"), &ada).await.unwrap();
    let ahead =
        "select count(*) from wakeq.events_v2 where delay_until > (select moment from clockwork.shows)";
    for round in 0..30 {
        clockwork.passes(30).await;
        let (passed, paused) = tokio::join!(other.wake(false), one.pause_cron(CANVAS, &name, None, &ada));
        passed.unwrap();
        assert!(paused.unwrap().next.is_empty());
        assert_eq!(clockwork.number(ahead).await, 0, "round {round}");
        one.unpause_cron(CANVAS, &name, &ada).await.unwrap();
        assert_eq!(clockwork.number(ahead).await, 75, "round {round}");
    }
    let sql = "select count(*) - count(distinct delay_until) from wakeq.events_v2";
    assert_eq!(clockwork.number(sql).await, 0);
}

/// Real processes, killed in a transaction of ticks and after one: the next processes continue, and
/// no tick is emitted twice.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_scheduler_that_is_killed_leaves_its_ticks_to_the_next() {
    let scene = CrashScene::new("crons", Durations::quick()).await;
    let role = Role::Worker { capacity: 4, shutdown_grace_ms: 100 };
    let cron = new("often", "* * * * * *", "UTC").missed(MissedTicks::All);
    scene.admin.put_cron(CANVAS, &cron, &ada()).await.unwrap();
    for point in ["cron.planned", "cron.ticked", "cron.planned"] {
        let killed = scene.start(&role, Some(point));
        tokio::time::timeout(TIMEOUT, killed.child.ended()).await.expect("it does not reach the point");
    }
    let ticks = "select max(ticks) from wakeq.cron_records";
    let before = scene.count(ticks).await;
    let _worker = scene.worker(4).await;
    scene.until_at_least(ticks, before + 5).await;
    let gaps = "select count(*) from (
                    select delay_until - lag(delay_until) over (order by delay_until) as gap from wakeq.events_v2) as gaps
                 where gap <> interval '1 s'";
    assert_eq!(scene.count(gaps).await, 0, "each second once");
    assert!(scene.count("select count(*) from wakeq.events_v2").await >= before + 5);
}

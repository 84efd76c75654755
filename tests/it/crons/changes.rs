//! Which of a cron's ticks a change or a pause takes back, which it can't, and that no tick comes
//! twice.

use wakeq::Timestamp;
use wakeq::crons::{CronSchedule, MissedTicks, NewCron};

use super::ticks::{CANVAS, FakeClockDatabase, ada, name, new, put};

/// A cron in UTC with this value.
fn valued(name: &str, expression: &str, value: &str) -> NewCron {
    NewCron::new(name, CronSchedule::new(expression, "UTC").unwrap(), value).unwrap()
}

/// A pause takes back what was emitted ahead; what is due stays; ticks during the pause are not
/// made up for.
#[tokio::test]
async fn a_pause_takes_back_what_is_ahead() {
    let clockwork = FakeClockDatabase::at("2027-03-01T08:00:00Z").await;
    let (admin, notifier) = clockwork.process().await;
    put(&admin, &new("often", "*/20 * * * * *", "UTC").missed(MissedTicks::All)).await;
    clockwork.passes(20).await;
    assert_eq!(clockwork.ticks().await, ["03-01 08:00:20", "03-01 08:00:40", "03-01 08:01:00"]);
    let paused = admin.pause_cron(CANVAS, &name("often"), Some("inventory"), &ada()).await.unwrap();
    let pause = paused.paused.unwrap();
    assert_eq!((pause.by.as_str(), pause.reason.as_deref()), ("ada", Some("inventory")));
    assert_eq!((paused.next.len(), paused.ticks), (0, 1));
    assert_eq!(paused.last, Some("2027-03-01T08:00:20Z".parse().unwrap()));
    assert_eq!(clockwork.ticks().await, ["03-01 08:00:20"]);
    clockwork.emits(&admin, 3600, 0).await;
    // It stays paused when it is replaced.
    put(&admin, &new("often", "*/30 * * * * *", "UTC").missed(MissedTicks::All)).await;
    assert_eq!(admin.wake(false).await.unwrap().ticks, 0);
    let before = notifier.published().len();
    let unpaused = admin.unpause_cron(CANVAS, &name("often"), &ada()).await.unwrap();
    assert_eq!(unpaused.next[0].at, "2027-03-01T09:00:30Z".parse::<Timestamp>().unwrap());
    assert_eq!(
        clockwork.ticks().await,
        ["03-01 08:00:20", "03-01 09:00:30", "03-01 09:01:00", "03-01 09:01:30"]
    );
    assert!(notifier.published().len() > before, "at once, not with the next pass");
    admin.unpause_cron(CANVAS, &name("often"), &ada()).await.unwrap();
    assert_eq!(clockwork.ticks().await.len(), 4);
}

/// Another schedule takes back the old one's ticks ahead; another value applies to all of those.
#[tokio::test]
async fn a_change_takes_back_what_is_ahead() {
    let (clockwork, admin) =
        FakeClockDatabase::with_cron("2027-03-01T08:00:00Z", "often", "*/20 * * * * *").await;
    clockwork.passes(20).await;
    put(&admin, &new("often", "*/15 * * * * *", "UTC")).await;
    let ticks = [
        "03-01 08:00:20",
        "03-01 08:00:30",
        "03-01 08:00:45",
        "03-01 08:01:00",
        "03-01 08:01:15",
        "03-01 08:01:30",
    ];
    assert_eq!(clockwork.ticks().await, ticks);
    let other = valued("often", "*/15 * * * * *", "other");
    let put = admin.put_cron(CANVAS, &other, &ada()).await.unwrap();
    assert_eq!((put.new, put.changed, put.cron.ticks), (false, true, 6));
    assert_eq!(clockwork.ticks().await, ticks);
    let values = clockwork.number(r#"select count(*) from wakeq.events_v2 where value = '"other"'"#).await;
    assert_eq!(values, 5, "all but the one that was due");
    admin.delete_cron(CANVAS, &name("often"), &ada()).await.unwrap();
    assert_eq!(clockwork.ticks().await, ["03-01 08:00:20"]);
    clockwork.emits(&admin, 60, 0).await;
}

/// A tick that has run already, early or at its time, is not emitted again by a change.
#[tokio::test]
async fn a_change_repeats_no_tick() {
    let (clockwork, admin) = FakeClockDatabase::with_cron("2027-03-01T08:00:00Z", "often", "* * * * *").await;
    clockwork.passes(60).await;
    clockwork.run("delete from wakeq.events_v2").await;
    put(&admin, &valued("often", "* * * * *", "other")).await;
    assert_eq!(clockwork.ticks().await, ["03-01 08:02:00"]);
}

/// A tick whose event ran early, was cancelled, or waits for a retry has had its event: neither a
/// change nor a pause gives it another, while earlier ticks that were taken back still come.
#[tokio::test]
async fn a_tick_that_ran_early_is_not_repeated() {
    let (clockwork, admin) =
        FakeClockDatabase::with_cron("2027-03-01T08:00:00Z", "often", "*/20 * * * * *").await;
    assert_eq!(clockwork.ticks().await, ["03-01 08:00:20", "03-01 08:00:40", "03-01 08:01:00"]);
    let id = async |tick: &str| {
        let id = format!("select id from wakeq.events_v2 where delay_until = '2027-03-01 {tick}Z'");
        let id: uuid::Uuid =
            sqlx::query_scalar(sqlx::AssertSqlSafe(id)).fetch_one(&clockwork.pool).await.unwrap();
        wakeq::EventId(id)
    };
    let hurried = id("08:00:40").await;
    admin.cancel(CANVAS, id("08:01:00").await, &ada()).await.unwrap();
    admin.run_now(CANVAS, hurried, &ada()).await.unwrap();
    clockwork.run("delete from wakeq.events_v2 where delay_until = '2027-03-01 08:00:00Z'").await;
    for value in ["other", "another"] {
        put(&admin, &valued("often", "*/20 * * * * *", value)).await;
        assert_eq!(clockwork.ticks().await, ["03-01 08:00:20"], "{value}");
        admin.pause_cron(CANVAS, &name("often"), None, &ada()).await.unwrap();
        assert_eq!(clockwork.ticks().await, Vec::<String>::new(), "{value}");
        admin.unpause_cron(CANVAS, &name("often"), &ada()).await.unwrap();
        assert_eq!(clockwork.ticks().await, ["03-01 08:00:20"], "{value}");
    }
    let emitted = "select ticks from wakeq.cron_records";
    assert_eq!(clockwork.number(emitted).await, 3);
    clockwork.passes(10).await;
    admin.wake(false).await.unwrap();
    assert_eq!(clockwork.ticks().await, ["03-01 08:00:20", "03-01 08:01:20"]);

    // It ran early, failed, and waits for its second attempt.
    let sql = "update wakeq.events_v2 set retries = 1, delay_until = delay_until + interval '5 min'
                where delay_until = '2027-03-01 08:01:20Z'";
    clockwork.run(sql).await;
    put(&admin, &new("often", "*/20 * * * * *", "UTC")).await;
    assert_eq!(clockwork.ticks().await, ["03-01 08:00:20", "03-01 08:06:20"]);
    clockwork.passes(60).await;
    admin.wake(false).await.unwrap();
    let ticks = ["03-01 08:00:20", "03-01 08:01:40", "03-01 08:02:00", "03-01 08:02:20", "03-01 08:06:20"];
    assert_eq!(clockwork.ticks().await, ticks);
    assert_eq!(clockwork.number(emitted).await, 7);
    let noted = "select cardinality(ahead_at)::bigint from wakeq.cron_records";
    assert_eq!(clockwork.number(noted).await, 4, "01:20 and what is ahead");
    clockwork.passes(60).await;
    admin.wake(false).await.unwrap();
    assert_eq!(clockwork.number(noted).await, 4, "what has come is not noted any more");
}

/// A process that dies between a change and its first ticks leaves a schedule that begins before
/// the ticks it could not take back; another change must not forget those.
#[tokio::test]
async fn two_changes_before_a_pass_repeat_no_tick() {
    let (clockwork, admin) = FakeClockDatabase::with_cron("2027-03-01T08:00:00Z", "often", "* * * * *").await;
    clockwork.run("delete from wakeq.events_v2").await;
    clockwork.run("update wakeq.cron_records set next_at = '2027-03-01 08:01:00Z'").await;
    clockwork.passes(70).await;
    put(&admin, &valued("often", "* * * * *", "other")).await;
    assert_eq!(clockwork.ticks().await, ["03-01 08:02:00"]);
    assert_eq!(clockwork.number("select ticks from wakeq.cron_records").await, 2);
}

/// A late tick survives a change of the value, and a pause drops it.
#[tokio::test]
async fn a_late_tick_survives_another_value() {
    let (clockwork, admin) =
        FakeClockDatabase::with_cron("2027-03-01T08:00:00Z", "hourly", "0 * * * *").await;
    clockwork.passes(3610).await;
    put(&admin, &valued("hourly", "0 * * * *", "other")).await;
    assert_eq!(clockwork.ticks().await, ["03-01 09:00:00"]);
    clockwork.passes(3600).await;
    admin.pause_cron(CANVAS, &name("hourly"), None, &ada()).await.unwrap();
    admin.unpause_cron(CANVAS, &name("hourly"), &ada()).await.unwrap();
    admin.wake(false).await.unwrap();
    assert_eq!(clockwork.ticks().await, ["03-01 09:00:00"]);
}

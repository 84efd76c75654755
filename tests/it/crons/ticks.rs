//! Crons on Postgres, with a clock that stands still until the test moves it: ticks emitted ahead,
//! missed, restarted.

use std::sync::Arc;

use serde_json::json;
use wakeq::crons::{CronSchedule, MissedTicks, NewCron};
use wakeq::notify::Notifier;
use wakeq::testing::MemoryNotifier;
use wakeq::{
    Actor, Admin, AdminError, CanvasId, Handlers, Name, Route, Store, StoreConfig, StoreError, Timestamp,
};
use wakeq_testbed::TestDatabase;

use crate::support::handlers::recording;
use crate::support::{OTHER, Stage, database, fit, quick};

/// A database whose clock is a row: `now()` and `clock_timestamp()` of its connections read it.
pub(crate) struct FakeClockDatabase {
    pub(crate) url: String,
    /// With the real clock.
    pub(crate) pool: sqlx::PgPool,
    _database: TestDatabase,
}

impl FakeClockDatabase {
    pub(crate) async fn at(moment: &str) -> Self {
        let database = database().await;
        let pool = sqlx::PgPool::connect(database.url()).await.unwrap();
        let schema = "create schema clockwork;
             create table clockwork.shows (moment timestamptz not null);
             create function clockwork.now() returns timestamptz language sql stable as
                 'select moment from clockwork.shows';
             create function clockwork.clock_timestamp() returns timestamptz language sql volatile as
                 'select moment from clockwork.shows'";
        sqlx::raw_sql(schema).execute(&pool).await.unwrap();
        let moment: Timestamp = moment.parse().unwrap();
        sqlx::query("insert into clockwork.shows values ($1)").bind(moment).execute(&pool).await.unwrap();
        let mark = if database.url().contains('?') { '&' } else { '?' };
        // Found before Postgres's own functions of these names.
        let url = format!("{}{mark}options=-csearch_path%3Dclockwork,pg_catalog", database.url());
        Self { url, pool, _database: database }
    }

    /// The same, with the admin of a process.
    pub(crate) async fn with_process(moment: &str) -> (Self, Admin) {
        let clockwork = Self::at(moment).await;
        let (admin, _) = clockwork.process().await;
        (clockwork, admin)
    }

    /// The same, with a cron in UTC.
    pub(crate) async fn with_cron(moment: &str, name: &str, expression: &str) -> (Self, Admin) {
        let (clockwork, admin) = Self::with_process(moment).await;
        put(&admin, &new(name, expression, "UTC")).await;
        (clockwork, admin)
    }

    /// Asserts how many ticks a pass of this process emits.
    pub(crate) async fn emits(&self, admin: &Admin, after_s: i64, ticks: usize) {
        self.passes(after_s).await;
        assert_eq!(admin.wake(false).await.unwrap().ticks, ticks);
    }

    /// The admin and the notifier of a process of its own.
    pub(crate) async fn process(&self) -> (Admin, Arc<MemoryNotifier>) {
        let notifier = Arc::new(MemoryNotifier::new());
        let store = Store::connect(&self.url, fit(StoreConfig::default())).await.unwrap();
        (Admin::new(store, notifier.clone() as Arc<dyn Notifier>), notifier)
    }

    pub(crate) async fn passes(&self, seconds: i64) {
        let on = "update clockwork.shows set moment = moment + $1 * interval '1 s'";
        sqlx::query(on).bind(seconds).execute(&self.pool).await.unwrap();
    }

    /// The ticks whose events exist, by the times they are for.
    pub(crate) async fn ticks(&self) -> Vec<String> {
        let ticks = "select to_char(delay_until at time zone 'UTC', 'MM-DD HH24:MI:SS') from wakeq.events_v2
                      where module = 'CRON' order by delay_until";
        sqlx::query_scalar(ticks).fetch_all(&self.pool).await.unwrap()
    }

    pub(crate) async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    pub(crate) async fn run(&self, sql: &'static str) {
        sqlx::query(sql).execute(&self.pool).await.unwrap();
    }
}

pub(crate) const CANVAS: CanvasId = CanvasId::DEFAULT;

pub(crate) fn ada() -> Actor {
    Actor::user("ada")
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn new(name: &str, expression: &str, zone: &str) -> NewCron {
    NewCron::new(name, CronSchedule::new(expression, zone).unwrap(), &json!({"for": name})).unwrap()
}

pub(crate) async fn put(admin: &Admin, cron: &NewCron) {
    admin.put_cron(CANVAS, cron, &ada()).await.unwrap();
}

/// A tick makes one row of the module CRON and one notification, ahead of its time, so that a
/// worker holds it by then.
// Shows: EV2-48
#[tokio::test]
async fn a_tick_is_one_event_and_one_notification() {
    let clockwork = FakeClockDatabase::at("2027-03-01T07:58:00Z").await;
    let (admin, notifier) = clockwork.process().await;
    put(&admin, &new("report", "0 8 * * *", "UTC").modifier("daily").unwrap()).await;
    assert_eq!((clockwork.ticks().await.len(), notifier.published().len()), (0, 0), "not yet");
    clockwork.emits(&admin, 46, 1).await;
    clockwork.emits(&admin, 60, 0).await;
    let sql = "select id, concat_ws(' ', module, name, modifier, value, to_char(delay_until, 'HH24:MI')),
                      canvas_id = '00000000-0000-0000-0000-000000000000' from wakeq.events_v2";
    let row: (uuid::Uuid, String, bool) = sqlx::query_as(sql).fetch_one(&clockwork.pool).await.unwrap();
    assert_eq!((row.1.as_str(), row.2), (r#"CRON report daily {"for":"report"} 08:00"#, true));
    let published: Vec<_> = notifier.published().iter().map(|notification| notification.id.0).collect();
    assert_eq!(published, [row.0]);
}

/// The minute's statement has moved the overdue promises: those events are published before any
/// tick is emitted. A broker that is down holds up no tick.
#[tokio::test]
async fn overdue_events_are_published_before_ticks() {
    let clockwork = FakeClockDatabase::at("2027-03-01T07:58:00Z").await;
    let (admin, notifier) = clockwork.process().await;
    put(&admin, &new("report", "0 8-9 * * *", "UTC")).await;
    let sql = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, notify_at, delay_until)
               select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'late', '_', '1', moment, moment
                 from clockwork.shows";
    clockwork.run(sql).await;
    clockwork.passes(60).await;
    let pass = admin.wake(false).await.unwrap();
    assert_eq!((pass.woken, pass.ticks), (1, 1));
    let sql = "select e.module::text from unnest($1::uuid[]) with ordinality as published (id, place)
                 join wakeq.events_v2 e using (id) order by place";
    let published: Vec<_> = notifier.published().iter().map(|notification| notification.id.0).collect();
    let modules: Vec<String> =
        sqlx::query_scalar(sql).bind(published).fetch_all(&clockwork.pool).await.unwrap();
    assert_eq!(modules, ["WORKER", "CRON"]);
    clockwork.run("update wakeq.events_v2 set notify_at = (select moment from clockwork.shows) where module = 'WORKER'").await;
    clockwork.passes(3600).await;
    notifier.break_down("away");
    admin.wake(false).await.unwrap_err();
    assert_eq!(clockwork.ticks().await, ["03-01 08:00:00", "03-01 09:00:00"]);
}

/// The schedule is in the record. Even if its events are deleted, the next tick comes.
// Shows: EV2-49
#[tokio::test]
async fn crons_do_not_read_events() {
    let (clockwork, admin) =
        FakeClockDatabase::with_cron("2027-03-01T07:59:00Z", "report", "0 8-9 * * *").await;
    assert_eq!(clockwork.ticks().await, ["03-01 08:00:00"]);
    clockwork.run("truncate wakeq.events_v2").await;
    clockwork.passes(3600).await;
    admin.wake(false).await.unwrap();
    assert_eq!(clockwork.ticks().await, ["03-01 09:00:00"]);
    clockwork.passes(3600).await;
    let cron = admin.cron(CANVAS, &name("report")).await.unwrap();
    assert_eq!((cron.last, cron.ticks), (Some("2027-03-01T09:00:00Z".parse().unwrap()), 2));
    assert_eq!(cron.next[0].at, "2027-03-02T08:00:00Z".parse::<Timestamp>().unwrap());
    assert_eq!(cron.next.len(), 5);
}

/// Putting the same cron again changes nothing: nothing is taken back or recorded.
#[tokio::test]
async fn the_same_again_changes_nothing() {
    let (clockwork, admin) = FakeClockDatabase::with_process("2027-03-01T08:00:00Z").await;
    let cron = new("often", "* * * * *", "UTC");
    assert!(admin.put_cron(CANVAS, &cron, &ada()).await.unwrap().new);
    let ids = "select count(*) from wakeq.events_v2 e join wakeq.cron_records c on e.id = any (c.ahead)";
    assert_eq!(clockwork.number(ids).await, 1);
    let again = admin.put_cron(CANVAS, &cron, &ada()).await.unwrap();
    assert_eq!((again.new, again.changed), (false, false));
    assert_eq!(clockwork.number(ids).await, 1);
    assert_eq!(clockwork.number("select count(*) from wakeq.audit_log").await, 1);
}

/// After a night without any process, each policy for missed ticks applies when a process starts.
#[tokio::test]
async fn missed_ticks_after_a_restart() {
    let (clockwork, admin) = FakeClockDatabase::with_process("2027-03-01T20:30:00Z").await;
    for missed in [MissedTicks::Skip, MissedTicks::Once, MissedTicks::All] {
        put(&admin, &new(missed.as_str(), "0 * * * *", "UTC").missed(missed)).await;
    }
    drop(admin);
    clockwork.passes(3 * 3600).await;
    let (admin, _) = clockwork.process().await;
    assert_eq!(admin.wake(false).await.unwrap().ticks, 4);
    let of = "select string_agg(name || to_char(delay_until at time zone 'UTC', ' HH24'), ', ' order by name, delay_until)
                from wakeq.events_v2";
    let of: String = sqlx::query_scalar(of).fetch_one(&clockwork.pool).await.unwrap();
    assert_eq!(of, "all 21, all 22, all 23, once 23");
    clockwork.passes(1800).await;
    assert_eq!(admin.wake(false).await.unwrap().ticks, 3, "all go on");
}

/// More ticks than a transaction emits, and more crons than one looks at.
#[tokio::test]
async fn many_crons_tick_together() {
    let (clockwork, admin) = FakeClockDatabase::with_process("2027-03-01T07:59:00Z").await;
    let sql = "insert into wakeq.cron_records (canvas_id, name, expression, zone, modifier, value, missed, created_by,
                                             created_at, changed_at, next_at)
               select '00000000-0000-0000-0000-000000000000', 'c' || n,
                      case when n = 1 then '* * * * * *' else '0 8 * * *' end, 'UTC', '_', '1', 'all', 'test', now(), now(),
                      case when n = 1 then '2027-03-01T07:30:00Z'::timestamptz else '2027-03-01T08:00:00Z' end
                 from generate_series(1, 1000) n";
    clockwork.run(sql).await;
    let pass = admin.wake(false).await.unwrap();
    // Of the cron that missed more than 1,000 ticks: 1,000, the 120 that are merely late, 75 ahead,
    // and the current one.
    assert_eq!(pass.ticks, 999 + 1000 + 120 + 76);
    let sql = "select count(distinct (name, delay_until)) from wakeq.events_v2";
    assert_eq!(clockwork.number(sql).await, 2195);
    let full = admin.put_cron(CANVAS, &new("one-more", "* * * * *", "UTC"), &ada()).await.unwrap_err();
    assert!(matches!(full, AdminError::Store(StoreError::Quota(_))), "{full}");
    let replaced = admin.put_cron(CANVAS, &new("c7", "* * * * *", "UTC"), &ada()).await.unwrap();
    assert!(!replaced.new, "one that is there");
    let page = admin.crons(CANVAS, Some(&name("c998")), 1000).await.unwrap();
    assert_eq!(page.len(), 1);
    assert_eq!((page[0].name.as_str(), page[0].next.len(), page[0].value.clone()), ("c999", 1, None));
}

/// A schedule that this release can't read is left, with every tick, to one that can, and holds up
/// no other, however many there are.
#[tokio::test]
async fn an_unreadable_schedule_stops_only_itself() {
    let (clockwork, admin) = FakeClockDatabase::with_process("2027-03-01T07:59:00Z").await;
    let sql = "insert into wakeq.cron_records (canvas_id, name, expression, zone, modifier, value, missed, created_by,
                                             created_at, changed_at, next_at)
               select '00000000-0000-0000-0000-000000000000', 'gone' || n, '0 8 * * *', 'Europe/Atlantis', '_', '1', 'all',
                      'test', now(), now(), '2027-03-01T07:00:00Z'::timestamptz
                 from generate_series(1, 250) n";
    clockwork.run(sql).await;
    put(&admin, &new("good", "0 8 * * *", "UTC")).await;
    clockwork.emits(&admin, 24 * 3600, 1).await;
    let gone = admin.cron(CANVAS, &name("gone1")).await.unwrap();
    assert_eq!((gone.paused, gone.next, gone.ticks), (None, Vec::new(), 0));
    assert_eq!(clockwork.number("select count(*) from wakeq.audit_log where name like 'gone%'").await, 0);
    // A release that can read it makes up for the missed ticks.
    clockwork.run("update wakeq.cron_records set zone = 'UTC' where name = 'gone1'").await;
    assert_eq!(admin.wake(false).await.unwrap().ticks, 3);
    assert_eq!(admin.cron(CANVAS, &name("gone1")).await.unwrap().ticks, 3);
}

/// If it were unpaused, it would have no next tick, and would be neither paused nor ever emitted
/// again.
#[tokio::test]
async fn an_unreadable_cron_stays_paused() {
    let (clockwork, admin) = FakeClockDatabase::with_cron("2027-03-01T07:59:00Z", "gone", "0 8 * * *").await;
    admin.pause_cron(CANVAS, &name("gone"), None, &ada()).await.unwrap();
    clockwork.run("update wakeq.cron_records set expression = 'garbage'").await;
    let refused = admin.unpause_cron(CANVAS, &name("gone"), &ada()).await.unwrap_err();
    assert!(matches!(refused, AdminError::UnreadableCron(_)), "{refused}");
    let gone = admin.cron(CANVAS, &name("gone")).await.unwrap();
    assert_eq!(gone.paused.unwrap().by, "ada");
    assert_eq!(clockwork.number("select count(*) from wakeq.audit_log").await, 2, "put and paused");
    put(&admin, &new("gone", "0 8 * * *", "UTC")).await;
    let mended = admin.unpause_cron(CANVAS, &name("gone"), &ada()).await.unwrap();
    assert_eq!((mended.paused, mended.ticks), (None, 1));
}

/// Every change has a line in the record, and nothing else does.
#[tokio::test]
async fn every_change_of_a_cron_is_recorded() {
    let (clockwork, admin) = FakeClockDatabase::with_process("2027-03-01T07:00:00Z").await;
    let report = name("report");
    let ada = ada().request("r1").credential("with k");
    admin.put_cron(CANVAS, &new("report", "0 8 * * *", "UTC"), &ada).await.unwrap();
    admin.put_cron(CANVAS, &new("report", "0 9 * * *", "Europe/Berlin"), &ada).await.unwrap();
    admin.pause_cron(CANVAS, &report, Some("inventory"), &ada).await.unwrap();
    admin.unpause_cron(CANVAS, &report, &ada).await.unwrap();
    admin.unpause_cron(CANVAS, &report, &ada).await.unwrap();
    admin.delete_cron(CANVAS, &report, &ada).await.unwrap();
    for gone in [
        admin.delete_cron(CANVAS, &report, &ada).await.unwrap_err(),
        admin.pause_cron(CANVAS, &report, None, &ada).await.unwrap_err(),
        admin.unpause_cron(CANVAS, &report, &ada).await.unwrap_err(),
        admin.cron(CANVAS, &report).await.unwrap_err(),
    ] {
        assert!(matches!(gone, AdminError::NoCron(_)), "{gone}");
    }
    let sql = "select concat_ws(' ', action, actor, module, name, outcome, request_id, '(' || detail || ')')
                 from wakeq.audit_log order by id";
    let lines: Vec<String> = sqlx::query_scalar(sql).fetch_all(&clockwork.pool).await.unwrap();
    assert_eq!(
        lines,
        [
            "put-cron ada CRON report done r1 (with k; 0 8 * * * in UTC)",
            "put-cron ada CRON report done r1 (with k; 0 9 * * * in Europe/Berlin)",
            "pause-cron ada CRON report done r1 (with k; inventory)",
            "unpause-cron ada CRON report done r1 (with k)",
            "delete-cron ada CRON report done r1 (with k)",
        ]
    );
}

/// A canvas neither sees the crons of another nor affects their events.
#[tokio::test]
async fn crons_stay_on_their_canvas() {
    let (clockwork, admin) = FakeClockDatabase::with_process("2027-03-01T07:59:30Z").await;
    let cron = new("report", "0 8 * * *", "UTC");
    put(&admin, &cron).await;
    admin.put_cron(OTHER, &cron, &ada()).await.unwrap();
    admin.delete_cron(OTHER, &name("report"), &ada()).await.unwrap();
    assert_eq!(clockwork.ticks().await.len(), 1);
    assert!(admin.crons(OTHER, None, 10).await.unwrap().is_empty());
    assert_eq!(admin.crons(CANVAS, None, 10).await.unwrap().len(), 1);
}

/// On a running clock: a function of the library receives what its cron emits, second after second.
#[tokio::test]
async fn a_function_runs_what_a_cron_emits() {
    let (stage, _) = Stage::memory_with(quick()).await;
    let (handler, mut runs) = recording();
    let worker = stage.worker(Handlers::new().on(Route::new("tick").module("CRON"), handler));
    put(&stage.admin, &new("tick", "* * * * * *", "Europe/Berlin")).await;
    let mut ids = std::collections::HashSet::new();
    for _ in 0..4 {
        let run = runs.next().await;
        assert!(ids.insert(run.id), "each tick has an event of its own");
        assert_eq!(run.value::<serde_json::Value>().unwrap(), json!({"for": "tick"}));
    }
    worker.stop().await;
}

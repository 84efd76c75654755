//! The minute's statement and what it finds to do.

use std::collections::HashSet;
use std::time::Duration;

use super::cost::{MINUTE_ARGUMENTS, buffers, plan};
use super::crowds::{FEW, MANY};
use super::parking::resume;
use super::{Table, scope, tester};
use crate::event::{CanvasId, EventId, RuleKind};
use crate::store::{MakingDue, Retention, StoreConfig};

impl Table {
    async fn due_again(&self) {
        self.run("update wakeq.chores set next_at = now()").await;
    }

    /// An event that is due, one that is due in five minutes, one that is parked, one that is
    /// running, and one that lost its owner; each probed three times and, except the parked one,
    /// promised in ten minutes.
    async fn one_of_each(&self) -> Vec<EventId> {
        let ids = self.add(5).await;
        let kinds = "update wakeq.events_v2 e
                        set notify_at = case n when 3 then null else now() + interval '10 min' end, probes = 3,
                            delay_until = case n when 2 then now() + interval '5 min' else delay_until end,
                            locked_at = case n when 4 then now() when 5 then now() - interval '1 h' end,
                            claims = case when n > 3 then 1 else 0 end
                       from unnest($1::uuid[]) with ordinality o (id, n) where e.id = o.id";
        sqlx::query(kinds).bind(keys(&ids)).execute(&self.pool).await.unwrap();
        ids
    }

    /// In how many seconds, rounded to tens, each of the events is promised, and how often it was
    /// probed.
    async fn promises(&self, ids: &[EventId]) -> Vec<(Option<i64>, i32)> {
        let query = "select round(extract(epoch from notify_at - now()) / 10)::bigint * 10, probes from wakeq.events_v2
                      order by array_position($1, id)";
        sqlx::query_as(query).bind(keys(ids)).fetch_all(&self.pool).await.unwrap()
    }
}

fn keys(ids: &[EventId]) -> Vec<uuid::Uuid> {
    ids.iter().map(|id| id.0).collect()
}

/// When the minute is over, one of eight processes is let through.
// Shows: EV2-01
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_a_minute_is_let_through() {
    let table = Table::with(StoreConfig {
        max_connections: 8,
        lock_timeout: Duration::from_secs(4),
        ..StoreConfig::default()
    })
    .await;
    table.add(5).await;
    for pass in 1..=5 {
        table.due_again().await;
        table.run("update wakeq.events_v2 set notify_at = now(), probes = 0").await;
        let mut processes = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let store = table.store.clone();
            processes.spawn(async move { store.minute(false, None).await.unwrap().notifications.len() });
        }
        let mut found = processes.join_all().await;
        found.sort_unstable();
        assert_eq!(found, [0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(table.number("select passes from wakeq.chores where name = 'minute'").await, pass);
    }
}

/// The process that was first may be of a release that does not know crons: the others emit what is
/// due all the same, once a pass.
#[tokio::test]
async fn crons_tick_where_another_process_was_first() {
    let table = Table::new().await;
    table.add(1).await;
    table
        .run(
            "insert into wakeq.cron_records (canvas_id, name, expression, zone, modifier, value, missed, next_at, created_by,
                                             created_at, changed_at)
             values (gen_random_uuid(), 'often', '* * * * *', 'UTC', '_', '1', 'skip', now() + interval '1 min', 'test',
                     now(), now())",
        )
        .await;
    table.run("update wakeq.chores set next_at = now() + interval '1 min'").await;
    let minute = table.store.minute(false, None).await.unwrap();
    assert_eq!((minute.open, minute.crons, minute.notifications.len()), (false, true, 0));
    table.due_again().await;
    let minute = table.store.minute(false, None).await.unwrap();
    assert_eq!((minute.open, minute.crons, minute.notifications.len()), (true, true, 1));
    assert!(!table.store.minute(true, None).await.unwrap().crons, "once a pass");
    table.run("update wakeq.cron_records set next_at = now() + interval '80 s'").await;
    assert!(!table.store.minute(false, None).await.unwrap().crons, "not yet");
}

/// If the clock was set back, the next pass is far ahead; more than two periods ahead is not
/// believed.
#[tokio::test]
async fn the_pass_recovers_from_a_clock_set_back() {
    let table = Table::new().await;
    table.add(1).await;
    table.run("update wakeq.chores set next_at = now() + interval '110 s'").await;
    assert!(table.store.minute(false, None).await.unwrap().notifications.is_empty());
    table.run("update wakeq.chores set next_at = now() + interval '1 day'").await;
    assert_eq!(table.store.minute(false, None).await.unwrap().notifications.len(), 1);
    assert!(
        table
            .holds(
                "select bool_and(next_at < now() + interval '61 s') from wakeq.chores where name = 'minute'"
            )
            .await
    );
}

/// X5: pages of 1,000 until nothing is overdue; each event once.
#[tokio::test]
async fn overdue_events_are_published_page_after_page() {
    let table = Table::new().await;
    table.add(2300).await;
    table.run("update wakeq.events_v2 set notify_at = now() - interval '1 min' * random()").await;
    let mut published = HashSet::new();
    for (expected, more) in [(1000, true), (2000, true), (2300, false)] {
        let minute = table.store.minute(expected > 1000, None).await.unwrap();
        assert_eq!(minute.more, more);
        published.extend(minute.notifications);
        assert_eq!(published.len(), expected);
    }
    assert_eq!(
        table.number("select passes from wakeq.chores where name = 'minute'").await,
        1,
        "pages of one pass"
    );
    assert!(!table.store.minute(true, None).await.unwrap().more);
}

/// The wait doubles from 10 min to 1 h each time an event had to be woken.
#[tokio::test]
async fn the_probe_backs_off() {
    let table = Table::new().await;
    table.add(7).await;
    table.run("update wakeq.events_v2 e set probes = n.probes from (
                   select id, (array[0, 1, 2, 3, 10, 31, 1000])[row_number() over ()] as probes from wakeq.events_v2) n
                where n.id = e.id").await;
    assert_eq!(table.store.minute(false, None).await.unwrap().notifications.len(), 7);
    let waits: Vec<(i32, i64)> = sqlx::query_as(
        "select probes, round(extract(epoch from notify_at - now()) / 60)::bigint from wakeq.events_v2 order by probes")
        .fetch_all(&table.pool).await.unwrap();
    assert_eq!(waits, [(1, 10), (2, 20), (3, 40), (4, 60), (11, 60), (32, 60), (1001, 60)]);
}

/// A running event is not woken: its promise moves to the end of its lease. One that lost its owner
/// is woken.
#[tokio::test]
async fn running_events_are_moved_and_not_published() {
    let table = Table::new().await;
    let ids = table.add(2).await;
    table.claim(&ids).await;
    sqlx::query("update wakeq.events_v2 set locked_at = now() - interval '61 s' where id = $1")
        .bind(ids[1].0)
        .execute(&table.pool)
        .await
        .unwrap();
    let minute = table.store.minute(false, None).await.unwrap();
    assert_eq!(minute.notifications.iter().map(|notification| notification.id).collect::<Vec<_>>(), ids[1..]);
    assert!(
        table
            .holds(
                "select count(*) = 1 and bool_and(probes = 0) from wakeq.events_v2
                          where notify_at = locked_at + interval '90 s'"
            )
            .await
    );
}

/// An event of next month, inserted in plain SQL, is promised for its time and not published
/// before.
// Shows: EV2-27
#[tokio::test]
async fn far_future_events_are_armed_for_their_time() {
    let table = Table::new().await;
    table.add(3).await;
    table.run("update wakeq.events_v2 set delay_until = now() + interval '30 days' where id in (select id from wakeq.events_v2 limit 1)").await;
    table
        .run(
            "update wakeq.events_v2 set delay_until = now() + interval '9 min' where id in (
                   select id from wakeq.events_v2 where delay_until <= now() limit 1)",
        )
        .await;
    let minute = table.store.minute(false, None).await.unwrap();
    assert_eq!(minute.notifications.len(), 2, "due, and due within the horizon");
    assert!(table.holds("select count(*) = 1 from wakeq.events_v2
                          where delay_until > now() + interval '1 day' and notify_at = delay_until - interval '10 min'").await);
    assert!(
        table
            .holds(
                "select count(*) = 1 from wakeq.events_v2
                          where delay_until > now() and notify_at = delay_until + interval '30 s'"
            )
            .await
    );
}

/// A promise that a long transaction commits behind the low-water mark is found by the tenth pass.
#[tokio::test]
async fn a_promise_behind_the_low_water_mark_is_found_on_the_tenth_pass() {
    let table = Table::new().await;
    for _ in 1..=2 {
        table.due_again().await;
        table.store.minute(false, None).await.unwrap();
    }
    table.add(2).await;
    table.run("update wakeq.events_v2 set notify_at = now() - interval '1 h' where id in (select id from wakeq.events_v2 limit 1)").await;
    let mut found = Vec::new();
    for _ in 3..=11 {
        table.due_again().await;
        found.push(table.store.minute(false, None).await.unwrap().notifications.len());
    }
    assert_eq!(found, [1, 0, 0, 0, 0, 0, 0, 1, 0]);
}

/// While nothing is sent no tenth pass comes, so a process does not sleep past such a promise.
#[tokio::test]
async fn no_process_sleeps_past_a_promise_behind_the_low_water_mark() {
    let table = Table::new().await;
    assert_eq!(table.store.until_next_pass().await.unwrap(), None);
    table.add(1).await;
    table.run("update wakeq.events_v2 set notify_at = now() - interval '10 min'").await;
    table.run("update wakeq.chores set low_water = now() - interval '2 min' where name = 'minute'").await;
    assert_eq!(table.store.until_next_pass().await.unwrap(), Some(Duration::ZERO));
}

/// A promise that a pass skipped, because its row was locked, is kept by the next pass.
#[tokio::test]
async fn a_promise_that_was_skipped_is_kept_by_the_next_pass() {
    let table = Table::new().await;
    table.add(3).await;
    table.run("update wakeq.events_v2 set notify_at = now() - interval '9 min'").await;
    let mut published = Vec::new();
    let mut stranger = Some(table.pool.begin().await.unwrap());
    sqlx::query("select from wakeq.events_v2 limit 1 for update")
        .execute(&mut **stranger.as_mut().unwrap())
        .await
        .unwrap();
    for pass in 1..=4 {
        if pass == 3 {
            stranger.take().unwrap().rollback().await.unwrap();
        }
        table.due_again().await;
        published.push(table.store.minute(false, None).await.unwrap().notifications.len());
    }
    assert_eq!(published, [2, 0, 1, 0]);
    assert!(table.holds("select low_water between now() - interval '3 min' and now() from wakeq.chores where name = 'minute'").await);
}

/// After the clock was set back, the mark must not stay in the future, above all later promises.
#[tokio::test]
async fn the_low_water_mark_follows_a_clock_set_back() {
    let table = Table::new().await;
    table.store.minute(false, None).await.unwrap();
    table.run("update wakeq.chores set low_water = now() + interval '1 day'").await;
    table.add(1).await;
    table.due_again().await;
    assert_eq!(table.store.minute(false, None).await.unwrap().notifications.len(), 1);
}

/// `until` is reached: the minute's statement lifts one rule at a time, each with its job.
#[tokio::test]
async fn rules_that_reached_their_end_are_lifted_one_by_one() {
    let table = Table::new().await;
    let ids = table.add(1).await;
    table.pause().await;
    table.store.add_rule(RuleKind::Block, &scope(), None, None, &tester()).await.unwrap();
    assert_eq!(table.store.park(&ids).await.unwrap(), [true]);
    table.run("update wakeq.scheduling_rules set until = now() - interval '1 s'").await;
    let minute = table.store.minute(false, None).await.unwrap();
    assert_eq!((minute.jobs.len(), minute.more), (1, true));
    assert_eq!(table.number("select count(*) from wakeq.scheduling_rules").await, 1);
    let minute = table.store.minute(true, None).await.unwrap();
    assert_eq!((minute.jobs.len(), minute.more), (2, true));
    let last = table.store.minute(true, None).await.unwrap();
    assert_eq!((last.jobs.len(), last.more), (1, false), "the second job wakes what the first one would");
    assert_eq!(resume(&table.store, last.jobs[0].1).await, ids);
}

/// Events that the pass may not publish yet are due when they were put off to, or after their own
/// time, and none counts as lost by that.
#[tokio::test]
async fn postponed_events_are_due_at_their_turn() {
    let table = Table::new().await;
    let ids = table.one_of_each().await;
    let later: Vec<_> = ids.iter().map(|id| (*id, Duration::from_secs(100))).collect();
    table.store.postpone(&later).await.unwrap();
    let grace = i64::try_from(table.store.timing().grace.as_secs()).unwrap();
    let (turn, own) = (Some(100), Some(300 + grace));
    assert_eq!(table.promises(&ids).await, [(turn, 2), (own, 3), (None, 2), (Some(600), 3), (turn, 2)]);
}

/// Both statements skip a locked row: the promises of the others are made.
#[tokio::test]
async fn a_locked_row_does_not_delay_the_other_promises() {
    let table = Table::new().await;
    let ids = table.add(2).await;
    let due = table.promises(&ids).await;
    let mut stranger = table.pool.begin().await.unwrap();
    let lock = sqlx::query("select from wakeq.events_v2 where id = $1 for update").bind(ids[0].0);
    lock.execute(&mut *stranger).await.unwrap();
    let later = ids.iter().map(|id| (*id, Duration::from_secs(100))).collect::<Vec<_>>();
    table.store.postpone(&later).await.unwrap();
    assert_eq!(table.promises(&ids).await, [due[0], (Some(100), 0)]);
    table.store.promise_again(&ids).await.unwrap();
    let grace = i64::try_from(table.store.timing().grace.as_secs()).unwrap();
    assert_eq!(table.promises(&ids).await, [due[0], (Some(grace), 0)]);
    stranger.rollback().await.unwrap();
}

/// A pass that could not be published is repeated after the grace, also for events that lost their
/// owner: the back-off is for lost notifications.
#[tokio::test]
async fn what_was_not_published_is_due_after_the_grace() {
    let table = Table::new().await;
    let ids = table.one_of_each().await;
    table.store.promise_again(&ids).await.unwrap();
    let grace = Some(i64::try_from(table.store.timing().grace.as_secs()).unwrap());
    assert_eq!(table.promises(&ids).await, [(grace, 2), (grace, 2), (None, 2), (Some(600), 3), (grace, 2)]);
}

/// However many jobs one canvas has, the list begins with one of each, and few others are read.
#[tokio::test]
async fn a_thousand_jobs_of_one_canvas_hide_none_of_another() {
    let table = Table::of_one_connection().await;
    table.crowd(1).await;
    table.lift_all().await;
    table.run("alter table wakeq.resume_jobs disable trigger resume_jobs_replace").await;
    let many = "insert into wakeq.resume_jobs (kind, canvas_id, module, name)
                select 'lifted', canvas_id, module, 'h' || n from generate_series(1, 200000) n,
                       (select canvas_id, module from wakeq.events_v2 order by 1 limit 1) one";
    table.run(many).await;
    let jobs = table.store.minute(false, None).await.unwrap().jobs;
    assert_eq!(jobs.len(), 501 + 1, "no canvas has more than half of a thousand, and one");
    assert_eq!(HashSet::from([jobs[0].0, jobs[1].0]), HashSet::from([MANY, FEW]));
    assert!(jobs[2..].iter().all(|(canvas, _)| *canvas == MANY));
    table.due_again().await;
    let pages = buffers(&plan(&table.store, "), overdue as (", MINUTE_ARGUMENTS).await, "");
    assert!(pages < 1_500, "{pages} pages");
}

/// Old ids, dead events and notes are deleted, fresh ones stay; once an hour.
#[tokio::test]
async fn old_rows_are_deleted_once_an_hour() {
    let table = Table::new().await;
    let retention = Retention {
        emitted_ids: Duration::from_secs(60),
        dead_events: Duration::from_secs(60),
        ..Retention::default()
    };
    table
        .run(
            "insert into wakeq.emitted_ids (id, canvas_id, due_at)
             select gen_random_uuid(), gen_random_uuid(), now() - interval '1 h' from generate_series(1, 1200)",
        )
        .await;
    table
        .run("insert into wakeq.emitted_ids (id, canvas_id) values (gen_random_uuid(), gen_random_uuid())")
        .await;
    table.run("insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses, cause, died_at)
               select gen_random_uuid(), gen_random_uuid(), 'm', 'n', '_', '1', 0, now(), 1, 0, 'poison', now() - n * interval '2 min'
                 from generate_series(0, 1) n").await;
    table.run("insert into wakeq.unknown_handlers (canvas_id, module, name, modifier, last_seen)
               select gen_random_uuid(), 'm', 'n', '_', now() - n * interval '2 min' from generate_series(0, 1) n").await;
    assert!(table.store.minute(false, None).await.unwrap().open);
    assert!(table.store.begin_expiry().await.unwrap());
    assert!(table.expire(retention).await, "1,000 of 1,200");
    assert!(!table.expire(retention).await);
    for left in [
        "select count(*) from wakeq.emitted_ids",
        "select count(*) from wakeq.dead_events",
        "select count(*) from wakeq.unknown_handlers",
    ] {
        assert_eq!(table.number(left).await, 1, "{left}");
    }
    assert!(!table.store.begin_expiry().await.unwrap(), "not due");
    table.store.hasten_expiry().await.unwrap();
    assert!(table.store.begin_expiry().await.unwrap(), "it was not finished");
    assert!(!table.store.minute(false, None).await.unwrap().open, "the minute is not over");
}

/// X6: with nothing to do, nothing is done.
#[tokio::test]
async fn an_empty_queue_has_nothing_to_publish() {
    let table = Table::new().await;
    let minute = table.store.minute(false, None).await.unwrap();
    assert!(minute.notifications.is_empty() && minute.jobs.is_empty() && !minute.more);
}

/// `wakeq wake --all` makes everything due that waits without reason; not what is delayed, parked
/// or on a worker.
#[tokio::test]
async fn everything_that_waits_can_be_made_due() {
    let table = Table::new().await;
    let ids = table.add(4).await;
    table.claim(&ids[..1]).await;
    table.run("update wakeq.events_v2 set notify_at = now() + interval '1 h', probes = 5").await;
    for (column, id) in [
        ("update wakeq.events_v2 set notify_at = null where id = $1", ids[1]),
        ("update wakeq.events_v2 set delay_until = now() + interval '2 h' where id = $1", ids[2]),
    ] {
        sqlx::query(column).bind(id.0).execute(&table.pool).await.unwrap();
    }
    for moved in [1, 0] {
        let mut due = MakingDue::default();
        assert_eq!((table.store.make_due(&mut due).await.unwrap(), due.is_over), (moved, true));
    }
    let minute = table.store.minute(false, None).await.unwrap();
    assert_eq!(minute.notifications.iter().map(|notification| notification.id).collect::<Vec<_>>(), ids[3..]);
}

/// A neighbor has events that are due: one whose events are all for later asks for no share of a
/// worker. A canvas's own events are not read, however many there are.
#[tokio::test]
async fn a_canvas_whose_events_are_for_later_is_no_neighbor() {
    const HANDLERS: &str = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, notify_at)
        select gen_random_uuid(), $1, 'WORKER', n::text, '_', '1', now() + $3::text::interval, now() + interval '1 h'
          from generate_series(1, $2) n";
    let table = Table::new().await;
    let [below, own, above] = [1, 2, 3].map(|number: u128| CanvasId(uuid::Uuid::from_u128(number)));
    for (canvas, handlers, later) in [(below, 20, "1 h"), (own, 2_000, "-1 s"), (above, 20, "1 d")] {
        let add = sqlx::query(HANDLERS).bind(canvas.0).bind(handlers).bind(later);
        add.execute(&table.pool).await.unwrap();
    }
    assert_eq!(table.store.other_canvas(own).await.unwrap(), None);
    for (canvas, later) in [(below, "19"), (above, "11")] {
        let due = "update wakeq.events_v2 set delay_until = now() where canvas_id = $1 and name = $2";
        sqlx::query(due).bind(canvas.0).bind(later).execute(&table.pool).await.unwrap();
        assert_eq!(table.store.other_canvas(own).await.unwrap(), Some(canvas));
        let gone = sqlx::query("delete from wakeq.events_v2 where canvas_id = $1").bind(canvas.0);
        gone.execute(&table.pool).await.unwrap();
    }
    assert_eq!(table.store.other_canvas(own).await.unwrap(), None);
    let add = sqlx::query(HANDLERS).bind(above.0).bind(60).bind("1 h");
    add.execute(&table.pool).await.unwrap();
    assert_eq!(table.store.other_canvas(own).await.unwrap(), Some(above), "it looks no further");
}

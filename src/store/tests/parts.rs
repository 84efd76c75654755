//! The minute's pass in parts, as under an old snapshot.

use std::collections::HashSet;
use std::time::Duration;

use super::Table;
use super::crowds::{FEW, MANY};
use crate::event::{EventId, Notification};
use crate::store::minute::MinuteOutcome;
use crate::store::{Store, StoreConfig};

impl Table {
    /// Adds an event on a canvas that is promised this long ago; not everything is on one canvas.
    async fn promised(&self, canvas: crate::event::CanvasId, ago: &str) -> EventId {
        let id = self.add(1).await[0];
        let moved =
            "update wakeq.events_v2 set canvas_id = $1, notify_at = now() - $2::text::interval where id = $3";
        sqlx::query(moved).bind(canvas.0).bind(ago).bind(id.0).execute(&self.pool).await.unwrap();
        id
    }

    async fn due_as_pass(&self, before: i64) {
        let due = "update wakeq.chores set next_at = now(), passes = $1 where name = 'minute'";
        sqlx::query(due).bind(before).execute(&self.pool).await.unwrap();
    }

    /// The pages of one pass in parts, of which nothing fails: what they publish.
    async fn pass_in_parts(&self) -> Vec<Notification> {
        let page = async |again| {
            let minute = self.store.minute_in_parts(again, None).await.unwrap();
            assert_eq!(minute.failed.len(), 0, "{:?}", minute.failed);
            minute
        };
        pages(false, page).await
    }
}

/// The pages of a pass until its last, the first of them called with `again`: what they publish.
async fn pages(mut again: bool, page: impl AsyncFn(bool) -> MinuteOutcome) -> Vec<Notification> {
    let mut published = Vec::new();
    loop {
        let minute = page(again).await;
        published.extend(minute.notifications);
        if !minute.more {
            return published;
        }
        again = true;
    }
}

/// Running, delayed, parked and lost events are treated as by the one statement, page after page,
/// with those that became due last in front.
#[tokio::test]
async fn a_pass_in_parts_does_what_one_statement_does() {
    let outcomes = async |in_parts: bool| {
        let table = Table::new().await;
        let ids = table.add(1_500).await;
        table.claim(&ids[..2]).await;
        table.run("update wakeq.events_v2 set notify_at = now() - interval '1 min' * random()").await;
        for (change, id) in [
            ("update wakeq.events_v2 set locked_at = now() - interval '1 h' where id = $1", ids[1]),
            ("update wakeq.events_v2 set delay_until = now() + interval '9 min' where id = $1", ids[2]),
            ("update wakeq.events_v2 set delay_until = now() + interval '9 days' where id = $1", ids[3]),
            ("update wakeq.events_v2 set notify_at = null where id = $1", ids[4]),
            ("update wakeq.events_v2 set probes = 3 where id = $1", ids[5]),
        ] {
            sqlx::query(change).bind(id.0).execute(&table.pool).await.unwrap();
        }
        let published = match in_parts {
            true => table.pass_in_parts().await,
            false => {
                let mut published = table.store.minute(false, None).await.unwrap().notifications;
                published.extend(table.store.minute(true, None).await.unwrap().notifications);
                published
            }
        };
        let published: HashSet<EventId> = published.into_iter().map(|told| told.id).collect();
        let missing: Vec<usize> = (0..ids.len()).filter(|at| !published.contains(&ids[*at])).collect();
        let promises: Vec<(Option<i64>, i32)> = sqlx::query_as(
            "select round(extract(epoch from notify_at - now()) / 20)::bigint * 20, probes from wakeq.events_v2
              order by array_position($1, id)",
        )
        .bind(ids[..7].iter().map(|id| id.0).collect::<Vec<_>>())
        .fetch_all(&table.pool)
        .await
        .unwrap();
        (missing, promises[..7].to_vec())
    };
    let (at_once, in_parts) = (outcomes(false).await, outcomes(true).await);
    assert_eq!(at_once.0, [0, 3, 4], "running, far in the future, parked");
    assert_eq!(in_parts, at_once);
}

/// Promises before the low-water mark are read from the tenth pass on, slice by slice. How far is
/// kept in the table, so that another process continues.
#[tokio::test]
async fn promises_before_the_low_water_mark_are_read_over_several_passes() {
    let table = Table::new().await;
    table.run("update wakeq.chores set low_water = now() - interval '2 min' where name = 'minute'").await;
    let (new, old) = (table.promised(MANY, "1 s").await, table.promised(FEW, "3 years").await);
    table.due_as_pass(4).await;
    let ids = |published: Vec<Notification>| published.into_iter().map(|told| told.id).collect::<Vec<_>>();
    assert_eq!(ids(table.pass_in_parts().await), [new]);
    let newer = table.promised(FEW, "1 s").await;
    table.due_as_pass(9).await;
    assert_eq!(ids(table.pass_in_parts().await), [newer], "ten slices do not reach so far");
    assert!(table.holds("select behind is not null from wakeq.chores where name = 'minute'").await);
    let (mut passes, mut found) = (0, Vec::new());
    while table.holds("select behind is not null from wakeq.chores where name = 'minute'").await {
        passes += 1;
        assert!(passes < 200, "the beginning is never reached");
        table.due_as_pass(10 + passes).await;
        // The store of each second pass begins with small slices again.
        found.extend(ids(table.pass_in_parts().await));
    }
    assert_eq!(found, [old]);
}

/// A tenth pass at once reads everything: what a process left behind is not read from there on once
/// more when passes are next taken in parts.
#[tokio::test]
async fn a_tenth_pass_at_once_ends_what_was_left_behind() {
    let table = Table::new().await;
    table
        .run(
            "update wakeq.chores set low_water = now() - interval '2 min', behind = now() - interval '21 days'
              where name = 'minute'",
        )
        .await;
    let (new, old) = (table.promised(MANY, "1 s").await, table.promised(FEW, "3 days").await);
    for (passes, found, is_behind) in [(4, new, true), (9, old, false)] {
        table.due_as_pass(passes).await;
        let minute = table.store.minute(false, None).await.unwrap();
        assert_eq!(minute.notifications.iter().map(|told| told.id).collect::<Vec<_>>(), [found]);
        let behind = table.holds("select behind is not null from wakeq.chores where name = 'minute'").await;
        assert_eq!(behind, is_behind, "after pass {passes}");
    }
}

/// Promises that a tenth pass at once did not read, because a later page took too long, are read by
/// the next passes and not only by the next tenth.
#[tokio::test]
async fn a_tenth_pass_that_is_cut_off_is_carried_on() {
    let table = Table::new().await;
    table.add(1_500).await;
    let late = "update wakeq.events_v2
                   set notify_at = now() - interval '10 min' - random() * interval '1 min',
                       canvas_id = case when random() < 0.5 then $1::uuid else $2 end";
    sqlx::query(late).bind(MANY.0).bind(FEW.0).execute(&table.pool).await.unwrap();
    table.run("update wakeq.chores set low_water = now() - interval '2 min' where name = 'minute'").await;
    table.due_as_pass(9).await;
    let mut woken: HashSet<Notification> =
        table.store.minute(false, None).await.unwrap().notifications.into_iter().collect();
    assert_eq!(woken.len(), 1_000);
    table.limit_updates().await;
    let mut again = true;
    for passes in 10..18 {
        woken.extend(pages(again, async |again| table.store.minute(again, None).await.unwrap()).await);
        table.due_as_pass(passes).await;
        again = false;
    }
    assert_eq!(woken.len(), 1_500);
}

/// A slice that can't be read in the time of a statement, however small it is, is passed over in
/// the end. Older events are woken, and the mark goes on.
#[tokio::test]
async fn a_promise_that_takes_too_long_stops_no_older_one() {
    let table = Table::new().await;
    table.run("update wakeq.chores set low_water = now() - interval '20 min' where name = 'minute'").await;
    let (slow, old) = (table.promised(MANY, "5 min").await, table.promised(FEW, "10 min").await);
    let renamed = sqlx::query("update wakeq.events_v2 set name = 'slow' where id = $1").bind(slow.0);
    renamed.execute(&table.pool).await.unwrap();
    table.limit_updates().await;
    let (mut woken, mut passes) = (Vec::new(), 0);
    while woken.is_empty() {
        passes += 1;
        assert!(passes < 40, "what is older than the slow one is never reached");
        table.due_as_pass(0).await;
        woken.extend(
            pages(false, async |again| table.store.minute_in_parts(again, None).await.unwrap()).await,
        );
    }
    assert_eq!(woken, [Notification::new(old, FEW)]);
    let mark = "select low_water > now() - interval '4 min' from wakeq.chores where name = 'minute'";
    assert!(table.holds(mark).await, "it stands where the slow one is");
}

/// Promises that were moved are published even if it can't be noted how far they were read.
#[tokio::test]
async fn moved_promises_are_published_even_if_a_later_statement_fails() {
    let table = Table::new().await;
    table.run("update wakeq.chores set low_water = now() - interval '2 min' where name = 'minute'").await;
    let (new, old) = (table.promised(MANY, "1 s").await, table.promised(FEW, "150 s").await);
    table.due_as_pass(9).await;
    table
        .run(
            "create function public.refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$",
        )
        .await;
    table
        .run(
            "create trigger refuse before update on wakeq.chores for each row
             when (old.next_at = new.next_at) execute function public.refuse()",
        )
        .await;
    let (mut woken, mut again) = (Vec::new(), false);
    loop {
        let minute = table.store.minute_in_parts(again, None).await.unwrap();
        woken.extend(minute.notifications.iter().map(|told| told.id));
        if !minute.failed.is_empty() {
            break;
        }
        assert!(minute.more, "nothing fails");
        again = true;
    }
    assert_eq!(woken, [new, old]);
}

/// Where a part fails, the others are done: here nobody can list the jobs.
#[tokio::test]
async fn a_part_that_fails_stops_no_other() {
    let table = Table::new().await;
    let id = table.promised(FEW, "1 s").await;
    table.pause().await;
    table.run("update wakeq.scheduling_rules set until = now() - interval '1 s'").await;
    table.due_as_pass(0).await;
    table.run("alter function wakeq.open_jobs() rename to open_jobs_elsewhere").await;
    let minute = table.store.minute_in_parts(false, None).await.unwrap();
    assert_eq!(minute.notifications, [Notification::new(id, FEW)]);
    assert!(minute.crons && minute.queues && minute.open);
    assert_eq!(minute.failed.len(), 1);
    let ended = "select (select count(*) from wakeq.scheduling_rules) = 0 and (select count(*) from wakeq.resume_jobs) = 1";
    assert!(table.holds(ended).await, "no pause ends");
}

/// More entries of completed events than a statement can read in its time: the snapshot keeps them,
/// from before the low-water mark until now. Due events are woken all the same, the passes are
/// counted, crons are reported, and events that a long transaction left behind the mark are found.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_old_snapshot_stops_no_pass() {
    let table = Table::new().await;
    let mut snapshot = table.pool.begin().await.unwrap();
    sqlx::query("set transaction isolation level repeatable read").execute(&mut *snapshot).await.unwrap();
    sqlx::query("select from wakeq.chores").execute(&mut *snapshot).await.unwrap();
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, notify_at)
             select lpad(to_hex(n), 32, '0')::uuid, '00000000-0000-0000-0000-000000000006', 'WORKER', 'done', '_', '1',
                    now() - n * interval '1 ms'
               from generate_series(1, 900000) n",
        )
        .await;
    table.run("delete from wakeq.events_v2").await;
    table.run("update wakeq.chores set low_water = now() - interval '2 min' where name = 'minute'").await;
    let (new, old) = (table.promised(MANY, "1 s").await, table.promised(FEW, "10 min").await);
    table.due_as_pass(9).await;
    let config = StoreConfig { statement_timeout: Duration::from_millis(80), ..StoreConfig::default() };
    // On a busy machine a statement may take longer than this although it reads nothing.
    let hurried: Store = loop {
        if let Ok(store) = Store::connect(table.database.url(), super::fit(config.clone())).await {
            break store;
        }
    };
    let (mut woken, mut crons) = (HashSet::new(), false);
    while woken.len() < 2 {
        let mut again = false;
        while let Ok(minute) = hurried.minute(again, None).await {
            woken.extend(minute.notifications.iter().map(|told| told.id));
            crons |= minute.crons;
            if !minute.more {
                break;
            }
            again = true;
        }
        table.run("update wakeq.chores set next_at = now() where name = 'minute'").await;
    }
    assert!(crons, "each process ticks in its own pass");
    assert_eq!(woken, HashSet::from([new, old]));
    assert!(table.number("select passes from wakeq.chores where name = 'minute'").await >= 10);
    snapshot.rollback().await.unwrap();
}

/// Everything that waits is made due slice by slice where a page at once takes too long; nothing is
/// left out.
#[tokio::test]
async fn everything_is_made_due_slice_by_slice() {
    let table = Table::new().await;
    table.add(2_500).await;
    table
        .run("update wakeq.events_v2 set notify_at = now() + interval '1 s' + random() * interval '90 days'")
        .await;
    let mut due = crate::store::MakingDue::in_slices();
    let mut moved = 0;
    while !due.is_over {
        moved += table.store.make_due(&mut due).await.unwrap();
    }
    assert_eq!(moved, 2_500);
    assert!(table.holds("select bool_and(notify_at <= now()) from wakeq.events_v2").await);
}

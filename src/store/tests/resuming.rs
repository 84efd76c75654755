//! Resume jobs: pages, a worker that dies half way, locked rows, two workers at once.

use std::collections::HashSet;

use super::parking::resume;
use super::{Table, scope, tester};
use crate::event::RuleKind;
use crate::store::StoreConfig;

impl Table {
    /// Adds this many parked events under a pause that was just lifted; returns the job.
    async fn lifted(&self, count: i32) -> i64 {
        self.add(count).await;
        self.pause().await;
        self.run("update wakeq.events_v2 set notify_at = null, probes = 3").await;
        self.unpause().await
    }

    /// Gives a hundred of the events to another canvas, on which nothing was lifted or registered.
    async fn give_away(&self) {
        self.run(
            "update wakeq.events_v2 set canvas_id = '00000000-0000-0000-0000-000000000007'
              where id in (select id from wakeq.events_v2 order by id desc limit 100)",
        )
        .await;
    }

    async fn jobs(&self) -> i64 {
        self.number("select count(*) from wakeq.resume_jobs").await
    }
}

/// 2,500 events are three pages; each event is woken once, running ones as well, later ones at
/// their time.
// Shows: EV2-42
#[tokio::test]
async fn a_job_wakes_page_after_page() {
    let table = Table::new().await;
    let job = table.lifted(2500).await;
    table.run("update wakeq.events_v2 set locked_at = now(), claims = 1 where id in (select id from wakeq.events_v2 limit 5)").await;
    table
        .run(
            "update wakeq.events_v2 set delay_until = now() + interval '1 day'
                where id in (select id from wakeq.events_v2 where locked_at is null limit 10)",
        )
        .await;
    let mut woken = HashSet::new();
    for (expected, more) in [(1000, true), (2000, true), (2500, false)] {
        let page = table.store.resume_page(job).await.unwrap();
        woken.extend(page.notifications);
        assert_eq!(page.more, more);
        assert_eq!(2500 - table.parked().await, expected);
    }
    assert_eq!(woken.len(), 2490, "what is due within the horizon");
    assert_eq!(table.jobs().await, 0);
    assert!(table.holds(
        "select bool_and(probes = 0 and case when delay_until > now() then notify_at = delay_until - interval '10 min'
                         else notify_at between now() and now() + interval '30 s' end) from wakeq.events_v2").await);
    assert!(!table.store.resume_page(job).await.unwrap().more, "a job that has ended");
}

/// A process that finds a job in the hands of another learns that, and not that it has ended.
#[tokio::test]
async fn a_job_locked_by_another_process_is_not_reported_as_ended() {
    let table = Table::new().await;
    let job = table.lifted(3).await;
    let mut other = table.pool.begin().await.unwrap();
    sqlx::query("select id from wakeq.resume_jobs for update").execute(&mut *other).await.unwrap();
    let page = table.store.resume_page(job).await.unwrap();
    assert!(page.elsewhere && !page.more && page.notifications.is_empty(), "{page:?}");
    other.rollback().await.unwrap();
    let page = table.store.resume_page(job).await.unwrap();
    assert!(!page.elsewhere && !page.more && page.notifications.len() == 3, "{page:?}");
    let page = table.store.resume_page(job).await.unwrap();
    assert!(!page.elsewhere && !page.more, "a job that has ended");
}

/// X5: a page of exactly 1,000 is followed by an empty one.
#[tokio::test]
async fn a_full_last_page_is_followed_by_an_empty_one() {
    let table = Table::new().await;
    let job = table.lifted(1000).await;
    assert!(table.store.resume_page(job).await.unwrap().more);
    let page = table.store.resume_page(job).await.unwrap();
    assert!(page.notifications.is_empty() && !page.more);
    assert_eq!(table.jobs().await, 0);
}

/// A locked row is waited for; if skipped, it would stay parked for ever.
// Shows: EV2-29
#[tokio::test]
async fn a_row_held_by_others_is_waited_for() {
    let table = Table::new().await;
    let job = table.lifted(10).await;
    let mut stranger = table.pool.begin().await.unwrap();
    sqlx::query(
        "update wakeq.events_v2 set value = '2' where id = (select max(id::text)::uuid from wakeq.events_v2)",
    )
    .execute(&mut *stranger)
    .await
    .unwrap();
    let store = table
        .other_store(StoreConfig {
            lock_timeout: std::time::Duration::from_secs(4),
            ..StoreConfig::default()
        })
        .await;
    let resumed = tokio::spawn(async move { resume(&store, job).await });
    table.until_waiting(1).await;
    stranger.commit().await.unwrap();
    assert_eq!(resumed.await.unwrap().len(), 10);
    assert_eq!(table.parked().await, 0);
}

/// A worker dies in the second of three pages: its page is undone or done, never half, and another
/// continues.
#[tokio::test]
async fn a_job_outlives_its_worker() {
    let table = Table::new().await;
    let job = table.lifted(2100).await;
    assert!(table.store.resume_page(job).await.unwrap().more);
    let mut stranger = table.pool.begin().await.unwrap();
    sqlx::query("select from wakeq.events_v2 where notify_at is null order by id limit 1 for update")
        .execute(&mut *stranger)
        .await
        .unwrap();
    let config = StoreConfig { lock_timeout: std::time::Duration::from_secs(4), ..StoreConfig::default() };
    let store = table.other_store(config).await;
    let dying = tokio::spawn(async move { store.resume_page(job).await });
    table.until_waiting(1).await;
    assert!(!table.store.resume_page(job).await.unwrap().more, "another process has the job");
    table.end_waiting().await;
    assert!(dying.await.unwrap().is_err());
    stranger.rollback().await.unwrap();
    assert_eq!(table.parked().await, 1100, "the second page was undone");
    assert_eq!(table.jobs().await, 1);
    assert_eq!(resume(&table.store, job).await.len(), 1100);
    assert_eq!((table.parked().await, table.jobs().await), (0, 0));
}

/// Two workers run the same job: neither waits for the other, nothing is woken twice or left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_share_a_job() {
    let table = Table::new().await;
    let job = table.lifted(3000).await;
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let store = table.store.clone();
        workers.spawn(async move { resume(&store, job).await });
    }
    let mut woken = workers.join_all().await.concat();
    // Both may have met the other's page, and left the rest to the minute's pass.
    woken.extend(resume(&table.store, job).await);
    assert_eq!(woken.len(), 3000);
    assert_eq!(woken.into_iter().collect::<HashSet<_>>().len(), 3000);
    assert_eq!((table.parked().await, table.jobs().await), (0, 0));
}

/// Paused again while a job is half way, parked behind its cursor, lifted again: the second job
/// finds them, and all that the first one, which it replaces, had not woken.
// Shows: EV2-29
#[tokio::test]
async fn a_second_pause_during_a_job_has_a_job_of_its_own() {
    let table = Table::new().await;
    let first = table.lifted(1500).await;
    let woken = table.store.resume_page(first).await.unwrap().notifications;
    table.pause().await;
    let ids: Vec<_> = woken.iter().map(|notification| notification.id).collect();
    assert_eq!(table.store.park(&ids).await.unwrap(), vec![true; 1000]);
    let second = table.unpause().await;
    assert_eq!(resume(&table.store, first).await, []);
    assert_eq!(table.parked().await, 1500);
    resume(&table.store, second).await;
    assert_eq!((table.parked().await, table.jobs().await), (0, 0));
}

/// However often a pause is lifted, its handler has one open job, and one more for each that a
/// process has in its hands. Those of other canvases, handlers and kinds stay.
#[tokio::test]
async fn a_job_replaces_the_older_ones_of_its_handler() {
    let table = Table::new().await;
    let job = table.lifted(3).await;
    table
        .run(
            "insert into wakeq.resume_jobs (kind, canvas_id, module, name, created_at)
             select 'lifted', '00000000-0000-0000-0000-000000000007'::uuid, module, name, now() from wakeq.resume_jobs
              union all select kind, canvas_id, module, 'other', now() from wakeq.resume_jobs
              union all select 'registered', canvas_id, module, name, now() from wakeq.resume_jobs
              union all select kind, canvas_id, module, name, now() + interval '1 h' from wakeq.resume_jobs",
        )
        .await;
    assert_eq!(table.jobs().await, 5 - 1, "of the first job's kind, another was made");
    for _ in 0..3 {
        table.pause().await;
        table.unpause().await;
        assert_eq!(table.jobs().await, 4 + 1, "one with a later time stays, as it may wake more");
    }
    let mut process = table.pool.begin().await.unwrap();
    let held =
        "select id from wakeq.resume_jobs where kind = 'lifted' and name = 'known' order by id desc limit 1
                   for update";
    let held: i64 = sqlx::query_scalar(held).fetch_one(&mut *process).await.unwrap();
    table.pause().await;
    let last = table.unpause().await;
    assert!(held > job && last > held);
    assert_eq!(table.jobs().await, 6, "nobody waits for a page of the one that is held");
    process.rollback().await.unwrap();
    assert_eq!(resume(&table.store, last).await.len(), 3);
    assert_eq!(resume(&table.store, held).await, []);
}

/// X7: under a standing block the job of a lifted pause wakes nothing; that of the block does.
// Shows: EV2-43
#[tokio::test]
async fn a_pause_lifted_under_a_block_has_its_job() {
    let table = Table::new().await;
    table.store.add_rule(RuleKind::Block, &scope(), None, None, &tester()).await.unwrap();
    let job = table.lifted(3).await;
    assert_eq!(resume(&table.store, job).await, []);
    assert_eq!(table.parked().await, 3);
    let lifted = table.store.lift_rule(RuleKind::Block, &scope(), &tester()).await.unwrap();
    assert_eq!(resume(&table.store, lifted.jobs[0]).await.len(), 3);
    assert_eq!(table.parked().await, 0);
}

/// A worker without the handler may keep deferring after another has registered it: what is
/// deferred after the registration is not woken by it again and again.
#[tokio::test]
async fn a_registration_wakes_what_was_deferred_before_it_once() {
    let table = Table::new().await;
    let ids = table.add_for(1500, "new").await;
    table.store.defer(&ids).await.unwrap();
    assert_eq!(table.store.register(&["WORKER/new/_".into()], &[]).await.unwrap(), 1);
    let job = table.number("select id from wakeq.resume_jobs").await;
    let mut woken = 0;
    for _ in 0..4 {
        let page = table.store.resume_page(job).await.unwrap().notifications;
        woken += page.len();
        let page: Vec<_> = page.iter().map(|notification| notification.id).collect();
        table.store.defer(&page).await.unwrap();
    }
    assert_eq!(woken, 1500);
    assert_eq!(table.jobs().await, 0);
}

/// A row that is locked for longer than the lock timeout does not hold up the others, and the job
/// returns to it.
// Shows: EV2-42
#[tokio::test]
async fn a_row_held_for_long_holds_up_no_other() {
    let table = Table::with(StoreConfig::default()).await;
    let job = table.lifted(2600).await;
    table.give_away().await;
    let mut stranger = table.pool.begin().await.unwrap();
    let one = "select from wakeq.events_v2 where id = (select id from wakeq.events_v2 order by id offset 1200 limit 1)
                  for update";
    sqlx::query(one).execute(&mut *stranger).await.unwrap();
    assert_eq!(resume(&table.store, job).await.len(), 2499);
    assert_eq!(resume(&table.store, job).await, [], "it is still held");
    assert_eq!((table.parked().await, table.jobs().await), (101, 1));
    stranger.rollback().await.unwrap();
    assert_eq!(resume(&table.store, job).await.len(), 1);
    assert_eq!((table.parked().await, table.jobs().await), (100, 0), "another canvas's stay");
}

/// The same after a registration, whose job goes by due times.
#[tokio::test]
async fn a_registration_is_not_held_up_by_a_row() {
    let table = Table::with(StoreConfig::default()).await;
    let ids = table.add_for(1600, "new").await;
    table.store.defer(&ids).await.unwrap();
    assert_eq!(table.store.register(&["WORKER/new/_".into()], &[]).await.unwrap(), 1);
    let job = table.number("select id from wakeq.resume_jobs").await;
    table.give_away().await;
    let mut stranger = table.pool.begin().await.unwrap();
    let first = "select from wakeq.events_v2 order by delay_until, id limit 1 for update";
    sqlx::query(first).execute(&mut *stranger).await.unwrap();
    assert_eq!(resume(&table.store, job).await.len(), 1499);
    assert_eq!(table.jobs().await, 1);
    stranger.rollback().await.unwrap();
    assert_eq!(resume(&table.store, job).await.len(), 1);
    assert_eq!(table.jobs().await, 0);
}

/// Everything that locks several events locks them in the order of their ids, including the job
/// that goes by due times, so that no two deadlock.
#[tokio::test]
async fn a_registration_locks_in_the_order_of_ids() {
    let table = Table::new().await;
    let mut ids = table.add_for(2, "new").await;
    ids.sort_unstable();
    sqlx::query("update wakeq.events_v2 set delay_until = now() - interval '1 h' where id = $1")
        .bind(ids[1].0)
        .execute(&table.pool)
        .await
        .unwrap();
    table.store.defer(&ids).await.unwrap();
    table.store.register(&["WORKER/new/_".into()], &[]).await.unwrap();
    let job = table.number("select id from wakeq.resume_jobs").await;
    let mut stranger = table.pool.begin().await.unwrap();
    let lock = "select id from wakeq.events_v2 where id = $1 for update skip locked";
    let first = sqlx::query(lock).bind(ids[0].0).fetch_optional(&mut *stranger).await.unwrap();
    assert!(first.is_some());
    let store = table.store.clone();
    let resuming = tokio::spawn(async move { resume(&store, job).await });
    table.until_waiting(1).await;
    let second = sqlx::query(lock).bind(ids[1].0).fetch_optional(&mut *stranger).await.unwrap();
    stranger.rollback().await.unwrap();
    assert!(second.is_some(), "it waits for the first, and has locked the second");
    assert_eq!(resuming.await.unwrap().len(), 2);
}

/// A job takes the place of an older one of its handler. That is found by the handler, since a
/// canvas with many of them may be switched on again while the statistics say that the table of
/// jobs is empty.
#[tokio::test]
async fn an_older_job_is_found_by_its_handler() {
    const ADD: &str = "insert into wakeq.resume_jobs (kind, canvas_id, module, name)
         select 'lifted', '00000000-0000-0000-0000-000000000000', 'WORKER', 'h' || n from generate_series(1, 20000) n";
    let table = Table::new().await;
    table.run("alter table wakeq.resume_jobs set (autovacuum_enabled = false)").await;
    table.run("alter table wakeq.resume_jobs disable trigger user").await;
    table.run(ADD).await;
    table.run("delete from wakeq.resume_jobs").await;
    table.run("vacuum (analyze, truncate false) wakeq.resume_jobs").await;
    table.run(ADD).await;
    table.run("alter table wakeq.resume_jobs enable trigger user").await;
    let mut transaction = table.pool.begin().await.unwrap();
    for statement in [
        "set local enable_seqscan = off",
        "set local enable_bitmapscan = off",
        "insert into wakeq.resume_jobs (kind, canvas_id, module, name)
         select 'lifted', '00000000-0000-0000-0000-000000000000', 'WORKER', 'h' || n from generate_series(1, 10) n",
    ] {
        sqlx::query(statement).execute(&mut *transaction).await.unwrap();
    }
    let read = "select pg_stat_get_xact_tuples_fetched('wakeq.resume_jobs_pkey'::regclass)";
    let read: i64 = sqlx::query_scalar(read).fetch_one(&mut *transaction).await.unwrap();
    assert!(read <= 100, "{read} jobs were read to replace ten");
    transaction.commit().await.unwrap();
    assert_eq!(table.jobs().await, 20_000);
}

//! Operations on all events that match a filter: pages, processes that die half way, two at once,
//! what others hold, and what comes later. The events of a second canvas stay as they are.

use std::time::Duration;

use super::{Table, tester};
use crate::event::{
    CanvasId, EventFilter, NewOperation, Operation, OperationId, OperationKind, OperationPreview,
    OperationState,
};
use crate::store::{OPERATIONS_OPEN_MAX, OperationEvents, Store, StoreConfig};

/// The events of `known`, and nothing else.
fn of_known(kind: OperationKind) -> NewOperation {
    NewOperation::new(kind, EventFilter { name: Some("known".parse().unwrap()), ..EventFilter::default() })
}

impl Table {
    async fn preview(&self, new: &NewOperation) -> OperationPreview {
        let before = self.store.clock().await.unwrap();
        let (canvas, kind, filter, ids) = (CanvasId::DEFAULT, &new.kind, &new.filter, new.ids());
        let events = OperationEvents { canvas, kind, filter, ids, before, copies: false };
        let looked = self.store.look_for_operation(events, None, 1_000_000, false).await.unwrap();
        OperationPreview { count: looked.matched, more: false, looked_at: looked.looked_at, before }
    }

    /// Begins an operation on the events of `known`; returns its id and its job.
    async fn begin(&self, kind: OperationKind) -> (OperationId, i64) {
        let new = of_known(kind);
        let preview = self.preview(&new).await;
        let begun = self.store.begin_operation(CanvasId::DEFAULT, &new, (&preview, false), &tester()).await;
        let begun = begun.unwrap().expect("there is room");
        (begun.operation.id, begun.job)
    }

    async fn of(&self, id: OperationId) -> Operation {
        self.store.operation(CanvasId::DEFAULT, id).await.unwrap().unwrap()
    }

    /// Adds as many events of `known` on another canvas; nothing may happen to them.
    async fn add_elsewhere(&self, count: i32) {
        sqlx::query(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until)
             select gen_random_uuid(), '00000000-0000-0000-0000-000000000007', 'WORKER', 'known', '_', '1', now() + interval '1 day'
               from generate_series(1, $1)",
        )
        .bind(count)
        .execute(&self.pool)
        .await
        .unwrap();
    }

    /// How many events of that canvas are as they were.
    async fn untouched(&self) -> i64 {
        self.number(
            "select count(*) from wakeq.events_v2
              where canvas_id = '00000000-0000-0000-0000-000000000007' and delay_until > now() + interval '1 hour'
                and options is null and cancelled_by is null",
        )
        .await
    }

    /// Adds dead events on both canvases, which died this long ago, the oldest first.
    async fn add_dead(&self, count: i32, ago: &str) {
        sqlx::query(
            "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                            cause, died_at)
             select gen_random_uuid(), canvas_id, 'WORKER', 'known', '_', '1', 2, now(), 3, 0, 'retries',
                    now() - $2::text::interval + n * interval '1 ms'
               from generate_series(1, $1) n, unnest($3::uuid[]) canvas_id",
        )
        .bind(count)
        .bind(ago)
        .bind(vec![CanvasId::DEFAULT.0, uuid::Uuid::from_u128(7)])
        .execute(&self.pool)
        .await
        .unwrap();
    }

    /// How many dead events the two canvases have.
    async fn dead_of_both(&self) -> (i64, i64) {
        let of =
            "select count(*) from wakeq.dead_events where canvas_id = '00000000-0000-0000-0000-000000000000'";
        let other =
            "select count(*) from wakeq.dead_events where canvas_id = '00000000-0000-0000-0000-000000000007'";
        (self.number(of).await, self.number(other).await)
    }

    async fn operation_jobs(&self) -> i64 {
        self.number("select count(*) from wakeq.resume_jobs where kind = 'operation'").await
    }
}

/// Carries a job on to its end; returns how many events it published.
async fn finish(store: &Store, job: i64) -> usize {
    let mut published = 0;
    loop {
        let page = store.resume_page(job).await.unwrap();
        published += page.notifications.len();
        if !page.more {
            return published;
        }
    }
}

const OWN: &str =
    "select count(*) from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000000'";

/// 2,500 events are three pages and an empty one. What is emitted after the beginning stays, and so
/// do events of another handler and of another canvas. The counts are those of the preview.
#[tokio::test]
async fn an_operation_does_what_its_preview_counted() {
    let table = Table::new().await;
    table.add(2_500).await;
    table.add_for(10, "other").await;
    table.add_elsewhere(30).await;
    let (id, job) = table.begin(OperationKind::Delete).await;
    let begun = table.of(id).await;
    assert_eq!((begun.preview_count, begun.changed, begun.state), (2_500, 0, OperationState::Open));
    table.add(5).await;
    let mut left = Vec::new();
    loop {
        let page = table.store.resume_page(job).await.unwrap();
        left.push((table.number(OWN).await, page.more));
        if !page.more {
            break;
        }
    }
    assert_eq!(left, [(1_515, true), (515, true), (15, true), (15, false)]);
    let ended = table.of(id).await;
    assert_eq!((ended.matched, ended.changed, ended.skipped), (2_500, 2_500, 0));
    assert_eq!((ended.state, ended.looked_at, ended.ended_at.is_some()), (OperationState::Done, 2_505, true));
    assert_eq!((table.untouched().await, table.operation_jobs().await), (30, 0));
    let lines = "select sum(times) from wakeq.audit_log where action = 'purge' and actor = 'test'";
    assert_eq!(table.number(lines).await, 2_500);
    let begins = "select count(*) from wakeq.audit_log
                   where action = 'begin-operation' and actor = 'test' and detail like '%: delete {%\"known\"%'";
    assert_eq!(table.number(begins).await, 1, "who began it, and with which filter");
    assert!(!table.store.resume_page(job).await.unwrap().more, "it has ended");
}

/// A process dies within a page, and another between two: the end is the same, and nothing is
/// counted twice.
#[tokio::test]
async fn an_operation_outlives_its_processes() {
    let table = Table::new().await;
    table.add(3_100).await;
    table.add_elsewhere(30).await;
    let (id, job) = table.begin(OperationKind::Cancel).await;
    assert!(table.store.resume_page(job).await.unwrap().more);
    let mut stranger = table.pool.begin().await.unwrap();
    sqlx::query(
        "select from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000000' for update",
    )
    .execute(&mut *stranger)
    .await
    .unwrap();
    let config = StoreConfig { lock_timeout: Duration::from_secs(30), ..StoreConfig::default() };
    let store = table.other_store(config).await;
    let dying = tokio::spawn(async move { store.resume_page(job).await });
    table.until_waiting(1).await;
    table.end_waiting().await;
    assert!(dying.await.unwrap().is_err());
    stranger.rollback().await.unwrap();
    assert_eq!((table.number(OWN).await, table.of(id).await.changed), (2_100, 1_000), "its page is undone");
    let other = table.other_store(StoreConfig::default()).await;
    assert!(other.resume_page(job).await.unwrap().more);
    drop(other);
    finish(&table.store, job).await;
    let ended = table.of(id).await;
    assert_eq!((ended.state, ended.looked_at, ended.matched), (OperationState::Done, 3_100, 3_100));
    assert_eq!((ended.changed, ended.skipped, table.number(OWN).await), (3_100, 0, 0));
    assert_eq!(table.untouched().await, 30);
}

/// However two processes meet, each event is changed and counted once.
#[tokio::test]
async fn two_processes_share_an_operation() {
    let table = Table::new().await;
    table.add(5_000).await;
    let (id, job) = table.begin(OperationKind::Delete).await;
    let other = table.other_store(StoreConfig::default()).await;
    // One that finds the operation in the other's hands is told so, and leaves it to that one.
    tokio::join!(finish(&table.store, job), finish(&other, job));
    finish(&table.store, job).await;
    let ended = table.of(id).await;
    assert_eq!((ended.state, ended.changed, ended.looked_at), (OperationState::Done, 5_000, 5_000));
    assert_eq!(table.number(OWN).await, 0);
}

/// A process that finds the row of an operation in the hands of another learns that.
#[tokio::test]
async fn an_operation_in_other_hands_is_not_reported_as_ended() {
    let table = Table::new().await;
    table.add(3).await;
    let (id, job) = table.begin(OperationKind::Delete).await;
    let mut other = table.pool.begin().await.unwrap();
    sqlx::query("select from wakeq.operations for update").execute(&mut *other).await.unwrap();
    let page = table.store.resume_page(job).await.unwrap();
    assert!(page.elsewhere && !page.more, "{page:?}");
    other.rollback().await.unwrap();
    finish(&table.store, job).await;
    assert_eq!(table.of(id).await.changed, 3);
}

/// A cancelled operation stops at the next page, and says what it did. Another canvas cancels
/// nothing, and does not learn of it.
#[tokio::test]
async fn a_cancelled_operation_stops_half_way() {
    let table = Table::new().await;
    table.add(2_500).await;
    let (id, job) = table.begin(OperationKind::Delete).await;
    table.store.resume_page(job).await.unwrap();
    let elsewhere = CanvasId(uuid::Uuid::from_u128(7));
    assert!(table.store.cancel_operation(elsewhere, id, &tester()).await.unwrap().is_none());
    assert!(table.store.operation(elsewhere, id).await.unwrap().is_none());
    assert_eq!(table.of(id).await.state, OperationState::Open);
    for _ in 0..2 {
        let ended = table.store.cancel_operation(CanvasId::DEFAULT, id, &tester()).await.unwrap().unwrap();
        assert_eq!((ended.state, ended.changed), (OperationState::Cancelled, 1_000));
    }
    let page = table.store.resume_page(job).await.unwrap();
    assert!(!page.more && !page.elsewhere);
    assert_eq!((table.number(OWN).await, table.operation_jobs().await), (1_500, 0));
    let lines = "select count(*) from wakeq.audit_log where action = 'cancel-operation'";
    assert_eq!(table.number(lines).await, 1, "once");
}

/// Events that others hold are waited for up to the lock timeout, and then passed over and counted.
#[tokio::test]
async fn events_that_others_hold_are_skipped_and_counted() {
    let config = StoreConfig { lock_timeout: Duration::from_millis(50), ..StoreConfig::default() };
    let table = Table::with(config).await;
    let ids = table.add(1_200).await;
    table.add_dead(40, "1 hour").await;
    let held = table.hold_rows(&ids[..3]).await;
    let (id, job) = table.begin(OperationKind::Delete).await;
    finish(&table.store, job).await;
    let ended = table.of(id).await;
    assert_eq!((ended.matched, ended.changed, ended.skipped), (1_200, 1_197, 3));
    held.rollback().await.unwrap();
    let mut held = table.pool.begin().await.unwrap();
    let two = "select from wakeq.dead_events where canvas_id = '00000000-0000-0000-0000-000000000000' limit 2 for update";
    sqlx::query(two).execute(&mut *held).await.unwrap();
    let (id, job) = table.begin(OperationKind::DeleteDead).await;
    finish(&table.store, job).await;
    held.rollback().await.unwrap();
    let ended = table.of(id).await;
    assert_eq!((ended.changed, ended.skipped, table.dead_of_both().await), (38, 2, (2, 40)));
}

/// Where a page takes too long, smaller ones do the same.
#[tokio::test]
async fn pages_that_take_too_long_shrink() {
    let table = Table::new().await;
    table.add(1_000).await;
    table.limit_updates().await;
    let (id, job) = table.begin(OperationKind::RunNow).await;
    finish(&table.store, job).await;
    let ended = table.of(id).await;
    assert_eq!((ended.state, ended.changed, ended.looked_at), (OperationState::Done, 1_000, 1_000));
}

/// An event that can't be changed is passed over and counted, and the operation comes to its end.
#[tokio::test]
async fn an_event_that_can_not_be_changed_does_not_hold_up_the_others() {
    let table = Table::new().await;
    table.add(20).await;
    for statement in [
        "create function public.refuse() returns trigger language plpgsql as $$
         begin
             raise exception 'not this one' using errcode = 'check_violation';
         end
         $$",
        "update wakeq.events_v2 set value = '\"keep\"' where id = (select id from wakeq.events_v2 limit 1)",
        "create trigger refuse before delete on wakeq.events_v2
             for each row when (old.value = '\"keep\"') execute function public.refuse()",
    ] {
        table.run(statement).await;
    }
    let (id, job) = table.begin(OperationKind::Delete).await;
    finish(&table.store, job).await;
    let ended = table.of(id).await;
    assert_eq!((ended.state, ended.matched, ended.changed), (OperationState::Done, 20, 19));
    assert_eq!((ended.skipped, table.number(OWN).await), (1, 1));
}

/// Running events are told to stop by a cancellation, once each, and left alone by what hurries the
/// others.
#[tokio::test]
async fn running_events_are_cancelled_and_otherwise_left_alone() {
    let table = Table::new().await;
    let ids = table.add(10).await;
    table.claim(&ids[..4]).await;
    for kind in [OperationKind::RunNow, OperationKind::Cancel] {
        let (of, changed) = if kind == OperationKind::Cancel { ("cancel", 10) } else { ("run-now", 6) };
        let (id, job) = table.begin(kind).await;
        assert_eq!(table.of(id).await.preview_count, changed, "{of}");
        finish(&table.store, job).await;
        assert_eq!(table.of(id).await.changed, changed, "{of}");
    }
    assert_eq!(table.number(OWN).await, 4);
    let asked = "select count(*) from wakeq.events_v2 where cancelled_by = 'test'";
    assert_eq!(table.number(asked).await, 4);
    let (id, job) = table.begin(OperationKind::Cancel).await;
    finish(&table.store, job).await;
    let ended = table.of(id).await;
    assert_eq!((ended.matched, ended.changed, ended.skipped), (4, 0, 4));
    let lines = "select sum(times) from wakeq.audit_log where action = 'cancel-running'";
    assert_eq!(table.number(lines).await, 4);
}

/// Delayed events are due and published; those that a rule holds stay parked.
#[tokio::test]
async fn events_are_made_due_and_parked_ones_stay_parked() {
    let table = Table::new().await;
    table.add(1_050).await;
    table.add_elsewhere(5).await;
    table
        .run("update wakeq.events_v2 set delay_until = now() + interval '1 day', notify_at = now() + interval '1 day'")
        .await;
    table
        .run(
            "update wakeq.events_v2 set notify_at = null, delay_until = now() where id in (
                 select id from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000000' limit 50)",
        )
        .await;
    let (id, job) = table.begin(OperationKind::RunNow).await;
    assert_eq!(finish(&table.store, job).await, 1_000);
    assert_eq!(table.of(id).await.changed, 1_050);
    let due = "select count(*) from wakeq.events_v2 where delay_until <= now()";
    assert_eq!((table.number(due).await, table.parked().await, table.untouched().await), (1_050, 50, 5));
}

/// Dead events come back in their order; those that die after the beginning do not.
#[tokio::test]
async fn dead_events_are_brought_back_and_deleted() {
    let table = Table::new().await;
    table.add_dead(1_200, "1 hour").await;
    let (id, job) = table.begin(OperationKind::Redrive).await;
    table.add_dead(3, "0 s").await;
    assert_eq!(table.of(id).await.preview_count, 1_200);
    assert_eq!(table.store.resume_page(job).await.unwrap().notifications.len(), 1_000);
    let older = "select count(*) from wakeq.dead_events
                  where canvas_id = '00000000-0000-0000-0000-000000000000' and died_at < (
                        select max(died_at) - interval '200 ms' from wakeq.dead_events
                         where died_at < now() - interval '30 min')";
    assert_eq!(table.number(older).await, 0, "the oldest first");
    finish(&table.store, job).await;
    let ended = table.of(id).await;
    assert_eq!((ended.state, ended.changed, ended.skipped), (OperationState::Done, 1_200, 0));
    assert_eq!((table.number(OWN).await, table.dead_of_both().await), (1_200, (3, 1_203)));
    let (id, job) = table.begin(OperationKind::DeleteDead).await;
    finish(&table.store, job).await;
    assert_eq!((table.of(id).await.changed, table.dead_of_both().await), (3, (0, 1_203)));
}

/// Tags are added after those that an event has. One that would have eleven stays as it is.
#[tokio::test]
async fn tags_are_added_and_removed() {
    let table = Table::new().await;
    table.add(5).await;
    table.add_elsewhere(5).await;
    table
        .run(
            "update wakeq.events_v2 set options = '{\"retries\": 1, \"tags\": [\"old\", \"kept\"]}' where id in (
                 select id from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000000' limit 2)",
        )
        .await;
    table
        .run(
            "update wakeq.events_v2
                set options = jsonb_build_object('tags', (select jsonb_agg('t' || n) from generate_series(1, 10) n))
              where id = (select id from wakeq.events_v2
                           where canvas_id = '00000000-0000-0000-0000-000000000000' and options is null limit 1)",
        )
        .await;
    let tags = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
    let (id, job) =
        table.begin(OperationKind::Retag { add: tags(&["new", "new"]), remove: tags(&["old"]) }).await;
    finish(&table.store, job).await;
    let ended = table.of(id).await;
    assert_eq!((ended.matched, ended.changed, ended.skipped), (5, 4, 1));
    let of = "select count(*) from wakeq.events_v2 where options = '{\"retries\": 1, \"tags\": [\"kept\", \"new\"]}'";
    assert_eq!(table.number(of).await, 2);
    assert_eq!(
        table.number("select count(*) from wakeq.events_v2 where options = '{\"tags\": [\"new\"]}'").await,
        2
    );
    let (id, job) = table.begin(OperationKind::Retag { add: Vec::new(), remove: tags(&["new"]) }).await;
    finish(&table.store, job).await;
    assert_eq!(table.of(id).await.changed, 4);
    assert_eq!(table.number("select count(*) from wakeq.events_v2 where options is null").await, 2 + 5);
    assert_eq!(table.untouched().await, 5);
}

/// A canvas has at most ten open operations, whatever another has; the oldest ended ones go.
#[tokio::test]
async fn operations_of_a_canvas_are_limited() {
    let table = Table::new().await;
    for _ in 0..OPERATIONS_OPEN_MAX {
        table.begin(OperationKind::Delete).await;
    }
    let new = of_known(OperationKind::Delete);
    let preview = table.preview(&new).await;
    let begin = async |canvas| {
        table.store.begin_operation(canvas, &new, (&preview, false), &tester()).await.unwrap().is_some()
    };
    let elsewhere = CanvasId(uuid::Uuid::from_u128(7));
    assert!(!begin(CanvasId::DEFAULT).await);
    assert!(begin(elsewhere).await);
    table.run("update wakeq.operations set state = 'done', ended_at = now()").await;
    table
        .run(
            "insert into wakeq.operations (canvas_id, kind, filter, cut_off, state, author, job, started_at, ended_at)
             select distinct_canvases.canvas_id, 'delete', '{}', now(), 'done', 'old', 1, now() - interval '1 day', now()
               from (select distinct canvas_id from wakeq.operations) as distinct_canvases, generate_series(1, 1100)",
        )
        .await;
    assert!(begin(CanvasId::DEFAULT).await);
    let count =
        "select count(*) from wakeq.operations where canvas_id = '00000000-0000-0000-0000-000000000000'";
    let other =
        "select count(*) from wakeq.operations where canvas_id = '00000000-0000-0000-0000-000000000007'";
    assert_eq!((table.number(count).await, table.number(other).await), (991, 1_101));
    let latest = table.store.operations(CanvasId::DEFAULT, None, 1).await.unwrap();
    assert_eq!(latest[0].state, OperationState::Open, "the latest first");
}

/// One that a newer release has begun is not cancelled, as nothing could be said of it, and ends as
/// failed, instead of being tried for ever.
#[tokio::test]
async fn an_operation_that_can_not_be_read_fails() {
    let table = Table::new().await;
    table.add(3).await;
    let (id, job) = table.begin(OperationKind::Delete).await;
    table.run("update wakeq.operations set filter = '{\"of_a_newer_release\": true}'").await;
    for canvas in [CanvasId::DEFAULT, CanvasId(uuid::Uuid::from_u128(7))] {
        assert!(table.store.cancel_operation(canvas, id, &tester()).await.unwrap().is_none());
    }
    let open = table.number("select count(*) from wakeq.operations where state = 'open'").await;
    assert_eq!((open, table.operation_jobs().await), (1, 1), "nothing has changed");
    assert!(!table.store.resume_page(job).await.unwrap().more);
    let failed = "select count(*) from wakeq.operations where state = 'failed' and error like '%newer%'";
    assert_eq!(
        (table.number(failed).await, table.number(OWN).await, table.operation_jobs().await),
        (1, 3, 0)
    );
    assert!(table.store.operation(CanvasId::DEFAULT, id).await.unwrap().is_none(), "it is not shown");
}

/// Those that can't be read end no page of the list, and another canvas's are not on it.
#[tokio::test]
async fn the_list_goes_on_behind_operations_that_can_not_be_read() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.operations (canvas_id, kind, filter, cut_off, state, author, job, started_at, ended_at)
             select canvas_id::uuid, 'delete',
                    case when number <= 150 then '{\"of_a_newer_release\": true}' else '{}' end::jsonb, now(), 'done',
                    'old', 1, now() - number * interval '1 minute', now()
               from unnest(array['00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000007'])
                    as canvas_id, generate_series(1, 153) as number",
        )
        .await;
    let first = table.store.operations(CanvasId::DEFAULT, None, 2).await.unwrap();
    assert_eq!(first.iter().filter(|one| one.canvas == CanvasId::DEFAULT).count(), 2);
    let after = first.last().map(|last| (last.started_at, last.id));
    assert_eq!(table.store.operations(CanvasId::DEFAULT, after, 2).await.unwrap().len(), 1);
}

/// What is removed counts as cancelled in its batch, and what is cancelled is kept if it asks for
/// that. What is purged is not.
#[tokio::test]
async fn batches_and_history_know_what_was_removed() {
    let table = Table::new().await;
    for (kind, kept) in [(OperationKind::Delete, 0), (OperationKind::Cancel, 3)] {
        table.add(3).await;
        table.run("update wakeq.events_v2 set options = '{\"batch\": \"b\", \"keep_s\": 60}'").await;
        let (id, job) = table.begin(kind).await;
        finish(&table.store, job).await;
        assert_eq!((table.of(id).await.changed, table.number(OWN).await), (3, 0));
        let by = "select count(*) from wakeq.ended_events where outcome = 'cancelled' and ended_by = 'test'";
        assert_eq!(table.number(by).await, kept);
    }
    assert_eq!(table.number("select sum(completed)::int8 from wakeq.batch_ends").await, 0);
    assert_eq!(table.number("select sum(cancelled)::int8 from wakeq.batch_ends").await, 6);
}

/// The job of an operation that somebody has deleted goes, too.
#[tokio::test]
async fn a_job_of_no_operation_goes() {
    let table = Table::new().await;
    let (_, job) = table.begin(OperationKind::Delete).await;
    table.run("delete from wakeq.operations").await;
    assert!(!table.store.resume_page(job).await.unwrap().more);
    assert_eq!(table.operation_jobs().await, 0);
}

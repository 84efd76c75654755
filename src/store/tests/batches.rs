//! Batches on Postgres: each way in which a member ends is counted once, and a batch ends once,
//! whoever looks, and whatever else goes on.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Connection;

use super::cost::buffers;
use super::queues::canvas;
use super::{Table, limits, scope, tester, told};
use crate::event::{
    BatchCounts, BatchName, CanvasId, Cause, Claim, Event, EventId, EventOptions, HandlerAddress, NewEvent,
    Notification, Quota,
};
use crate::store::batches::BatchKey;
use crate::store::{
    AttemptEnd, BatchClosing, BatchOpening, BatchProgress, BatchState, CommandOutcome, DeadFilter,
    ExpiryPart, InsertOutcome, Retention, StoreConfig, StoreError, add_one, complete_in,
};

const OTHER: u128 = 7;

fn name() -> BatchName {
    "import:42".parse().unwrap()
}

fn key() -> BatchKey {
    (CanvasId::DEFAULT, name())
}

fn options() -> Option<Box<EventOptions>> {
    Event::new("known", &1).unwrap().batch("import:42").unwrap().options
}

fn address(of: CanvasId) -> HandlerAddress {
    let scope = crate::event::HandlerScope { canvas: of, ..scope() };
    HandlerAddress { scope, modifier: "_".parse().unwrap() }
}

/// A member, for the handler that claims know.
fn member() -> NewEvent {
    NewEvent { options: options(), ..NewEvent::new(address(CanvasId::DEFAULT), "1".into()) }
}

fn on_end() -> NewEvent {
    let mut address = address(CanvasId::DEFAULT);
    address.scope.name = "imported".parse().unwrap();
    NewEvent::new(address, r#"{"file": 1}"#.into())
}

fn counts(completed: u64, dead: u64, cancelled: u64) -> BatchCounts {
    BatchCounts::of(completed, dead, cancelled)
}

impl Table {
    /// Opens the batch, on the default canvas and on another.
    async fn open(&self) {
        assert_eq!(self.store.open_batch(&name(), &on_end()).await.unwrap(), BatchOpening::Opened);
        let theirs = NewEvent::new(address(canvas(OTHER)), "1".into());
        assert_eq!(self.store.open_batch(&name(), &theirs).await.unwrap(), BatchOpening::Opened);
    }

    async fn close(&self) -> BatchClosing {
        self.store.close_batch(CanvasId::DEFAULT, &name()).await.unwrap()
    }

    /// Emits members.
    async fn members(&self, count: usize) -> Vec<EventId> {
        let members: Vec<_> = (0..count).map(|_| Arc::new(member())).collect();
        self.store.insert(&members).await.unwrap();
        members.iter().map(|member| member.id).collect()
    }

    async fn claimed_members(&self, count: usize) -> Vec<Claim> {
        let ids = self.members(count).await;
        self.claim(&ids).await
    }

    async fn progress(&self, of: CanvasId) -> BatchProgress {
        self.store.batch(of, &name()).await.unwrap().expect("it is known")
    }

    /// Whether the batch is over, and the value of its event if this call ends it.
    async fn end(&self) -> (bool, Option<String>) {
        let is_over = self.store.are_over(&[key()]).await.unwrap()[0];
        let ended = self.store.end_batch(&key()).await.unwrap();
        (is_over, ended.map(|ended| ended.event.value))
    }
}

#[tokio::test]
async fn each_way_in_which_a_member_ends_is_counted_once() {
    let table = Table::new().await;
    table.open().await;
    let claims = table.claimed_members(5).await;
    assert_eq!(table.store.complete(&claims[..2]).await.unwrap(), [true, true]);
    assert_eq!(table.store.complete(&claims[..3]).await.unwrap(), [false, false, true]);
    assert_eq!(table.store.complete_links(&claims[3..4]).await.unwrap(), [true]);
    let mut connection = table.pool.acquire().await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    assert!(complete_in(&mut transaction, claims[4], None, Duration::ZERO).await.unwrap());
    assert_eq!(table.progress(CanvasId::DEFAULT).await.counts, counts(4, 0, 0), "not before the commit");
    transaction.rollback().await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    assert!(complete_in(&mut transaction, claims[4], None, Duration::ZERO).await.unwrap());
    transaction.commit().await.unwrap();
    assert_eq!(table.progress(CanvasId::DEFAULT).await.counts, counts(5, 0, 0));
    let claims = table.claimed_members(2).await;
    for (claim, cause) in claims.iter().zip([Cause::Retries, Cause::Poison]) {
        assert!(table.store.die(*claim, cause, Some("no"), true, None).await.unwrap());
        assert!(!table.store.die(*claim, cause, Some("no"), true, None).await.unwrap());
    }
    assert_eq!(table.progress(CanvasId::DEFAULT).await.counts, counts(5, 2, 0));
    let waiting = table.members(1).await[0];
    let cancelled = table.store.cancel(CanvasId::DEFAULT, waiting, &tester()).await.unwrap().0;
    assert_eq!(cancelled, CommandOutcome::Done);
    let claim = table.claimed_members(1).await[0];
    table.mark_cancelled().await;
    assert!(table.store.remove_cancelled(claim, &AttemptEnd::default()).await.unwrap());
    table.claimed_members(2).await;
    table.mark_cancelled().await;
    table.end_leases().await;
    assert_eq!(table.store.remove_unclaimed_cancelled().await.unwrap().0, 2);
    table.members(3).await;
    let now = table.store.clock().await.unwrap();
    assert_eq!(table.store.purge_page(&scope(), now, &tester()).await.unwrap().count, 3);
    assert_eq!(table.progress(CanvasId::DEFAULT).await.counts, counts(5, 2, 7));
    // What another program deletes has ended as well.
    table.members(1).await;
    table.run("delete from wakeq.events_v2").await;
    let BatchProgress { counts: all, left, .. } = table.progress(CanvasId::DEFAULT).await;
    assert_eq!((all, left), (counts(6, 2, 7), 0));
    let theirs = table.progress(canvas(OTHER)).await;
    assert_eq!((theirs.counts, theirs.left, theirs.batch.state), (counts(0, 0, 0), 0, BatchState::Open));
}

/// Neither an event without a batch nor one of another canvas is counted, nor refused.
#[tokio::test]
async fn other_events_are_neither_counted_nor_members() {
    let table = Table::new().await;
    table.open().await;
    let plain = table.add(1).await;
    let claims = table.claim(&plain).await;
    table.store.complete(&claims).await.unwrap();
    let theirs = NewEvent { options: options(), ..NewEvent::new(address(canvas(OTHER)), "1".into()) };
    let theirs = Arc::new(theirs);
    table.store.insert_alone(&theirs).await.unwrap();
    assert_eq!(table.close().await, BatchClosing::Closed);
    assert!(table.end().await.0, "the member of another canvas does not hold it up");
    let notification = [Notification::new(theirs.id, canvas(OTHER))];
    let claimed = table.store.claim(&notification, &limits()).await.unwrap();
    let claims: Vec<Claim> = claimed.into_iter().flatten().map(|event| event.claim).collect();
    assert_eq!(table.store.complete(&claims).await.unwrap(), [true]);
    assert_eq!(table.progress(canvas(OTHER)).await.counts, counts(1, 0, 0));
    assert_eq!(table.progress(CanvasId::DEFAULT).await.counts, counts(0, 0, 0));
}

#[tokio::test]
async fn a_batch_ends_when_it_is_closed_and_its_last_member_has_ended() {
    let table = Table::new().await;
    table.open().await;
    let claims = table.claimed_members(2).await;
    table.store.complete(&claims[..1]).await.unwrap();
    assert_eq!(table.end().await, (false, None), "it is open");
    assert_eq!(table.close().await, BatchClosing::Closed);
    assert_eq!(table.close().await, BatchClosing::Repeated);
    assert_eq!(table.end().await, (false, None), "a member is left");
    // Its members may still emit into it.
    let more = table.claimed_members(1).await;
    table.store.complete(&claims[1..]).await.unwrap();
    assert_eq!(table.end().await, (false, None));
    assert!(table.store.die(more[0], Cause::Rejected, Some("no"), true, None).await.unwrap());
    let value = r#"{"batch":"import:42","completed":2,"dead":1,"cancelled":0,"total":3,"value":{"file": 1}}"#;
    assert_eq!(table.end().await, (true, Some(value.to_owned())));
    assert_eq!(table.end().await, (false, None), "once");
    let BatchProgress { batch, counts: all, left } = table.progress(CanvasId::DEFAULT).await;
    assert_eq!((batch.state, all, left), (BatchState::Ended, counts(2, 1, 0), 0));
    assert_eq!(batch.counts, Some(all));
    let stored = table.store.value(CanvasId::DEFAULT, batch.event).await.unwrap();
    assert_eq!(stored.as_deref(), Some(value), "under the id that was known from the beginning");
    // A redrive makes an event of its own of it.
    let filter = DeadFilter { canvas: CanvasId::DEFAULT, ..DeadFilter::default() };
    table.store.redrive_page(&filter, true, (0, 10), &tester()).await.unwrap();
    let claims = table.claim(&[more[0].id]).await;
    table.store.complete(&claims).await.unwrap();
    assert!(!table.store.forget_batch_ends(&key()).await.unwrap());
    assert_eq!(table.number("select count(*) from wakeq.batch_ends").await, 0);
    assert_eq!(table.progress(CanvasId::DEFAULT).await.counts, counts(2, 1, 0));
}

/// One refused member keeps nothing else of its statement from being stored.
#[tokio::test]
async fn emits_into_a_batch_that_is_over_or_unknown_are_refused() {
    let table = Table::new().await;
    let refused = |error: StoreError| matches!(error, StoreError::NoBatch(batch) if batch == name());
    let insert = async || table.store.insert_alone(&Arc::new(member())).await;
    assert!(refused(insert().await.unwrap_err()), "it was never opened");
    table.open().await;
    insert().await.unwrap();
    table.run("delete from wakeq.events_v2").await;
    table.close().await;
    table.end().await;
    assert!(refused(insert().await.unwrap_err()), "it is over");
    assert!(refused(table.store.insert_chosen(&member()).await.unwrap_err()));
    let together = [NewEvent { options: None, ..member() }, member()];
    assert!(refused(table.store.insert_all(&together, &[false, false]).await.unwrap_err()));
    let theirs = NewEvent { options: options(), ..NewEvent::new(address(canvas(OTHER)), "1".into()) };
    assert!(table.store.insert_alone(&Arc::new(theirs)).await.is_ok(), "theirs is open");
    assert_eq!(table.number("select count(*) from wakeq.events_v2 where name = 'known'").await, 1);
}

/// Its transaction may be committed at any time: until then the batch does not end. It is closed
/// and looked at all the same, since others may emit without a pause.
#[tokio::test]
async fn a_member_that_is_not_committed_holds_the_end_up() {
    let config = StoreConfig { lock_timeout: Duration::from_secs(20), ..StoreConfig::default() };
    let table = Arc::new(Table::with(config).await);
    table.open().await;
    let mut transaction = table.pool.begin().await.unwrap();
    let event = member();
    let inserted = add_one(&mut transaction, &event, false, table.store.emission()).await.unwrap();
    assert!(matches!(inserted, InsertOutcome::New { .. }));
    assert_eq!(table.close().await, BatchClosing::Closed);
    assert_eq!(table.store.look_at_batches().await.unwrap().over, [key()], "the member is not seen");
    let ending = {
        let table = Arc::clone(&table);
        tokio::spawn(async move { table.end().await })
    };
    table.until_waiting(1).await;
    transaction.commit().await.unwrap();
    assert_eq!(ending.await.unwrap(), (true, None), "the member is there");
    assert_eq!(table.end().await, (false, None));
    let mut transaction = table.pool.begin().await.unwrap();
    add_one(&mut transaction, &member(), false, table.store.emission()).await.unwrap();
    let claims = table.claim(&[event.id]).await;
    table.store.complete(&claims).await.unwrap();
    let ending = {
        let table = Arc::clone(&table);
        tokio::spawn(async move { table.end().await })
    };
    table.until_waiting(1).await;
    transaction.rollback().await.unwrap();
    let (is_over, ended) = ending.await.unwrap();
    assert!(is_over && ended.is_some(), "a member that is rolled back never was one");
}

/// Two complete the last members at once, each with a look after its commit; and thirty-two end the
/// batch at once, on connections of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_all_that_end_a_batch_at_once_one_emits_its_event() {
    let config =
        StoreConfig { max_connections: 8, lock_timeout: Duration::from_secs(20), ..StoreConfig::default() };
    let table = Arc::new(Table::with(config).await);
    for round in 0..20 {
        table.run("truncate wakeq.events_v2, wakeq.batches, wakeq.batch_ends").await;
        table.open().await;
        let claims = table.claimed_members(2).await;
        table.close().await;
        let mut racing = tokio::task::JoinSet::new();
        for claim in claims {
            let table = Arc::clone(&table);
            racing.spawn(async move {
                assert_eq!(table.store.complete(&[claim]).await.unwrap(), [true]);
                let is_over = table.store.are_over(&[key()]).await.unwrap()[0];
                let ended = if is_over { table.store.end_batch(&key()).await.unwrap() } else { None };
                (is_over, ended.is_some())
            });
        }
        let looks = racing.join_all().await;
        assert!(looks.iter().any(|(is_over, _)| *is_over), "{round}: nobody saw the end: {looks:?}");
        assert_eq!(looks.iter().filter(|(_, ended)| *ended).count(), 1, "{round}: {looks:?}");
        assert_eq!(table.events_of("imported").await, 1);
    }
    table.run("truncate wakeq.events_v2, wakeq.batches, wakeq.batch_ends").await;
    table.open().await;
    let mut closers = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let table = Arc::clone(&table);
        closers.spawn(async move { (table.close().await, table.end().await.1) });
    }
    let answers = closers.join_all().await;
    assert_eq!(answers.iter().filter(|(closed, _)| *closed == BatchClosing::Closed).count(), 1);
    assert_eq!(answers.iter().filter(|(_, ended)| ended.is_some()).count(), 1, "{answers:?}");
    assert_eq!(table.events_of("imported").await, 1);
}

/// A process may die after the end of the last member. The pass looks at every batch in turn, and
/// sums the ends of those that have many.
#[tokio::test]
async fn the_minutes_pass_finds_what_is_over_and_sums_ends() {
    let table = Table::new().await;
    assert!(!table.store.minute(false, None).await.unwrap().batches, "there is none");
    table.open().await;
    let claims = table.claimed_members(1).await;
    table.run("update wakeq.chores set next_at = now()").await;
    assert!(table.store.minute(false, None).await.unwrap().batches);
    table.close().await;
    assert!(table.store.look_at_batches().await.unwrap().over.is_empty(), "a member is left");
    table.store.complete(&claims).await.unwrap();
    assert_eq!(table.store.look_at_batches().await.unwrap().over, [key()]);
    table
        .run(
            "insert into wakeq.batch_ends (canvas_id, batch, completed)
         select canvas_id, name, 1 from wakeq.batches, generate_series(1, 25000)
          where canvas_id <> '00000000-0000-0000-0000-000000000000'",
        )
        .await;
    let theirs = (canvas(OTHER), name());
    assert_eq!(table.store.look_at_batches().await.unwrap().long, std::slice::from_ref(&theirs));
    let mut pages = 1;
    while table.store.sum_batch_ends(&theirs).await.unwrap() {
        pages += 1;
    }
    assert_eq!(pages, 3);
    assert_eq!(table.progress(canvas(OTHER)).await.counts, counts(25_000, 0, 0));
    assert!(table.number("select count(*) from wakeq.batch_ends").await < 10);
    assert!(table.end().await.0);
    assert_eq!(table.progress(CanvasId::DEFAULT).await.counts, counts(1, 0, 0), "theirs are not counted");
}

#[tokio::test]
async fn a_batch_that_is_over_is_remembered_for_a_week() {
    let table = Table::new().await;
    table.open().await;
    let claims = table.claimed_members(1).await;
    table.close().await;
    table.store.complete(&claims).await.unwrap();
    table.end().await;
    let opened = table.store.open_batch(&name(), &on_end()).await.unwrap();
    assert_eq!(opened, BatchOpening::Taken, "its name is taken");
    // Theirs is given up, and has a member left.
    let theirs = NewEvent { options: options(), ..NewEvent::new(address(canvas(OTHER)), "1".into()) };
    table.store.insert_alone(&Arc::new(theirs)).await.unwrap();
    assert_eq!(table.store.cancel_batch(canvas(OTHER), &name(), &tester()).await.unwrap(), Some(true));
    assert_eq!(table.store.cancel_batch(canvas(OTHER), &name(), &tester()).await.unwrap(), Some(false));
    assert_eq!(table.store.cancel_batch(canvas(8), &name(), &tester()).await.unwrap(), None);
    assert_eq!(table.number("select count(*) from wakeq.batches where value <> 'null'").await, 0);
    let expire = async || table.store.expire(ExpiryPart::Batches, Retention::default()).await.unwrap();
    table.run("update wakeq.batches set over_at = over_at - interval '6 days 23 hours'").await;
    expire().await;
    assert_eq!(table.number("select count(*) from wakeq.batches").await, 2);
    table.run("update wakeq.batches set over_at = over_at - interval '1 day'").await;
    // The first time its ends go, and then the batch.
    expire().await;
    expire().await;
    assert_eq!(table.number("select count(*) from wakeq.batch_ends").await, 0);
    assert!(table.store.batch(CanvasId::DEFAULT, &name()).await.unwrap().is_none());
    assert_eq!(
        table.progress(canvas(OTHER)).await.batch.state,
        BatchState::Cancelled,
        "a member has its name"
    );
    table.run("delete from wakeq.events_v2").await;
    table.run("update wakeq.batches set over_at = over_at - interval '8 days'").await;
    expire().await;
    expire().await;
    assert_eq!(table.number("select count(*) from wakeq.batches").await, 0);
    table.open().await;
}

#[tokio::test]
async fn a_canvas_has_a_quota_of_batches_that_are_not_over() {
    let table = Table::new().await;
    table.store.set_quota(CanvasId::DEFAULT, Quota::Batches, 1, &tester()).await.unwrap();
    table.open().await;
    assert_eq!(table.store.open_batch(&name(), &on_end()).await.unwrap(), BatchOpening::Repeated);
    let other: BatchName = "import:43".parse().unwrap();
    let refused = table.store.open_batch(&other, &on_end()).await.unwrap_err();
    assert!(matches!(refused, StoreError::Quota(exceeded) if exceeded.quota == Quota::Batches));
    let elsewhere = NewEvent::new(address(canvas(OTHER)), "1".into());
    assert_eq!(table.store.open_batch(&other, &elsewhere).await.unwrap(), BatchOpening::Opened);
    table.close().await;
    table.end().await;
    assert_eq!(table.store.open_batch(&other, &on_end()).await.unwrap(), BatchOpening::Opened);
    let listed = table.store.batches(CanvasId::DEFAULT, None, 10).await.unwrap();
    let states: Vec<_> = listed.iter().map(|batch| (batch.name.as_str(), batch.state)).collect();
    assert_eq!(states, [("import:42", BatchState::Ended), ("import:43", BatchState::Open)]);
    let after = table.store.batches(CanvasId::DEFAULT, Some(&name()), 10).await.unwrap();
    assert_eq!(after.len(), 1);
}

/// How many batches this connection has read so far.
async fn rows_read(connection: &mut sqlx::PgConnection) -> i64 {
    let read = "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables
                 where relid = 'wakeq.batches'::regclass";
    sqlx::query_scalar(read).fetch_one(connection).await.unwrap()
}

/// A look at one batch reads nothing of the others, of the same canvas or another, and neither does
/// an emit into it, also where the statistics say that nearly all are over.
#[tokio::test]
async fn a_look_and_an_emit_read_no_other_batch() {
    let table = Table::new().await;
    let over =
        "insert into wakeq.batches (canvas_id, name, event_id, module, handler, modifier, value, over_at)
                select c::uuid, 'b' || n, gen_random_uuid(), 'WORKER', 'imported', '_', '1', now()
                  from generate_series(1, 1000) n,
                       (values ('00000000-0000-0000-0000-000000000000'),
                               ('00000000-0000-0000-0000-000000000007')) as canvases (c)";
    table.run(over).await;
    table.run("analyze wakeq.batches").await;
    for fill in [
        "update wakeq.batches set over_at = null, closed_at = now()",
        "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, options)
         select gen_random_uuid(), canvas_id, 'WORKER', 'known', '_', '1', jsonb_build_object('batch', name)
           from wakeq.batches",
    ] {
        assert_eq!(table.run(fill).await, 2000);
    }
    let look = "explain (analyze, buffers, timing off)
                select wakeq.has_members(canvas_id, name) from wakeq.batches
                 where canvas_id = '00000000-0000-0000-0000-000000000000' and name = 'b1'";
    let mut connection = table.pool.acquire().await.unwrap();
    let mut read = 0;
    // The first ones are planned.
    for _ in 0..8 {
        let lines = sqlx::query_scalar::<_, String>(look).fetch_all(&mut *connection).await.unwrap();
        read = buffers(&lines.join("\n"), "");
    }
    assert!(read < 100, "{read} pages");
    let emit = "select wakeq.emit('known', '1', options => '{\"batch\": \"b1\"}')";
    let mut transaction = connection.begin().await.unwrap();
    let before = rows_read(&mut transaction).await;
    sqlx::query(emit).execute(&mut *transaction).await.unwrap();
    let read = rows_read(&mut transaction).await - before;
    assert!((1..10).contains(&read), "{read} rows");
}

/// Those who complete events without a batch write nothing here.
#[tokio::test]
async fn an_event_without_a_batch_leaves_no_row() {
    let table = Table::new().await;
    table.open().await;
    let ids = table.add(3).await;
    let claimed = table.store.claim(&told(&ids), &limits()).await.unwrap();
    let claims: Vec<Claim> = claimed.into_iter().flatten().map(|event| event.claim).collect();
    table.store.complete(&claims[..1]).await.unwrap();
    table.store.die(claims[1], Cause::Retries, None, false, None).await.unwrap();
    table.store.release(&claims[2..]).await.unwrap();
    table.store.cancel(CanvasId::DEFAULT, claims[2].id, &tester()).await.unwrap();
    assert_eq!(table.number("select count(*) from wakeq.batch_ends").await, 0);
}

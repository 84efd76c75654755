//! Events of pulled handlers: leases are disjoint, of one canvas, and find what is behind many
//! others.

use std::collections::HashSet;
use std::time::Duration;

use super::Table;
use super::crowds::{FEW, MANY};
use crate::event::{Actor, CanvasId, HandlerScope, HeldLimit, NewLimit, OnFull, PullPolicy};
use crate::store::{Fence, LeasedRow};

const MINUTE: Duration = Duration::from_secs(60);
const BYTES: i64 = 4 * 1024 * 1024;

fn mail(canvas: CanvasId) -> HandlerScope {
    HandlerScope::worker(canvas, "mail").unwrap()
}

/// A table with a pulled handler on two canvases.
async fn pulled() -> Table {
    let table = Table::new().await;
    for canvas in [MANY, FEW] {
        let put = table.store.put_pulled(&mail(canvas), &PullPolicy::default(), &Actor::user("ada")).await;
        assert!(put.unwrap().unwrap().new);
    }
    table
}

impl Table {
    /// Adds events that were due one second after the other, the last one a second ago.
    async fn add_mails(&self, canvas: CanvasId, count: i32) {
        let add = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until)
             select gen_random_uuid(), $1, 'WORKER', 'mail', '_', '1', now() - ($2 + 1 - n) * interval '1 s'
               from generate_series(1, $2) n";
        sqlx::query(add).bind(canvas.0).bind(count).execute(&self.pool).await.unwrap();
    }

    async fn lease(&self, canvas: CanvasId, most: u32) -> Vec<LeasedRow> {
        self.store.lease_events(&mail(canvas), most, MINUTE, BYTES, None).await.unwrap().rows
    }

    async fn has_leasable(&self, canvas: CanvasId) -> bool {
        self.store.have_leasable(&[(&mail(canvas), None)]).await.unwrap()[0].has
    }
}

#[tokio::test]
async fn leases_are_disjoint_and_of_one_canvas() {
    let table = pulled().await;
    table.add_mails(MANY, 40).await;
    table.add_mails(FEW, 1).await;
    let lease = || table.lease(MANY, 10);
    let (one, two, three, four) = tokio::join!(lease(), lease(), lease(), lease());
    let leased: Vec<_> = [one, two, three, four].into_iter().flatten().collect();
    let ids: HashSet<_> = leased.iter().map(|row| row.event.claim.id).collect();
    assert_eq!(ids.len(), leased.len(), "an event is leased twice");
    assert!(leased.iter().all(|row| row.event.address.scope == mail(MANY)));
    assert_eq!(ids.len() + table.lease(MANY, 100).await.len(), 40);
    assert!(!table.has_leasable(MANY).await);
    assert_eq!(table.lease(FEW, 100).await.len(), 1);
}

/// A look is bounded, and begins elsewhere when it has found nothing.
#[tokio::test]
async fn an_event_behind_a_thousand_others_is_found() {
    let table = pulled().await;
    table.add_mails(MANY, 1_500).await;
    table
        .run(
            "update wakeq.events_v2 set locked_at = now(), claims = 1
              where id <> (select id from wakeq.events_v2 order by delay_until desc limit 1)",
        )
        .await;
    let mut found = Vec::new();
    // A look begins at a random second of the last 500, and reaches the end from each of them.
    for _ in 0..100 {
        found = table.lease(MANY, 10).await;
        if !found.is_empty() {
            break;
        }
    }
    assert_eq!(found.len(), 1);
}

/// Wherever its id is among those of events that are due at the same time. Another canvas has the
/// same object, whose events are before.
#[tokio::test]
async fn the_first_event_of_an_object_is_found_among_thousands_that_wait_for_it() {
    let table = pulled().await;
    let add = "insert into wakeq.events_v2
                    (id, canvas_id, module, name, modifier, value, delay_until, object, seq, prev)
             select gen_random_uuid(), $1, 'WORKER', 'mail', '_', '1', '2026-01-01Z', 'ada', $2 + n, $2 + n - 1
               from generate_series(1, $3) n";
    for (canvas, before, count) in [(FEW, 0_i32, 3_i32), (MANY, 10, 5_000)] {
        sqlx::query(add).bind(canvas.0).bind(before).bind(count).execute(&table.pool).await.unwrap();
    }
    for seq in 11..14_i64 {
        assert!(table.has_leasable(MANY).await);
        let leased = table.lease(MANY, 10).await;
        let places: Vec<_> = leased.iter().map(|row| row.event.place.as_ref().unwrap().link.id).collect();
        assert_eq!(places, [seq]);
        assert!(!table.has_leasable(MANY).await);
        assert_eq!(table.lease(MANY, 10).await.len(), 0);
        assert_eq!(table.store.complete_links(&[leased[0].event.claim]).await.unwrap(), [true]);
    }
}

#[tokio::test]
async fn values_are_bounded_together_and_one_is_whole() {
    let table = pulled().await;
    table.add_mails(MANY, 3).await;
    table.run("update wakeq.events_v2 set value = to_jsonb(repeat('x', 10000))::text").await;
    let lease =
        async |bytes| table.store.lease_events(&mail(MANY), 10, MINUTE, bytes, None).await.unwrap().rows;
    let leased = lease(20_100).await;
    assert_eq!(leased.iter().map(|row| row.event.value.len()).collect::<Vec<_>>(), [10_002, 10_002]);
    assert_eq!(lease(1).await.len(), 1);
}

/// A token is of one claim, one event, one handler and one canvas.
#[tokio::test]
async fn a_token_is_of_one_claim() {
    let table = pulled().await;
    table.add_mails(MANY, 2).await;
    let [first, second] = &table.lease(MANY, 2).await[..] else { panic!("two events") };
    let fence = async |scope: HandlerScope, row: &LeasedRow, token: &LeasedRow| {
        table.store.fence_event(&scope, row.event.claim.id, &token.token).await.unwrap()
    };
    let stands = fence(mail(MANY), first, first).await;
    assert!(matches!(stands, Fence::Stands { claim, .. } if claim == first.event.claim));
    assert_eq!(fence(mail(MANY), first, second).await, Fence::Wrong);
    assert_eq!(fence(mail(FEW), first, first).await, Fence::Gone);
    let letters = HandlerScope::worker(MANY, "letters").unwrap();
    assert_eq!(fence(letters, first, first).await, Fence::Unregistered);
    table.store.release(&[first.event.claim]).await.unwrap();
    assert_eq!(fence(mail(MANY), first, first).await, Fence::Over);
    table.store.complete(&[second.event.claim]).await.unwrap();
    assert_eq!(fence(mail(MANY), second, second).await, Fence::Gone);
}

/// Leases have places as claims have, and their ends make room. Another canvas has its own limits.
#[tokio::test]
async fn leases_go_through_limits() {
    let table = pulled().await;
    let two = NewLimit { concurrency: Some(2), ..NewLimit::default() };
    table.limit(MANY, "handler:WORKER/mail", two).await;
    for canvas in [MANY, FEW] {
        table.add_mails(canvas, 3).await;
    }
    let leased = table.lease(MANY, 10).await;
    assert_eq!(
        (leased.len(), table.lease(MANY, 10).await.len(), table.lease(FEW, 10).await.len()),
        (2, 0, 3)
    );
    let fence =
        table.store.fence_event(&mail(MANY), leased[0].event.claim.id, &leased[0].token).await.unwrap();
    let Fence::Stands { held, .. } = fence else { panic!("{fence:?}") };
    assert_eq!(held, [HeldLimit { canvas: MANY, name: "handler:WORKER/mail".to_owned() }]);
    assert_eq!(table.store.complete(&[leased[0].event.claim]).await.unwrap(), [true]);
    table.store.wake_waiting(&held).await.unwrap();
    assert_eq!(table.lease(MANY, 10).await.len(), 1);
}

impl Table {
    /// Mails that name the key `a`, but for the last ones, which name `b`.
    async fn add_keyed_mails(&self, canvas: CanvasId, of_a: i32, of_b: i32) {
        self.add_mails(canvas, of_a + of_b).await;
        let name = "update wakeq.events_v2 e
               set options = jsonb_build_object('limits', jsonb_build_array(case when n.nth <= $2 then 'a' else 'b' end))
              from (select id, row_number() over (order by delay_until, id) as nth from wakeq.events_v2
                     where canvas_id = $1 and name = 'mail') as n
             where e.id = n.id";
        sqlx::query(name).bind(canvas.0).bind(of_a).execute(&self.pool).await.unwrap();
    }
}

/// What a limit drops takes nothing of what a lease asks for.
#[tokio::test]
async fn a_lease_goes_on_past_what_a_limit_drops() {
    let table = pulled().await;
    let one = NewLimit { concurrency: Some(1), on_full: OnFull::Drop, ..NewLimit::default() };
    table.limit(MANY, "a", one).await;
    for canvas in [MANY, FEW] {
        table.add_keyed_mails(canvas, 2, 1).await;
    }
    let first = table.lease(MANY, 1).await;
    let second = table.lease(MANY, 1).await;
    assert!(first.len() == 1 && second[0].event.delay_until > first[0].event.delay_until);
    assert_eq!((table.lease(MANY, 1).await.len(), table.lease(FEW, 10).await.len()), (0, 3));
}

/// Limits are locked in one order. A lease that has asked those of the first events does not ask
/// those of later ones in the same transaction, so nobody who holds one of these blocks it.
#[tokio::test]
async fn a_lease_locks_limits_once() {
    let table = pulled().await;
    let one = NewLimit { concurrency: Some(1), ..NewLimit::default() };
    for key in ["a", "b"] {
        table.limit(MANY, key, one).await;
    }
    let runs = table.add_keyed(MANY, &["a"], 1).await;
    assert_eq!(table.claim_some(&runs).await.len(), 1);
    table.add_keyed_mails(MANY, 1_000, 50).await;
    table.add_keyed_mails(FEW, 1, 0).await;
    let mut other = table.pool.begin().await.unwrap();
    let lock = "insert into wakeq.limit_states (canvas_id, name) values ($1, 'b')";
    sqlx::query(lock).bind(MANY.0).execute(&mut *other).await.unwrap();
    assert_eq!((table.lease(MANY, 10).await.len(), table.lease(FEW, 10).await.len()), (0, 1));
    other.rollback().await.unwrap();
}

/// Workers claim nothing of a pulled handler, and its events are no unknown handler's.
#[tokio::test]
async fn workers_leave_the_events_alone() {
    let table = pulled().await;
    table.add_mails(MANY, 1).await;
    let other = CanvasId::DEFAULT;
    table.add_mails(other, 1).await;
    let told = sqlx::query_as::<_, (uuid::Uuid, uuid::Uuid)>("select id, canvas_id from wakeq.events_v2");
    let told = told.fetch_all(&table.pool).await.unwrap().into_iter();
    let told: Vec<_> = told
        .map(|(id, canvas)| crate::event::Notification::new(crate::event::EventId(id), CanvasId(canvas)))
        .collect();
    let limits = crate::store::ClaimLimits {
        handlers: vec!["WORKER/mail/_".to_owned()].into(),
        canvas_handlers: Vec::new(),
        losses_below: 2,
        value_max: 1_000,
    };
    let claimed = table.store.claim(&told, &limits).await.unwrap();
    let of: Vec<_> = claimed.iter().flatten().map(|event| event.address.scope.canvas).collect();
    assert_eq!(of, [other]);
    let ids: Vec<_> = told.iter().map(|notification| notification.id).collect();
    let loaded = table.store.load(&ids).await.unwrap();
    assert!(loaded.iter().flatten().all(|event| event.pulled == (event.address.scope.canvas == MANY)));
    table.store.defer(&ids).await.unwrap();
    assert_eq!(table.number("select count(*) from wakeq.unknown_handlers").await, 0);
    let split = table.store.split_pulled(&told).await.unwrap();
    assert_eq!((split.workers.len(), split.pulled.len()), (1, 0));
}

/// However many handlers some canvases have, all of them are read in turn.
#[tokio::test]
async fn no_canvas_hides_the_registered_handlers_of_others() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.pulled_handlers
                 (canvas_id, module, name, retries, delay_ms, factor, delay_max_ms, halts, created_by, updated_by)
             select ('00000000-0000-0000-0000-' || lpad(c::text, 12, '0'))::uuid, 'WORKER', 'h' || n, 0, 0, 1, 0, false,
                    'test', 'test'
               from generate_series(1, 30) c, generate_series(1, 110) n",
        )
        .await;
    let canvases =
        |handlers: &[HandlerScope]| handlers.iter().map(|scope| scope.canvas).collect::<HashSet<_>>();
    let (first, next) = table.store.registered_handlers(CanvasId::DEFAULT).await.unwrap();
    assert_eq!((first.len(), canvases(&first).len()), (2_000, 20), "a hundred of each");
    let (others, again) = table.store.registered_handlers(next).await.unwrap();
    assert_eq!(canvases(&others).len(), 30, "from the twentieth on, and then from the first");
    assert_eq!(again, next);
}

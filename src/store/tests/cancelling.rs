//! Events that are cancelled while they run: the row says so, whoever writes it next sees it, and
//! nothing carries it on.

use std::sync::Arc;
use std::time::Duration;

use super::queues::{EMAILS, canvas, emails, emit_emails, events, take};
use super::{Table, limits, tester, told};
use crate::event::{CanvasId, Cause, Claim, EventId, Name};
use crate::store::{
    AttemptEnd, CANCELLED_PAGE, CommandOutcome, DeadFilter, FacetSettings, Renewal, Retry, RunningCancel,
    TurnRequest,
};

const CANCELLED: &str = "select count(*) from wakeq.events_v2 where cancelled_by = 'test'";
const LINES: &str = "select count(*) from wakeq.audit_log where action = 'cancel-running'";

impl Table {
    /// Says of every event that it was cancelled while it ran, and takes its promise, so that
    /// nothing else wakes it.
    pub(crate) async fn mark_cancelled(&self) {
        self.run("update wakeq.events_v2 set cancelled_by = 'ada', notify_at = null").await;
    }

    /// Adds cancelled events, one on each object, and behind each an event that is not.
    pub(crate) async fn add_behind_cancelled(&self, objects: i32) {
        self.add(2 * objects).await;
        let chains = "update wakeq.events_v2 e
                         set object = 'o' || n.seq % $1, seq = n.seq, prev = greatest(n.seq - $1, 0),
                             notify_at = now() + interval '1 h',
                             cancelled_by = case when n.seq <= $1 then 'ada' end
                        from (select id, row_number() over (order by id) as seq from wakeq.events_v2) n
                       where n.id = e.id";
        sqlx::query(chains).bind(i64::from(objects)).execute(&self.pool).await.unwrap();
    }

    /// From now on deletions fail as statements do that the server cancelled after their time.
    pub(crate) async fn limit_deletions(&self) {
        self.run(
            "create function public.take_long() returns trigger language plpgsql as $$
             begin
                 raise query_canceled using message = 'canceling statement due to statement timeout';
             end $$",
        )
        .await;
        self.run(
            "create trigger take_long before delete on wakeq.events_v2
             for each row execute function public.take_long()",
        )
        .await;
    }

    /// Ends what [`Table::limit_deletions`] began, and makes the minute's pass due.
    pub(crate) async fn allow_deletions(&self) {
        self.run("drop trigger take_long on wakeq.events_v2").await;
        self.run("update wakeq.chores set next_at = now()").await;
    }

    async fn cancel_running(&self, canvas: CanvasId, id: EventId) -> RunningCancel {
        self.store.cancel_running(canvas, id, &tester()).await.unwrap()
    }

    /// An event that runs and was cancelled.
    async fn cancelled(&self) -> Claim {
        let claim = self.claim(&self.add(1).await).await[0];
        assert_eq!(self.cancel_running(CanvasId::DEFAULT, claim.id).await, RunningCancel::Asked);
        claim
    }

    /// Puts every event on an object of its own, or on the same.
    async fn put_on(&self, object: &'static str) {
        let chain = "update wakeq.events_v2 e set object = $1, seq = n.seq, prev = n.seq - 1
                       from (select id, row_number() over (order by enqueued_at, id) as seq from wakeq.events_v2) n
                      where n.id = e.id";
        sqlx::query(chain).bind(object).execute(&self.pool).await.unwrap();
    }
}

fn retry(claim: Claim) -> Arc<Retry> {
    Arc::new(Retry { claim, retries: 1, delay: Duration::from_secs(3600), error: "no".into(), noted: None })
}

#[tokio::test]
async fn only_a_running_event_of_the_canvas_is_marked_and_once() {
    let table = Table::new().await;
    let ids = table.add(2).await;
    assert_eq!(table.cancel_running(CanvasId::DEFAULT, ids[0]).await, RunningCancel::Free);
    let claim = table.claim(&ids[..1]).await[0];
    assert_eq!(table.cancel_running(canvas(7), ids[0]).await, RunningCancel::Missing);
    assert_eq!((table.number(CANCELLED).await, table.number(LINES).await), (0, 0));
    assert_eq!(table.cancel_running(CanvasId::DEFAULT, ids[0]).await, RunningCancel::Asked);
    assert_eq!(table.cancel_running(CanvasId::DEFAULT, ids[0]).await, RunningCancel::AskedBefore);
    assert_eq!((table.number(CANCELLED).await, table.number(LINES).await), (1, 1));
    let by = async |of| table.store.cancelled_by(of, ids[0]).await.unwrap();
    assert_eq!((by(CanvasId::DEFAULT).await.as_deref(), by(canvas(7)).await), (Some("test"), None));
    assert_eq!(table.store.cancelled_claims().await.unwrap(), [claim]);
    table.end_leases().await;
    assert_eq!(table.cancel_running(CanvasId::DEFAULT, ids[0]).await, RunningCancel::Free);
    let (cancelled, _) = table.store.cancel(CanvasId::DEFAULT, ids[0], &tester()).await.unwrap();
    assert_eq!((cancelled, table.left().await), (CommandOutcome::Done, 1));
    assert_eq!(table.cancel_running(CanvasId::DEFAULT, ids[0]).await, RunningCancel::Missing);
}

#[tokio::test]
async fn a_renewal_brings_it() {
    let table = Table::new().await;
    let cancelled = table.cancelled().await;
    let other = table.claim(&table.add(1).await).await[0];
    let both = [cancelled, other];
    assert_eq!(table.store.renew(&both).await.unwrap(), [Renewal::Cancelled, Renewal::Renewed]);
    let held = table.hold_rows(&[other.id]).await;
    assert_eq!(table.store.renew_free(&both).await.unwrap(), [Some(Renewal::Cancelled), None]);
    held.rollback().await.unwrap();
}

/// Its handler may complete it all the same.
#[tokio::test]
async fn the_mark_does_not_stop_a_completion() {
    let table = Table::new().await;
    let claim = table.cancelled().await;
    assert_eq!(table.store.complete(&[claim]).await.unwrap(), [true]);
    assert!(!table.store.remove_cancelled(claim, &AttemptEnd::default()).await.unwrap());
}

/// It is removed only under its claim, and only if it was cancelled; the next event of its object
/// is promised, and the link leaves a tombstone.
#[tokio::test]
async fn its_owner_removes_it() {
    let table = Table::new().await;
    let ids = table.add(3).await;
    table.put_on("o").await;
    table.run("update wakeq.events_v2 set notify_at = now() + interval '1 h'").await;
    let first = sqlx::query_scalar("select id from wakeq.events_v2 where seq = 1");
    let first = EventId(first.fetch_one(&table.pool).await.unwrap());
    let claim = table.claim(&[first]).await[0];
    assert!(
        !table.store.remove_cancelled(claim, &AttemptEnd::default()).await.unwrap(),
        "nobody has cancelled it"
    );
    table.cancel_running(CanvasId::DEFAULT, first).await;
    assert!(
        !table
            .store
            .remove_cancelled(Claim { nonce: claim.nonce ^ 1, ..claim }, &AttemptEnd::default())
            .await
            .unwrap()
    );
    assert_eq!(table.left().await, ids.len() as i64);
    assert!(table.store.remove_cancelled(claim, &AttemptEnd::default()).await.unwrap());
    assert!(!table.store.remove_cancelled(claim, &AttemptEnd::default()).await.unwrap());
    let promised =
        "select count(*) from wakeq.events_v2 where seq = 2 and notify_at < now() + interval '1 min'";
    let missing =
        "select count(*) from wakeq.tombstones where cause = 'cancelled' and seq = 1 and queue = ''";
    assert_eq!((table.number(promised).await, table.number(missing).await), (1, 1));
    assert_eq!(table.number("select count(*) from wakeq.dead_events").await, 0);
}

/// A handler that fails for the last time before it is told: the event is not among the dead.
#[tokio::test]
async fn it_does_not_die() {
    let table = Table::new().await;
    let claim = table.cancelled().await;
    assert!(!table.store.die(claim, Cause::Retries, Some("no"), true, None).await.unwrap());
    assert_eq!((table.left().await, table.number("select count(*) from wakeq.dead_events").await), (1, 0));
    assert!(table.store.remove_cancelled(claim, &AttemptEnd::default()).await.unwrap());
}

/// It failed and waits, was released, lost its worker, or is parked: a page removes all of them,
/// and none that runs.
#[tokio::test]
async fn a_page_removes_what_no_longer_runs() {
    let table = Table::new().await;
    let mut claims = Vec::new();
    for _ in 0..4 {
        claims.push(table.cancelled().await);
    }
    let [failed, released, lost, running] = claims[..] else { unreachable!() };
    table.add(1).await;
    table.put_on("o").await;
    assert_eq!(table.store.retry(&[retry(failed)]).await.unwrap(), [true]);
    table.store.release(&[released]).await.unwrap();
    let lose =
        "update wakeq.events_v2 set locked_at = now() - interval '1 d', notify_at = null where id = $1";
    sqlx::query(lose).bind(lost.id.0).execute(&table.pool).await.unwrap();
    let (count, lanes) = table.store.remove_unclaimed_cancelled().await.unwrap();
    assert_eq!((count, lanes.len(), table.left().await), (3, 1, 2));
    assert_eq!(table.store.cancelled_claims().await.unwrap(), [running]);
    assert_eq!(table.store.remove_unclaimed_cancelled().await.unwrap(), (0, Vec::new()));
    assert_eq!(table.number("select count(*) from wakeq.tombstones where cause = 'cancelled'").await, 3);
}

#[tokio::test]
async fn a_page_has_a_limit_and_passes_over_locked_rows() {
    let table = Table::new().await;
    let ids = table.add(CANCELLED_PAGE as i32 + 2).await;
    table.run("update wakeq.events_v2 set cancelled_by = 'test'").await;
    let held = table.hold_rows(&ids[..1]).await;
    let mut pages = Vec::new();
    for _ in 0..3 {
        pages.push(table.store.remove_unclaimed_cancelled().await.unwrap().0);
    }
    assert_eq!(pages, [CANCELLED_PAGE, 1, 0]);
    held.rollback().await.unwrap();
    assert_eq!(table.store.remove_unclaimed_cancelled().await.unwrap().0, 1);
}

/// So the pass asks for them only while there are any.
#[tokio::test]
async fn the_minutes_statement_reports_it() {
    let table = Table::new().await;
    let minute = async || {
        table.run("update wakeq.chores set next_at = now()").await;
        table.store.minute(false, None).await.unwrap().cancelled
    };
    assert!(!minute().await);
    table.cancelled().await;
    assert!(minute().await);
}

/// The next claim of such an event says so, of a copy, too; another does not.
#[tokio::test]
async fn the_next_claim_says_so() {
    let table = Table::new().await;
    let claim = table.cancelled().await;
    table.store.release(&[claim]).await.unwrap();
    let other = table.add(1).await[0];
    let claimed = table.store.claim(&told(&[claim.id, other]), &limits()).await.unwrap();
    let is_cancelled: Vec<bool> = claimed.into_iter().map(|event| event.unwrap().is_cancelled).collect();
    assert_eq!(is_cancelled, [true, false]);

    let table = emails(FacetSettings::default()).await;
    let copies = emit_emails(&table.store, canvas(1), 1).await;
    let taken = take(&table.store, 1).await.remove(0);
    assert!(!taken.is_cancelled);
    assert_eq!(table.cancel_running(canvas(1), copies[0]).await, RunningCancel::Asked);
    table.store.release(&[taken.claim]).await.unwrap();
    let turn = TurnRequest { queue: EMAILS.parse().unwrap(), asks: copies[0] };
    assert!(events(table.store.take_turns(&[turn], 2, i32::MAX).await).remove(0).is_cancelled);
}

/// What a service has leased is the service's.
#[tokio::test]
async fn a_leased_copy_is_left_alone() {
    let table = emails(FacetSettings::default()).await;
    let copies = emit_emails(&table.store, canvas(1), 1).await;
    table.run("update wakeq.queues set pulled = true, in_flight_max = 10").await;
    assert_eq!(table.cancel_running(canvas(1), copies[0]).await, RunningCancel::Free);
    table.run("update wakeq.events_v2 set locked_at = now(), claims = 1").await;
    let queue: Name = EMAILS.parse().unwrap();
    assert_eq!(table.cancel_running(canvas(1), copies[0]).await, RunningCancel::Leased(queue));
    assert_eq!((table.number(CANCELLED).await, table.number(LINES).await), (0, 0));
}

/// A copy that was cancelled, and whose worker died before its queue was pulled, is leased to no
/// service. That of another canvas is, and the minute's pass deletes the first.
#[tokio::test]
async fn a_cancelled_copy_is_not_leased() {
    let table = emails(FacetSettings { weight: None, in_flight_max: Some(10) }).await;
    let cancelled = emit_emails(&table.store, canvas(1), 1).await[0];
    let other = emit_emails(&table.store, canvas(2), 1).await[0];
    assert_eq!(take(&table.store, 2).await.len(), 2);
    assert_eq!(table.cancel_running(canvas(1), cancelled).await, RunningCancel::Asked);
    table.end_leases().await;
    table.run("update wakeq.queues set pulled = true").await;
    let queue: Name = EMAILS.parse().unwrap();
    let lease = async || {
        table.store.enter_due(&queue, uuid::Uuid::nil()).await.unwrap();
        let leased = table.store.lease_copies(&queue, 10, Duration::from_secs(60), 1 << 20).await.unwrap();
        leased.into_iter().map(|leased| leased.event.claim.id).collect::<Vec<_>>()
    };
    assert_eq!(lease().await, [other]);
    assert_eq!(lease().await, []);
    let has = table.store.has_turns(&queue, uuid::Uuid::nil(), true).await.unwrap();
    assert_eq!(has, Some(false), "no service asks for it in vain");
    assert_eq!(table.store.remove_unclaimed_cancelled().await.unwrap().0, 1);
    assert_eq!(table.number("select count(*) from wakeq.events_v2").await, 1);
}

/// Nothing of it is kept with a dead event.
#[tokio::test]
async fn a_redriven_event_starts_without_it() {
    let table = Table::new().await;
    let claim = table.claim(&table.add(1).await).await[0];
    assert!(table.store.die(claim, Cause::Retries, Some("no"), false, None).await.unwrap());
    let back = table.store.redrive_page(&DeadFilter::default(), true, (0, 10), &tester()).await.unwrap().back;
    let claimed = table.store.claim(&back, &limits()).await.unwrap().remove(0).unwrap();
    assert_eq!((claimed.is_cancelled, table.number(CANCELLED).await), (false, 0));
}

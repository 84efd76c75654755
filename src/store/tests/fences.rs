//! The effects of a claim: while it stands, after it was lost, and between two workers that want
//! the same event.

use std::sync::Arc;
use std::time::Duration;

use super::crowds::MANY;
use super::{Table, limits, shuffled, tester, told};
use crate::event::{Cause, Claim, EventId, Notification};
use crate::store::{AttemptEnd, ClaimLimits, DeadFilter, Fence, Renewal, Retry, Store};

fn retry(claim: Claim, retries: i32) -> Arc<Retry> {
    Arc::new(Retry { claim, retries, delay: Duration::ZERO, error: "no".into(), noted: None })
}

impl Table {
    async fn row(&self, id: EventId) -> Option<String> {
        let row = sqlx::query_scalar("select e::text from wakeq.events_v2 e where id = $1").bind(id.0);
        row.fetch_optional(&self.pool).await.unwrap()
    }

    /// No write under this claim changes the row.
    async fn writes_nothing(&self, claim: Claim) {
        let before = self.row(claim.id).await;
        assert_eq!(self.store.renew(&[claim]).await.unwrap(), [Renewal::Lost]);
        assert_eq!(self.store.renew_free(&[claim]).await.unwrap(), [Some(Renewal::Lost)]);
        assert_eq!(self.store.complete(&[claim]).await.unwrap(), [false]);
        assert_eq!(self.store.complete_links(&[claim]).await.unwrap(), [false]);
        assert_eq!(self.store.retry(&[retry(claim, 1)]).await.unwrap(), [false]);
        assert!(!self.store.die(claim, Cause::Retries, Some("no"), false, None).await.unwrap());
        assert!(!self.store.remove_cancelled(claim, &AttemptEnd::default()).await.unwrap());
        assert_eq!(self.store.extend_lease((MANY, claim), Duration::from_secs(60)).await.unwrap(), None);
        self.store.release(&[claim]).await.unwrap();
        assert_eq!(self.row(claim.id).await, before);
        assert_eq!(self.number("select count(*) from wakeq.dead_events").await, 0);
    }

    /// Undoes all claims, as a failover does to a standby that never got them.
    async fn lose_claims(&self) {
        self.run("update wakeq.events_v2 set locked_at = null, worker = null, claims = 0, nonce = 0").await;
    }
}

/// No write of an owner whose claim was taken over changes the row.
// Shows: EV2-57
#[tokio::test]
async fn a_lost_claim_writes_nothing() {
    let table = Table::new().await;
    let ids = table.add(1).await;
    let old = table.claim(&ids).await[0];
    table.end_leases().await;
    let new = table.claim(&ids).await[0];
    assert_eq!((old.claims, new.claims), (1, 2));
    table.writes_nothing(old).await;
    assert_eq!(table.store.renew(&[new]).await.unwrap(), [Renewal::Renewed]);
    assert_eq!(table.store.complete(&[new]).await.unwrap(), [true]);
    assert_eq!(table.store.complete(&[new]).await.unwrap(), [false], "it is gone");
    assert_eq!(table.row(old.id).await, None);
}

/// A server that lost a claim in a failover counts the next one alike. The first owner writes
/// nothing under the second all the same.
#[tokio::test]
async fn a_claim_that_a_failover_lost_writes_nothing_under_the_next() {
    let table = Table::new().await;
    let ids = table.add(1).await;
    table.run("update wakeq.events_v2 set canvas_id = '00000000-0000-0000-0000-000000000006'").await;
    let claim = async || {
        let told = [Notification::new(ids[0], MANY)];
        table.store.claim(&told, &limits()).await.unwrap()[0].as_ref().unwrap().claim
    };
    let lost = claim().await;
    table.lose_claims().await;
    let new = claim().await;
    assert_eq!((lost.claims, new.claims), (1, 1));
    table.writes_nothing(lost).await;
    assert_eq!(table.store.complete(&[lost, new]).await.unwrap(), [false, true]);
}

/// The same for a copy that is leased over HTTP: the first token is good for nothing.
#[tokio::test]
async fn a_lease_that_a_failover_lost_has_another_token() {
    let table = Table::new().await;
    table.pulled_copy("mails").await;
    let (mails, minute) = ("mails".parse().unwrap(), Duration::from_secs(60));
    let lease = async || {
        table.store.enter_due(&mails, uuid::Uuid::nil()).await.unwrap();
        table.store.lease_copies(&mails, 1, minute, 1_000_000).await.unwrap().pop().unwrap()
    };
    let lost = lease().await;
    table.lose_claims().await;
    let new = lease().await;
    let id = lost.event.claim.id;
    assert_eq!((lost.event.claim.claims, new.event.claim.claims), (1, 1));
    assert_eq!(table.store.fence(&mails, id, &lost.token).await.unwrap(), Fence::Over);
    let stands = table.store.fence(&mails, id, &new.token).await.unwrap();
    assert!(matches!(stands, Fence::Stands { claim, .. } if claim == new.event.claim), "{stands:?}");
    table.writes_nothing(lost.event.claim).await;
}

/// A claimed event names its worker until the worker gives it up; a worker that takes it over is
/// named instead.
// Shows: ORD-12
#[tokio::test]
async fn a_claim_is_its_worker_s_until_it_ends() {
    let table = Table::new().await;
    let ids = table.add(1).await;
    let [one, two] = ["one", "two"].map(|name| table.store.clone().claiming_as(name.parse().unwrap()));
    let claim =
        async |store: &Store| store.claim(&told(&ids), &limits()).await.unwrap()[0].as_ref().unwrap().claim;
    let worker = async || -> Option<String> {
        let worker = sqlx::query_scalar("select worker::text from wakeq.events_v2");
        worker.fetch_one(&table.pool).await.unwrap()
    };
    assert_eq!(worker().await, None);
    let claimed = claim(&one).await;
    assert_eq!(worker().await.as_deref(), Some("one"));
    one.release(&[claimed]).await.unwrap();
    assert_eq!(worker().await, None);
    let claimed = claim(&one).await;
    assert_eq!(one.retry(&[retry(claimed, 1)]).await.unwrap(), [true]);
    assert_eq!(worker().await, None);
    let lost = claim(&one).await;
    table.end_leases().await;
    let loaded = table.store.load(&ids).await.unwrap();
    assert_eq!(loaded[0].as_ref().unwrap().worker, None, "its lease is over");
    let taken = claim(&two).await;
    one.release(&[lost]).await.unwrap();
    assert_eq!(two.renew(&[taken]).await.unwrap(), [Renewal::Renewed]);
    assert_eq!(worker().await.as_deref(), Some("two"));
    table.end_leases().await;
    claim(&table.store).await;
    assert_eq!(worker().await, None, "one without a name is nobody's, and not the other's");
}

/// A late renewal must not lock a row that no longer has an owner.
#[tokio::test]
async fn a_renewal_after_a_release_locks_nothing() {
    let table = Table::new().await;
    let ids = table.add(1).await;
    let claim = table.claim(&ids).await[0];
    table.store.release(&[claim]).await.unwrap();
    assert_eq!(table.store.renew(&[claim]).await.unwrap(), [Renewal::Lost]);
    assert!(table.holds("select bool_and(locked_at is null and losses = 0) from wakeq.events_v2").await);
}

/// The count is written, not added, because the answer may get lost.
// Shows: EV2-35, EV2-45, EV2-60
#[tokio::test]
async fn a_repeated_retry_writes_the_same_count() {
    let table = Table::new().await;
    let ids = table.add(1).await;
    let claim = table.claim(&ids).await[0];
    assert_eq!(table.store.retry(&[retry(claim, 1)]).await.unwrap(), [true]);
    assert_eq!(table.store.retry(&[retry(claim, 1)]).await.unwrap(), [false]);
    let columns = "select bool_and(retries = 1 and locked_at is null and probes = 0 and last_error = 'no'
                          and delay_until between now() - interval '1 min' and now()
                          and notify_at between now() and now() + interval '31 s') from wakeq.events_v2";
    assert!(table.holds(columns).await);
}

/// A delay beyond the calendar is cut to one that Postgres can add.
#[tokio::test]
async fn the_longest_delay_of_a_retry_is_a_hundred_years() {
    let table = Table::new().await;
    let ids = table.add(1).await;
    let claim = table.claim(&ids).await[0];
    let endless = Retry { claim, retries: 1, delay: Duration::MAX, error: String::new(), noted: None };
    assert_eq!(table.store.retry(&[Arc::new(endless)]).await.unwrap(), [true]);
    assert!(
        table.holds("select bool_and(delay_until > now() + interval '99 years') from wakeq.events_v2").await
    );
}

/// The fencing token outlives retries, releases, death and redrive; retries and losses do not.
#[tokio::test]
async fn claims_are_never_reset() {
    let table = Table::new().await;
    let ids = table.add(1).await;
    let first = table.claim(&ids).await[0];
    table.store.retry(&[retry(first, 1)]).await.unwrap();
    let second = table.claim(&ids).await[0];
    table.store.release(&[second]).await.unwrap();
    table.claim(&ids).await;
    table.end_leases().await;
    let fourth = table.claim(&ids).await[0];
    assert!(table.holds("select bool_and(losses = 1 and retries = 1) from wakeq.events_v2").await);
    assert!(table.store.die(fourth, Cause::Retries, Some("enough"), false, None).await.unwrap());
    let notifications =
        table.store.redrive_page(&DeadFilter::default(), true, (0, 1000), &tester()).await.unwrap().back;
    assert_eq!(notifications.iter().map(|notification| notification.id).collect::<Vec<_>>(), ids);
    assert!(
        table.holds("select bool_and(losses = 0 and retries = 0 and claims = 4) from wakeq.events_v2").await
    );
    assert_eq!(table.claim(&ids).await[0].claims, 5);
    assert_eq!(table.store.complete(&[first, second, fourth]).await.unwrap(), [false; 3]);
}

/// A worker may lose an event and get it again; then the writes of both its claims may share a
/// statement.
#[tokio::test]
async fn two_claims_on_one_event_in_a_batch_are_told_apart() {
    let table = Table::new().await;
    let ids = table.add(3).await;
    let old = table.claim(&ids).await;
    table.end_leases().await;
    let new = table.claim(&ids).await;
    let (lost, renewed) = (Renewal::Lost, Renewal::Renewed);
    assert_eq!(table.store.renew(&[old[0], new[0]]).await.unwrap(), [lost, renewed]);
    assert_eq!(table.store.renew(&[new[0], old[0]]).await.unwrap(), [renewed, lost]);
    assert_eq!(table.store.retry(&[retry(old[0], 1), retry(new[0], 2)]).await.unwrap(), [false, true]);
    assert_eq!(
        table.number("select retries::bigint from wakeq.events_v2 order by retries desc limit 1").await,
        2
    );
    assert_eq!(table.store.complete(&[old[1], new[1]]).await.unwrap(), [false, true]);
    assert_eq!(table.store.complete(&[new[2], old[2], new[2]]).await.unwrap(), [true, false, true]);
}

/// Eight connections want the same events; each event has one winner.
// Shows: EV2-44, EV2-57
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_claims_on_an_event_one_wins() {
    let table = Table::new().await;
    let ids = table.add(300).await;
    let mut racers = tokio::task::JoinSet::new();
    for seed in 0..8 {
        let (store, ids) = (table.store.clone(), shuffled(&ids, seed));
        racers.spawn(async move {
            let mut won = Vec::new();
            for batch in ids.chunks(20) {
                let claimed = store.claim(&told(batch), &limits()).await.unwrap();
                won.extend(claimed.into_iter().flatten().map(|event| event.claim.id));
            }
            won
        });
    }
    let mut winners: Vec<EventId> = racers.join_all().await.concat();
    winners.sort_unstable();
    let mut ids = ids;
    ids.sort_unstable();
    assert_eq!(winners, ids);
    assert!(table.holds("select bool_and(claims = 1 and losses = 0) from wakeq.events_v2").await);
}

/// The checks are only advice; the claim decides.
// Shows: EV2-64
#[tokio::test]
async fn a_claim_between_check_and_claim_is_noticed() {
    let table = Table::new().await;
    let ids = table.add(1).await;
    let seen = table.store.load(&ids).await.unwrap().pop().flatten().unwrap();
    assert_eq!(seen.schedule.locked_at, None);
    table.claim(&ids).await;
    assert!(table.store.claim(&told(&ids), &limits()).await.unwrap()[0].is_none());
}

/// Two notifications of one event in a batch are one claim.
#[tokio::test]
async fn an_event_twice_in_a_batch_is_claimed_once() {
    let table = Table::new().await;
    let id = table.add(1).await[0];
    let claimed = table.store.claim(&told(&[id, id]), &limits()).await.unwrap();
    assert_eq!(claimed.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false]);
}

/// A chosen id may be forgotten, emitted again, and die a second time while its first death is
/// still kept.
#[tokio::test]
async fn an_id_may_die_twice() {
    let table = Table::new().await;
    let ids = table.add(1).await;
    let claim = table.claim(&ids).await[0];
    assert!(table.store.die(claim, Cause::Retries, Some("first"), false, None).await.unwrap());
    table
        .run(
            "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value)
               select id, canvas_id, module, name, modifier, value from wakeq.dead_events",
        )
        .await;
    let filter = DeadFilter::default();
    assert_eq!(
        table.store.redrive_page(&filter, true, (0, 1000), &tester()).await.unwrap().back,
        [],
        "its id lives again"
    );
    let claim = table.claim(&ids).await[0];
    assert!(table.store.die(claim, Cause::Poison, Some("second"), false, None).await.unwrap());
    let dead = table.store.dead_events(&filter, true, None, 10).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].cause.as_str(), dead[0].last_error.as_deref()), ("poison", Some("second")));
}

/// A value larger than a statement may claim is left to a worker that has room for it; the others
/// of the batch are claimed.
#[tokio::test]
async fn a_claim_leaves_large_values_where_they_are() {
    let table = Table::new().await;
    let ids = table.add(3).await;
    let large = sqlx::query("update wakeq.events_v2 set value = repeat('1', 1000) where id = $1");
    large.bind(ids[1].0).execute(&table.pool).await.unwrap();
    let small = ClaimLimits { value_max: 999, ..limits() };
    let claimed = table.store.claim(&told(&ids), &small).await.unwrap();
    assert_eq!(claimed.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    let sizes: Vec<_> =
        table.store.load(&ids).await.unwrap().into_iter().flatten().map(|row| row.value_bytes).collect();
    assert_eq!(sizes, [1, 1000, 1]);
    let claimed =
        table.store.claim(&told(&ids[1..2]), &ClaimLimits { value_max: 1000, ..limits() }).await.unwrap();
    assert_eq!(claimed[0].as_ref().unwrap().value.len(), 1000);
}

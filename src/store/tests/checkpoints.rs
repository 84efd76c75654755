//! Checkpoints on Postgres: the fence, what a later event with the same id gets, and the expiry.

use std::sync::Arc;
use std::time::Duration;

use super::queues::canvas;
use super::unique::keyed;
use super::{Table, limits, tester, told};
use crate::event::{CanvasId, Cause, Claim, EventId, OnConflict, Unique};
use crate::store::{DeadFilter, ExpiryPart, InsertOutcome, Retention, Retry, checkpoint_in};

impl Table {
    async fn leave(&self, claim: Claim, json: &str) -> bool {
        self.store.store_checkpoint(CanvasId::DEFAULT, claim, json).await.unwrap()
    }

    /// What is left to the next attempt.
    async fn left_to(&self, id: EventId) -> Option<String> {
        let found = self.store.checkpoint(CanvasId::DEFAULT, id).await.unwrap();
        found.map(|checkpoint| checkpoint.json)
    }

    async fn checkpoints(&self) -> i64 {
        self.number("select count(*) from wakeq.checkpoints").await
    }

    /// Makes all checkpoints old enough for the expiry's next look, and lets it look.
    async fn expire_checkpoints(&self) {
        self.run("update wakeq.checkpoints set looked_at = now() - interval '1 hour'").await;
        self.store.expire(ExpiryPart::Checkpoints, Retention::default()).await.unwrap();
    }
}

fn some(json: &str) -> Option<String> {
    Some(json.to_owned())
}

#[tokio::test]
async fn the_next_attempt_gets_what_the_last_one_left() {
    let table = Table::new().await;
    let id = table.add(1).await[0];
    let first = table.claim(&[id]).await[0];
    assert_eq!(table.left_to(id).await, None);
    assert!(table.leave(first, "1").await && table.leave(first, "2").await);
    table.store.release(&[first]).await.unwrap();
    assert!(!table.leave(first, "3").await, "it was released");
    let second = table.claim(&[id]).await[0];
    assert_eq!((second.claims, table.left_to(id).await), (2, some("2")));
    assert!(table.leave(second, "4").await);
    assert_eq!((table.left_to(id).await, table.checkpoints().await), (some("4"), 1));
}

/// The attempt before runs on although its lease ran out.
#[tokio::test]
async fn a_lost_claim_stores_nothing() {
    let table = Table::new().await;
    let id = table.add(1).await[0];
    let old = table.claim(&[id]).await[0];
    assert!(table.leave(old, "1").await);
    table.end_leases().await;
    let new = table.claim(&[id]).await[0];
    assert!(!table.leave(old, "2").await);
    let mut connection = table.pool.acquire().await.unwrap();
    assert!(!checkpoint_in(&mut connection, old, "2").await.unwrap());
    assert_eq!(table.left_to(id).await, some("1"));
    // A failover that lost the second claim draws another number for it.
    let drawn_anew = Claim { nonce: new.nonce ^ 1, ..new };
    assert!(!table.leave(drawn_anew, "2").await && table.leave(new, "3").await);
    assert!(checkpoint_in(&mut connection, new, "4").await.unwrap());
    assert_eq!(table.left_to(id).await, some("4"));
}

/// A transaction that has stored one keeps the next attempt from beginning until it ends.
#[tokio::test]
async fn a_take_over_waits_for_the_transaction() {
    let table = Table::new().await;
    for commits in [true, false] {
        let id = table.add(1).await[0];
        let old = table.claim(&[id]).await[0];
        table.end_leases().await;
        let mut transaction = table.pool.begin().await.unwrap();
        assert!(checkpoint_in(&mut transaction, old, "1").await.unwrap());
        let store = table.store.clone();
        let claiming = tokio::spawn(async move { store.claim(&told(&[id]), &limits()).await.unwrap() });
        table.until_waiting(1).await;
        if commits {
            transaction.commit().await.unwrap()
        } else {
            transaction.rollback().await.unwrap()
        }
        let claimed = claiming.await.unwrap().remove(0).unwrap();
        assert_eq!(claimed.claim.claims, 2);
        assert_eq!(table.left_to(id).await, commits.then(|| "1".to_owned()));
        assert!(!table.leave(old, "2").await);
    }
}

#[tokio::test]
async fn nothing_crosses_canvases() {
    let table = Table::new().await;
    let id = table.add(1).await[0];
    let claim = table.claim(&[id]).await[0];
    let other = canvas(7);
    assert!(!table.store.store_checkpoint(other, claim, "1").await.unwrap());
    assert!(table.leave(claim, "2").await);
    assert_eq!(table.store.checkpoint(other, id).await.unwrap(), None);
    table.store.drop_checkpoint(other, id).await.unwrap();
    assert_eq!(table.left_to(id).await, some("2"));
    table.store.drop_checkpoint(CanvasId::DEFAULT, id).await.unwrap();
    assert_eq!(table.left_to(id).await, some("2"), "its event is still there");
}

/// A worker that was killed, or a target's, leaves checkpoints of events that have ended.
#[tokio::test]
async fn the_expiry_deletes_what_no_event_has() {
    let table = Table::new().await;
    let ids = table.add(3).await;
    let claims = table.claim(&ids).await;
    for claim in &claims {
        assert!(table.leave(*claim, "1").await);
    }
    assert_eq!(table.store.complete(&claims[..1]).await.unwrap(), [true]);
    assert!(table.store.die(claims[1], Cause::Retries, None, false).await.unwrap());
    assert_eq!((table.left_to(ids[0]).await, table.left_to(ids[1]).await), (None, some("1")));
    table.store.expire(ExpiryPart::Checkpoints, Retention::default()).await.unwrap();
    assert_eq!(table.checkpoints().await, 3, "they are new");
    table.expire_checkpoints().await;
    assert_eq!(table.checkpoints().await, 2);
    assert_eq!((table.left_to(ids[1]).await, table.left_to(ids[2]).await), (some("1"), some("1")));

    let back =
        table.store.redrive_page(&DeadFilter::default(), false, (0, 10), &tester()).await.unwrap().back;
    assert_eq!(back.len(), 1);
    let again = table.claim(&[ids[1]]).await[0];
    assert_eq!((again.claims, table.left_to(ids[1]).await), (2, some("1")));
    assert!(table.store.die(again, Cause::Retries, None, false).await.unwrap());
    let all = DeadFilter::default();
    assert_eq!(table.store.delete_dead_page(&all, false, &tester()).await.unwrap(), 1);
    assert!(table.store.complete(&claims[2..]).await.unwrap()[0]);
    table.expire_checkpoints().await;
    assert_eq!(table.checkpoints().await, 0);
}

/// An id of the caller's choice may be emitted again after it was forgotten.
#[tokio::test]
async fn a_later_event_with_the_same_id_begins_anew() {
    let table = Table::new().await;
    let id = table.add(1).await[0];
    let claim = table.claim(&[id]).await[0];
    assert!(table.leave(claim, "1").await);
    table.run("update wakeq.checkpoints set stored_at = now() - interval '1 hour'").await;
    assert_eq!(table.left_to(id).await, None, "it is of an event before");
    assert!(table.leave(claim, "2").await);
    assert_eq!((table.left_to(id).await, table.checkpoints().await), (some("2"), 1));
}

/// An event that is replaced by another emit has another value.
#[tokio::test]
async fn a_replaced_event_begins_anew() {
    let table = Table::new().await;
    let unique = || Unique::key("k").unwrap().until_ended();
    let first = keyed(unique());
    assert!(matches!(table.store.insert_unique(&first).await.unwrap(), InsertOutcome::New { .. }));
    let claim = table.claim(&[first.id]).await[0];
    assert!(table.leave(claim, "1").await);
    let retry = Retry { claim, retries: 1, delay: Duration::from_secs(60), error: "no".into() };
    assert_eq!(table.store.retry(&[Arc::new(retry)]).await.unwrap(), [true]);
    assert_eq!(table.left_to(first.id).await, some("1"));
    let kept = keyed(unique());
    table.store.insert_unique(&kept).await.unwrap();
    assert_eq!(table.left_to(first.id).await, some("1"), "it was kept");
    let replaced = keyed(unique().on_conflict(OnConflict::Replace));
    table.store.insert_unique(&replaced).await.unwrap();
    assert_eq!((table.left_to(first.id).await, table.left().await), (None, 1));
}

/// Their bytes count for the quota, whether or not their events are still there.
#[tokio::test]
async fn bytes_count_for_the_quota_of_the_canvas() {
    let table = Table::new().await;
    table
        .run(
            "insert into wakeq.checkpoints (canvas_id, event_id, claims, value)
             select canvas, gen_random_uuid(), 1, '\"' || repeat('x', 998) || '\"'
               from unnest(array['00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000007'::uuid]) canvas,
                    generate_series(1, case canvas when '00000000-0000-0000-0000-000000000000'::uuid then 40 else 700 end)",
        )
        .await;
    let used = async |canvas: CanvasId| {
        let quotas = table.store.quotas(canvas).await.unwrap();
        quotas.iter().find(|of| of.quota == crate::event::Quota::EventBytes).unwrap().used
    };
    assert_eq!((used(CanvasId::DEFAULT).await, used(canvas(7)).await), (40_000, 700_000));
}

//! Runs under limits that hand their places on in the statement that ends them.

use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::crowds::{FEW, MANY};
use super::limits::{of_key, places};
use super::{Table, limits};
use crate::event::{Claim, EventId, HeldLimit, NewLimit, Notification, Rate};
use crate::store::{ClaimedEvent, HandedOn};

const KEY: &str = "customer:7";

impl Table {
    /// Ends these runs as a worker does that can start others.
    async fn hand_on(&self, running: &[ClaimedEvent]) -> HandedOn {
        let claims: Vec<Claim> = running.iter().map(|event| event.claim).collect();
        let held = running.iter().flat_map(|event| event.held.as_deref().unwrap_or_default());
        let freed: Vec<HeldLimit> = held.cloned().collect();
        self.store.hand_on(&claims, &freed, Some(&limits())).await.unwrap()
    }

    async fn put_aside(&self) -> i64 {
        self.number("select count(*) from wakeq.limit_waits where woken_at is null").await
    }
}

fn claimed(handed: &HandedOn) -> Vec<EventId> {
    sorted(handed.claimed.iter().map(|event| event.claim.id).collect())
}

fn woken(handed: &HandedOn) -> Vec<Notification> {
    handed.woken.iter().map(|woken| woken.notification).collect()
}

fn ids(told: &[Notification]) -> Vec<EventId> {
    sorted(told.iter().map(|notification| notification.id).collect())
}

fn sorted(mut ids: Vec<EventId>) -> Vec<EventId> {
    ids.sort_unstable();
    ids
}

/// As many run as before, in the order in which they were due, and those of the other canvas stay
/// as they are.
#[tokio::test]
async fn the_places_of_what_has_ended_are_those_of_the_first_in_the_line() {
    let table = Table::new().await;
    for canvas in [MANY, FEW] {
        table.limit(canvas, "customer", places(2)).await;
    }
    let (told, others) = (table.add_keyed(MANY, &[KEY], 6).await, table.add_keyed(FEW, &[KEY], 4).await);
    assert_eq!(table.claim_some(&others).await.len(), 2);
    let mut running = table.claim_some(&told).await;
    for round in 1..=2 {
        let handed = table.hand_on(&running).await;
        assert_eq!(handed.ended, [true, true]);
        assert_eq!((claimed(&handed), woken(&handed)), (ids(&told[2 * round..2 * round + 2]), vec![]));
        let held = handed.claimed.iter().map(|event| event.held.as_deref().unwrap().to_vec());
        assert_eq!(held.collect::<Vec<_>>(), vec![vec![of_key(MANY, KEY)]; 2]);
        assert_eq!(table.live().await, 4);
        running = handed.claimed;
    }
    let handed = table.hand_on(&running).await;
    assert_eq!((claimed(&handed), woken(&handed), table.live().await), (vec![], vec![], 2));
    assert_eq!(table.put_aside().await, 2, "of the other canvas");
}

/// A claim that was lost ends nothing and hands nothing on. Nor does one whose row somebody has
/// locked, for which nobody waits.
#[tokio::test]
async fn a_run_that_has_lost_its_claim_hands_nothing_on() {
    let table = Table::new().await;
    table.limit(MANY, "customer", places(1)).await;
    let told = table.add_keyed(MANY, &[KEY], 2).await;
    let mut running = table.claim_some(&told).await;
    let claim = running[0].claim;
    running[0].claim = Claim { nonce: claim.nonce ^ 1, ..claim };
    let handed = table.hand_on(&running).await;
    assert_eq!((handed.ended[0], claimed(&handed), woken(&handed)), (false, vec![], vec![]));
    running[0].claim = claim;
    let mut other = table.pool.begin().await.unwrap();
    let lock = format!("select from wakeq.events_v2 where id = '{}' for update", claim.id.0);
    sqlx::query(AssertSqlSafe(lock)).execute(&mut *other).await.unwrap();
    let handed = table.hand_on(&running).await;
    assert_eq!((handed.ended[0], claimed(&handed), woken(&handed)), (false, vec![], vec![]));
    other.rollback().await.unwrap();
    assert_eq!(claimed(&table.hand_on(&running).await), ids(&told[1..]));
}

/// A lowered limit starts nothing until fewer run than it allows, and a raised one wakes those that
/// no run that has ended makes a slot for.
#[tokio::test]
async fn a_limit_that_was_changed_counts_for_what_is_handed_on() {
    let table = Table::new().await;
    table.limit(MANY, "customer", places(3)).await;
    let told = table.add_keyed(MANY, &[KEY], 8).await;
    let running = table.claim_some(&told).await;
    table.limit(MANY, "customer", places(1)).await;
    for at in 0..2 {
        let handed = table.hand_on(&running[at..=at]).await;
        assert_eq!((claimed(&handed), woken(&handed)), (vec![], vec![]));
    }
    let handed = table.hand_on(&running[2..]).await;
    assert_eq!((claimed(&handed), woken(&handed)), (ids(&told[3..4]), vec![]));
    table.limit(MANY, "customer", places(3)).await;
    let handed = table.hand_on(&handed.claimed).await;
    assert_eq!((claimed(&handed), woken(&handed)), (ids(&told[4..5]), told[5..7].to_vec()));
}

/// What this worker may not claim is woken instead: of a handler that is paused or unknown here, or
/// under a rate.
#[tokio::test]
async fn an_event_that_cannot_be_claimed_here_is_woken() {
    let pause = "insert into wakeq.scheduling_rules (rule_type, canvas_id, handler_name, event_space)
                 select 'pause', canvas_id, 'known', 'WORKER' from wakeq.limits";
    let unknown = "update wakeq.events_v2 set name = 'unknown' where locked_at is null";
    for change in [pause, unknown] {
        let table = Table::new().await;
        table.limit(MANY, "customer", places(1)).await;
        let told = table.add_keyed(MANY, &[KEY], 2).await;
        let running = table.claim_some(&told).await;
        table.run(change).await;
        let handed = table.hand_on(&running).await;
        assert_eq!((claimed(&handed), woken(&handed)), (vec![], told[1..].to_vec()), "{change}");
    }
    let table = Table::new().await;
    table.limit(MANY, "customer", places(1)).await;
    let told = table.add_keyed(MANY, &[KEY], 2).await;
    let running = table.claim_some(&told).await;
    let rate = NewLimit { rate: Some(Rate::new(1_000, Duration::from_secs(1))), ..NewLimit::default() };
    table.limit(MANY, "handler:WORKER/known", rate).await;
    let handed = table.hand_on(&running).await;
    assert_eq!((claimed(&handed), woken(&handed)), (vec![], told[1..].to_vec()));
}

/// An event with two limits is handed on if both have a place for it and nobody else comes before
/// it. It may need a limit that somebody else has locked, for which nobody waits.
#[tokio::test]
async fn an_event_with_two_limits_needs_a_place_of_both() {
    let table = Table::new().await;
    for name in ["customer", "handler:WORKER/known"] {
        table.limit(MANY, name, places(1)).await;
    }
    let first = table.add_keyed(MANY, &[KEY], 1).await;
    let second = table.add_keyed(MANY, &["customer:8"], 2).await;
    let running = table.claim_some(&first).await;
    assert_eq!(table.claim_some(&second).await.len(), 0);
    let mut other = table.pool.begin().await.unwrap();
    let lock = "select from wakeq.limit_states where name = 'customer:8' for update";
    sqlx::query(lock).execute(&mut *other).await.unwrap();
    let handed = table.hand_on(&running).await;
    assert_eq!((handed.ended[0], claimed(&handed), woken(&handed)), (true, vec![], second[..1].to_vec()));
    other.rollback().await.unwrap();
    let running = table.claim_some(&second[..1]).await;
    let handed = table.hand_on(&running).await;
    assert_eq!((claimed(&handed), woken(&handed)), (ids(&second[1..]), vec![]));
    assert_eq!(handed.claimed[0].held.as_deref().unwrap().len(), 2);
    assert_eq!(table.live().await, 1);
}

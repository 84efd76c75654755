//! Facets with a limit, in which copies wait without a notification: none of them is forgotten,
//! whatever happens to it.

use std::collections::HashSet;
use std::time::Duration;

use super::desk::{CLOSED, Desk, OPENED};
use super::queues::{canvas, emails, emit_emails, event, take};
use crate::event::{Cause, NewEvent, Notification, Turn};
use crate::store::ClaimedEvent;
use crate::store::FacetSettings;

/// A copy that turns passed while it was paused finds its facet full when the pause is lifted: its
/// notification is acknowledged, and the run that makes room finds the copy.
#[tokio::test]
async fn copies_that_met_a_full_facet_are_recalled() {
    let mut desk = Desk::new(1).await;
    let [paused, other] = [OPENED, CLOSED].map(|name| event(canvas(1), "email_event", name));
    let more = event(canvas(1), "email_event", CLOSED);
    let copies = desk.emit(vec![paused, other, more]).await;
    let stranger = desk.emit(vec![event(canvas(2), "email_event", OPENED)]).await;
    desk.pause(1, OPENED).await;
    assert_eq!(desk.table.store.park(&copies[..1]).await.unwrap(), [true]);
    let told = |id| Notification::new(id, canvas(1));
    desk.bag.clear();
    desk.deliver(told(copies[1])).await;
    assert_eq!(desk.running[0].event.claim.id, copies[1], "the head has passed the first");
    desk.lift(1, OPENED, true).await;
    assert_eq!(std::mem::take(&mut desk.bag), [told(copies[0])]);
    let turn = async |desk: &Desk, id| {
        desk.table.store.load(&[id]).await.unwrap().pop().flatten().unwrap().schedule.turn
    };
    assert_eq!((turn(&desk, copies[0]).await, turn(&desk, copies[2]).await), (Turn::Passed, Turn::Held));
    assert_eq!(turn(&desk, stranger[0]).await, Turn::First);
    assert_eq!(take(&desk.table.store, 1).await[0].claim.id, stranger[0]);
    desk.deliver(told(copies[0])).await;
    assert_eq!(std::mem::take(&mut desk.bag), [told(copies[0])], "it is looked at again");
    desk.deliver(told(copies[0])).await;
    assert_eq!(desk.bag, [], "held, and answered");
    desk.complete(0).await;
    let next = std::mem::take(&mut desk.bag);
    assert_eq!(next.len(), 1);
    desk.deliver(next[0]).await;
    assert_eq!(desk.running[0].event.claim.id, copies[0], "before what came later");
    desk.bag.clear();
    desk.complete(0).await;
    assert_eq!(std::mem::take(&mut desk.bag), [told(copies[2])]);
}

/// A copy whose owner died has no notification if it was taken by another's. A search for room
/// finds it, and a turn recalls it.
#[tokio::test]
async fn copies_of_dead_owners_are_found_again() {
    let mut desk = Desk::new(2).await;
    let copies = desk.emit((0..4).map(|_| event(canvas(1), "email_event", OPENED)).collect()).await;
    desk.bag.clear();
    let running = take(&desk.table.store, 2).await;
    assert_eq!(running[0].claim.id, copies[0]);
    let lost = "update wakeq.events_v2 set locked_at = locked_at - interval '1 h' where claims = 1 and id = (
                    select id from wakeq.events_v2 where claims = 1 order by delay_until, id limit 1)";
    assert_eq!(desk.table.run(lost).await, 1);
    let mut found = HashSet::new();
    for _ in 0..100 {
        desk.minute().await;
        found.extend(desk.bag.drain(..).map(|told| told.id));
    }
    assert_eq!(found, HashSet::from([copies[0], copies[2], copies[3]]));
    assert_eq!(take(&desk.table.store, 1).await[0].claim.id, copies[0], "first in, first out");
}

/// Many copies at the head of a facet may be unable to run: the minute's pass looks past them.
#[tokio::test]
async fn the_minutes_pass_looks_past_blocked_copies() {
    let mut desk = Desk::new(1).await;
    let on = |object: &str| NewEvent {
        object: Some(object.parse().unwrap()),
        ..event(canvas(1), "email_event", OPENED)
    };
    desk.emit((0..300).map(|_| on("mail:1")).collect()).await;
    let free = desk.emit(vec![event(canvas(1), "email_event", OPENED)]).await;
    desk.bag.clear();
    let first = take(&desk.table.store, 1).await.remove(0);
    assert!(desk.table.store.die(first.claim, Cause::Retries, Some("no"), true, None).await.unwrap());
    desk.ended_with(&first, true);
    while !desk.ended.is_empty() {
        desk.after(0).await;
    }
    assert_eq!(desk.memory, []);
    assert_eq!(desk.bag, [], "the object stands still, and hides the rest");
    let (room, more) = desk.table.store.room_in_facets(None).await.unwrap();
    assert_eq!((room, more), (vec![Notification::new(free[0], canvas(1))], None));
}

/// A copy whose notification was acknowledged, because its facet was full, comes under a pause, and
/// turns pass it. Lifting the pause wakes what was parked, which it was not: its promise does.
#[tokio::test]
async fn copies_passed_over_under_a_rule_keep_a_promise() {
    let mut desk = Desk::new(1).await;
    let [first, held, last] = [OPENED, CLOSED, OPENED].map(|name| event(canvas(1), "email_event", name));
    let copies = desk.emit(vec![first, held, last]).await;
    desk.bag.clear();
    for copy in &copies[..2] {
        desk.deliver(Notification::new(*copy, canvas(1))).await;
    }
    assert_eq!((desk.running.len(), desk.bag.len()), (1, 0), "the second was held, and answered");
    desk.pause(1, CLOSED).await;
    desk.complete(0).await;
    let told = desk.bag.remove(0);
    assert_eq!(told.id, copies[2]);
    desk.deliver(told).await;
    desk.finish(0).await;
    desk.ended.clear();
    desk.lift(1, CLOSED, true).await;
    assert_eq!(desk.bag, []);
    desk.check("the pause").await;
}

/// A locked row costs no other canvas a turn, and its own canvas no more than itself.
#[tokio::test]
async fn a_locked_copy_costs_only_itself() {
    for in_flight_max in [None, Some(1)] {
        let table = emails(FacetSettings { weight: None, in_flight_max }).await;
        let locked = emit_emails(&table.store, canvas(1), 2).await;
        let others =
            [emit_emails(&table.store, canvas(2), 1).await, emit_emails(&table.store, canvas(3), 1).await];
        let mut stranger = table.pool.begin().await.unwrap();
        let lock = sqlx::query("select from wakeq.events_v2 where id = $1 for update").bind(locked[0].0);
        lock.execute(&mut *stranger).await.unwrap();
        let ids =
            |taken: Vec<ClaimedEvent>| taken.into_iter().map(|event| event.claim.id).collect::<HashSet<_>>();
        let all = HashSet::from([locked[1], others[0][0], others[1][0]]);
        let taken = take(&table.store, 3).await;
        assert_eq!(ids(taken.clone()), all, "{in_flight_max:?}");
        assert_eq!(take(&table.store, 3).await.len(), 0);
        stranger.rollback().await.unwrap();
        let claims: Vec<_> = taken.iter().map(|event| event.claim).collect();
        assert_eq!(table.store.complete(&claims).await.unwrap(), [true; 3]);
        if in_flight_max.is_some() {
            let room = table.store.room_in_facets(None).await.unwrap().0;
            assert_eq!(room, [Notification::new(locked[0], canvas(1))], "nobody else knows of it");
        }
        // Otherwise its own notification, which was not acknowledged, recalls it.
        table.store.announce(&locked[..1]).await.unwrap();
        assert_eq!(ids(take(&table.store, 3).await), HashSet::from([locked[0]]));
    }
}

/// Copies that were paused and released in a facet with a limit of two take as long as two at once
/// take, and not as long as their promises.
// Shows: DRV-24
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn an_unpaused_facet_is_processed_at_its_limit() {
    const COUNT: usize = 60;
    const CAP: u32 = 2;
    let mut desk = Desk::new(CAP).await;
    desk.pause(1, OPENED).await;
    let held = desk.emit((0..COUNT).map(|_| event(canvas(1), "email_event", OPENED)).collect()).await;
    let free = desk.emit(vec![event(canvas(1), "email_event", CLOSED)]).await;
    assert_eq!(desk.table.store.park(&held).await.unwrap().len(), COUNT);
    desk.bag.retain(|told| told.id == free[0]);
    let told = desk.bag.remove(0);
    desk.deliver(told).await;
    desk.complete(0).await;
    desk.lift(1, OPENED, true).await;
    assert_eq!(desk.bag.len(), COUNT);
    let (second, mut seconds) = (Duration::from_secs(1), 0);
    while desk.done <= COUNT {
        // Each notification is processed once or twice, and then acknowledged or run.
        let mut looks = 0;
        while !desk.bag.is_empty() && looks < 10 * COUNT {
            looks += 1;
            let told = desk.bag.remove(0);
            desk.deliver(told).await;
        }
        desk.table.store.advance(second).await.unwrap();
        seconds += 1;
        assert!(
            seconds <= COUNT.div_ceil(CAP as usize) + 2,
            "{} of {COUNT} after {seconds} s",
            desk.done - 1
        );
        for _ in 0..desk.running.len() {
            desk.complete(0).await;
        }
    }
    println!("{COUNT} copies let go on in a facet of {CAP}, a second each: {seconds} s");
}

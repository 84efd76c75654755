//! What comes in while the shop is open: orders, pictures, carts that are left behind, and now and
//! then a new catalogue. Which events a step brings follows from its number.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use wakeq::{Event, EventError, Queue};

use super::goods::{BRANCH, BUSY_CUSTOMER, Order, Picture, SHOP};
use super::opening;
use crate::screen;

/// The time between two steps.
const STEP: Duration = Duration::from_millis(700);
/// When the first order was placed, in seconds since 1970: 2026 began.
const FIRST_ORDER_AT: u64 = 1_767_225_600;
/// Numbers of orders per second, more than come in: after a restart they are new ones.
const ORDERS_EACH_S: f64 = 0.5;

/// How often something happens, in steps.
const ORDER: u64 = 3;
const PICTURE: u64 = 6;
const CART: u64 = 30;
/// Twenty pictures less than what can be resized until the next time.
const PICTURES: u64 = 171;
const CATALOGUE: u64 = 5143;

/// How many pictures the busy customer sends at once.
const PICTURES_AT_ONCE: u64 = 60;
/// After how long somebody is reminded of a cart.
const CART_AFTER: Duration = Duration::from_secs(600);

/// Lets customers come until it is dropped.
pub(crate) async fn come(queue: Queue) {
    let mut ticks = interval(STEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let first = next_order();
    for step in 0_u64.. {
        ticks.tick().await;
        if let Err(error) = visit(&queue, first, step).await {
            screen::line(&format!("not emitted: {error:#}"));
        }
    }
}

/// The number of an order that is placed now.
fn next_order() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let open_for = now.saturating_sub(Duration::from_secs(FIRST_ORDER_AT));
    (open_for.as_secs_f64() * ORDERS_EACH_S) as u64
}

async fn visit(queue: &Queue, first: u64, step: u64) -> anyhow::Result<()> {
    let events = events_of(first, step)?;
    if !events.is_empty() {
        queue.emit_all(events).await?;
    }
    if step % CATALOGUE == CATALOGUE - 1 {
        opening::import(queue, &format!("import:catalogue-{}", first + step)).await?;
    }
    Ok(())
}

/// What a step brings. Every fifth order is one of the branch.
fn events_of(first: u64, step: u64) -> Result<Vec<Event>, EventError> {
    let mut events = Vec::new();
    let number = first + step / ORDER;
    if step.is_multiple_of(ORDER) {
        let canvas = if number.is_multiple_of(5) { BRANCH } else { SHOP };
        events.push(Order::numbered(number).event("confirm-order", canvas)?);
    }
    if step % PICTURE == 1 {
        events.push(Picture::numbered(number).event()?);
    }
    if step % CART == 2 {
        events.push(cart(number)?.after(CART_AFTER)?);
    }
    if step % PICTURES == PICTURES - 1 {
        events.extend(pictures(number, PICTURES_AT_ONCE)?);
    }
    Ok(events)
}

/// The reminder of a cart that was left behind.
pub(super) fn cart(number: u64) -> Result<Event, EventError> {
    let Order { customer, total_cents, .. } = Order::numbered(number);
    let cart = json!({"customer": customer, "total_cents": total_cents});
    Event::new("remind-cart", &cart)?.tag(&format!("customer:{customer}"))
}

/// Pictures that the busy customer sends at once.
pub(super) fn pictures(first: u64, count: u64) -> Result<Vec<Event>, EventError> {
    (first..first + count).map(|number| Picture::of(BUSY_CUSTOMER, number).event()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An order is five events, and one copy in a queue for each of the first two.
    const EVENTS_OF_AN_ORDER: usize = 7;

    #[test]
    fn an_hour_brings_a_few_events_a_second_and_no_order_twice() {
        let steps = Duration::from_secs(3600).as_millis() / STEP.as_millis();
        // A catalogue is imported once in the hour.
        let (mut events, mut orders) = (opening::CATALOGUE as usize, 0);
        for step in 0..steps as u64 {
            let of_step = events_of(7000, step).unwrap();
            events += of_step.len();
            orders += usize::from(step.is_multiple_of(ORDER));
        }
        events += orders * (EVENTS_OF_AN_ORDER - 1);
        assert!((3 * 3600..6 * 3600).contains(&events), "{events}");
        assert!((orders as f64) < 3600.0 * ORDERS_EACH_S, "{orders} orders would have numbers of later ones");
    }

    /// Of two at a time, each three seconds on average.
    #[test]
    fn what_the_busy_customer_sends_is_resized_before_the_next_time() {
        let until_next = STEP * PICTURES as u32;
        let takes = Duration::from_secs(3) * PICTURES_AT_ONCE as u32 / 2;
        assert!(takes < until_next && takes * 3 > until_next * 2, "{takes:?} of {until_next:?}");
    }
}

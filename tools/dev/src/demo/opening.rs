//! What a database gets in which the shop has never been open: what operators have set, and the
//! events of a day on which much went wrong.
//!
//! The door is its last event, so a shop that was opened halfway is opened once more.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use serde_json::json;
use wakeq::crons::{CronSchedule, NewCron};
use wakeq::limits::{NewLimit, Rate};
use wakeq::queues::{FacetSettings, NewQueue};
use wakeq::{Actor, Admin, Event, EventError, HandlerScope, Name, Queue, Stop, Timestamp};

use super::customers::{cart, pictures};
use super::goods::{ARTICLES, DECLINED, MISCOUNTED, MISSPELLED, Order, SHOP, SILENT};

/// The object whose event says that the shop is open.
pub(super) const DOOR: &str = "shop:door";

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// For how long the reminders are paused.
const PAUSE: Duration = Duration::from_secs(6 * 3600);
/// The articles of a catalogue, of which twenty are imported at once and then two a minute.
pub(super) const CATALOGUE: u32 = 120;

/// The numbers of the orders of the first day, which are before all others.
const GOOD_ORDERS: Range<u64> = 1001..1031;
const BAD_ORDERS: u64 = 1101;

/// Sets and emits all of it.
pub(super) async fn furnish(admin: &Admin, queue: &Queue) -> anyhow::Result<()> {
    let mia = Actor::user("mia");
    set_limits(admin, &mia).await?;
    put_crons(admin, &mia).await?;
    register_analytics(admin, &mia).await?;
    let stop = Stop {
        reason: Some("The texts promise last month's discount, mia corrects them (SHOP-812)".to_owned()),
        until: Some(Timestamp::from(SystemTime::now() + PAUSE)),
    };
    admin.pause(&HandlerScope::worker(SHOP, "remind-cart")?, &mia, &stop).await?;

    stock(queue).await?;
    miscount(queue).await?;
    queue.emit_all(first_day()?).await?;
    import(queue, "import:spring-catalogue").await?;
    let opened = Order::numbered(GOOD_ORDERS.start).event("send-mail", SHOP)?;
    queue.emit_on(DOOR, opened, Vec::new(), Some(r#"{"open": true}"#)).await?;
    Ok(())
}

/// Two pictures of a customer at a time, few mails at once, and catalogues slowly.
async fn set_limits(admin: &Admin, actor: &Actor) -> anyhow::Result<()> {
    let rate = |count, burst| Some(Rate { burst, ..Rate::new(count, MINUTE) });
    for (name, concurrency, rate) in [
        ("customer", Some(2), None),
        ("handler:WORKER/send-mail", Some(8), rate(240, 40)),
        ("handler:WORKER/import-article", None, rate(2, 20)),
    ] {
        let limit = NewLimit { concurrency, rate, ..NewLimit::default() };
        admin.put_limit(SHOP, &name.parse()?, &limit, actor).await?;
    }
    Ok(())
}

async fn put_crons(admin: &Admin, actor: &Actor) -> anyhow::Result<()> {
    for (name, expression, zone, value) in [
        ("nightly-report", "0 2 * * *", "Europe/Berlin", json!({"to": "accounting@shop.example"})),
        ("restock", "30 7 * * MON-FRI", "America/New_York", json!({"below": 20})),
        ("exchange-rates", "* * * * *", "Asia/Tokyo", json!(["EUR", "USD", "JPY"])),
    ] {
        let cron = NewCron::new(name, CronSchedule::new(expression, zone)?, &value)?;
        admin.put_cron(SHOP, &cron, actor).await?;
    }
    Ok(())
}

/// A queue that counts orders, in which the shop has more turns than its branch.
async fn register_analytics(admin: &Admin, actor: &Actor) -> anyhow::Result<()> {
    let name: Name = "analytics".parse()?;
    let patterns = vec![":WORKER:(confirm-order|charge-card)$".parse()?];
    let queue = NewQueue { patterns, tenant_visible: true, ..NewQueue::default() };
    admin.put_queue(&name, &queue, actor).await?;
    let facet = FacetSettings { weight: Some(3), ..FacetSettings::default() };
    admin.set_facet(&name, SHOP, facet, actor).await?;
    Ok(())
}

/// The articles, as objects with a state.
async fn stock(queue: &Queue) -> anyhow::Result<()> {
    for (article, name, cents) in ARTICLES {
        let booked = Order { article, ..Order::numbered(GOOD_ORDERS.start) };
        let state = json!({"name": name, "cents": cents, "stock": 50}).to_string();
        queue.emit_on(&booked.object(), booked.event("book-stock", SHOP)?, Vec::new(), Some(&state)).await?;
    }
    Ok(())
}

/// An article of which more is sold than there is. What is booked later waits until somebody has
/// counted.
async fn miscount(queue: &Queue) -> anyhow::Result<()> {
    let booked = |order, quantity| {
        Order { article: MISCOUNTED, quantity, ..Order::numbered(order) }.event("book-stock", SHOP)
    };
    let later = [booked(1202, 1)?, booked(1203, 2)?, booked(1204, 1)?];
    let state = json!({"name": "Lantern", "cents": 4200, "stock": 50}).to_string();
    let object = format!("article:{MISCOUNTED}");
    queue.emit_on(&object, booked(1201, 60)?, later.into(), Some(&state)).await?;
    Ok(())
}

/// Orders that go well, and others that do not; pictures, mails and reminders for later.
fn first_day() -> Result<Vec<Event>, EventError> {
    let mut events = pictures(1, 60)?;
    for number in GOOD_ORDERS {
        events.push(Order::numbered(number).event("confirm-order", SHOP)?);
    }
    for (number, card) in (BAD_ORDERS..).zip([DECLINED; 7].into_iter().chain([SILENT; 4])) {
        let order = Order { card: card.to_owned(), ..Order::numbered(number) };
        events.push(order.event("charge-card", SHOP)?);
    }
    for number in BAD_ORDERS..BAD_ORDERS + 5 {
        let order = Order::numbered(number);
        let email = format!("{}@{MISSPELLED}", order.customer);
        events.push(Order { email, ..order }.event("send-mail", SHOP)?);
    }
    for hours in 1..=12_u32 {
        let order = Order::numbered(GOOD_ORDERS.start + u64::from(hours));
        events.push(order.event("send-mail", SHOP)?.tag("campaign:spring")?.after(hours * HOUR)?);
        events.push(cart(order.order)?.after(hours * MINUTE)?);
    }
    Ok(events)
}

/// Begins a batch: an event for each article of a catalogue, and one at the end.
pub(super) async fn import(queue: &Queue, name: &str) -> anyhow::Result<()> {
    let batch = queue.batch(name)?;
    if !batch.open(Event::new("catalogue-imported", name)?).await? {
        return Ok(()); // It has begun before.
    }
    let article = |row: u32| Event::new("import-article", &json!({"row": row}))?.tag(name)?.batch(name);
    queue.emit_all((1..=CATALOGUE).map(article).collect::<Result<_, EventError>>()?).await?;
    batch.close().await?;
    Ok(())
}

//! What the shop does with its events. One order is a story of five: it is confirmed, the card is
//! charged, and then the receipt is sent, the customer noted and the stock booked.

use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};
use wakeq::events::Keep;
use wakeq::workers::Completion;
use wakeq::{Execution, HandlerError, HandlerResult, Handlers, Queue, Route};

use super::CRM;
use super::goods::{
    DECLINED, GREYLISTING, MISSPELLED, Order, Picture, SILENT, SLOW, UNKNOWN_FORMAT, scattered,
};
use crate::samples::RETRY;
use crate::screen;

const HOUR: Duration = Duration::from_secs(3600);
/// More than the shop has of any article.
const STOCK_MAX: u32 = 50;

/// Adds the handlers of the shop. The CRM is an HTTP target.
pub(crate) fn handlers(handlers: Handlers, queue: Queue) -> Handlers {
    let route = |name| Route::new(name).retry(RETRY);
    let cron = |name| Route::new(name).module("CRON").keep(Keep::all(24 * HOUR));
    handlers
        .on_value(route("send-mail").timeout(Duration::from_secs(10)), send_mail)
        .on_value(route("book-stock").halt_on_death(), book_stock)
        .on_value(route("resize-image").keep(Keep::all(HOUR)), resize_image)
        .on("remind-cart", brief)
        .on("import-article", brief)
        .on("catalogue-imported", catalogue_imported)
        .on(cron("nightly-report"), report)
        .on(cron("exchange-rates"), report)
        .on(cron("restock"), report)
        .on_queue(Route::new("analytics").concurrency(8), brief)
        .state(queue)
        .on_value(route("confirm-order"), confirm_order)
        .on_value(route("charge-card").keep(Keep::all(HOUR)), charge_card)
        .into()
}

async fn confirm_order(queue: Queue, order: Order, event: Execution) -> HandlerResult {
    work(order.order, 40..160).await;
    queue.emit(order.event("charge-card", event.address.scope.canvas)?).await?;
    Ok(())
}

/// The card says what happens.
async fn charge_card(queue: Queue, order: Order, event: Execution) -> HandlerResult<Completion> {
    let (number, canvas) = (order.order, event.address.scope.canvas);
    let attempt = scattered(number + u64::from(event.attempt));
    work(attempt, 150..900).await;
    let charge = format!("ch_{attempt:016x}");
    match (order.card.as_str(), event.attempt) {
        (DECLINED, _) => {
            let error = format!("the card of order {number} was declined: insufficient funds ({charge})");
            return Err(HandlerError::dead(error));
        }
        (SILENT, _) | (SLOW, 1) => {
            let waited = 30_000 + attempt % 100;
            let error = format!("no answer from payments.example:443 within {waited} ms");
            return Err(HandlerError::operational(error));
        }
        _ => {}
    }
    queue
        .emit_all(vec![
            order.event("send-mail", canvas)?,
            order.event(CRM, canvas)?,
            order.event("book-stock", canvas)?.on(&order.object())?,
        ])
        .await?;
    Completion::with_result(&json!({"charge": charge, "cents": order.total_cents}))
}

async fn send_mail(order: Order, event: Execution) -> HandlerResult {
    work(order.order + 1, 60..250).await;
    let Order { order: number, email, .. } = &order;
    if email.is_empty() {
        return Err(HandlerError::value(format!(
            "order {number} was placed at the counter: no receipt by mail"
        )));
    }
    if email.ends_with(MISSPELLED) {
        return Err(HandlerError::dead(format!("550 5.1.2 no mail server is known for {email:?}")));
    }
    if email.ends_with(GREYLISTING) && event.attempt == 1 {
        let error = format!("451 4.7.1 greylisted, come back in {} s", 30 + number % 30);
        return Err(HandlerError::operational(error));
    }
    Ok(())
}

/// Halts its article if there is less of it than was sold.
async fn book_stock(order: Order, _event: Execution) -> HandlerResult {
    work(order.order + 2, 20..80).await;
    let Order { order: number, article, quantity, .. } = order;
    if quantity > STOCK_MAX {
        return Err(HandlerError::dead(format!(
            "order {number} takes {quantity} of article {article}, of which {STOCK_MAX} are left: count them, \
             then redrive or skip this"
        )));
    }
    Ok(())
}

async fn resize_image(picture: Picture, event: Execution) -> HandlerResult<Completion> {
    let Picture { file, width, .. } = picture;
    if file.ends_with(UNKNOWN_FORMAT) {
        return Err(HandlerError::dead(format!("{file}: the format {UNKNOWN_FORMAT} is not supported")));
    }
    work(seed(&event), 2000..4000).await;
    Completion::with_result(&json!({"file": file, "width": width, "bytes": 90 * width}))
}

/// What is quick and never fails.
async fn brief(event: Execution) -> HandlerResult {
    work(seed(&event), 10..60).await;
    Ok(())
}

async fn catalogue_imported(event: Execution) -> HandlerResult {
    let ended: Value = event.value()?;
    screen::event(event.id, "catalogue-imported", &format!("{} articles were imported", ended["completed"]));
    Ok(())
}

async fn report(event: Execution) -> HandlerResult<Completion> {
    work(seed(&event), 400..1500).await;
    Completion::with_result(&json!({"at": event.due_at.format("%Y-%m-%d %H:%M UTC").to_string()}))
}

/// The random part of an event's id.
fn seed(event: &Execution) -> u64 {
    event.id.0.as_u64_pair().1
}

/// Takes some of these milliseconds, which follow from a number.
async fn work(number: u64, milliseconds: Range<u64>) {
    let Range { start, end } = milliseconds;
    tokio::time::sleep(Duration::from_millis(start + scattered(number) % (end - start))).await;
}

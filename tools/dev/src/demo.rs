//! `cargo dev --demo`: a shop, so that the page has something to show. Orders come in and cards are
//! declined, a customer sends too many pictures, an article is halted because it was miscounted,
//! and somebody has paused the reminders.
//!
//! A handler here only waits, fails and emits, as the value of its event says. The shop must never
//! emit more than a few events a second, so that it can stay open for a day.

mod customers;
mod goods;
mod handlers;
mod opening;

pub(super) use customers::come;
pub(super) use handlers::handlers;

use wakeq::{Admin, Queue};

use crate::endpoint::Endpoint;
use crate::{samples, screen};
use goods::{BRANCH, SHOP};

/// The names of its two workers.
pub(super) const WORKERS: [&str; 2] = ["shop-1", "shop-2"];

/// The handler that is an HTTP target.
const CRM: &str = "sync-crm";

/// Opens the shop. A database in which it has never been open gets all that is in a shop.
pub(super) async fn open(admin: &Admin, queue: &Queue, endpoint: &Endpoint) -> anyhow::Result<()> {
    for canvas in [SHOP, BRANCH] {
        samples::put_target(admin, endpoint, canvas, CRM).await?;
    }
    if queue.object(SHOP, opening::DOOR).await?.is_some() {
        screen::line("The demo's shop is open again, with all that it had");
    } else {
        opening::furnish(admin, queue).await?;
        screen::line("The demo's shop has opened, for the first time in this database");
    }
    Ok(())
}

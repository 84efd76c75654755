//! Urgent events behind 100,000 others, over the Pub/Sub emulator. The others take 10 s each, and
//! have every place of the worker but the one that is kept for urgent events. At first they are of
//! one canvas: the worker then leaves most of them at the broker, where only a subscription of
//! their own keeps urgent notifications from waiting behind them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use wakeq_testbed::PubSub;

use super::deployment::{NIL, OTHER, Server, Site};
use super::receiver::{BUSY, Receiver};
use super::{at_most, figure, until};

/// Four canvases have a quarter of the places each.
const BUSY_CANVASES: [&str; 4] = [
    NIL,
    "11111111-1111-4111-8111-111111111111",
    "22222222-2222-4222-8222-222222222222",
    "33333333-3333-4333-8333-333333333333",
];
const OF_EACH: usize = 25_000;
const PLACES: i64 = 16;
const URGENT: usize = 5;
const RUNNING: &str = "select count(*) from wakeq.events_v2 where name = 'busy' and locked_at is not null";

pub(super) async fn run(site: &Site) -> Result<()> {
    let emulator = PubSub::choose(None).await?.service;
    let (host, places) = (emulator.host(), PLACES.to_string());
    let settings = [
        ("WAKEQ_NOTIFIER", "pubsub"),
        ("PUBSUB_EMULATOR_HOST", host.as_str()),
        ("WAKEQ_URGENT_SUBSCRIPTION", "wakeq-urgent"),
        ("WAKEQ_URGENT_SLOTS", "1"),
        ("WAKEQ_CAPACITY", places.as_str()),
        ("WAKEQ_CANVAS_EVENT_RATE", "1000000"),
    ];
    site.command_with(&["topics", "create"], &settings)?;
    let receiver = Receiver::start().await?;
    for canvas in BUSY_CANVASES {
        // With a limit of its own, one target has all that its canvas may have.
        let options = ["--timeout", "60s", "--concurrency", places.as_str()];
        site.target(canvas, "busy", &receiver.url("busy"), &options)?;
    }
    for canvas in [NIL, OTHER] {
        site.target(canvas, "ok", &receiver.url("ok"), &[])?;
    }
    let server = site.start(&settings).await?;
    server.emit(NIL, "busy", OF_EACH).await?;
    let full = until(2 * BUSY, async || Ok(site.number(RUNNING).await? >= PLACES * 3 / 4)).await?;
    ensure!(full, "a canvas alone has not got three quarters of the places");
    let alone = slowest(&server, &receiver, NIL).await?;
    at_most("seconds until an urgent event of the only canvas had started", alone, 1.0)?;
    for canvas in &BUSY_CANVASES[1..] {
        server.emit(canvas, "busy", OF_EACH).await?;
    }
    let full = until(2 * BUSY, async || Ok(site.number(RUNNING).await? >= PLACES - 1)).await?;
    figure("places that are busy", format!("{} of {PLACES}", site.number(RUNNING).await?));
    ensure!(full, "the others have not got all places");
    for (whose, canvas) in [("another canvas", OTHER), ("a canvas with others", NIL)] {
        let slowest = slowest(&server, &receiver, canvas).await?;
        at_most(&format!("seconds until an urgent event of {whose} had started"), slowest, 1.0)?;
    }
    let left = site.number("select count(*) from wakeq.events_v2 where name = 'busy'").await?;
    ensure!(left > 0, "nothing waited any more");
    Ok(())
}

/// Emits urgent events, each once the one before has arrived.
async fn slowest(server: &Server, receiver: &Receiver, canvas: &str) -> Result<f64> {
    let mut slowest = Duration::ZERO;
    for _ in 0..URGENT {
        let (before, began) = (receiver.taken("ok").len(), Instant::now());
        server.emit_urgent(canvas, "ok").await?;
        let arrived = until(BUSY, async || Ok(receiver.taken("ok").len() > before)).await?;
        ensure!(arrived, "an urgent event has not started within {BUSY:?}");
        let at = receiver.taken("ok").last().copied().unwrap_or(began);
        slowest = slowest.max(at.saturating_duration_since(began));
    }
    Ok(slowest.as_secs_f64())
}

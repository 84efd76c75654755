//! Urgent events behind 100,000 others, over the Pub/Sub emulator. The others take 10 s each, and
//! have every place of the worker but the one that is kept for urgent events. At first they are of
//! one canvas: the worker then leaves most of them at the broker, where only a subscription of
//! their own keeps urgent notifications from waiting behind them.
//!
//! Before that, a flood of urgent events leaves others the share that they are promised.

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
const LEFT: &str = "select count(*) from wakeq.events_v2";
const WORKED_OFF: Duration = Duration::from_secs(600);
const RUNNING: &str = "select count(*) from wakeq.events_v2 where name = 'busy' and locked_at is not null";

/// Events of each class in the flood.
const FLOOD: usize = 10_000;
/// Of four starts at least one is of an event that is not urgent, while any waits.
const SHARE: f64 = 0.25;

pub(super) async fn run(site: &Site) -> Result<()> {
    let emulator = PubSub::choose(None).await?.service;
    let (host, places) = (emulator.host(), PLACES.to_string());
    let settings = |kept: &'static str| {
        [
            ("WAKEQ_NOTIFIER", "pubsub"),
            ("PUBSUB_EMULATOR_HOST", host.as_str()),
            ("WAKEQ_URGENT_SUBSCRIPTION", "wakeq-urgent"),
            ("WAKEQ_URGENT_SLOTS", kept),
            ("WAKEQ_CAPACITY", places.as_str()),
            ("WAKEQ_CANVAS_EVENT_RATE", "1000000"),
        ]
    };
    site.command_with(&["topics", "create"], &settings("0"))?;
    let receiver = Receiver::start().await?;
    flooded(site, &receiver, &settings("0")).await?;
    behind_others(site, &receiver, &settings("1")).await
}

/// Urgent events and others wait when the worker starts, which keeps no place.
async fn flooded(site: &Site, receiver: &Receiver, settings: &[(&str, &str)]) -> Result<()> {
    for handler in ["flood", "usual"] {
        site.target(NIL, handler, &receiver.url(handler), &[])?;
    }
    let api = site.serve(settings).await?;
    api.emit(NIL, "usual", FLOOD).await?;
    api.emit_as(NIL, "flood", FLOOD, true).await?;
    let server = site.start(settings).await?;
    let ended = until(WORKED_OFF, async || Ok(site.number(LEFT).await? == 0)).await?;
    ensure!(ended, "{} events are left after {WORKED_OFF:?}", site.number(LEFT).await?);
    let (flood, usual) = (receiver.taken("flood"), receiver.taken("usual"));
    let share = share(&flood, &usual);
    figure("share of other events under a flood of urgent ones", format!("{share:.3}"));
    // The worker's last starts of a moment arrive in any order.
    ensure!(share >= SHARE * 0.95, "others had {share:.3} of the starts, and are promised {SHARE}");
    server.child.kill_9().await?;
    api.child.kill_9().await?;
    Ok(())
}

/// The share of the others in the starts from when both had begun until most of the flood was over.
fn share(flood: &[Instant], usual: &[Instant]) -> f64 {
    let (Some(first), Some(other)) = (flood.iter().min(), usual.iter().min()) else { return 0.0 };
    let mut ordered = flood.to_vec();
    ordered.sort_unstable();
    let (begin, end) = (*first.max(other), ordered[ordered.len() * 9 / 10]);
    let count = |of: &[Instant]| of.iter().filter(|at| (begin..end).contains(*at)).count();
    let (flood, usual) = (count(flood), count(usual));
    #[allow(clippy::cast_precision_loss)]
    let share = usual as f64 / (flood + usual).max(1) as f64;
    share
}

async fn behind_others(site: &Site, receiver: &Receiver, settings: &[(&str, &str)]) -> Result<()> {
    let places = PLACES.to_string();
    for canvas in BUSY_CANVASES {
        // With a limit of its own, one target has all that its canvas may have.
        let options = ["--timeout", "60s", "--concurrency", places.as_str()];
        site.target(canvas, "busy", &receiver.url("busy"), &options)?;
    }
    for canvas in [NIL, OTHER] {
        site.target(canvas, "ok", &receiver.url("ok"), &[])?;
    }
    let server = site.start(settings).await?;
    server.emit(NIL, "busy", OF_EACH).await?;
    let full = until(2 * BUSY, async || Ok(site.number(RUNNING).await? >= PLACES * 3 / 4)).await?;
    ensure!(full, "a canvas alone has not got three quarters of the places");
    let alone = slowest(&server, receiver, NIL).await?;
    at_most("seconds until an urgent event of the only canvas had started", alone, 1.0)?;
    for canvas in &BUSY_CANVASES[1..] {
        server.emit(canvas, "busy", OF_EACH).await?;
    }
    let full = until(2 * BUSY, async || Ok(site.number(RUNNING).await? >= PLACES - 1)).await?;
    figure("places that are busy", format!("{} of {PLACES}", site.number(RUNNING).await?));
    ensure!(full, "the others have not got all places");
    for (whose, canvas) in [("another canvas", OTHER), ("a canvas with others", NIL)] {
        let slowest = slowest(&server, receiver, canvas).await?;
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

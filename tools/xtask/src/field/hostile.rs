//! A role that may only connect: what it hears, what its forgeries do, and what its flood costs
//! another tenant.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sqlx::postgres::{PgListener, PgPoolOptions};

use super::deployment::{OTHER, Server, Site};
use super::receiver::Receiver;
use super::{at_most, figure, percentile, until};

/// The names that the channels had, or might have.
const GUESSES: [&str; 6] =
    ["wakeq", "wakeq_signals", "wakeq_broadcasts", "wakeq_notifications", "wakeq_events", "wakeq_"];
const FLOOD: &str = "select count(pg_notify(c.name, gen_random_uuid() || ' ' || gen_random_uuid() || ' ' || number))
    from unnest(array['wakeq', 'wakeq_signals', 'wakeq_broadcasts']) as c (name), generate_series(1, 200) as number";
const SAMPLES: usize = 100;

pub(super) async fn run(site: &Site) -> Result<()> {
    let receiver = Receiver::start().await?;
    site.target(OTHER, "ok", &receiver.url("ok"), &[])?;
    site.run("create role stranger login").await?;
    let server = site.start(&[("WAKEQ_BROADCAST", "1")]).await?;
    let url = site.url().replace("postgres@", "stranger@");
    let stranger = PgPoolOptions::new().max_connections(2).connect(&url).await?;
    let mut ear = PgListener::connect_with(&stranger).await?;
    ear.listen_all(GUESSES).await?;

    let mut quiet = latencies(&server, &receiver).await?;
    let heard = tokio::time::timeout(Duration::from_millis(500), ear.recv()).await;
    ensure!(heard.is_err(), "the stranger heard {heard:?}");
    figure("heard by the stranger", "nothing");

    let flood = tokio::spawn(async move {
        let mut sent = 0;
        while sqlx::query(FLOOD).execute(&stranger).await.is_ok() {
            sent += 600;
            tokio::time::sleep(Duration::from_millis(200)).await;
            if sent > 1_000_000 {
                break;
            }
        }
    });
    let mut flooded = latencies(&server, &receiver).await?;
    flood.abort();
    let (before, during) = (percentile(&mut quiet, 0.99), percentile(&mut flooded, 0.99));
    figure(
        "p99 of another tenant",
        format!("{before:.1?}; under a flood of 3,000 NOTIFYs a second {during:.1?}"),
    );
    at_most("p99 under the flood, times that without", during.as_secs_f64() / before.as_secs_f64(), 3.0)
}

/// From each emit to its delivery.
async fn latencies(server: &Server, receiver: &Receiver) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    for _ in 0..SAMPLES {
        let (before, began) = (receiver.taken("ok").len(), Instant::now());
        server.emit(OTHER, "ok", 1).await?;
        let arrived =
            until(Duration::from_secs(100), async || Ok(receiver.taken("ok").len() > before)).await?;
        ensure!(arrived, "an event was not delivered within 100 s");
        let at = receiver.taken("ok")[before];
        latencies.push(at.saturating_duration_since(began));
    }
    Ok(latencies)
}

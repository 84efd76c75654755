//! A role that may only connect: what it hears, what its forgeries do, and what its flood costs
//! another tenant.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sqlx::postgres::{PgListener, PgPool, PgPoolOptions};

use super::deployment::{OTHER, Server, Site};
use super::receiver::Receiver;
use super::{at_most, figure, percentile, until};

/// The names that the channels had, or might have.
const GUESSES: [&str; 6] =
    ["wakeq", "wakeq_signals", "wakeq_broadcasts", "wakeq_notifications", "wakeq_events", "wakeq_"];
/// Names on which the processes listen, as an administrator sees them and the stranger can't: of
/// each session those of its last statement.
const LISTENED: &str = "select array(select distinct name[1]
      from pg_stat_activity, regexp_matches(query, '\"(wakeq_[0-9a-f]{32})\"', 'g') as name
     where query like 'LISTEN %' and datname = current_database())";
/// 600 messages, on all of these names.
const FLOOD: &str =
    "select count(pg_notify(c.name, gen_random_uuid() || ' ' || gen_random_uuid() || ' ' || number))
    from unnest($1::text[]) as c (name), generate_series(1, 600 / cardinality($1)) as number";
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

    let leaked: Vec<String> = sqlx::query_scalar(LISTENED).fetch_one(&site.pool).await?;
    ensure!(!leaked.is_empty(), "no session is seen to listen");
    let before = percentile(&mut quiet, 0.99);
    for (what, names) in [("guessed", GUESSES.map(str::to_owned).to_vec()), ("leaked", leaked)] {
        let flood = tokio::spawn(flood(stranger.clone(), names));
        let mut flooded = latencies(&server, &receiver).await?;
        ensure!(!flood.is_finished(), "the flood on {what} names ended");
        flood.abort();
        let during = percentile(&mut flooded, 0.99);
        figure(
            "p99 of another tenant",
            format!("{before:.1?}; under 3,000 NOTIFYs a second on {what} names {during:.1?}"),
        );
        let times = during.as_secs_f64() / before.as_secs_f64();
        at_most(&format!("p99 under the flood on {what} names, times that without"), times, 3.0)?;
    }
    Ok(())
}

/// Sends 3,000 messages a second, until it is aborted.
async fn flood(stranger: PgPool, names: Vec<String>) {
    while sqlx::query(FLOOD).bind(&names).execute(&stranger).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
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

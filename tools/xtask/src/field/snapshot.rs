//! A snapshot that is held while ten million events come and go: their index entries can't be
//! removed, and every scan of what is due has to step over them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sqlx::Connection;

use super::deployment::{NIL, Site};
use super::receiver::Receiver;
use super::{at_most, figure, until};

/// Events come and go in rounds of so many.
const ROUND: &str = "with made as (
    insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, notify_at)
    select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', 'WORKER', 'gone', '_', '1', clock_timestamp() + interval '30 s'
      from generate_series(1, 100000) returning id)
    select count(*) from made";
const END: &str = "delete from wakeq.events_v2 where name = 'gone'";
const ROUNDS: usize = 100;
const PLAIN: &str = "select wakeq.emit('plain', '1')";
/// Ticks come once a minute; one that is missed leaves two minutes.
const GAP_S: f64 = 75.0;
const FAILING: &str = "select wakeq.emit('fails', '1')";

/// Watches for this many minutes.
pub(super) async fn run(site: &Site, minutes: u64) -> Result<()> {
    let receiver = Receiver::start().await?;
    site.target(NIL, "plain", &receiver.url("plain"), &[])?;
    site.target(NIL, "fails", &receiver.url("fails"), &["--retries", "1", "--delay", "60s"])?;
    site.target(NIL, "CRON/tick", &receiver.url("tick"), &[])?;
    site.command(&["cron", "put", "tick", "* * * * *", "--canvas", NIL])?;
    let server = site.start(&[]).await?;
    let mut holder = sqlx::PgConnection::connect(&site.url()).await?;
    sqlx::raw_sql("begin isolation level repeatable read; select count(*) from wakeq.events_v2")
        .execute(&mut holder)
        .await?;
    let began = Instant::now();
    for _ in 0..ROUNDS {
        site.number(ROUND).await?;
        site.run(END).await?;
    }
    figure("dead entries", format!("{} in {:.0?}", ROUNDS * 100_000, began.elapsed()));

    let (watched, mut worst) = (Instant::now(), Duration::ZERO);
    site.run(FAILING).await?;
    while watched.elapsed() < Duration::from_secs(60 * minutes) {
        let (emitted, before) = (Instant::now(), receiver.taken("plain").len());
        site.run(PLAIN).await?;
        let started =
            until(Duration::from_secs(300), async || Ok(receiver.taken("plain").len() > before)).await?;
        worst = worst.max(emitted.elapsed());
        ensure!(started, "plain SQL did not start an event within 300 s");
    }
    retried(&receiver).await?;
    let ticks = receiver.taken("tick");
    figure("ticks", format!("{} in {:.0?}", ticks.len(), began.elapsed()));
    at_most("seconds between two ticks", longest_gap(&ticks, began).as_secs_f64(), GAP_S)?;
    at_most("plain SQL, seconds until the start at most", worst.as_secs_f64(), 96.0)?;
    drop((holder, server));
    Ok(())
}

/// The longest time without a tick, from this moment until now.
fn longest_gap(ticks: &[Instant], began: Instant) -> Duration {
    let ends = ticks.iter().copied().chain([Instant::now()]);
    let gaps = [began].into_iter().chain(ticks.iter().copied()).zip(ends);
    gaps.map(|(from, to)| to.saturating_duration_since(from)).max().unwrap_or_default()
}

/// What failed once is attempted again after its delay of a minute, with its jitter.
async fn retried(receiver: &Receiver) -> Result<()> {
    let again = until(Duration::from_secs(300), async || Ok(!receiver.taken("fails").is_empty())).await?;
    let (failed, taken) = (receiver.failed("fails"), receiver.taken("fails"));
    ensure!(again, "after {} failed attempts there was no other within 300 s", failed.len());
    ensure!(
        (failed.len(), taken.len()) == (1, 1),
        "{} attempts failed, {} did not",
        failed.len(),
        taken.len()
    );
    let waited = taken[0].duration_since(failed[0]).as_secs_f64();
    ensure!(waited >= 60.0, "it was retried after {waited:.2} s");
    at_most("a retry after a minute, seconds until it started", waited, 96.0)
}

//! A burst after a quiet hour: the statistics say that the table is empty, or has one row.
//!
//! Autovacuum is kept from the table, as when its workers are busy elsewhere.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::deployment::{NIL, Site};
use super::receiver::Receiver;
use super::{figure, until};

const ROW: &str = "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, notify_at)
                   values (gen_random_uuid(), gen_random_uuid(), 'WORKER', 'far', '_', '1', now() + interval '1 d', now() + interval '1 d')";
const QUIET: &str = "alter table wakeq.events_v2 set (autovacuum_enabled = false)";
const LEFT: &str = "select count(*) from wakeq.events_v2 where name = 'ok'";
/// The slowest rate, in events per second.
const SLOWEST: u64 = 165;
/// Events that warm up.
const WARM_UP: usize = 15_000;
/// The beginning of a burst, which is looked at by itself.
const BEGINNING: Duration = Duration::from_secs(10);

/// Events per second.
#[derive(Clone, Copy)]
struct Rates {
    whole: f64,
    /// Of those that arrived within the first ten seconds.
    beginning: f64,
}

pub(super) async fn run(site: &Site, events: u32) -> Result<()> {
    let limit = Duration::from_secs(u64::from(events) / SLOWEST);
    let receiver = Receiver::start().await?;
    site.target(NIL, "ok", &receiver.url("ok"), &[])?;
    site.run(QUIET).await?;
    let server = site.start(&[("WAKEQ_CANVAS_EVENT_RATE", "1000000"), ("WAKEQ_CAPACITY", "256")]).await?;
    // The first one warms up.
    let mut rates = Vec::new();
    for (statistics, rows) in
        [("warm-up", None), ("fresh", None), ("of an empty table", Some(0)), ("of one row", Some(1))]
    {
        site.run("delete from wakeq.events_v2").await?;
        if rows == Some(1) {
            site.run(ROW).await?;
        }
        site.run("vacuum (analyze) wakeq.events_v2").await?;
        let count = match statistics {
            "warm-up" => WARM_UP,
            // As many in each, so that they are compared with their like: the dead rows of a longer
            // run make it slower, whatever the statistics say.
            _ => events as usize,
        };
        let began = Instant::now();
        let emitting = server.emit(NIL, "ok", count);
        // Fresh ones are taken again while the table fills.
        let analyzing = async {
            for _ in 0..if rows.is_none() { count / WARM_UP } else { 0 } {
                site.run("analyze wakeq.events_v2").await?;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Ok::<_, anyhow::Error>(())
        };
        let before = receiver.taken("ok").len();
        let beginning = async {
            tokio::time::sleep(BEGINNING).await;
            receiver.taken("ok").len() - before
        };
        let (emitted, analyzed, arrived) = tokio::join!(emitting, analyzing, beginning);
        emitted?;
        analyzed?;
        let ended = until(limit, async || Ok(site.number(LEFT).await? == 0)).await?;
        let left = site.number(LEFT).await?;
        #[allow(clippy::cast_precision_loss)]
        let (whole, arrived) = (count as f64 - left as f64, arrived as f64);
        let whole = whole / began.elapsed().as_secs_f64();
        let measured = Rates { whole, beginning: arrived / BEGINNING.as_secs_f64() };
        let words = format!("{whole:.0} events/s, in the first 10 s {:.0}, {left} left", measured.beginning);
        figure(&format!("statistics {statistics}"), words);
        ensure!(ended, "{left} of {count} events did not start within {limit:?}");
        rates.push(measured);
    }
    compare("an empty table", rates[2], rates[1])?;
    compare("one row", rates[3], rates[1])
}

/// From the first second on, stale statistics must not make it much slower. Both rates are of one
/// run on one machine, whose speed does not matter.
fn compare(name: &str, stale: Rates, fresh: Rates) -> Result<()> {
    for (when, ratio) in
        [("", stale.whole / fresh.whole), (", in the first 10 s", stale.beginning / fresh.beginning)]
    {
        let what = format!("statistics of {name} against fresh ones{when}");
        figure(&what, format!("{ratio:.2} (at least 0.80)"));
        ensure!(ratio >= 0.8, "{what}: {ratio:.2} of their rate");
    }
    Ok(())
}

//! An operation over a million events of a canvas, while the process that carries it on is killed
//! twice: it comes to the same end, in memory that does not grow with it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::deployment::{NIL, Server, Site};
use super::{at_most, figure, until};

const EVENTS: i64 = 1_000_000;
const FILL: &str =
    "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, notify_at)
    select gen_random_uuid(), canvas::uuid, 'WORKER', 'many', '_', '1', now() + interval '1 d', now() + interval '1 d'
      from (values ('00000000-0000-0000-0000-000000000000', 1000000),
                   ('77777777-7777-4777-8777-777777777777', 1000)) as sizes (canvas, events),
           generate_series(1, events)";
const CHANGED: &str = "select coalesce(max(changed), 0) from wakeq.operations";
const OPEN: &str = "select count(*) from wakeq.operations where state = 'open'";
const LEFT: &str =
    "select count(*) from wakeq.events_v2 where canvas_id = '00000000-0000-0000-0000-000000000000'";
const OTHERS: &str =
    "select count(*) from wakeq.events_v2 where canvas_id <> '00000000-0000-0000-0000-000000000000'";
const BODY: &str = r#"{"kind": "cancel", "filter": {"name": "many"}}"#;
/// Changed events at which the process is killed, and killed again.
const KILLS: [i64; 2] = [300_000, 600_000];
/// A part of the operation, with the minute until another process goes on.
const PART_WITHIN: Duration = Duration::from_secs(600);
/// What the memory of a process may grow by, in MiB, from the first thousands of events on.
const GROWTH: f64 = 16.0;

pub(super) async fn run(site: &Site) -> Result<()> {
    site.run(FILL).await?;
    site.run("vacuum (analyze) wakeq.events_v2").await?;
    let preview =
        site.command(&["operations", "begin", "cancel", "--handler", "many", "--dry-run", "--json"])?;
    let preview: Value = serde_json::from_str(&preview)?;
    figure("preview", preview["count"].clone());
    ensure!(preview["count"] == EVENTS, "the preview counts {} of {EVENTS} events", preview["count"]);
    let mut server = site.start(&[]).await?;
    let answer = server.post(&format!("/v1/canvases/{NIL}/operations"), BODY).await?;
    ensure!(answer.status == 202, "{} {}", answer.status, answer.body);
    let began = Instant::now();
    for kill in KILLS {
        part(site, &server, kill).await?;
        server.child.kill_9().await?;
        server = site.start(&[]).await?;
    }
    part(site, &server, EVENTS).await?;
    figure("seconds until its end, with two waits for the pass", began.elapsed().as_secs());
    let ended = until(PART_WITHIN, async || Ok(site.number(OPEN).await? == 0)).await?;
    ensure!(ended, "the operation is open still");
    let (changed, left, others) =
        (site.number(CHANGED).await?, site.number(LEFT).await?, site.number(OTHERS).await?);
    figure("changed", changed);
    ensure!(changed == EVENTS && left == 0, "{changed} are said to be changed, and {left} are left");
    ensure!(others == 1_000, "another canvas has {others} of its 1,000 events");
    Ok(())
}

/// Until this many events are changed; the memory of the process must not grow from its first page
/// on.
async fn part(site: &Site, server: &Server, changed: i64) -> Result<()> {
    let before = site.number(CHANGED).await?;
    let goes_on =
        until(PART_WITHIN, async || Ok(site.number(CHANGED).await? >= (before + 10_000).min(changed)))
            .await?;
    ensure!(goes_on, "nobody goes on after {before} events");
    let (began, first, at) = (Instant::now(), memory(server)?, site.number(CHANGED).await?);
    let done = until(PART_WITHIN, async || Ok(site.number(CHANGED).await? >= changed)).await?;
    ensure!(done, "{} of {changed} events are changed", site.number(CHANGED).await?);
    #[allow(clippy::cast_precision_loss)]
    let rate = (changed - at) as f64 / began.elapsed().as_secs_f64();
    figure(&format!("events/s up to {changed}"), format!("{rate:.0}"));
    at_most(&format!("MiB of growth up to {changed}"), memory(server)? - first, GROWTH)
}

/// MiB that a process has used at most.
fn memory(server: &Server) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.pid()))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("a peak of memory")?;
    let kib: f64 = peak.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1024.0)
}

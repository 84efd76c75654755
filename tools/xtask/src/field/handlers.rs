//! A canvas with 100,000 handlers that have events: all pages of their list, and what they say.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::deployment::{OTHER, Site};
use super::{at_most, figure, percentile};

const HANDLERS: usize = 100_000;
const FILL: &str =
    "insert into wakeq.events_v2 (id, canvas_id, module, name, modifier, value, delay_until, notify_at)
    select gen_random_uuid(), '77777777-7777-4777-8777-777777777777'::uuid, 'WORKER', 'h' || number, '_', '1',
           now() + interval '1 d', now() + interval '1 d' from generate_series(1, 100000) as number
    union all
    select gen_random_uuid(), '77777777-7777-4777-8777-777777777777'::uuid, 'WORKER', 'zz', '_', '1',
           now() + interval '1 d', now() + interval '1 d' from generate_series(1, 5)";

pub(super) async fn run(site: &Site) -> Result<()> {
    site.run(FILL).await?;
    site.run("vacuum (analyze) wakeq.events_v2").await?;
    let server = site.start(&[]).await?;
    let (mut delayed, mut took, mut cursor) = (BTreeMap::new(), Vec::new(), None::<String>);
    loop {
        let from = cursor.as_ref().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let began = Instant::now();
        let answer = server.get(&format!("/v1/canvases/{OTHER}/handlers?limit=1000{from}")).await?;
        took.push(began.elapsed());
        ensure!(answer.status == 200, "{} {}", answer.status, answer.body);
        cursor = add(&serde_json::from_str(&answer.body)?, &mut delayed)?;
        if cursor.is_none() || took.len() > 1_000 {
            break;
        }
    }
    figure("handlers listed", format!("{} on {} pages of 1,000", delayed.len(), took.len()));
    check("the list", &delayed)?;
    at_most("p95 of a page, ms", percentile(&mut took, 0.95).as_secs_f64() * 1e3, 200.0)?;
    let began = Instant::now();
    check("wakeq stats", &stats(site)?)?;
    figure("all pages of wakeq stats", format!("{:.1?}", began.elapsed()));
    Ok(())
}

/// What `wakeq stats` says, page by page: how many events each handler has for later.
fn stats(site: &Site) -> Result<BTreeMap<String, i64>> {
    let (mut delayed, mut cursor) = (BTreeMap::new(), None::<String>);
    for _ in 0..HANDLERS {
        let mut arguments = vec!["stats", "--canvas", OTHER, "--json", "--limit", "10000"];
        arguments.extend(cursor.iter().flat_map(|cursor| ["--cursor", cursor.as_str()]));
        let printed = site.command(&arguments)?;
        cursor = add(&serde_json::from_str(&printed)?, &mut delayed)?;
        if cursor.is_none() {
            return Ok(delayed);
        }
    }
    bail!("the pages of wakeq stats do not end")
}

/// Adds a page; returns where the next one begins.
fn add(page: &Value, delayed: &mut BTreeMap<String, i64>) -> Result<Option<String>> {
    for item in page["items"].as_array().context("items")? {
        let name = item["name"].as_str().context("a name")?;
        let before = delayed.insert(name.to_owned(), item["delayed"].as_i64().unwrap_or_default());
        ensure!(before.is_none(), "{name} is on two pages");
    }
    Ok(page["next_cursor"].as_str().map(str::to_owned))
}

fn check(what: &str, delayed: &BTreeMap<String, i64>) -> Result<()> {
    ensure!(delayed.len() == HANDLERS + 1, "{what} has {} of {} handlers", delayed.len(), HANDLERS + 1);
    let last = delayed.last_key_value().map(|(name, delayed)| (name.as_str(), *delayed));
    ensure!(last == Some(("zz", 5)), "{what} ends with {last:?}, and zz has 5 delayed events");
    ensure!(delayed.values().sum::<i64>() == 100_005, "the counts of {what} are not those of the rows");
    Ok(())
}

//! A canvas with 100,000 handlers that have events: all pages of their list, and what they say.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
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
        let page: Value = serde_json::from_str(&answer.body)?;
        for item in page["items"].as_array().context("items")? {
            delayed.insert(item["name"].to_string(), item["delayed"].as_i64().unwrap_or_default());
        }
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() || took.len() > 1_000 {
            break;
        }
    }
    figure("handlers listed", format!("{} on {} pages of 1,000", delayed.len(), took.len()));
    ensure!(delayed.len() == HANDLERS + 1, "{} of {} handlers are listed", delayed.len(), HANDLERS + 1);
    let last = delayed.get("\"zz\"").copied();
    ensure!(last == Some(5), "the last handler has 5 delayed events, and the list says {last:?}");
    ensure!(delayed.values().sum::<i64>() == 100_005, "the counts are not those of the rows");
    at_most("p95 of a page, ms", percentile(&mut took, 0.95).as_secs_f64() * 1e3, 200.0)?;
    let stats = Instant::now();
    site.command(&["stats", "--canvas", OTHER])?;
    figure("wakeq stats", format!("{:.0?}", stats.elapsed().max(Duration::from_millis(1))));
    Ok(())
}

//! The pages on a canvas with a million events that wait, a hundred thousand dead ones and a
//! million that are kept: how long each takes, and what Postgres does while ten are open.

mod browser;
mod list;
mod processor;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use self::browser::Browser;
use self::list::{Samples, WATCHED, address, navigation, next, of_neighbour};
use super::deployment::Site;
use super::{at_most, figure, percentile};

const SEED: &str = include_str!("seed.sql");
const KEY: &str =
    "keys create ada --all-canvases --scope read --scope values --scope emit --scope operate --scope admin";
/// How often each page is asked for, and the bound of the slowest but one.
const ROUNDS: usize = 40;
const P95_MAX: Duration = Duration::from_millis(200);
/// The same of a list among a million kept events, and of one of them.
const KEPT_P95_MAX: Duration = Duration::from_millis(100);
/// How long answers are kept for all browsers: a page that is asked for again waits as long.
const FRESH: Duration = Duration::from_millis(2_100);
/// How long a person reads a page.
const READ_FOR: Duration = Duration::from_secs(3);
/// How long pages are open, and before that the time until all are painted.
const WATCHED_FOR: Duration = Duration::from_secs(60);
const PAINTED_WITHIN: Duration = Duration::from_secs(10);
/// Of one processor, in percent.
const USED_MAX: f64 = 1.0;

pub(super) async fn run(site: &Site) -> Result<()> {
    let began = Instant::now();
    site.run(SEED).await?;
    site.run("vacuum (analyze)").await?;
    site.run("checkpoint").await?;
    figure("seeded in", format!("{:.0?}", began.elapsed()));
    // It asks for far more pages than a person does.
    let rates = [("WAKEQ_CREDENTIAL_RATE", "100000"), ("WAKEQ_CANVAS_RATE", "100000")];
    let server = site.serve(&rates).await?;
    let key = site.command(&KEY.split(' ').collect::<Vec<_>>())?;
    let key = key.lines().last().unwrap_or_default().trim().to_owned();
    let browser = Browser::sign_in(server.port, &key).await?;
    let mut slow = visited(site, &browser).await?;
    slow.extend(beside_a_neighbour(&browser).await?);
    watched(site, &browser).await?;
    let words = "broken, or slower than";
    ensure!(slow.is_empty(), "{words} {P95_MAX:?}, {KEPT_P95_MAX:?} if kept: {}", slow.join(", "));
    Ok(())
}

/// A page and how long it took.
struct Place {
    address: String,
    most: Duration,
    took: Vec<Duration>,
}

/// Asks for all pages in rounds, each of which begins elsewhere, since what several pages show is
/// read once. Returns those that are broken or too slow.
async fn visited(site: &Site, browser: &Browser) -> Result<Vec<String>> {
    let (mut places, mut wrong) = found(site, browser).await?;
    let count = places.len();
    for round in 0..ROUNDS {
        let began = Instant::now();
        for at in 0..count {
            let place = &mut places[(at + round * 7) % count];
            let asked = Instant::now();
            let shown = browser.get(&place.address).await?;
            place.took.push(asked.elapsed());
            ensure!(shown.status == 200, "{}: {} {:.500}", place.address, shown.status, shown.body);
        }
        tokio::time::sleep(FRESH.saturating_sub(began.elapsed())).await;
    }
    let mut slowest = Duration::ZERO;
    let mut slowest_of_kept = Duration::ZERO;
    for Place { address, most, mut took } in places {
        let (median, p95) = (percentile(&mut took, 0.5), percentile(&mut took, 0.95));
        slowest = slowest.max(p95);
        if most == KEPT_P95_MAX {
            slowest_of_kept = slowest_of_kept.max(p95);
        }
        figure(&address, format!("p50 {:.1} ms, p95 {:.1} ms", ms(median), ms(p95)));
        if p95 > most {
            wrong.push(address);
        }
    }
    figure("pages", format!("{count}, each {ROUNDS} times; the slowest p95 is {:.1} ms", ms(slowest)));
    figure("of a million kept events", format!("the slowest p95 is {:.1} ms", ms(slowest_of_kept)));
    Ok(wrong)
}

/// A person opens the [watched](WATCHED) pages one after the other, while another canvas is looked
/// at. Returns those that are too slow.
async fn beside_a_neighbour(browser: &Browser) -> Result<Vec<String>> {
    let mut places: Vec<Place> =
        WATCHED.map(|page| Place { address: address(page), most: P95_MAX, took: Vec::new() }).into();
    for _ in 0..ROUNDS / 4 {
        for place in &mut places {
            for page in of_neighbour() {
                ensure!(browser.get(&page).await?.status == 200, "{page}");
            }
            tokio::time::sleep(READ_FOR).await;
            let asked = Instant::now();
            let shown = browser.get(&place.address).await?;
            place.took.push(asked.elapsed());
            ensure!(shown.status == 200, "{}: {} {:.500}", place.address, shown.status, shown.body);
        }
    }
    let mut slow = Vec::new();
    for Place { address, most, mut took } in places {
        let p95 = percentile(&mut took, 0.95);
        figure(&format!("{address} beside a neighbour"), format!("p95 {:.1} ms", ms(p95)));
        if p95 > most {
            slow.push(format!("{address} beside a neighbour"));
        }
    }
    Ok(slow)
}

/// The pages that there are, each visited once, and those that are refused.
async fn found(site: &Site, browser: &Browser) -> Result<(Vec<Place>, Vec<String>)> {
    let overview = browser.get(&address("")).await?.body;
    ensure!(!navigation(&overview).is_empty(), "no navigation: {overview:.500}");
    let samples = Samples::of(site).await?;
    let mut left = samples.addresses(&overview);
    left.reverse();
    let (mut places, mut refused) = (Vec::new(), Vec::new());
    while let Some(address) = left.pop() {
        let shown = browser.get(&address).await?;
        if shown.status != 200 {
            figure("refused", format!("{address}: {}", shown.status));
            refused.push(address);
            continue;
        }
        // Not the third part of a list, whose address has a cursor, too.
        if !address.contains("cursor=") {
            left.extend(next(&address, &shown.body));
        }
        let most = if samples.is_of_kept(&address) { KEPT_P95_MAX } else { P95_MAX };
        places.push(Place { address, most, took: Vec::with_capacity(ROUNDS) });
    }
    Ok((places, refused))
}

/// What Postgres does while nobody looks, and while ten pages are open.
async fn watched(site: &Site, browser: &Browser) -> Result<()> {
    let idle = used(site, WATCHED_FOR / 3).await?;
    figure("Postgres, % of a core, while no page is open", format!("{idle:.2}"));
    let mut open = Vec::new();
    for page in WATCHED {
        open.push(browser.open(&address(page)).await?);
    }
    tokio::time::sleep(PAINTED_WITHIN).await;
    let painted: Vec<_> = open.iter().filter(|page| page.renewals() > 0).collect();
    ensure!(painted.len() == open.len(), "only {} of {} pages are painted", painted.len(), open.len());
    let used = used(site, WATCHED_FOR).await?;
    for page in &open {
        figure(&page.path, format!("sent {} times", page.renewals()));
        ensure!(page.is_open(), "{} did not stay open", page.path);
    }
    at_most("Postgres, % of a core, while ten pages are open", used, USED_MAX)
}

/// How much of a processor Postgres uses in this time, in percent.
async fn used(site: &Site, time: Duration) -> Result<f64> {
    let (began, before) = (Instant::now(), processor::used(site.postmaster())?);
    tokio::time::sleep(time).await;
    let used =
        processor::used(site.postmaster())?.checked_sub(before).context("a cluster that is younger")?;
    Ok(used.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

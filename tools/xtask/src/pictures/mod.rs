//! `cargo xtask pictures`: the pictures in the documents. The real `cargo dev --demo` runs for a
//! while in a folder of its own, and a browser opens its pages.
//!
//! It must never write anywhere but into the folder of the pictures.

mod browser;

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::time::sleep;

use self::browser::Browser;
use crate::dev::Dev;
use crate::{cargo, http, root, succeed};

const FOLDER: &str = "docs/pictures";
/// Somebody reads the documents on a slow connection.
const BYTES_MAX: usize = 200 * 1024;
/// How long statistics may be late: they are written once a minute.
const COUNTED_WITHIN: Duration = Duration::from_secs(180);
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// What stands for the id of the event in the path of its page.
const EVENT: &str = "{event}";
const DESK: (u32, u32) = (1440, 1000);
const PHONE: (u32, u32) = (390, 844);

/// The name of each picture, its page below the canvas, the size of the window, and whether the
/// page is dark.
const PICTURES: [(&str, &str, (u32, u32), bool); 7] = [
    ("overview", "", DESK, false),
    ("overview-dark", "", DESK, true),
    ("overview-phone", "", PHONE, false),
    ("event", "/events/{event}", DESK, false),
    ("dead", "/dead-events", DESK, false),
    ("handler", "/handlers/WORKER/charge-card", DESK, false),
    ("limit", "/limits/customer", DESK, false),
];

/// How the pictures are taken.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// For how many minutes the shop is open before: charts have a column for each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    minutes: u64,
}

/// Takes all of them.
pub(crate) fn run(options: &Options) -> Result<()> {
    succeed(cargo().args(["build", "--bin", "wakeq-dev"]))?;
    tokio::runtime::Runtime::new()?.block_on(async {
        let dev = Dev::start("pictures", &["--demo"]).await?;
        dev.prints("The demo's shop has opened").await?;
        let browser = Browser::open().await?;
        let api = Api::of(&dev)?;
        // The link is good for ten minutes, and the session for twelve hours.
        browser.go(&dev.said("Open ")?).await?;
        println!("the shop is open for {} min, until there is something to see", options.minutes);
        sleep(Duration::from_secs(60 * options.minutes)).await;
        api.counted().await?;
        let event = api.event_with_a_story().await?;
        for (name, page, size, is_dark) in PICTURES {
            browser.look(size, is_dark).await?;
            browser
                .go(&format!("{}/canvases/{}{}", api.origin, api.canvas, page.replace(EVENT, &event)))
                .await?;
            keep(name, &browser.picture().await?)?;
        }
        browser.close().await?;
        dev.stop().await
    })
}

fn keep(name: &str, picture: &[u8]) -> Result<()> {
    let file = format!("{FOLDER}/{name}.png");
    ensure!(picture.len() < BYTES_MAX, "{file} would have {} bytes, at most {BYTES_MAX}", picture.len());
    fs::create_dir_all(root().join(FOLDER))?;
    fs::write(root().join(&file), picture).with_context(|| format!("{file} can't be written"))?;
    println!("{file}: {} KB", picture.len() / 1024);
    Ok(())
}

/// The API of the shop, with the key for its canvas.
struct Api {
    origin: String,
    port: u16,
    canvas: String,
    key: String,
}

impl Api {
    fn of(dev: &Dev) -> Result<Self> {
        let address = dev.said("export API=")?;
        let (origin, canvas) = address.split_once("/v1/canvases/").context("it has no canvas")?;
        let port = origin.rsplit(':').next().and_then(|port| port.parse().ok()).context("it has no port")?;
        let key = dev.said("export KEY=")?;
        let file = key.trim_start_matches("\"$(cat ").trim_end_matches(")\"");
        let key = fs::read_to_string(file).with_context(|| format!("{file} can't be read"))?;
        let (origin, canvas) = (origin.to_owned(), canvas.to_owned());
        Ok(Self { origin, port, canvas, key: key.trim().to_owned() })
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let path = format!("/v1/canvases/{}{path}", self.canvas);
        let answer = http::get(self.port, &path, &self.key).await?;
        ensure!(answer.status == 200, "{path}: {} {}", answer.status, answer.body);
        Ok(serde_json::from_str(&answer.body)?)
    }

    /// Waits until the statistics have something.
    async fn counted(&self) -> Result<()> {
        let began = Instant::now();
        loop {
            let statistics = self.get("/statistics").await?;
            let completed = statistics["completed"].as_array().into_iter().flatten();
            if completed.filter_map(Value::as_u64).any(|count| count > 0) {
                return Ok(());
            }
            ensure!(began.elapsed() < COUNTED_WITHIN, "nothing was counted: {statistics:.1000}");
            sleep(BETWEEN_LOOKS).await;
        }
    }

    /// The id of an event that was tried three times, and is dead.
    async fn event_with_a_story(&self) -> Result<String> {
        let dead = self.get("/dead-events?name=charge-card").await?;
        let tried = dead["items"].as_array().into_iter().flatten().find(|event| event["cause"] == "retries");
        let id = tried.and_then(|event| event["id"].as_str());
        Ok(id.context("no event has died of its retries")?.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_picture_is_shown_in_a_document() {
        let documents =
            ["README.md", "docs/page.md"].map(|name| fs::read_to_string(root().join(name)).unwrap());
        for (name, ..) in PICTURES {
            let link = format!("pictures/{name}.png)");
            assert!(documents.iter().any(|text| text.contains(&link)), "{name} is in no document");
        }
    }
}

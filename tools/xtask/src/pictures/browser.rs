//! Chromium without a window, driven by its WebDriver. Both end with this process.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::time::sleep;
use wakeq_testbed::{ChildProcess, Guard, Launch, free_port, program_on_path};

use crate::http;

const DRIVER: &str = "chromedriver";
const READY_WITHIN: Duration = Duration::from_secs(20);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// How long a page has for its first live numbers, which come at once.
const SETTLES: Duration = Duration::from_secs(1);

/// The browser. It is not isolated from this machine, so it is for pages of ours alone.
const ARGUMENTS: [&str; 7] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--force-prefers-reduced-motion",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
];

/// A window.
pub(super) struct Browser {
    port: u16,
    session: String,
    _driver: ChildProcess,
    _guard: Guard,
}

impl Browser {
    pub(super) async fn open() -> Result<Self> {
        ensure!(
            program_on_path(DRIVER).is_some(),
            "{DRIVER} is not on the PATH: .ci/install-browser installs it and Chromium on Debian"
        );
        let (guard, port) = (Guard::new(None)?, free_port()?);
        let driver = guard.start(Launch::new(DRIVER).argument(format!("--port={port}")))?;
        let began = Instant::now();
        while http::drive(port, "GET", "/status", "").await.is_err() {
            ensure!(began.elapsed() < READY_WITHIN, "{DRIVER} does not answer: {}", driver.last_lines());
            sleep(BETWEEN_LOOKS).await;
        }
        let wanted = json!({"alwaysMatch": {"goog:chromeOptions": {"args": ARGUMENTS}}});
        let opened = ask(port, "POST", "/session", &json!({"capabilities": wanted})).await?;
        let session = opened["sessionId"].as_str().context("the session has no id")?.to_owned();
        Ok(Self { port, session, _driver: driver, _guard: guard })
    }

    /// Shows pages in this size, and as somebody sees them who prefers dark ones.
    pub(super) async fn look(&self, (width, height): (u32, u32), is_dark: bool) -> Result<()> {
        let is_phone = width < 600;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await?;
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features})).await?;
        Ok(())
    }

    /// Opens a page, which has to be there.
    pub(super) async fn go(&self, url: &str) -> Result<()> {
        self.command("url", json!({"url": url})).await?;
        let script = "return performance.getEntriesByType('navigation')[0].responseStatus;";
        let status = self.command("execute/sync", json!({"script": script, "args": []})).await?;
        ensure!(status == 200, "{url} was answered with {status}");
        Ok(())
    }

    /// What the window shows, as PNG.
    pub(super) async fn picture(&self) -> Result<Vec<u8>> {
        sleep(SETTLES).await;
        let taken = self.devtools("Page.captureScreenshot", json!({"format": "png"})).await?;
        let text = taken["data"].as_str().context("there is no picture in the answer")?;
        Ok(STANDARD.decode(text)?)
    }

    pub(super) async fn close(self) -> Result<()> {
        ask(self.port, "DELETE", &format!("/session/{}", self.session), &Value::Null).await.map(drop)
    }

    async fn devtools(&self, command: &str, parameters: Value) -> Result<Value> {
        self.command("goog/cdp/execute", json!({"cmd": command, "params": parameters})).await
    }

    async fn command(&self, name: &str, body: Value) -> Result<Value> {
        ask(self.port, "POST", &format!("/session/{}/{name}", self.session), &body).await
    }
}

async fn ask(port: u16, method: &str, path: &str, body: &Value) -> Result<Value> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = http::drive(port, method, path, &body).await?;
    if answer.status != 200 {
        bail!("{DRIVER} refused {method} {path}: {:.1000}", answer.body);
    }
    let mut answer: Value = serde_json::from_str(&answer.body)?;
    Ok(answer["value"].take())
}

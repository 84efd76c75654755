//! A real browser: Debian's Chromium, driven by its WebDriver.

use std::process::Stdio;
use std::time::Duration;

use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::support::TIMEOUT;
use crate::support::service::Service;

/// A browser window. Its driver ends with it.
pub(crate) struct Browser {
    pub(crate) client: Client,
    origin: String,
    _driver: Child,
}

/// The widths at which pages are looked at: a phone and a desk.
pub(crate) const WIDTHS: [u32; 2] = [390, 1440];

/// Keys, as WebDriver writes them.
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const ESCAPE: &str = "\u{e00c}";
pub(crate) const SPACE: &str = " ";
const SHIFT: char = '\u{e008}';

/// More than what can have the focus on any page.
const TABS_MAX: usize = 300;

/// Whether a test without a browser fails.
pub(crate) fn is_required() -> bool {
    std::env::var("REQUIRE_BROWSER").is_ok_and(|value| value == "1")
}

impl Browser {
    /// Opens a window. `None` if there is no browser here, unless it is required.
    pub(crate) async fn open(service: &Service) -> Option<Self> {
        let driver = Command::new("chromedriver")
            .args(["--port=0", "--allowed-ips=127.0.0.1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        let mut driver = match driver {
            Ok(driver) => driver,
            Err(error) => {
                assert!(!is_required(), "REQUIRE_BROWSER is 1, and chromedriver can't be started: {error}");
                println!("SKIPPED: pages in a browser: chromedriver can't be started: {error}");
                return None;
            }
        };
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port: u16 = loop {
            let line = lines.next_line().await.unwrap().expect("chromedriver ended");
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                break port.trim_end_matches('.').parse().unwrap();
            }
        };
        // What it prints later is not needed, and must not fill the pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--force-prefers-reduced-motion",
            "--hide-scrollbars",
        ];
        let mut capabilities = Capabilities::new();
        capabilities.insert("goog:chromeOptions".to_owned(), json!({ "args": arguments }));
        capabilities
            .insert("goog:loggingPrefs".to_owned(), json!({ "browser": "ALL", "performance": "ALL" }));
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let client = builder.capabilities(capabilities).connect(&format!("http://127.0.0.1:{port}")).await;
        let origin = format!("http://{}", service.address);
        Some(Self { client: client.unwrap(), origin, _driver: driver })
    }

    /// Signs in by typing a key.
    pub(crate) async fn sign_in(&self, key: &str) {
        self.go("/sign-in").await;
        self.type_into("#key", key).await;
        self.press("main button[type=submit]").await;
        self.until("#nav").await;
    }

    pub(crate) async fn go(&self, path: &str) {
        self.client.goto(&format!("{}{path}", self.origin)).await.unwrap();
    }

    /// Types into a field in place of what it has.
    pub(crate) async fn type_into(&self, field: &str, text: &str) {
        let field = self.client.wait().at_most(TIMEOUT).for_element(Locator::Css(field)).await.unwrap();
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    pub(crate) async fn press(&self, what: &str) {
        self.click(Locator::Css(what)).await;
    }

    /// What is live may be replaced between the look for it and the click: then a person clicks
    /// again.
    async fn click(&self, what: Locator<'_>) {
        loop {
            let found = self.client.wait().at_most(TIMEOUT).for_element(what).await;
            match found.unwrap_or_else(|error| panic!("{what:?}: {error}")).click().await {
                Ok(()) => return,
                Err(error) if error.is_stale_element_reference() => {}
                Err(error) => panic!("{what:?}: {error}"),
            }
        }
    }

    /// Presses what has this text.
    pub(crate) async fn press_text(&self, text: &str) {
        let path = format!("//main//*[self::a or self::button][contains(normalize-space(.), \"{text}\")]");
        self.click(Locator::XPath(&path)).await;
    }

    /// Presses keys one after the other, as on a keyboard: what has the focus gets them.
    pub(crate) async fn keys(&self, keys: &str) {
        let press = |value| KeyAction::Down { value };
        let release = |value| KeyAction::Up { value };
        let pressed = keys.chars().flat_map(|value| match value {
            // It is above another sign.
            '?' => vec![press(SHIFT), press(value), release(value), release(SHIFT)],
            _ => vec![press(value), release(value)],
        });
        let keyboard = KeyActions::new("keyboard".to_owned());
        let strokes = pressed.fold(keyboard, |keyboard, key| keyboard.then(key));
        self.client.perform_actions(strokes).await.unwrap();
    }

    /// Presses Tab until this has the focus, and can be seen to have it.
    pub(crate) async fn tab_to(&self, what: &str) {
        let script = "const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
                      return [document.activeElement.matches(arguments[0]),
                              outlineStyle !== 'none' && outlineWidth !== '0px'];";
        for _ in 0..TABS_MAX {
            self.keys(TAB).await;
            let found = self.client.execute(script, vec![json!(what)]).await.unwrap();
            if found[0] == true {
                assert_eq!(found[1], true, "{what} has the focus, and no outline");
                return;
            }
        }
        panic!("Tab does not lead to {what}");
    }

    /// What a script returns.
    pub(crate) async fn evaluate(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap()
    }

    /// Waits until a script returns `true`.
    pub(crate) async fn until_true(&self, script: &str) {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        while self.evaluate(script).await != true {
            assert!(tokio::time::Instant::now() < deadline, "it stays untrue: {script}");
            // A driver does not tell when a page has changed.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits for an element.
    pub(crate) async fn until(&self, what: &str) {
        let found = self.client.wait().at_most(TIMEOUT).for_element(Locator::Css(what)).await;
        found.unwrap_or_else(|error| panic!("{what}: {error}"));
    }

    /// Whether the page has a text now.
    pub(crate) async fn says(&self, words: &str) -> bool {
        let body = self.client.find(Locator::Css("body")).await.unwrap();
        body.text().await.unwrap().contains(words)
    }

    /// Waits until the page has a text. The numbers on it change by themselves.
    pub(crate) async fn until_it_says(&self, words: &str) {
        self.until_it_says_within(TIMEOUT, words).await;
    }

    /// The same of live numbers, which a database that is slow to count them renews every five
    /// minutes at least.
    pub(crate) async fn until_it_says_live(&self, words: &str) {
        self.until_it_says_within(Duration::from_secs(300) + TIMEOUT, words).await;
    }

    async fn until_it_says_within(&self, limit: Duration, words: &str) {
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            // A page that is just being left has no body.
            let body = self.client.find(Locator::Css("body")).await;
            let text = match &body {
                Ok(body) => body.text().await.unwrap_or_default(),
                Err(_) => String::new(),
            };
            if text.contains(words) {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{words:?} is not in {text}");
            // A driver does not tell when a text has changed.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the address of the page has these words, or has them no longer.
    pub(crate) async fn until_address(&self, words: &str, has_them: bool) {
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let address = self.client.current_url().await.unwrap();
            if address.as_str().contains(words) == has_them {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "{words:?}, {has_them}: {address}");
            // A driver does not tell when an address has changed.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Shows pages at this width, and dark or light.
    pub(crate) async fn look(&self, width: u32, is_dark: bool) {
        let height = if width < 600 { 844 } else { 900 };
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// Shows times in this zone, as the reader's.
    pub(crate) async fn in_zone(&self, zone: &str) {
        self.devtools("Emulation.setTimezoneOverride", json!({ "timezoneId": zone })).await;
    }

    /// The controls of the page's main part that are too low for a finger: under 44 pixels.
    pub(crate) async fn small_controls(&self) -> Vec<String> {
        let script = "const all = document.querySelectorAll('main button, main a.button, main select, main input');
                      const shown = [...all].filter((one) => one.type !== 'checkbox' && one.getClientRects().length);
                      const low = shown.filter((one) => one.getBoundingClientRect().height < 43.5);
                      return low.map((one) => one.outerHTML);";
        let found = self.client.execute(script, Vec::new()).await.unwrap();
        found.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    }

    /// The links of the page's main part that look like buttons and whose words do not stand in
    /// their middle.
    pub(crate) async fn words_off_centre(&self) -> Vec<String> {
        let script = "const middle = (box) => box.top + box.height / 2;
                      const off = [...document.querySelectorAll('main a.button')].filter((one) => {
                          const words = document.createRange();
                          words.selectNodeContents(one);
                          const [box, text] = [one.getBoundingClientRect(), words.getBoundingClientRect()];
                          return box.height && Math.abs(middle(box) - middle(text)) > 2;
                      });
                      return off.map((one) => one.outerHTML);";
        let found = self.client.execute(script, Vec::new()).await.unwrap();
        found.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    }

    /// The path of the page that is shown.
    pub(crate) async fn path(&self) -> String {
        self.client.current_url().await.unwrap().path().to_owned()
    }

    /// The status that the page was answered with.
    pub(crate) async fn status(&self) -> u64 {
        let script = "return performance.getEntriesByType('navigation')[0].responseStatus;";
        self.evaluate(script).await.as_u64().unwrap()
    }

    /// Lets pages use the clipboard, as a person does who is asked.
    pub(crate) async fn allow_clipboard(&self) {
        let permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"];
        let granted = json!({ "permissions": permissions, "origin": self.origin });
        self.devtools("Browser.grantPermissions", granted).await;
        // Only a window in front has it.
        self.devtools("Emulation.setFocusEmulationEnabled", json!({ "enabled": true })).await;
    }

    async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.client.issue_cmd(Driver { path: "goog/cdp/execute", body }).await.unwrap()
    }

    /// A picture of the whole page, as PNG.
    pub(crate) async fn picture(&self) -> Vec<u8> {
        let shot = self.devtools("Page.captureScreenshot", json!({ "captureBeyondViewport": true })).await;
        let text = shot["data"].as_str().unwrap();
        base64::Engine::decode(&base64::prelude::BASE64_STANDARD, text).unwrap()
    }

    /// What has gone wrong since the last call: errors of the console, and requests to other hosts.
    pub(crate) async fn troubles(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        for line in self.log("browser").await {
            if line["level"] == "SEVERE" {
                troubles.push(line["message"].to_string());
            }
        }
        for line in self.log("performance").await {
            let message: Value = serde_json::from_str(line["message"].as_str().unwrap()).unwrap();
            let message = &message["message"];
            if message["method"] == "Network.requestWillBeSent" {
                let url = message["params"]["request"]["url"].as_str().unwrap();
                let own = [self.origin.as_str(), "data:", "chrome:", "about:"];
                if !own.iter().any(|own| url.starts_with(own)) {
                    troubles.push(format!("a request to {url}"));
                }
            }
        }
        troubles
    }

    async fn log(&self, kind: &str) -> Vec<Value> {
        let lines =
            self.client.issue_cmd(Driver { path: "se/log", body: json!({ "type": kind }) }).await.unwrap();
        lines.as_array().unwrap().clone()
    }

    /// What axe finds wrong with the page for people who can't see or point, if its script is
    /// there.
    pub(crate) async fn barriers(&self, axe: &str) -> Vec<String> {
        self.client.execute(axe, Vec::new()).await.unwrap();
        let run = "const done = arguments[arguments.length - 1];
                   axe.run(document, { resultTypes: ['violations'] }).then(
                       (found) => done(found.violations.map((one) =>
                           `${one.id}: ${one.nodes.map((node) => node.html + ' ' + node.failureSummary).join(' | ')}`)),
                       (error) => done([String(error)]));";
        let found = self.client.execute_async(run, Vec::new()).await.unwrap();
        found.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    }

    /// The links in the page's main part and its navigation, to pages of ours.
    pub(crate) async fn links(&self) -> Vec<String> {
        let script =
            "return [...document.querySelectorAll('main a[href], nav a[href]')].map((link) => link.href);";
        let links = self.client.execute(script, Vec::new()).await.unwrap();
        let links = links.as_array().unwrap().iter();
        links.filter_map(|link| link.as_str()?.strip_prefix(&self.origin)).map(str::to_owned).collect()
    }

    /// Whether one would have to scroll sideways.
    pub(crate) async fn is_wider_than(&self, width: u32) -> bool {
        let script = "return document.documentElement.scrollWidth;";
        let wide = self.client.execute(script, Vec::new()).await.unwrap();
        wide.as_u64().unwrap() > u64::from(width)
    }

    pub(crate) async fn close(self) {
        self.client.close().await.unwrap();
    }
}

/// A command of Chromium's driver.
#[derive(Debug)]
struct Driver {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for Driver {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &url::Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}

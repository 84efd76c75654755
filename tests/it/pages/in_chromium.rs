//! Every page in a real browser, in both modes, as wide as a phone and as a desk; and a filter as
//! somebody types into it.

use std::collections::{BTreeSet, VecDeque};

use super::browser::{Browser, WIDTHS, is_required};
use super::routes::Routes;
use super::scene::Scene;

/// Addresses that are no page of their own, and why.
const EXCUSED: [(&str, &str); 5] = [
    ("/", "leads to the first canvas"),
    ("/go", "leads to another canvas"),
    ("/sign-in/oidc", "leads to a provider of identities, of which there is none here"),
    ("/canvases/{canvas}/{*rest}", "is what no page has, and is refused"),
    ("/assets/{file}", "is a part of pages"),
];

/// No page has an error in its console, asks another host for anything, or keeps somebody out; none
/// of its links leads nowhere; and none is missing here.
#[tokio::test]
#[ignore = "each page four times in Chromium: `cargo xtask edge pages` runs it"]
async fn every_page_is_whole_in_both_modes_and_widths() {
    let scene = Scene::with_everything().await;
    let Some(browser) = Browser::open(&scene.service).await else { return };
    browser.sign_in(&scene.key).await;
    let mut walk = Walk::with(&browser);
    walk.everywhere(scene.addresses().await).await;
    for (key, pages) in scene.others().await {
        browser.sign_in(&key).await;
        for (path, status) in pages {
            walk.look(&path, status).await;
        }
    }
    println!("{} kinds of pages", walk.kinds.len());
    let excused = BTreeSet::from(EXCUSED.map(|(route, _)| route));
    assert_eq!(walk.routes.beside(&walk.met), excused, "a page was not met, or needs no excuse");
    assert!(walk.troubles.is_empty(), "{} troubles:\n{}", walk.troubles.len(), walk.troubles.join("\n"));
    browser.close().await;
}

/// A walk through pages.
struct Walk<'b> {
    browser: &'b Browser,
    axe: Option<String>,
    routes: Routes,
    /// The kinds of pages that were looked at, and their addresses.
    kinds: BTreeSet<String>,
    met: BTreeSet<String>,
    troubles: Vec<String>,
}

impl<'b> Walk<'b> {
    fn with(browser: &'b Browser) -> Self {
        let (kinds, met, troubles) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        Self { browser, axe: axe(), routes: Routes::read(), kinds, met, troubles }
    }

    /// Looks at these pages, and at one of each kind that links lead to: the page of one handler is
    /// like that of another.
    async fn everywhere(&mut self, addresses: Vec<(String, u16)>) {
        let mut waiting = VecDeque::new();
        for (path, status) in addresses {
            let links = self.look(&path, status).await;
            if status == 200 {
                self.kinds.extend(kind(&self.routes, &path));
                waiting.extend(links);
            }
        }
        while let Some(path) = waiting.pop_front() {
            let Some(kind) = kind(&self.routes, &path) else {
                self.troubles.push(format!("{path}: a link leads to no page"));
                continue;
            };
            if self.kinds.insert(kind) {
                waiting.extend(self.look(&path, 200).await);
            }
        }
    }

    /// Looks at a page in both modes and widths, and returns its links.
    async fn look(&mut self, path: &str, status: u16) -> Vec<String> {
        let browser = self.browser;
        for (width, is_dark) in WIDTHS.into_iter().flat_map(|width| [(width, false), (width, true)]) {
            browser.look(width, is_dark).await;
            browser.go(path).await;
            let mut found = browser.troubles().await;
            // The console says that it was refused.
            found.retain(|trouble| status == 200 || !trouble.contains(&format!("a status of {status}")));
            let answered = browser.status().await;
            if answered != u64::from(status) {
                found.push(format!("it was answered with {answered} in place of {status}"));
            }
            if let Some(axe) = &self.axe {
                found.extend(browser.barriers(axe).await);
            }
            if browser.is_wider_than(width).await {
                found.push("it scrolls sideways".to_owned());
            }
            let told = found.into_iter().map(|trouble| format!("{path} at {width}, {is_dark}: {trouble}"));
            self.troubles.extend(told);
            keep_picture(browser, path, width, is_dark).await;
        }
        // One that only leads on is met where it leads to.
        let shown = browser.path().await;
        let met = self.routes.of(&shown).filter(|_| status == 200).map(str::to_owned);
        self.met.extend(met);
        let links = browser.links().await.into_iter();
        links.map(|link| link.split('#').next().unwrap_or_default().to_owned()).collect()
    }
}

/// What a page is about, without what it is about in particular: its route, the names of what its
/// address asks for, and what is to be done. `None` if no page is there.
fn kind(routes: &Routes, path: &str) -> Option<String> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let asked = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if name != "kind" => name,
        Some(_) | None => pair,
    });
    let asked: BTreeSet<_> = asked.collect();
    Some(format!("{}?{}", routes.of(path)?, Vec::from_iter(asked).join("&")))
}

/// The script that looks for barriers, whose path `.ci/install-browser` prints. Without it, the
/// rest is tested, unless a browser is required.
fn axe() -> Option<String> {
    let Some(file) = std::env::var_os("AXE_SCRIPT") else {
        let what = "AXE_SCRIPT is the path that .ci/install-browser prints";
        assert!(!is_required(), "REQUIRE_BROWSER is 1, and axe is missing: {what}");
        println!("SKIPPED: barriers on pages: {what}");
        return None;
    };
    Some(std::fs::read_to_string(file).expect("AXE_SCRIPT names the script"))
}

/// Keeps a picture of a page for somebody to look at, if `PAGE_PICTURES` names a folder.
async fn keep_picture(browser: &Browser, path: &str, width: u32, is_dark: bool) {
    let Some(folder) = std::env::var_os("PAGE_PICTURES") else { return };
    let name = path.chars().map(|sign| if sign.is_ascii_alphanumeric() { sign } else { '-' });
    let (name, mode): (String, _) = (name.take(150).collect(), if is_dark { "dark" } else { "light" });
    let file = std::path::Path::new(&folder).join(format!("{name}-{width}-{mode}.png"));
    std::fs::write(file, browser.picture().await).unwrap();
}

/// What somebody types is looked for without loading the page again, and the way back leads to what
/// was shown before.
// Shows: EV2-09
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_filter_is_followed_without_loading_the_page() {
    let scene = Scene::with_everything().await;
    let Some(browser) = Browser::open(&scene.service).await else { return };
    browser.sign_in(&scene.key).await;
    browser.go(&Scene::at("/events")).await;
    browser.until_it_says("WORKER/print").await;
    browser.client.execute("window.isTheSame = true;", Vec::new()).await.unwrap();
    browser.type_into("form.filter input[name=name]", "remind").await;
    browser.until_address("name=remind", true).await;
    browser.until_it_says("3 events in all.").await;
    let script = "return [window.isTheSame, document.activeElement.name,
                          document.getElementById('results').innerText];";
    let found = browser.client.execute(script, Vec::new()).await.unwrap();
    assert_eq!(found[0], true, "it is the same page");
    assert_eq!(found[1], "name", "and one can go on typing");
    let text = found[2].as_str().unwrap();
    assert!(text.contains("WORKER/remind") && !text.contains("WORKER/print"), "{text}");
    // Its live numbers are those of what is shown.
    scene.service.post("/events", serde_json::json!({"name": "remind", "value": 4, "delay_s": 3600})).await;
    browser.press("h1").await;
    browser.until_it_says_live("4 events in all.").await;
    browser.client.back().await.unwrap();
    browser.until_address("name=remind", false).await;
    browser.until_it_says("WORKER/print").await;
    assert_eq!(browser.troubles().await, Vec::<String>::new());
    browser.close().await;
}

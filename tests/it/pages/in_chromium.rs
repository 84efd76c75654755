//! Every page in a real browser, in both modes, as wide as a phone and as a desk; and stories from
//! a question to its answer, clicked through.

use std::collections::{BTreeSet, VecDeque};

use super::browser::{Browser, WIDTHS};
use super::scene::Scene;
use super::visitor::on_canvas;
use wakeq::CanvasId;

/// No page has an error in its console, asks another host for anything, or keeps somebody out; and
/// none of its links leads nowhere.
#[tokio::test]
async fn every_page_is_whole_in_both_modes_and_widths() {
    let scene = Scene::with_everything().await;
    let Some(browser) = Browser::open(&scene.service).await else { return };
    let axe = axe();
    browser.sign_in(&scene.key).await;
    // Of a kind one page is looked at: those of one handler and of another are alike.
    let (mut waiting, mut seen) = (VecDeque::from([on_canvas(CanvasId::DEFAULT, "")]), BTreeSet::new());
    let mut troubles = Vec::new();
    while let Some(path) = waiting.pop_front() {
        if !seen.insert(kind(&path)) {
            continue;
        }
        for (width, is_dark) in WIDTHS.into_iter().flat_map(|width| [(width, false), (width, true)]) {
            browser.look(width, is_dark).await;
            browser.go(&path).await;
            let mut found = browser.troubles().await;
            if let Some(axe) = &axe {
                found.extend(browser.barriers(axe).await);
            }
            if browser.is_wider_than(width).await {
                found.push("it scrolls sideways".to_owned());
            }
            troubles
                .extend(found.into_iter().map(|trouble| format!("{path} at {width}, {is_dark}: {trouble}")));
            keep_picture(&browser, &path, width, is_dark).await;
        }
        waiting
            .extend(browser.links().await.into_iter().map(|link| link.split('#').next().unwrap().to_owned()));
    }
    println!("{} kinds of pages", seen.len());
    assert!(troubles.is_empty(), "{} troubles:\n{}", troubles.len(), troubles.join("\n"));
    assert!(seen.len() >= 40, "{seen:?}");
    browser.close().await;
}

/// What a page is about, without what it is about in particular.
fn kind(path: &str) -> String {
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    let mut parts = path.split('/').skip(3);
    let first = parts.next().unwrap_or_default();
    // A handler has two names, and an error group's stands behind a word; everything else has one.
    let names = if ["handlers", "dead-events"].contains(&first) { 2 } else { 1 };
    let rest: Vec<_> = parts.enumerate().map(|(at, part)| if at < names { "*" } else { part }).collect();
    format!("{first}/{}", rest.join("/"))
}

/// The script that looks for barriers, whose path `.ci/install-browser` prints. Without it, the
/// rest is tested.
fn axe() -> Option<String> {
    let file = std::env::var_os("AXE_SCRIPT")?;
    Some(std::fs::read_to_string(file).expect("AXE_SCRIPT names the script"))
}

/// Keeps a picture of a page for somebody to look at, if `PAGE_PICTURES` names a folder.
async fn keep_picture(browser: &Browser, path: &str, width: u32, is_dark: bool) {
    let Some(folder) = std::env::var_os("PAGE_PICTURES") else { return };
    let name: String =
        kind(path).chars().map(|sign| if sign.is_ascii_alphanumeric() { sign } else { '-' }).collect();
    let mode = if is_dark { "dark" } else { "light" };
    let file = std::path::Path::new(&folder).join(format!("{name}-{width}-{mode}.png"));
    std::fs::write(file, browser.picture().await).unwrap();
}

/// Why was this order's mail not sent? The handler is mended, and all of that error brought back.
#[tokio::test]
async fn why_this_mail_was_not_sent() {
    let scene = Scene::with_everything().await;
    let Some(browser) = Browser::open(&scene.service).await else { return };
    browser.sign_in(&scene.key).await;
    browser.go(&Scene::at("/dead-events")).await;
    browser.press_text("the mail server").await;
    browser.until_it_says("What to do next").await;
    browser.press_text("Redrive all").await;
    browser.until_it_says("Redrive these 12 events?").await;
    browser.press_text("Yes, these 12 events").await;
    browser.until_it_says("The operation has begun.").await;
    browser.until_it_says("It has looked at every event.").await;
    browser.go(&Scene::at("/dead-events?known=false")).await;
    browser.until_it_says("No dead event is like that.").await;
    browser.close().await;
}

/// What somebody types is looked for without loading the page again, and the way back leads to what
/// was shown before.
// Shows: EV2-09
#[tokio::test]
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

//! What the script of the pages adds in a real browser: keys, live numbers and their pause, modes,
//! copying, boxes for all of a list, the reader's zone, and filters that the browser keeps.

use serde_json::json;

use super::browser::{Browser, ESCAPE};
use super::scene::Scene;
use crate::support::service::Service;

const MAILS: &str = "/events?name=mail";

/// A desktop browser, signed in with all rights on the default canvas.
async fn at_a_desk(service: &Service) -> Option<Browser> {
    let browser = Browser::open(service).await?;
    browser.look(1440, false).await;
    browser.sign_in(&service.key).await;
    Some(browser)
}

/// Emits mails that wait for an hour.
async fn emit(service: &Service, count: usize) {
    for value in 0..count {
        let event = json!({"name": "mail", "value": value, "delay_s": 3600});
        service.post("/events", event).await.json();
    }
}

async fn no_troubles(browser: Browser) {
    assert_eq!(browser.troubles().await, Vec::<String>::new());
    browser.close().await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn keys_open_the_help_search_and_lead_to_pages() {
    let service = Service::start().await;
    let Some(browser) = at_a_desk(&service).await else { return };
    let (is_open, focused) = (
        "return document.getElementById('help').open;",
        "return [document.activeElement.id, document.activeElement.value];",
    );
    browser.go(&Scene::at("/events")).await;
    browser.keys("?").await;
    browser.until_true(is_open).await;
    assert!(browser.says("pause the numbers, or go on").await);
    // As long as it is open, keys do nothing else.
    browser.keys("gd").await;
    browser.keys(ESCAPE).await;
    browser.until_true("return !document.getElementById('help').open;").await;
    assert_eq!(browser.path().await, Scene::at("/events"));
    browser.keys("/").await;
    assert_eq!(browser.evaluate(focused).await, json!(["name", ""]), "the first field of the filter");
    // In a field, keys are text.
    browser.keys("gp").await;
    assert_eq!(browser.evaluate(focused).await, json!(["name", "gp"]));
    browser.until_address("name=gp", true).await;
    browser.until_it_says("No event that has not ended is like that.").await;
    browser.press("h1").await;
    browser.keys("gd").await;
    browser.until_address("/dead-events", true).await;
    browser.until_it_says("No event has died.").await;
    browser.keys("go").await;
    browser.until_address("/dead-events", false).await;
    browser.until_true("return document.readyState === 'complete';").await;
    browser.keys("/").await;
    assert_eq!(browser.evaluate(focused).await, json!(["find", ""]), "there is no filter here");
    no_troubles(browser).await;
}

/// What is paused stays as it is, while somebody else is shown what comes. It is renewed once it
/// goes on.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_key_pauses_what_is_live() {
    let service = Service::start().await;
    emit(&service, 1).await;
    let Some(browser) = at_a_desk(&service).await else { return };
    let Some(other) = at_a_desk(&service).await else { return };
    for browser in [&browser, &other] {
        browser.go(&Scene::at(MAILS)).await;
        browser.until_it_says("1 event in all.").await;
    }
    browser.keys("p").await;
    browser.until_it_says("Paused").await;
    // Between the two, at least one look of each would have passed.
    for count in ["2 events in all.", "3 events in all."] {
        emit(&service, 1).await;
        other.until_it_says_live(count).await;
    }
    assert!(browser.says("1 event in all.").await && browser.says("Paused").await);
    browser.keys("p").await;
    browser.until_it_says_live("3 events in all.").await;
    assert!(!browser.says("Paused").await);
    no_troubles(browser).await;
    no_troubles(other).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_mode_is_kept_and_a_request_is_copied() {
    let service = Service::start().await;
    let event = json!({"name": "mail", "delay_s": 3600});
    let event = service.post("/events", event).await.json()["id"].as_str().unwrap().to_owned();
    let Some(browser) = at_a_desk(&service).await else { return };
    let mode = "return document.documentElement.dataset.theme ?? 'as the system has it';";
    assert_eq!(browser.evaluate(mode).await, "as the system has it");
    browser.press("[data-theme-switch]").await;
    assert_eq!(browser.evaluate(mode).await, "dark");
    browser.allow_clipboard().await;
    browser.go(&Scene::at(&format!("/events/{event}"))).await;
    assert_eq!(browser.evaluate(mode).await, "dark", "on other pages, too");
    browser.press("[data-theme-switch]").await;
    assert_eq!(browser.evaluate(mode).await, "light");

    // A request names the server that the page has come from.
    browser.press("[data-server] [data-copy]").await;
    browser
        .until_true("return document.querySelector('[data-server] [data-copy]').textContent === 'Copied';")
        .await;
    let read = "const done = arguments[arguments.length - 1];
                navigator.clipboard.readText().then(done, (error) => done(String(error)));";
    let copied = browser.client.execute_async(read, Vec::new()).await.unwrap();
    let to = format!("http://{}/v1{}", service.address, Scene::at(&format!("/events/{event}")));
    assert!(copied.as_str().is_some_and(|copied| copied.contains(&to)), "{to} is not in {copied}");
    no_troubles(browser).await;
}

/// What somebody has ticked is not taken away by what comes meanwhile.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn all_of_a_list_is_ticked_and_stays_so() {
    let service = Service::start().await;
    emit(&service, 3).await;
    let Some(browser) = at_a_desk(&service).await else { return };
    browser.go(&Scene::at(MAILS)).await;
    browser.until_it_says("3 events in all.").await;
    let ticked = "return document.querySelectorAll('#live input[type=checkbox]:checked').length;";
    browser.press("#all").await;
    assert_eq!(browser.evaluate(ticked).await, 3);
    emit(&service, 1).await;
    browser.until_it_says_live("Waits for your selection").await;
    assert!(browser.says("3 events in all.").await);
    assert_eq!(browser.evaluate(ticked).await, 3);
    browser.press("#all").await;
    browser.until_it_says_live("4 events in all.").await;
    assert_eq!(browser.evaluate(ticked).await, 0);
    browser.press("#all").await;
    browser.press("#selection button").await;
    browser.until_it_says("Which events: 4 events").await;
    no_troubles(browser).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn times_are_shown_and_typed_in_the_readers_zone() {
    let service = Service::start().await;
    let event = json!({"name": "mail", "delay_until": "2099-01-31T08:00:00Z"});
    let event = service.post("/events", event).await.json()["id"].as_str().unwrap().to_owned();
    let Some(browser) = at_a_desk(&service).await else { return };
    browser.in_zone("Asia/Tokyo").await;
    browser.go(&Scene::at(&format!("/events/{event}"))).await;
    let title = browser.evaluate("return document.querySelector('time[datetime^=\"2099\"]').title;").await;
    let title = title.as_str().unwrap();
    let is_there = ["5:00:00", "17:00:00"].iter().any(|clock| title.contains(clock));
    assert!(is_there && title.ends_with("(2099-01-31T08:00:00.000Z)"), "{title}");
    let fields = "return [document.getElementById('due').value,
                          document.querySelector('input[type=hidden][name=due]').value,
                          document.querySelector('[data-zone=due]').textContent];";
    let typed = json!(["2099-01-31T17:00", "2099-01-31T08:00", "your time, Asia/Tokyo"]);
    assert_eq!(browser.evaluate(fields).await, typed, "it is sent in UTC");
    no_troubles(browser).await;
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_filter_is_kept_used_and_forgotten() {
    let service = Service::start().await;
    emit(&service, 1).await;
    let Some(browser) = at_a_desk(&service).await else { return };
    let kept = "return [...document.querySelectorAll('details.saved li a')].map(
                    (link) => [link.textContent, link.getAttribute('href')]);";
    browser.go(&Scene::at(MAILS)).await;
    browser.press("details.saved summary").await;
    browser.type_into("#saved-title", "the mails").await;
    browser.press("details.saved form button").await;
    assert_eq!(browser.evaluate(kept).await, json!([["the mails", "?name=mail"]]));
    // It is one of this page, and there when it is opened again.
    browser.go(&Scene::at("/dead-events/list")).await;
    assert_eq!(browser.evaluate(kept).await, json!([]));
    browser.go(&Scene::at("/events")).await;
    browser.press("details.saved summary").await;
    browser.press_text("the mails").await;
    browser.until_address("name=mail", true).await;
    browser.until_it_says("1 event in all.").await;
    browser.press("details.saved summary").await;
    browser.press("details.saved li button").await;
    assert_eq!(browser.evaluate(kept).await, json!([]));
    browser.go(&Scene::at("/events")).await;
    assert_eq!(browser.evaluate(kept).await, json!([]), "it is forgotten for good");
    no_troubles(browser).await;
}

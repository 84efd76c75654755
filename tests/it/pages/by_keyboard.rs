//! Pages in a real browser for somebody who has no mouse: Tab leads everywhere, one sees where one
//! is, and Space and Enter do the rest.

use serde_json::json;

use super::browser::{Browser, ENTER, SPACE, TAB};
use super::scene::Scene;
use crate::support::service::Service;

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_list_and_a_form_are_used_by_keys_alone() {
    let service = Service::start().await;
    let Some(browser) = Browser::open(&service).await else { return };
    for value in 0..2 {
        let event = json!({"name": "print", "value": value, "delay_s": 3600});
        service.post("/events", event).await.json();
    }
    browser.look(1440, false).await;
    browser.sign_in(&service.key).await;

    // The first Tab leads past the navigation.
    browser.keys(TAB).await;
    let focused = "return [document.activeElement.className, document.activeElement.id];";
    assert_eq!(browser.evaluate(focused).await, json!(["skip", ""]));
    browser.keys(ENTER).await;
    assert_eq!(browser.evaluate(focused).await, json!(["", "main"]));

    a_list(&browser, &service).await;
    a_form(&browser, &service).await;
    assert_eq!(browser.troubles().await, Vec::<String>::new());
    browser.close().await;
}

/// All events of a list are ticked, and deleted after a question.
async fn a_list(browser: &Browser, service: &Service) {
    browser.go(&Scene::at("")).await;
    browser.tab_to("nav a[data-key=e]").await;
    browser.keys(ENTER).await;
    browser.until_address("/events", true).await;
    browser.until_it_says("2 events in all.").await;
    let ticked = "return document.querySelectorAll('#live input[type=checkbox]:checked').length;";
    browser.tab_to("#all").await;
    browser.keys(SPACE).await;
    assert_eq!(browser.evaluate(ticked).await, 2);
    browser.tab_to("#selection button").await;
    browser.keys(ENTER).await;
    browser.until_it_says("Delete these 2 events?").await;
    assert_eq!(service.stage.rows().await, 2, "nobody has said yes");
    browser.tab_to("button.danger").await;
    browser.keys(ENTER).await;
    browser.until_it_says("The operation has begun.").await;
    service.stage.until_empty().await;
}

/// An event is emitted.
async fn a_form(browser: &Browser, service: &Service) {
    browser.tab_to("nav a[data-key=n]").await;
    browser.keys(ENTER).await;
    browser.until_address("/new-event", true).await;
    browser.until("#name").await;
    browser.tab_to("#name").await;
    browser.keys("mail").await;
    browser.tab_to("#due").await;
    browser.keys("1 h").await;
    browser.tab_to("form.change button.main").await;
    browser.keys(ENTER).await;
    browser.until_it_says("The event was emitted.").await;
    let emitted = service.get("/events?name=mail").await.json();
    assert_eq!(emitted["items"].as_array().unwrap().len(), 1, "{emitted}");
    assert_eq!(emitted["items"][0]["state"], "delayed");
}

//! Pages about HTTP targets: registered, changed, deleted, and their secrets.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Shown, Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::Service;

const GREET: &str = "/handlers/WORKER/greet";
const TARGET: &str = "/handlers/WORKER/greet/targets/_";
const URL: &str = "https://mail.example/events";

/// Registers a target of another tenant.
async fn put_theirs(service: &Service) {
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let path = format!("/canvases/{OTHER}{GREET}");
    service.ask(&theirs, Method::PUT, &path, json!({"url": "https://theirs.example/"})).await.json();
}

/// The target of `greet`, as the API has it.
async fn target(service: &Service) -> Value {
    service.get(&format!("{GREET}/_")).await.json()
}

/// The secret on a page.
#[track_caller]
fn secret(page: &Shown) -> String {
    let rest = page.html.split("<code>whsec_").nth(1).expect("a secret");
    format!("whsec_{}", rest.split('<').next().unwrap())
}

#[tokio::test]
async fn a_target_is_registered_and_its_secret_shown_once() {
    let service = Service::start().await;
    put_theirs(&service).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    assert!(visitor.page(GREET).await.found().offers("/greet/new-target"));
    let asked = visitor.page(&format!("{GREET}/new-target")).await.found();
    let fields = [("url", URL), ("modifier", ""), ("retries", "7"), ("headers", "X-Api-Key: k3y-one")];
    let done = visitor.send(&asked, "/new-target", &fields).await.found();
    done.says("The target is registered.").says("shown only now").says_nothing_of("k3y-one");
    let secret = secret(&done);
    assert!(secret.len() > 30 && visitor.cookie("wakeq_said").is_none(), "it is in no cookie");
    let shown = target(&service).await;
    assert_eq!((&shown["url"], &shown["policy"]["retries"]), (&json!(URL), &json!(7)));
    assert_eq!(shown["header_names"], json!(["x-api-key"]));
    for path in [TARGET, GREET, "/targets", "/targets?name=greet", "/handlers"] {
        let page = visitor.page(path).await.found();
        page.says_nothing_of(&secret).says_nothing_of("k3y-one").says_nothing_of("theirs.example");
    }
    let page = visitor.page(TARGET).await.found();
    page.says(URL).says("7, the first after 5 min").says("x-api-key").says("by key:tests");
    visitor.page(GREET).await.found().says(URL);

    let again = visitor.send(&asked, "/new-target", &fields).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    again.says("change that one");
    let other = [("url", URL), ("modifier", "loud")];
    visitor.send(&asked, "/new-target", &other).await.found().says("WORKER/greet/loud");
    for (url, modifier, words) in
        [("ftp://a.example", "x", "https://"), ("https://a.example", "pause", "have the modifier pause")]
    {
        let refused = visitor.send(&asked, "/new-target", &[("url", url), ("modifier", modifier)]).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{url}");
        refused.says(words);
    }
}

/// A worker that slows down every target, of both tenants.
const SLOWED: &str = "
    insert into wakeq.workers (name, instance, release, capacity, handler_count, handlers, has_targets, slowed)
    select 'w', gen_random_uuid(), '0.1.0', 64, 0, '{}'::text[], true, jsonb_agg(jsonb_build_object(
               'canvas', t.canvas_id, 'module', t.module::text, 'name', t.name::text, 'modifier', t.modifier::text,
               'revision', t.revision, 'per_second', length(t.url) + 0.5, 'held_s', 30))
      from wakeq.http_targets t";

#[tokio::test]
async fn a_target_without_capacity_says_how_fast_it_gets_events() {
    let service = Service::start().await;
    put_theirs(&service).await;
    service.put(GREET, json!({"url": URL})).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    service.stage.execute(SLOWED).await;
    // Each gets as many as its URL has bytes.
    let [own, theirs] = [URL, "https://theirs.example/"].map(|url| format!("{}.5 per second", url.len()));
    for path in [TARGET, GREET, "/targets"] {
        visitor.page(path).await.found().says(&own).says_nothing_of(&theirs);
    }
    visitor.page(TARGET).await.found().says("It answered 429 or 503").says("sends it none until");
}

#[tokio::test]
async fn a_target_is_changed_unless_somebody_else_has() {
    let service = Service::start().await;
    let made =
        json!({"url": URL, "headers": {"x-api-key": "k3y-one"}, "policy": {"concurrency": 4, "keep_s": 60}});
    service.put(GREET, made).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    let asked = visitor.page(&format!("{TARGET}/change")).await.found();
    asked.says(&format!("value=\"{URL}\"")).says("value=\"4\"").says("x-api-key").says_nothing_of("k3y-one");
    let fields =
        [("url", "https://mail.example/v2"), ("retries", "3"), ("on_death", "halt"), ("keep_s", "60")];
    let done = visitor.send(&asked, "/change", &fields).await.found();
    done.says("The target is changed.").says("https://mail.example/v2").says("its object halts");
    let changed = target(&service).await;
    assert_eq!(changed["header_names"], json!(["x-api-key"]), "headers stay");
    let policy = &changed["policy"];
    assert_eq!(
        (&policy["retries"], &policy["concurrency"]),
        (&json!(3), &Value::Null),
        "what is emptied is usual"
    );
    assert_eq!((&policy["keep_s"], &policy["on_death"]), (&json!(60), &json!("halt")));

    let late = visitor.send(&asked, "/change", &fields).await;
    assert_eq!(late.status, StatusCode::CONFLICT);
    late.says("somebody has changed this target");
    let asked = visitor.page(&format!("{TARGET}/change")).await.found();
    for (fields, words) in [
        (&[("url", URL), ("retries", "many")][..], "Retries"),
        (&[("url", URL), ("headers", "k3y-two")][..], "has no colon"),
        (&[("url", "https://elsewhere.example/")][..], "headers of its own"),
    ] {
        let refused = visitor.send(&asked, "/change", fields).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{words}");
        refused.says(words).says_nothing_of("k3y-two");
    }
    let moved = [("url", "https://elsewhere.example/"), ("no_headers", "true")];
    visitor.send(&asked, "/change", &moved).await.found().says("https://elsewhere.example/");
    assert_eq!(target(&service).await["header_names"], Value::Null);
}

#[tokio::test]
async fn a_secret_is_replaced_by_one_that_is_made_or_given() {
    let service = Service::start().await;
    let first = service.put(GREET, json!({"url": URL, "policy": {"retries": 9}})).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    let asked = visitor.page(&format!("{TARGET}/rotate")).await.found();
    let done = visitor.send(&asked, "/rotate", &[]).await.found();
    done.says("The signing secret is replaced.");
    assert_ne!(secret(&done), first["secret"].as_str().unwrap());
    let rotated = target(&service).await;
    assert!(rotated["previous_secret_until"].is_string());
    assert_eq!((&rotated["url"], &rotated["policy"]["retries"]), (&json!(URL), &json!(9)), "all else stays");
    visitor.page(TARGET).await.found().says("also signed with the secret before this one");
    let again = visitor.send(&asked, "/rotate", &[]).await;
    assert_eq!(again.status, StatusCode::CONFLICT, "the form was sent before");
    assert_eq!(target(&service).await["updated_at"], rotated["updated_at"]);
    let asked = visitor.page(&format!("{TARGET}/rotate")).await.found();
    asked.says("two secrets at most");

    let given = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let done = visitor.send(&asked, "/rotate", &[("secret", given)]).await.found();
    assert_eq!(done.path, on_canvas(CanvasId::DEFAULT, TARGET));
    done.says("The signing secret is replaced.").says_nothing_of("MfKQ");
    let asked = visitor.page(&format!("{TARGET}/rotate")).await.found();
    let refused = visitor.send(&asked, "/rotate", &[("secret", "MfKQ")]).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    refused.says_nothing_of("MfKQ");
}

#[tokio::test]
async fn a_target_is_deleted_after_a_question() {
    let service = Service::start().await;
    service.put(GREET, json!({"url": URL})).await.json();
    put_theirs(&service).await;
    service.post("/events", json!({"name": "greet"})).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    let asked = visitor.page(&format!("{TARGET}/delete")).await.found();
    asked.says(URL).says("The handler has 1 that have not ended").says("No event is deleted");
    let done = visitor.send(&asked, "/delete", &[]).await.found();
    assert_eq!(done.path, on_canvas(CanvasId::DEFAULT, GREET));
    done.says("The target of WORKER/greet/_ is deleted.");
    for verb in ["", "/change", "/rotate", "/delete"] {
        assert_eq!(visitor.page(&format!("{TARGET}{verb}")).await.status, StatusCode::NOT_FOUND, "{verb}");
    }
    assert_eq!(visitor.send(&asked, "/delete", &[]).await.status, StatusCode::NOT_FOUND);
    assert_eq!(service.stage.rows().await, 1);
    assert_eq!(service.stage.count("select count(*) from wakeq.http_targets").await, 1, "another tenant's");
}

/// A part of the API's path that means something else is no modifier: nothing is lifted.
#[tokio::test]
async fn a_word_of_the_path_is_no_modifier() {
    let service = Service::start().await;
    service.put(&format!("{GREET}/pause"), json!({})).await.json();
    let visitor = Visitor::with_key(&service, &service.key).await;
    let token = visitor.page(GREET).await.form("/unpause").token();
    let path = on_canvas(CanvasId::DEFAULT, &format!("{GREET}/targets/pause/delete"));
    let refused = visitor.post(&path, &[("form_token", &token)]).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    refused.says("choose another one");
    let rules = service.get(GREET).await.json()["rules"].clone();
    assert_eq!(rules.as_array().unwrap().len(), 1, "the pause stands");
}

#[tokio::test]
async fn without_rights_a_target_is_neither_offered_nor_changed() {
    let service = Service::start().await;
    service.put(GREET, json!({"url": URL})).await.json();
    let before = target(&service).await;
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let theirs = service.key("other", OTHER, &Scope::ALL).await;
    let reader = Visitor::with_key(&service, &reader).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    let page = reader.page(TARGET).await.found();
    for verb in ["change", "rotate", "delete"] {
        assert!(!page.offers(&format!("/_/{verb}")), "{verb}");
        let page = format!("{TARGET}/{verb}");
        let path = on_canvas(CanvasId::DEFAULT, &page);
        for (visitor, status) in [(&reader, StatusCode::FORBIDDEN), (&theirs, StatusCode::NOT_FOUND)] {
            assert_eq!(visitor.page(&page).await.status, status, "{page}");
            assert_eq!(
                visitor.post(&path, &[("url", "https://evil.example/")]).await.status,
                status,
                "{page}"
            );
        }
    }
    for path in ["/targets", TARGET] {
        assert_eq!(theirs.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(target(&service).await, before);
}

#[tokio::test]
async fn targets_are_listed_page_by_page() {
    let service = Service::start().await;
    put_theirs(&service).await;
    for number in 0..101 {
        let path = format!("{GREET}/m-{number:03}");
        service.put(&path, json!({"url": format!("https://mail.example/{number:03}")})).await.json();
    }
    let visitor = Visitor::with_key(&service, &service.key).await;
    let first = visitor.page("/targets?name=greet").await.found();
    first.says("mail.example/000").says("mail.example/099").says_nothing_of("mail.example/100");
    let link = first.html.split(" rel=\"next\"").next().unwrap().rsplit("href=\"").next().unwrap();
    let query = link.split('"').next().unwrap().replace("&amp;", "&");
    let second = visitor.page(&format!("/targets{query}")).await.found();
    second.says("mail.example/100").says_nothing_of("mail.example/099").says_nothing_of("theirs.example");
    visitor.page("/targets?name=other").await.found().says("No handler has a target like that.");
    let page = visitor.page(GREET).await.found();
    page.says("mail.example/049").says_nothing_of("mail.example/050").says("All targets of this handler");
}

/// With the status, the time and the event. They tell of the events of the canvas, so who may read
/// one handler only is not shown them.
#[tokio::test]
async fn the_last_answers_of_a_target_are_shown() {
    let service = Service::start().await;
    put_theirs(&service).await;
    service.put(GREET, json!({"url": URL})).await.json();
    let id = service.stage.emit("greet").await;
    let refused = "
        with tried as (update wakeq.events_v2 set claims = 1, retries = 1 returning *)
        insert into wakeq.attempts (canvas_id, event_id, number, nonce, outcome, started_at, took_us, error)
        select canvas_id, id, 1, 7, 'retried', now(), 250000, 'the target answered 500 <b>with</b> 3 bytes' from tried";
    service.stage.execute(refused).await;
    let visitor = Visitor::with_key(&service, &service.key).await;
    let page = visitor.page(TARGET).await.found();
    page.says("Last answers")
        .says(">500<")
        .says("retried")
        .says(&format!("/events/{id}"))
        .says("&lt;b&gt;with");
    let narrow = json!({"holder": "narrow", "scopes": ["read:WORKER/greet"]});
    let narrow = service.admin(Method::POST, "/keys", narrow).await.json();
    let narrow = Visitor::with_key(&service, narrow["key"].as_str().unwrap()).await;
    let page = narrow.page(TARGET).await.found();
    page.says(URL).says_nothing_of("Last answers").says_nothing_of(&id.to_string());
    let theirs = service.key("other", OTHER, &Scope::ALL).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    let page = theirs.get(&on_canvas(OTHER, TARGET)).await.found();
    page.says("It has refused nothing lately").says_nothing_of(&id.to_string());
}

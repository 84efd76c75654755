//! What is in events takes a scope of its own: without it the API, the pages and the command line
//! show that an event is there, and not what it holds.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use super::visitor::{Visitor, on_canvas};
use crate::support::OTHER;
use crate::support::service::{Answer, Service, has};

const HIDDEN: &str = "hidden: this needs the scope `values`";
/// In all that is written on the default canvas.
const SECRET: &str = "sesame";
/// In all that is written on the other one.
const THEIRS: &str = "of-others";

/// A canvas with an event, an object with a state, a cron, a log and a checkpoint, each with a
/// secret. Returns the event's id.
async fn filled(service: &Service, key: &str, canvas: CanvasId, secret: &str) -> String {
    let on = |path: &str| format!("/canvases/{canvas}{path}");
    let event = json!({"name": "mail", "value": {"to": secret}});
    let emitted = service.ask(key, Method::POST, &on("/events"), event).await.json();
    let changed = json!({"main": {"name": "index"}, "state": {"is": secret}});
    service.ask(key, Method::POST, &on("/objects/work:1/events"), changed).await.json();
    let cron = json!({"expression": "@yearly", "value": secret});
    service.ask(key, Method::PUT, &on("/cron/report"), cron).await.json();
    let events = json!([{"name": "opened", "payload": {"by": secret}, "metadata": {"at": secret}}]);
    let append = json!({"appends": [{"category": "accounts", "stream": "a", "events": events}]});
    service.ask(key, Method::POST, &on("/log"), append).await.json();
    service
        .stage
        .execute("update wakeq.events_v2 set locked_at = now(), claims = 1, nonce = 5 where name = 'mail'")
        .await;
    let id = emitted["id"].as_str().unwrap().to_owned();
    let checkpoint = json!({"claim": "0000000100000005", "value": secret});
    let stored = service.ask(key, Method::PUT, &on(&format!("/events/{id}/checkpoint")), checkpoint).await;
    assert_eq!(stored.status, StatusCode::NO_CONTENT, "{}", stored.text);
    id
}

/// All that shows what is in events: whether it is refused without the scope, or hidden.
fn reads(id: &str) -> Vec<(String, bool)> {
    let refused = [
        format!("/events/{id}?view=full"),
        format!("/events/{id}?view=%66ull"),
        format!("/events/{id}/checkpoint"),
        "/events?value_text=sesame".to_owned(),
        "/events?%76alue=$.to%20=%20%22sesame%22".to_owned(),
        "/events/count?value_text=sesame".to_owned(),
        "/dead-events?value_text=sesame".to_owned(),
        "/ended-events?result=$.value%20=%20%22sesame%22".to_owned(),
        "/ended-events/count?resul%74_text=value".to_owned(),
    ];
    let hidden = ["/objects/work:1", "/cron/report", "/log?category=accounts"].map(str::to_owned);
    refused.into_iter().map(|path| (path, true)).chain(hidden.into_iter().map(|path| (path, false))).collect()
}

async fn read(service: &Service, key: &str, canvas: CanvasId, path: &str) -> Answer {
    service.ask(key, Method::GET, &format!("/canvases/{canvas}{path}"), Value::Null).await
}

#[tokio::test]
async fn values_are_shown_to_those_who_may_see_them() {
    let service = Service::start().await;
    let id = filled(&service, &service.key, CanvasId::DEFAULT, SECRET).await;
    let everything = [Scope::Read, Scope::Emit, Scope::Operate, Scope::Admin];
    let reader = service.key("reader", CanvasId::DEFAULT, &everything).await;
    let seer = service.key("seer", CanvasId::DEFAULT, &[Scope::Read, Scope::Values]).await;
    let alone = service.key("alone", CanvasId::DEFAULT, &[Scope::Values]).await;
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    filled(&service, &theirs, OTHER, THEIRS).await;
    for (path, is_refused) in reads(&id) {
        let blind = read(&service, &reader, CanvasId::DEFAULT, &path).await;
        assert!(!blind.text.contains(SECRET), "{path}: {}", blind.text);
        match is_refused {
            true => blind.says((403, "forbidden"), "this needs the scope `values`"),
            false => has(&blind.json(), json!({"hidden": HIDDEN})),
        }
        let seen = read(&service, &seer, CanvasId::DEFAULT, &path).await;
        assert!(seen.status.is_success(), "{path}: {}", seen.text);
        assert!(seen.text.contains(SECRET) || path.contains("alue"), "{path}: {}", seen.text);
        assert!(!seen.text.contains(HIDDEN) && !seen.text.contains(THEIRS), "{path}: {}", seen.text);
        read(&service, &alone, CanvasId::DEFAULT, &path).await.says((403, "forbidden"), "`read`");
        read(&service, &theirs, CanvasId::DEFAULT, &path).await.says((404, "not-found"), "");
        read(&service, &seer, OTHER, &path).await.says((404, "not-found"), "");
    }
    let shown = read(&service, &reader, CanvasId::DEFAULT, &format!("/events/{id}")).await.json();
    has(&shown, json!({"id": id, "value": null, "result": null}));
    assert_eq!(shown["checkpoint"]["bytes"], SECRET.len() + 2);
    let own = read(&service, &theirs, OTHER, "/objects/work:1").await.json();
    assert_eq!(own["state"], json!({"is": THEIRS}));
    let stage = service.stop().await;
    let of = async |who: &str| -> Vec<String> {
        let actions = "select distinct action from wakeq.audit_log
                        where actor = $1 and outcome = 'done' order by action";
        sqlx::query_scalar(actions).bind(format!("key:{who}")).fetch_all(&stage.pool).await.unwrap()
    };
    let counts = ["count_ended_events", "count_events"];
    let lists = ["list_dead_events", "list_ended_events", "list_events", "read_log"];
    let singles = ["show_checkpoint", "show_cron", "show_event", "show_object", "sign-in"];
    assert_eq!(of("seer").await, [&counts[..], &lists, &singles].concat());
    assert_eq!(of("reader").await, ["sign-in"], "what was hidden has not been looked at");
}

/// An operation tells by its count what is in values, if its filter asks for that.
#[tokio::test]
async fn an_operation_that_asks_for_values_takes_the_scope() {
    let service = Service::start().await;
    service.post("/events", json!({"name": "mail", "value": {"to": SECRET}})).await.json();
    let both = [Scope::Read, Scope::Operate];
    let blind = service.key("blind", CanvasId::DEFAULT, &both).await;
    let seer = service.key("seer", CanvasId::DEFAULT, &[&both[..], &[Scope::Values]].concat()).await;
    let path = |canvas: CanvasId| format!("/canvases/{canvas}/operations/preview");
    for condition in [json!({"value_text": SECRET}), json!({"value": format!("$.to = \"{SECRET}\"")})] {
        let body = json!({"kind": "run-now", "filter": condition});
        for to in [path(CanvasId::DEFAULT), format!("/canvases/{}/operations", CanvasId::DEFAULT)] {
            let refused = service.ask(&blind, Method::POST, &to, body.clone()).await;
            refused.says((403, "forbidden"), "`values`");
        }
        let counted = service.ask(&seer, Method::POST, &path(CanvasId::DEFAULT), body.clone()).await.json();
        assert_eq!(counted["looked_at"], 1, "{counted}");
        service.ask(&seer, Method::POST, &path(OTHER), body).await.says((404, "not-found"), "");
    }
    let plain = json!({"kind": "run-now", "filter": {"name": "mail"}});
    service.ask(&blind, Method::POST, &path(CanvasId::DEFAULT), plain).await.json();
    assert_eq!(service.stop().await.count("select count(*) from wakeq.operations").await, 0);
}

/// What an operation has asked for in values, with how many have it, tells what is in them.
#[tokio::test]
async fn what_operations_asked_for_in_values_is_hidden_as_these_are() {
    let service = Service::start().await;
    service.post("/events", json!({"name": "mail", "value": {"to": SECRET}})).await.json();
    let both = [Scope::Read, Scope::Operate];
    let blind = service.key("blind", CanvasId::DEFAULT, &both).await;
    let seer = service.key("seer", CanvasId::DEFAULT, &[&both[..], &[Scope::Values]].concat()).await;
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let list = format!("/canvases/{}/operations", CanvasId::DEFAULT);
    let mut paths = vec![list.clone()];
    for condition in [json!({"value_text": SECRET}), json!({"value": format!("$.to = \"{SECRET}\"")})] {
        let begun =
            service.ask(&seer, Method::POST, &list, json!({"kind": "run-now", "filter": condition})).await;
        assert_eq!(begun.status, StatusCode::ACCEPTED, "{}", begun.text);
        paths.push(format!("{list}/{}", begun.json()["id"].as_str().unwrap()));
    }
    for path in &paths {
        let ask = async |key: &str| service.ask(key, Method::GET, path, Value::Null).await;
        let (hidden, shown) = (ask(&blind).await.text, ask(&seer).await.text);
        assert!(hidden.contains(HIDDEN) && !hidden.contains(SECRET), "{hidden}");
        assert!(shown.contains(SECRET) && !shown.contains(HIDDEN), "{shown}");
        ask(&theirs).await.says((404, "not-found"), "");
    }
    for path in &paths[1..] {
        let cancelled = service.ask(&blind, Method::DELETE, path, Value::Null).await;
        assert!(cancelled.text.contains(HIDDEN) && !cancelled.text.contains(SECRET), "{}", cancelled.text);
    }
    let visitor = Visitor::with_key(&service, &blind).await;
    visitor.page("/operations").await.found().says("hidden: this needs the scope").says_nothing_of(SECRET);
}

/// Neither is a value shown on a page without the scope, nor a control that shows it, also if its
/// address is typed in.
#[tokio::test]
async fn pages_show_values_to_those_who_may_see_them() {
    let service = Service::start().await;
    let id = filled(&service, &service.key, CanvasId::DEFAULT, SECRET).await;
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    filled(&service, &theirs, OTHER, THEIRS).await;
    let blind = [Scope::Read, Scope::Emit, Scope::Operate];
    let blind = service.key("blind", CanvasId::DEFAULT, &blind).await;
    let blind = Visitor::with_key(&service, &blind).await;
    let seer = service.key("seer", CanvasId::DEFAULT, &[Scope::Read, Scope::Values]).await;
    let seer = Visitor::with_key(&service, &seer).await;
    let theirs = Visitor::with_key(&service, &theirs).await;
    let event = format!("/events/{id}");
    for path in ["/objects/work:1", "/cron/report", "/log", &event] {
        let page = blind.page(path).await.found();
        page.says("Hidden: to see values").says_nothing_of(SECRET).says_nothing_of("?value=shown");
        assert_eq!(theirs.page(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    blind.page("/cron/report").await.found().says_nothing_of("Change the cron");
    let typed = blind.page(&format!("{event}?value=shown")).await;
    assert_eq!(typed.status, StatusCode::FORBIDDEN);
    typed.says("needs the scope `values`").says_nothing_of(SECRET);
    let searched = blind.page("/events?value_text=sesame").await;
    searched.says("needs the scope `values`");

    seer.page(&event).await.found().says("?value=shown").says_nothing_of(SECRET);
    for path in ["/objects/work:1", "/cron/report", "/log", &format!("{event}?value=shown")] {
        seer.page(path).await.found().says(SECRET).says_nothing_of("Hidden: to see values");
    }
    theirs.get(&on_canvas(OTHER, "/log")).await.found().says(THEIRS).says_nothing_of(SECRET);
}

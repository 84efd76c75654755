//! The edge of the API: what every route has in common.

use reqwest::{Method, StatusCode};
use serde_json::Value;
use uuid::Uuid;
use wakeq::CanvasId;
use wakeq_service::access::Scope;
use wakeq_service::server::HttpConfig;

use crate::support::service::{Answer, Service};

/// The answer to a request without a credential.
async fn bare(service: &Service, path: &str) -> Answer {
    Answer::of(service.request(Method::GET, path)).await
}

#[tokio::test]
async fn a_key_sees_its_canvas_and_no_other() {
    let service = Service::start().await;
    service.stage.emit("greet").await;
    let list = service.get("/handlers").await.json();
    assert_eq!((&list["items"][0]["name"], &list["items"][0]["waiting"]), (&"greet".into(), &1.into()));

    let foreign = format!("/v1/canvases/{}/handlers", Uuid::new_v4());
    let foreign = Answer::of(service.request(Method::GET, &foreign).bearer_auth(&service.key)).await;
    assert_eq!(foreign.problem(), (404, "not-found".into()));
    let emitter = service.key("emitter", CanvasId::DEFAULT, &[Scope::Emit]).await;
    let path = format!("/v1/canvases/{}/handlers", CanvasId::DEFAULT);
    let lacking = Answer::of(service.request(Method::GET, &path).bearer_auth(emitter)).await;
    assert_eq!(lacking.problem(), (403, "forbidden".into()));
    let stranger = Answer::of(service.request(Method::GET, &path)).await;
    assert_eq!(stranger.problem(), (401, "unauthenticated".into()));
    assert_eq!(stranger.headers["www-authenticate"], "Bearer realm=\"wakeq\"");
    service.stop().await;
}

#[tokio::test]
async fn unknown_paths_and_methods_get_a_problem() {
    let service = Service::start().await;
    let nowhere = bare(&service, "/v2").await;
    assert_eq!(nowhere.problem(), (404, "not-found".into()));
    let method = Answer::of(service.request(Method::POST, "/livez")).await;
    assert_eq!(method.problem(), (405, "method-not-allowed".into()));
    assert_eq!(method.headers["allow"], "GET,HEAD");
    service.stop().await;
}

#[tokio::test]
async fn the_process_says_whether_it_lives_and_is_ready() {
    let service = Service::start().await;
    let alive = bare(&service, "/livez").await;
    assert_eq!(alive.status, StatusCode::NO_CONTENT);
    let ready = bare(&service, "/readyz").await.json();
    assert_eq!(ready["status"], "ready", "{ready}");
    service.stop().await;

    // As on a server whose libraries are not those of its catalog.
    let service = Service::start().await;
    let broken = "create or replace function wakeq.is_shown(queue text) returns boolean
        language plpgsql stable as $$ begin raise exception 'could not load library'; end $$";
    service.stage.execute(broken).await;
    let ready = bare(&service, "/readyz").await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    let body: Value = serde_json::from_str(&ready.text).unwrap();
    let checks = &body["checks"];
    assert!(checks["database"] == true && checks["migrations"] == false, "{body}");
    service.stop().await;
}

#[tokio::test]
async fn the_document_and_its_page_are_served() {
    let service = Service::start().await;
    let document = bare(&service, "/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let page = bare(&service, "/docs/").await;
    assert!(page.status.is_success() && page.text.contains("swagger-ui"), "{}", page.text);
    assert!(!page.text.contains("https://"), "the page asks nobody else");
    service.stop().await;
}

/// For programs that read documents. Links lead to the documents from anywhere.
#[tokio::test]
async fn the_list_of_the_documents_is_served() {
    let service = Service::start().await;
    let list = bare(&service, "/llms.txt").await;
    assert_eq!(list.status, StatusCode::OK);
    assert_eq!(list.headers["content-type"], "text/plain; charset=utf-8");
    assert!(list.text.starts_with("# wakeq\n\n> "), "{}", list.text);
    let links: Vec<_> = list.text.split("](").skip(1).collect();
    assert!(links.len() > 40, "{links:?}");
    assert!(links.iter().all(|link| link.starts_with("https://")), "{links:?}");
    let guide = concat!("- [Guide](", env!("CARGO_PKG_REPOSITORY"), "/raw/main/docs/guide.md): ");
    assert!(list.text.contains(guide), "{}", list.text);
    service.stop().await;
}

#[tokio::test]
async fn documentation_is_there_unless_it_is_switched_off() {
    let without_pages = || HttpConfig { page: false, ..HttpConfig::default() };
    let (open, closed) = (without_pages(), HttpConfig { docs: false, ..without_pages() });
    for (config, status) in [(open, 200), (closed, 404)] {
        let service = Service::with(config).await;
        // A browser gets only the address, and may follow a redirect.
        let start = bare(&service, "/").await;
        let shown = start.text.contains("swagger-ui")
            || start.headers.get("location").is_some_and(|to| to == "/docs/");
        assert_eq!(shown, status == 200, "{}", start.status);
        assert_eq!(start.status == StatusCode::NOT_FOUND, status == 404, "{}", start.status);
        for path in ["/openapi.json", "/docs/", "/llms.txt"] {
            let answer = bare(&service, path).await;
            assert_eq!(answer.status, status, "{path}");
        }
        service.stop().await;
    }
}

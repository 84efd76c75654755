//! Names that a reader need not know: types of entities, and categories and streams of the log, by
//! name and page by page.

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{NONE, Service};

/// Entities of three types here, of which another canvas has one and one of its own.
const ENTITIES: &str = "
    insert into wakeq.entities (entity_type, canvas_id, id, version, last_link)
    select of_type, canvas::uuid, 'e' || n, 1, 1
      from generate_series(1, 3) n,
           (values ('account', '00000000-0000-0000-0000-000000000000'), ('company', '00000000-0000-0000-0000-000000000000'),
                   ('order', '00000000-0000-0000-0000-000000000000'), ('bill', '00000000-0000-0000-0000-000000000007'),
                   ('company', '00000000-0000-0000-0000-000000000007')) t (of_type, canvas)";

/// Appends here and to another canvas, and returns a key for that.
async fn appended(service: &Service) -> String {
    let append = |category: &str, stream: &str, count: usize| {
        let events = vec![json!({"name": "opened"}); count];
        json!({"category": category, "stream": stream, "events": events})
    };
    let own = [
        ("accounts", "b", 2),
        ("accounts", "a", 1),
        ("accounts", "c", 1),
        ("zoo", "z", 1),
        ("bills", "x", 1),
    ];
    let own = own.map(|(category, stream, count)| append(category, stream, count));
    service.post("/log", json!({ "appends": own })).await.json();
    let theirs = service.key("theirs", OTHER, &Scope::ALL).await;
    let appends = json!({"appends": [append("accounts", "theirs", 1), append("theirs", "a", 1)]});
    service.ask(&theirs, Method::POST, &format!("/canvases/{OTHER}/log"), appends).await.json();
    theirs
}

async fn listed(service: &Service, path: &str, field: &str) -> Vec<String> {
    let items = service.items(path).await;
    items.iter().map(|item| item[field].as_str().unwrap().to_owned()).collect()
}

async fn theirs(service: &Service, key: &str, path: &str) -> Value {
    service.ask(key, Method::GET, &format!("/canvases/{OTHER}{path}"), NONE).await.json()["items"].clone()
}

#[tokio::test]
async fn types_of_entities_are_listed() {
    let service = Service::start().await;
    assert_eq!(service.get("/entities").await.json(), json!({"items": [], "next_cursor": null}));
    service.stage.execute(ENTITIES).await;
    for limit in [1, 2, 3, 100] {
        let types = listed(&service, &format!("/entities?limit={limit}"), "type").await;
        assert_eq!(types, ["account", "company", "order"], "{limit}");
    }
    let key = service.key("theirs", OTHER, &[Scope::Read]).await;
    let own = theirs(&service, &key, "/entities").await;
    assert_eq!(own, json!([{"type": "bill"}, {"type": "company"}]));
    // A cursor of the one canvas is a place in the list of the other.
    assert_eq!(theirs(&service, &key, "/entities?cursor=account").await, own);
    assert_eq!(theirs(&service, &key, "/entities?cursor=company").await, json!([]));
    for wrong in ["cursor=a%20b", "limit=0", "type=account"] {
        assert_eq!(service.get(&format!("/entities?{wrong}")).await.problem().0, 400, "{wrong}");
    }
    service.stop().await;
}

#[tokio::test]
async fn categories_and_streams_are_listed() {
    let service = Service::start().await;
    assert_eq!(service.get("/log/categories").await.json(), json!({"items": [], "next_cursor": null}));
    let key = appended(&service).await;
    for limit in [1, 2, 3, 100] {
        let categories = listed(&service, &format!("/log/categories?limit={limit}"), "category").await;
        assert_eq!(categories, ["accounts", "bills", "zoo"], "{limit}");
        let path = format!("/log/streams?category=accounts&limit={limit}");
        assert_eq!(listed(&service, &path, "stream").await, ["a", "b", "c"], "{limit}");
    }
    let streams = service.get("/log/streams?category=accounts").await.json();
    assert_eq!((&streams["items"][1]["position"], &streams["items"][0]["position"]), (&json!(1), &json!(0)));
    let read = service.get("/log?category=accounts&stream=b").await.json();
    assert_eq!(streams["items"][1]["seq"], read["items"][1]["seq"]);
    assert_eq!(service.get("/log/streams?category=none").await.json()["items"], json!([]));

    let own = theirs(&service, &key, "/log/categories").await;
    assert_eq!(own, json!([{"category": "accounts"}, {"category": "theirs"}]));
    assert_eq!(theirs(&service, &key, "/log/categories?cursor=bills").await, json!([{"category": "theirs"}]));
    let own = theirs(&service, &key, "/log/streams?category=accounts&cursor=a").await;
    assert_eq!((own.as_array().unwrap().len(), &own[0]["stream"]), (1, &json!("theirs")));
    assert_eq!(theirs(&service, &key, "/log/streams?category=zoo").await, json!([]));
    for wrong in
        ["streams", "streams?category=a%20b", "streams?category=a&cursor=%20", "categories?cursor=%20"]
    {
        assert_eq!(service.get(&format!("/log/{wrong}")).await.problem().0, 400, "{wrong}");
    }
    service.stop().await;
}

#[tokio::test]
async fn names_are_for_readers() {
    let service = Service::start().await;
    let emitter = service.key("emitter", CanvasId::DEFAULT, &[Scope::Emit, Scope::Operate]).await;
    let elsewhere = service.key("elsewhere", OTHER, &Scope::ALL).await;
    for path in ["/entities", "/log/categories", "/log/streams?category=accounts"] {
        let path = format!("/canvases/{}{path}", CanvasId::DEFAULT);
        assert_eq!(service.ask(&emitter, Method::GET, &path, NONE).await.problem().0, 403, "{path}");
        assert_eq!(service.ask(&elsewhere, Method::GET, &path, NONE).await.problem().0, 404, "{path}");
    }
    service.stop().await;
}

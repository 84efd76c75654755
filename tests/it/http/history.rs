//! The history over HTTP: attempts of an event, ended events in pages and singly, and nothing for
//! another tenant.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq::events::Keep;
use wakeq::machine::Outcome;
use wakeq::{EventId, Route};
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::Service;

/// Three ended events of the default canvas, the last of which ended last, and two attempts at the
/// first.
const ENDED: &str = "
    insert into wakeq.ended_events (canvas_id, id, kept_until, module, name, modifier, value, result, outcome, error, enqueued_at,
                                    due_at, ended_at, started_at, took_us, worker, claims, retries, losses)
    select '00000000-0000-0000-0000-000000000000', lpad(n::text, 32, '0')::uuid, now() + interval '1 day', 'WORKER', 'h' || n % 2, '_',
           '7', '{\"n\":' || n || '}', (array['completed', 'failed', 'cancelled'])[n], 'no', now(), now(),
           now() + n * interval '1 ms', now(), 1500000, 'orders-1', n, 0, 0
      from generate_series(1, 3) n;
    insert into wakeq.attempts (canvas_id, event_id, number, nonce, outcome, worker, started_at, took_us, error)
    select '00000000-0000-0000-0000-000000000000', lpad('1', 32, '0')::uuid, n, 5, 'retried', 'orders-1', now(), 250000, 'no route'
      from generate_series(1, 2) n";

fn id(number: u32) -> String {
    format!("00000000-0000-0000-0000-{number:012}")
}

#[tokio::test]
async fn an_ended_event_tells_its_whole_story() {
    let service = Service::start().await;
    sqlx::raw_sql(ENDED).execute(&service.stage.pool).await.unwrap();
    let path = format!("/events/{}", id(1));
    let shown = service.get(&path).await.json();
    assert_eq!((&shown["state"], &shown["took_s"]), (&json!("completed"), &json!(1.5)), "{shown}");
    assert_eq!(shown["attempts"].as_array().unwrap().len(), 2);
    let attempt = &shown["attempts"][0];
    assert_eq!(
        (&attempt["number"], &attempt["outcome"], &attempt["error"], &attempt["took_s"]),
        (&json!(1), &json!("retried"), &json!("no route"), &json!(0.25))
    );
    assert!(shown.get("value").is_none() && shown.get("result").is_none(), "{shown}");
    let full = service.get(&format!("{path}?view=full")).await.json();
    assert_eq!((&full["value"], &full["result"]), (&json!(7), &json!({"n": 1})));

    let key = service.key("other", OTHER, &[Scope::Read, Scope::Values]).await;
    for foreign in [format!("{path}?view=full"), path] {
        let foreign = format!("/canvases/{OTHER}{foreign}");
        let answer = service.ask(&key, Method::GET, &foreign, Value::Null).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
    }
    service.stop().await;
}

/// A batch is not among the options that are shown, even if it is all that the emit gave.
#[tokio::test]
async fn a_kept_member_shows_its_batch() {
    let service = Service::start().await;
    let on_end = json!({"on_end": {"name": "imported", "value": 7}});
    service.post("/batches/import:42", on_end).await.json();
    let route = Route::new("row").keep(Keep::all(Duration::from_secs(3600)));
    let (mut worker, _seen) = service.stage.recording(route);
    let key = service.key("other", OTHER, &[Scope::Read]).await;
    for (asked, options) in [(json!({"keep_s": 60}), json!({"keep_s": 60.0})), (Value::Null, Value::Null)] {
        let member = json!({"name": "row", "value": 1, "batch": "import:42", "options": asked});
        let id = service.post("/events", member).await.json()["id"].as_str().unwrap().to_owned();
        worker.until(EventId(id.parse().unwrap()), Outcome::Deleted).await;
        let path = format!("/events/{id}");
        let shown = service.get(&path).await.json();
        assert_eq!((&shown["state"], &shown["batch"]), (&json!("completed"), &json!("import:42")), "{shown}");
        assert_eq!(shown["options"], options, "{shown}");
        let theirs = format!("/canvases/{OTHER}{path}");
        let theirs = service.ask(&key, Method::GET, &theirs, Value::Null).await;
        assert_eq!(theirs.status, StatusCode::NOT_FOUND);
    }
    worker.stop().await;
    service.stop().await;
}

#[tokio::test]
async fn ended_events_are_listed_in_pages() {
    let service = Service::start().await;
    sqlx::raw_sql(ENDED).execute(&service.stage.pool).await.unwrap();
    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    let whole = service.get("/ended-events").await.json();
    assert_eq!(ids(&whole), [id(3), id(2), id(1)], "the latest first");
    assert_eq!(whole["items"][2]["has_result"], true);
    let first = service.get("/ended-events?limit=2").await.json();
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = service.get(&format!("/ended-events?limit=2&cursor={cursor}")).await.json();
    assert_eq!((ids(&first), ids(&second)), (vec![id(3), id(2)], vec![id(1)]));
    assert_eq!(second["next_cursor"], Value::Null);
    for (query, expected) in [
        ("outcome=failed", vec![id(2)]),
        ("name=h1", vec![id(3), id(1)]),
        ("name=h1&outcome=cancelled", vec![id(3)]),
        ("name=none", vec![]),
    ] {
        assert_eq!(ids(&service.get(&format!("/ended-events?{query}")).await.json()), expected, "{query}");
    }
    for wrong in ["outcome=dead", "cursor=d~1~2", "module=WORKER", "limit=1001"] {
        let answer = service.get(&format!("/ended-events?{wrong}")).await;
        assert_eq!(answer.problem(), (400, "bad-request".to_owned()), "{wrong}");
    }

    let key = service.key("other", OTHER, &[Scope::Read]).await;
    let theirs = format!("/canvases/{OTHER}/ended-events");
    assert_eq!(service.ask(&key, Method::GET, &theirs, Value::Null).await.json()["items"], json!([]));
    service.stop().await;
}

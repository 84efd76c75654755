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

/// Three events as above, each with tags, a batch and another value; and one of another tenant
/// that is like the first.
const SEARCHED: &str = "
    update wakeq.ended_events
       set options = jsonb_build_object('tags', jsonb_build_array('customer:' || right(id::text, 1), 'all'), 'batch', 'import:42'),
           value = '{\"customer\":{\"id\":\"' || right(id::text, 1) || '\"}}';
    insert into wakeq.ended_events (canvas_id, id, kept_until, module, name, modifier, value, result, outcome, error, enqueued_at,
                                    due_at, ended_at, claims, retries, losses, options)
    select '00000000-0000-0000-0000-000000000007', '00000000-0000-0000-0000-000000000004', kept_until, module, name, modifier,
           value, result, outcome, error, enqueued_at, due_at, ended_at, 1, 0, 0, options
      from wakeq.ended_events where id = '00000000-0000-0000-0000-000000000001'";

#[tokio::test]
async fn ended_events_are_searched_and_counted() {
    let service = Service::start().await;
    sqlx::raw_sql(ENDED).execute(&service.stage.pool).await.unwrap();
    sqlx::raw_sql(SEARCHED).execute(&service.stage.pool).await.unwrap();
    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    for (query, expected) in [
        ("tag=customer:2", vec![id(2)]),
        ("tag=all&tag=customer:3", vec![id(3)]),
        ("tag=customer:1,customer:2", vec![]),
        ("batch=import:42&name=h1", vec![id(3), id(1)]),
        ("batch=import:4", vec![]),
        ("object=work:1", vec![]),
        ("modifier=x", vec![]),
        ("error_text=no&outcome=failed", vec![id(2)]),
        ("error_text=yes", vec![]),
        ("value=%24.customer.id%20%3D%20%221%22", vec![id(1)]),
        ("value_text=%223%22", vec![id(3)]),
        ("result=%24.n%20%3D%202", vec![id(2)]),
        ("result_text=%22n%22:3", vec![id(3)]),
        ("since=2020-01-01T00:00:00Z&emitted_since=2020-01-01T00:00:00Z", vec![id(3), id(2), id(1)]),
        ("before=2020-01-01T00:00:00Z", vec![]),
        ("emitted_before=2020-01-01T00:00:00Z", vec![]),
    ] {
        let list = service.get(&format!("/ended-events?{query}")).await.json();
        assert_eq!(ids(&list), expected, "{query}");
        let counted = service.get(&format!("/ended-events/count?{query}")).await.json();
        assert_eq!((&counted["count"], &counted["next_cursor"]), (&json!(expected.len()), &Value::Null));
    }
    let first = service.get("/ended-events?tag=customer:1").await.json();
    assert_eq!(first["looked_at"], 3, "it says how many it has examined: {first}");
    assert_eq!(first["items"][0]["tags"], json!(["customer:1", "all"]));
    assert_eq!(first["items"][0]["batch"], "import:42");
    let all = service.get("/ended-events?tag=all").await.json();
    assert!(all.get("looked_at").is_none(), "{all}");
    let page = service.get("/ended-events?tag=all&limit=1").await.json();
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = service.get(&format!("/ended-events?tag=all&cursor={cursor}")).await.json();
    assert_eq!((ids(&page), ids(&rest)), (vec![id(3)], vec![id(2), id(1)]));
    let counted = service.get(&format!("/ended-events/count?cursor={cursor}")).await.json();
    assert_eq!(counted, json!({"count": 2, "looked_at": 2, "next_cursor": null}));
    service.stop().await;
}

#[tokio::test]
async fn a_wrong_search_of_ended_events_is_refused_with_words() {
    let service = Service::start().await;
    for (query, words) in [
        ("tag=", "a tag has 1 to 100"),
        ("tag=a,,b", "a tag has 1 to 100"),
        ("value=7", "a condition on the value looks like"),
        ("result=%24.a%20%3E%207", "a condition on the value looks like"),
        ("value_text=", "has 1 to 200 bytes"),
        ("result_text=", "has 1 to 200 bytes"),
        ("since=yesterday", ""),
        ("state=dead", ""),
        ("batch=a%20b", "batch"),
        ("module=WORKER", "`module` needs a `name`"),
        ("cursor=e~WORKER~ship~0~00000000000000000000000000000000", "cursor"),
    ] {
        for list in ["/ended-events", "/ended-events/count"] {
            service.get(&format!("{list}?{query}")).await.says((400, "bad-request"), words);
        }
    }
    service.get("/ended-events/count?limit=1").await.says((400, "bad-request"), "");
    service.stop().await;
}

/// Another tenant has its own. Whoever may not see values is not told what is in them.
#[tokio::test]
async fn a_search_of_ended_events_is_of_its_canvas_and_of_those_who_may() {
    let service = Service::start().await;
    sqlx::raw_sql(ENDED).execute(&service.stage.pool).await.unwrap();
    sqlx::raw_sql(SEARCHED).execute(&service.stage.pool).await.unwrap();
    let key = service.key("other", OTHER, &[Scope::Read]).await;
    let theirs = async |query: &str| {
        let path = format!("/canvases/{OTHER}/ended-events{query}");
        service.ask(&key, Method::GET, &path, Value::Null).await
    };
    let found = theirs("?tag=customer:1").await.json();
    assert_eq!((found["items"].as_array().unwrap().len(), &found["items"][0]["id"]), (1, &json!(id(4))));
    assert_eq!(theirs("?tag=customer:2").await.json()["items"], json!([]));
    assert_eq!(theirs("/count").await.json()["count"], 1);
    for query in ["value=%24%20%3D%207", "value_text=7", "result=%24%20%3D%207", "result_text=7"] {
        for path in [format!("?{query}"), format!("/count?{query}")] {
            assert_eq!(theirs(&path).await.status, StatusCode::FORBIDDEN, "{path}");
        }
    }
    let audit =
        "select count(*) from wakeq.audit_log where action = 'count_ended_events' and outcome = 'done'";
    service.get("/ended-events/count").await.json();
    service.get("/ended-events/count?result_text=7").await.json();
    assert_eq!(service.stop().await.count(audit).await, 1, "only what tells of values is recorded");
}

//! Tags and filters over HTTP: parameters, counts, re-tagging, and another tenant with the same
//! tags.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use wakeq_service::access::Scope;

use crate::support::OTHER;
use crate::support::service::{Answer, Service};

async fn emit(service: &Service, event: Value) -> String {
    service.post("/events", event).await.json()["id"].as_str().unwrap().to_owned()
}

async fn set_tags(service: &Service, id: &str, tags: Value) -> Answer {
    Answer::of(service.on_canvas(Method::PUT, &format!("/events/{id}/tags")).json(&json!({"tags": tags})))
        .await
}

/// The ids that a list has, in its order.
fn ids(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn events_are_found_by_tags_and_values() {
    let service = Service::start().await;
    let tagged = |value: Value, tags: Value| json!({"name": "ship", "value": value, "delay_s": 3600, "options": {"tags": tags}});
    let first = emit(&service, tagged(json!({"customer": {"id": "7"}}), json!(["customer:7", "late"]))).await;
    let second = emit(&service, tagged(json!({"customer": {"id": "8"}}), json!(["customer:8"]))).await;
    let third = emit(&service, json!({"name": "mail", "value": {"customer": {"id": "7"}}})).await;
    let path = "value=%24.customer.id%20%3D%20%227%22";
    let of_ship = format!("{path}&name=ship");
    for (query, expected) in [
        ("tag=customer:7", vec![&first]),
        ("tag=late&tag=customer:7", vec![&first]),
        ("tag=late,customer:7", vec![&first]),
        ("tag=customer:7&tag=customer:8", vec![]),
        ("tag=customer:8&state=ready", vec![]),
        ("tag=customer:8&state=ready&state=delayed", vec![&second]),
        (path, vec![&third, &first]),
        (of_ship.as_str(), vec![&first]),
        ("value_text=%228%22", vec![&second]),
        ("error_text=no", vec![]),
        ("due_since=2020-01-01T00:00:00Z&emitted_before=2020-01-01T00:00:00Z", vec![]),
    ] {
        let list = service.get(&format!("/events?{query}")).await.json();
        assert_eq!(ids(&list), expected, "{query}");
        let counted = service.get(&format!("/events/count?{query}")).await.json();
        assert_eq!((&counted["count"], &counted["next_cursor"]), (&json!(expected.len()), &Value::Null));
    }
    let list = service.get("/events?tag=late").await.json();
    assert_eq!(list["items"][0]["tags"], json!(["customer:7", "late"]));
    assert!(list.get("looked_at").is_none(), "{list}");
    let looked = service.get("/events?value_text=nowhere").await.json();
    assert_eq!(looked, json!({"items": [], "next_cursor": null, "looked_at": 3}));
    let shown = service.get(&format!("/events/{first}")).await.json();
    assert_eq!(shown["options"], json!({"tags": ["customer:7", "late"]}));
    for query in [
        "tag=",
        "tag=a,,b",
        "state=dead",
        "state=nothing",
        "value=7",
        "value=%24.a%20%3E%207",
        "value_text=",
        "modifier=a%20b",
        "limit=1&limit=2",
        "tags=a",
    ] {
        let refused = service.get(&format!("/events?{query}")).await;
        assert_eq!(refused.problem(), (400, "bad-request".into()), "{query}");
    }
    service.stop().await;
}

/// By object in the order of its chain, and by batch; another tenant has the same.
#[tokio::test]
async fn events_are_found_by_object_and_batch() {
    let service = Service::start().await;
    let key = service.key("other", OTHER, &Scope::ALL).await;
    let mut found = Vec::new();
    for (canvas, key) in [(wakeq::CanvasId::DEFAULT, &service.key), (OTHER, &key)] {
        let ask = async |method, path: &str, body: Value| {
            service.ask(key, method, &format!("/canvases/{canvas}{path}"), body).await.json()
        };
        ask(Method::POST, "/batches/import:42", json!({"on_end": {"name": "imported"}})).await;
        for (name, delay_s) in [("ship", 7200), ("mail", 3600)] {
            let event = json!({"name": name, "object": "work:1", "batch": "import:42", "delay_s": delay_s});
            found.push(ask(Method::POST, "/events", event).await["id"].as_str().unwrap().to_owned());
        }
        let other = json!({"name": "ship", "object": "work:2", "delay_s": 3600});
        ask(Method::POST, "/events", other).await;
    }
    for query in ["object=work:1", "object=work:1/post:7", "batch=import:42"] {
        let list = service.get(&format!("/events?{query}")).await.json();
        assert_eq!(ids(&list), [&found[0], &found[1]], "{query}");
        let first = service.get(&format!("/events?{query}&limit=1")).await.json();
        let cursor = first["next_cursor"].as_str().unwrap();
        let second = service.get(&format!("/events?{query}&limit=1&cursor={cursor}")).await.json();
        assert_eq!((ids(&second), &second["next_cursor"]), (vec![found[1].as_str()], &Value::Null));
        assert_eq!(service.get(&format!("/events/count?{query}")).await.json()["count"], 2);
        assert_eq!(service.get(&format!("/dead-events?{query}")).await.json()["items"], json!([]));
        let (name, value) = query.split_once('=').unwrap();
        let delete = json!({"kind": "delete", "filter": {name: value}});
        assert_eq!(service.post("/operations/preview", delete).await.json()["count"], 2);
        // As after a page whose last event is of another handler.
        let mails = format!("{query}&name=mail&cursor={cursor}");
        let of_mail = service.get(&format!("/events?{mails}")).await.json();
        assert_eq!(ids(&of_mail), [&found[1]], "{query}");
        assert_eq!(service.get(&format!("/events/count?{mails}")).await.json()["count"], 1);
    }
    let first = service.get("/events?name=mail&limit=1").await.json();
    assert_eq!(first["next_cursor"], Value::Null, "there is one only");
    let of_ship = service.get("/events?name=ship&limit=1").await.json();
    let cursor = of_ship["next_cursor"].as_str().unwrap();
    let refused = service.get(&format!("/events?name=mail&cursor={cursor}")).await;
    assert_eq!(refused.problem(), (400, "bad-request".into()), "without either it is of its handler");
    for query in [
        "object=a%20b",
        "object=",
        "batch=a%20b",
        "object=work:1&cursor=e~WORKER~ship~0~00000000000000000000000000000000",
    ] {
        let refused = service.get(&format!("/events?{query}")).await;
        assert_eq!(refused.problem(), (400, "bad-request".into()), "{query}");
    }
    service.stop().await;
}

#[tokio::test]
async fn tags_are_replaced_and_belong_to_their_canvas() {
    let service = Service::start().await;
    let event = json!({"name": "ship", "options": {"tags": ["customer:7"]}});
    let (mine, key) =
        (emit(&service, event.clone()).await, service.key("other", OTHER, &[Scope::Emit, Scope::Read]).await);
    let theirs = format!("/canvases/{OTHER}/events");
    service.ask(&key, Method::POST, &theirs, event).await.json();
    let list =
        async || service.ask(&key, Method::GET, &format!("{theirs}?tag=customer:7"), Value::Null).await;
    assert_eq!(ids(&list().await.json()).len(), 1);

    assert_eq!(set_tags(&service, &mine, json!(["customer:8", "late"])).await.status, StatusCode::OK);
    assert_eq!(ids(&service.get("/events?tag=customer:7").await.json()), Vec::<&str>::new());
    assert_eq!(ids(&service.get("/events?tag=late,customer:8").await.json()), [mine.as_str()]);
    assert_eq!(ids(&list().await.json()).len(), 1, "theirs is as it was");
    for (tags, status) in [(json!(["a,b"]), 400), (json!([""]), 400), (json!(vec!["a"; 11]), 200)] {
        let answer = set_tags(&service, &mine, tags.clone()).await;
        assert_eq!(answer.status.as_u16(), status, "{tags}");
    }
    let many: Vec<String> = (0..11).map(|number| format!("n:{number}")).collect();
    assert_eq!(set_tags(&service, &mine, json!(many)).await.problem(), (400, "bad-request".into()));
    assert_eq!(set_tags(&service, &mine, json!([])).await.status, StatusCode::OK);
    let shown = service.get(&format!("/events/{mine}")).await.json();
    assert!(shown.get("options").is_none_or(Value::is_null), "{shown}");

    let operator = service.key("operator", OTHER, &[Scope::Operate]).await;
    let foreign = format!("{theirs}/{mine}/tags");
    let refused = service.ask(&operator, Method::PUT, &foreign, json!({"tags": ["x"]})).await;
    assert_eq!(refused.problem(), (404, "not-found".into()));
    let audit = "select count(*) from wakeq.audit_log where action = 'set-tags' and outcome = 'done'";
    assert_eq!(service.stop().await.count(audit).await, 3);
}

/// Also those of a dead event. Another tenant's operator is not told that there is one.
#[tokio::test]
async fn tags_that_make_the_options_too_long_are_refused() {
    let service = Service::start().await;
    let key = service.key("other", OTHER, &[Scope::Operate]).await;
    let live = emit(&service, json!({"name": "ship", "delay_s": 3600})).await;
    let dead = emit(&service, json!({"name": "ship"})).await;
    // One hundred delays with so many digits that 3.4 KB are taken.
    let fill = "update wakeq.events_v2 set options = jsonb_build_object('delays_s',
                    array_fill(1.000000000000000000000000000000::numeric, array[100]))";
    service.stage.execute(fill).await;
    let die = "with gone as (delete from wakeq.events_v2 where delay_until < now() + interval '1 minute' returning *)
               insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims,
                                              losses, last_error, cause, options)
               select id, canvas_id, module, name, modifier, value, 2, enqueued_at, 3, 0, 'no', 'retries', options
                 from gone";
    service.stage.execute(die).await;
    let long: Vec<String> = (0..10).map(|number| format!("{number}:{}", "x".repeat(98))).collect();
    for id in [&live, &dead] {
        assert_eq!(set_tags(&service, id, json!(["late"])).await.status, StatusCode::OK);
        set_tags(&service, id, json!(long)).await.says((400, "bad-request"), "fewer or shorter");
        let foreign = format!("/canvases/{OTHER}/events/{id}/tags");
        let theirs = service.ask(&key, Method::PUT, &foreign, json!({"tags": long})).await;
        assert_eq!(theirs.problem(), (404, "not-found".into()));
    }
    assert_eq!(ids(&service.get("/events?tag=late").await.json()), [live.as_str()]);
    assert_eq!(ids(&service.get("/dead-events?tag=late").await.json()), [dead.as_str()]);
    service.stop().await;
}

/// Dead events keep their tags, and are found by them and by their errors.
#[tokio::test]
async fn dead_events_are_found() {
    let service = Service::start().await;
    for tag in ["customer:7", "customer:8"] {
        emit(&service, json!({"name": "ship", "options": {"tags": [tag]}})).await;
    }
    let die = "with gone as (delete from wakeq.events_v2 returning *)
               insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims,
                                              losses, last_error, cause, options)
               select id, canvas_id, module, name, modifier, value, 2, enqueued_at, 3, 0,
                      case when options->'tags' ? 'customer:7' then 'it timed out' else 'no such customer' end,
                      'retries', options
                 from gone";
    service.stage.execute(die).await;
    for (query, count) in [
        ("", 2),
        ("?tag=customer:7", 1),
        ("?tag=customer:7&error_text=timed", 1),
        ("?tag=customer:8&error_text=timed", 0),
        ("?error_text=timed&name=ship", 1),
        ("?error_text=timed&name=mail", 0),
        ("?since=2020-01-01T00:00:00Z&before=2020-01-02T00:00:00Z", 0),
    ] {
        let list = service.get(&format!("/dead-events{query}")).await.json();
        assert_eq!(ids(&list).len(), count, "{query}");
    }
    let list = service.get("/dead-events?tag=customer:8").await.json();
    assert_eq!(list["items"][0]["tags"], json!(["customer:8"]));
    let counted = service.get("/events/count?state=dead&tag=customer:8").await.json();
    assert_eq!(counted, json!({"count": 1, "looked_at": 1, "next_cursor": null}));
    service.stop().await;
}

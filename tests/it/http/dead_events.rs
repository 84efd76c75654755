//! Dead events over HTTP: listed to the end, redriven, deleted, and how many at a time.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wakeq::CanvasId;
use wakeq::machine::Outcome;

use crate::support::Statements;
use crate::support::service::Service;

/// Inserts this many dead events of a handler, which died an hour ago, a second apart.
async fn insert(service: &Service, name: &str, count: i32) {
    let insert = "insert into wakeq.dead_events (id, canvas_id, module, name, modifier, value, retries, enqueued_at, claims, losses,
                                                 cause, last_error, died_at)
                  select gen_random_uuid(), $1, 'WORKER', $2, '_', '1', 2, now(), 3, 0, 'retries', 'no such mailbox',
                         date_trunc('second', now()) - interval '1 h' - n * interval '1 s'
                    from generate_series(1, $3) n";
    let insert = sqlx::query(insert).bind(CanvasId::DEFAULT.0).bind(name).bind(count);
    insert.execute(&service.stage.pool).await.unwrap();
}

/// The answer to a redrive or a deletion, with its `before` split off.
async fn end(service: &Service, verb: &str, which: Value) -> (Value, String) {
    let mut answer = service.post(&format!("/dead-events/{verb}"), which).await.json();
    let before = answer.as_object_mut().unwrap().remove("before").unwrap();
    (answer, before.as_str().unwrap().to_owned())
}

async fn redrive(service: &Service, which: Value) -> (Value, String) {
    end(service, "redrive", which).await
}

async fn delete(service: &Service, which: Value) -> (Value, String) {
    end(service, "delete", which).await
}

async fn dead(service: &Service) -> i64 {
    let count = "select count(*) from wakeq.dead_events";
    service.stage.pool.value(count).await
}

#[tokio::test]
async fn the_dead_are_listed_to_the_end() {
    let service = Service::start().await;
    insert(&service, "greet", 7).await;
    insert(&service, "other", 3).await;
    let found = service.items("/dead-events?limit=2&name=greet").await;
    let ids: BTreeSet<&str> = found.iter().map(|dead| dead["id"].as_str().unwrap()).collect();
    assert_eq!((found.len(), ids.len()), (7, 7));
    let died: Vec<&str> = found.iter().map(|dead| dead["died_at"].as_str().unwrap()).collect();
    assert!(died.is_sorted_by(|one, next| one > next), "the latest first: {died:?}");
    let first = &found[0];
    assert_eq!((&first["cause"], &first["last_error"]), (&json!("retries"), &json!("no such mailbox")));
    // From one moment on, and before another.
    let (since, before) = (died[4], died[2]);
    let between = service.get(&format!("/dead-events?name=greet&since={since}&before={before}")).await.json();
    assert_eq!(json!([found[3], found[4]]), between["items"]);
    assert_eq!(service.get("/dead-events").await.json()["items"].as_array().unwrap().len(), 10);
    for query in
        ["limit=0", "limit=1001", "cursor=x", "cursor=a~1", "module=WORKER", "since=today", "state=dead"]
    {
        let refused = service.get(&format!("/dead-events?{query}")).await;
        assert_eq!(refused.problem(), (400, "bad-request".into()), "{query}");
    }
    service.stop().await;
}

/// A single event is redriven and runs; the second time it is not found.
#[tokio::test]
async fn a_single_dead_event_is_redriven_once() {
    let service = Service::start().await;
    insert(&service, "greet", 2).await;
    let list = service.get("/dead-events").await.json();
    let (one, two) = (list["items"][0]["id"].as_str().unwrap(), list["items"][1]["id"].as_str().unwrap());
    let redrive = async |id: &str| service.post(&format!("/dead-events/{id}/redrive"), json!({})).await;
    assert_eq!(redrive(one).await.json(), json!({"id": one}));
    let back = service.get(&format!("/events/{one}")).await.json();
    assert_eq!((&back["state"], &back["retries"]), (&json!("ready"), &json!(0)));
    assert_eq!(redrive(one).await.problem(), (404, "not-found".into()));
    // The broker is down: the row counts, and its promise makes up for the message.
    service.notifier.break_down("away");
    assert_eq!(redrive(two).await.json(), json!({"id": two}));
    assert_eq!((dead(&service).await, service.stage.rows().await), (0, 2));
    service.notifier.mend();
    let (mut worker, mut seen) = service.stage.recording("greet");
    assert_eq!(seen.next().await.id.to_string(), one);
    worker.until_count(1, Outcome::Deleted).await;
    worker.stop().await;
    service.stop().await;
}

/// By a filter, with a dry run first; everything only if the request says so.
#[tokio::test]
async fn many_are_brought_back_or_deleted_by_what_they_have_in_common() {
    let service = Service::start().await;
    for name in ["a", "b", "c"] {
        insert(&service, name, 4).await;
    }
    let post = async |what: &str, body: Value| service.post(&format!("/dead-events/{what}"), body).await;
    let delete = async |body: Value| delete(&service, body).await.0;
    for body in [
        json!({}),
        json!({"dry_run": true}),
        json!({"module": "WORKER"}),
        json!({"name": "a", "all": true}),
        json!({"name": "a b"}),
        json!({"handler": "a"}),
        json!({"since": "today"}),
        json!({"all": true, "count_up_to": 0}),
        json!({"all": true, "count_up_to": 1_000_001, "dry_run": true}),
    ] {
        for what in ["redrive", "delete"] {
            assert_eq!(post(what, body.clone()).await.problem(), (400, "bad-request".into()), "{body}");
        }
    }
    assert_eq!((dead(&service).await, service.stage.rows().await), (12, 0));
    let (tried, _) = redrive(&service, json!({"name": "a", "dry_run": true})).await;
    assert_eq!((tried, dead(&service).await), (json!({"redriven": 4, "more": false}), 12));
    let (done, _) = redrive(&service, json!({"name": "a"})).await;
    assert_eq!(done, json!({"redriven": 4, "more": false}));
    assert_eq!((dead(&service).await, service.stage.rows().await), (8, 4));
    let tried = delete(json!({"name": "b", "dry_run": true})).await;
    assert_eq!((tried, dead(&service).await), (json!({"deleted": 4, "more": false}), 8));
    assert_eq!(delete(json!({"name": "b"})).await, json!({"deleted": 4, "more": false}));
    let none = delete(json!({"before": "2020-01-01T00:00:00Z"})).await;
    assert_eq!((none, dead(&service).await), (json!({"deleted": 0, "more": false}), 4));
    service.notifier.break_down("away");
    let (done, _) = redrive(&service, json!({"all": true})).await;
    assert_eq!(done, json!({"redriven": 4, "more": false}), "counted, though nobody could be told");
    assert_eq!((dead(&service).await, service.stage.rows().await), (0, 8));
    service.stop().await;
}

/// Events that die after the first request are not redriven by later ones with its `before`.
#[tokio::test]
async fn a_redrive_leaves_events_that_died_after_its_start() {
    let service = Service::start().await;
    insert(&service, "greet", 2).await;
    let (first, before) = redrive(&service, json!({"name": "greet"})).await;
    assert_eq!(first, json!({"redriven": 2, "more": false}));
    insert(&service, "greet", 3).await;
    let again = "update wakeq.dead_events set died_at = clock_timestamp()";
    service.stage.execute(again).await;
    let (next, same) = redrive(&service, json!({"name": "greet", "before": before})).await;
    assert_eq!((next, same), (json!({"redriven": 0, "more": false}), before));
    assert_eq!(dead(&service).await, 3);
    let (given, earlier) = redrive(&service, json!({"before": "2020-01-01T00:00:00Z"})).await;
    assert_eq!((&given["redriven"], earlier.as_str()), (&json!(0), "2020-01-01T00:00:00Z"));
    service.stop().await;
}

/// No request touches more than 10,000.
#[tokio::test]
async fn more_than_ten_thousand_take_more_than_one_request() {
    let service = Service::start().await;
    insert(&service, "greet", 20_003).await;
    let all = json!({"all": true});
    let (tried, _) = redrive(&service, json!({"all": true, "dry_run": true})).await;
    assert_eq!(tried, json!({"redriven": 10_000, "more": true}));
    let (done, _) = redrive(&service, all.clone()).await;
    assert_eq!(done, json!({"redriven": 10_000, "more": true}));
    assert_eq!((dead(&service).await, service.stage.rows().await), (10_003, 10_000));
    let (tried, _) = delete(&service, json!({"all": true, "dry_run": true})).await;
    assert_eq!(tried, json!({"deleted": 10_000, "more": true}));
    let (done, before) = delete(&service, all).await;
    assert_eq!(done, json!({"deleted": 10_000, "more": true}));
    insert(&service, "late", 2).await;
    let later = "update wakeq.dead_events set died_at = clock_timestamp() where name = 'late'";
    service.stage.execute(later).await;
    let (rest, same) = delete(&service, json!({"before": before})).await;
    assert_eq!((rest, same), (json!({"deleted": 3, "more": false}), before), "not what died meanwhile");
    assert_eq!(dead(&service).await, 2);
    service.stop().await;
}

//! A queue is pulled, is processed by workers, or has a target.

use reqwest::Method;
use serde_json::json;
use wakeq::Handlers;
use wakeq::machine::Outcome;
use wakeq::queues::{NewQueue, PullPolicy};

use super::{NONE, Puller, QUEUE, canvas, email, pulled};
use crate::support::handlers::recording;
use crate::support::service::has;

#[tokio::test]
async fn a_queue_is_registered_as_pulled() {
    let puller = Puller::of(NewQueue { pull: Some(PullPolicy::default()), ..pulled() }).await;
    let path = format!("/admin/queues/{QUEUE}");
    let ask = async |method, body| puller.service.ask(&puller.key, method, &path, body).await;
    let shown = ask(Method::GET, NONE).await.json();
    let usual =
        json!({"retries": 2, "delay_s": 300.0, "factor": 1, "delay_max_s": 86_400.0, "on_death": "skip"});
    has(&shown, json!({"pull": usual, "target": null, "in_flight_max": 1000}));
    let body = |pull| json!({"patterns": [":email_event:"], "pull": pull});
    let again = ask(Method::PUT, body(json!({}))).await.json();
    assert_eq!(again["changed"], json!(false), "{again}");
    let put = ask(Method::PUT, body(json!({"retries": 7, "delay_max_s": 10}))).await.json();
    assert_eq!(put["changed"], true);
    has(&put["queue"]["pull"], json!({"retries": 7, "delay_s": 10.0}));
    for (pull, words) in [
        (json!({"retries": 1001}), "1,000"),
        (json!({"delay_s": 20, "delay_max_s": 10}), "longest"),
        (json!({"factor": 0}), "factor"),
        (json!({"delay_max_s": 3e6}), "30 days"),
        (json!({"timeout_s": 3}), "a field is unknown"),
    ] {
        let answer = ask(Method::PUT, body(pull.clone())).await;
        answer.says((400, "bad-request"), words);
    }
    let mut both = body(json!({}));
    both["target"] = json!({"url": "https://a.example/"});
    let answer = ask(Method::PUT, both).await;
    assert!(answer.problem().0 == 400 && answer.text.contains("not both"), "{}", answer.text);
    puller.stop().await;
}

/// A worker with a function for a pulled queue leaves its copies alone, even those that it is
/// notified of.
#[tokio::test]
async fn no_worker_takes_what_is_pulled_until_it_is_not() {
    let puller = Puller::start().await;
    let stage = puller.stage();
    puller.emit_two().await;
    let (handler, mut runs) = recording();
    let mut worker = stage.worker(Handlers::new().on_queue(QUEUE, handler));
    let sql = "select id from wakeq.events_v2 where canvas_id = $1";
    let id: uuid::Uuid = sqlx::query_scalar(sql).bind(canvas(1).0).fetch_one(&stage.pool).await.unwrap();
    let notification = wakeq::notify::Notification::new(wakeq::EventId(id), canvas(1));
    stage.notifier.publish(&[notification]).await.unwrap();
    worker.until(notification.id, Outcome::Deferred).await;
    assert!(runs.rest().is_empty());
    let lease = puller.lease(json!({})).await;
    assert_eq!(lease.iter().map(|copy| copy.canvas).collect::<Vec<_>>(), [1]);

    puller.register(QUEUE, &NewQueue { pull: None, ..pulled() }).await;
    assert_eq!(runs.next().await.value::<u64>().unwrap(), 2, "what waits is for the worker");
    stage.queue.emit(email(canvas(3), 3)).await.unwrap();
    assert_eq!(runs.next().await.value::<u64>().unwrap(), 3);
    let refused = puller.ask("lease", json!({})).await;
    refused.says((409, "conflict"), "is not pulled");
    puller.complete(&lease[0]).await;
    worker.stop().await;
    puller.stop().await;
}

/// Copies that wait when a queue becomes a pulled one can be pulled, and a drained queue is removed
/// with its last copy.
#[tokio::test]
async fn copies_that_waited_for_workers_are_pulled_and_drained() {
    let puller = Puller::of(NewQueue { pull: None, ..pulled() }).await;
    puller.emit_two().await;
    puller.register(QUEUE, &pulled()).await;
    let copies = puller.lease(json!({"max": 10})).await;
    assert_eq!(copies.len(), 2);
    let path = format!("/admin/queues/{QUEUE}");
    let deleted = puller.service.ask(&puller.key, Method::DELETE, &path, NONE).await.json();
    assert_eq!(deleted, json!({"gone": false}));
    for copy in &copies {
        puller.complete(copy).await;
    }
    let deleted = puller.service.ask(&puller.key, Method::DELETE, &path, NONE).await.json();
    assert_eq!(deleted, json!({"gone": true}));
    assert_eq!(puller.ask("lease", json!({})).await.problem(), (404, "not-found".into()));
    puller.stop().await;
}

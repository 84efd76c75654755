//! What an emit asks for holds for leased events: its retries, its last moment, its batch and how
//! long it is kept. What an attempt has left comes with the next one.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::{CanvasId, Event};

use super::Puller;
use crate::support::OTHER;
use crate::support::service::has;

const HOUR: Duration = Duration::from_secs(3600);

fn mail(value: u64) -> Event {
    Event::new("mail", &value).unwrap()
}

impl Puller {
    async fn emits(&self, event: Event) {
        self.service.stage.queue.emit(event).await.unwrap();
    }

    /// The causes of the dead events of the default canvas.
    async fn causes(&self) -> Vec<String> {
        self.dead(CanvasId::DEFAULT).await.into_iter().map(|(cause, _)| cause).collect()
    }
}

/// The retries and delays are the emit's, and those of the policy elsewhere.
#[tokio::test]
async fn an_event_has_retries_and_delays_of_its_own() {
    let puller = Puller::start().await;
    let asking = mail(1).retries(0).unwrap().tag("customer:7").unwrap();
    puller.emits(asking.limit("customer:7").unwrap().urgent()).await;
    puller.emit(OTHER, [2]).await;
    let event = puller.one().await;
    has(
        &event,
        json!({"options": {"retries": 0, "tags": ["customer:7"], "limits": ["customer:7"], "urgent": true}}),
    );
    let [theirs] = &puller.lease_on(OTHER, json!({})).await[..] else { panic!("one event") };
    assert!(theirs.get("options").is_none(), "{theirs}");
    assert_eq!(puller.on(&event, "release", json!({"error": "no"})).await.json()["died"], true);
    assert_eq!(puller.causes().await, ["retries"]);
    let released =
        puller.on_as((OTHER, &theirs["id"]), &theirs["lease"], "release", json!({"error": "no"})).await;
    assert_eq!(released.json()["died"], false, "its handler has a retry");
    puller.emits(mail(3).delays([HOUR]).unwrap()).await;
    let released = puller.on(&puller.one().await, "release", json!({"error": "no"})).await.json();
    assert!(released["retry_s"].as_f64().unwrap() >= 3600.0, "{released}");
    puller.stop().await;
}

/// It dies when it would be leased, or when its retry would begin too late.
#[tokio::test]
async fn an_event_dies_when_it_is_too_late_to_start() {
    let puller = Puller::start().await;
    let now = puller.service.stage.admin.clock().await.unwrap();
    puller.emits(mail(1).not_after(now - HOUR).unwrap()).await;
    puller.emits(mail(2).not_after(now - HOUR).unwrap().canvas(OTHER)).await;
    puller.emits(mail(3).not_after(now + HOUR).unwrap()).await;
    let event = puller.one().await;
    assert_eq!(event["value"], 3);
    assert_eq!(puller.causes().await, ["expired"]);
    assert!(puller.dead(OTHER).await.is_empty(), "nobody has leased it");
    let released = puller.on(&event, "release", json!({"error": "no", "retry_s": 7200})).await.json();
    has(&released, json!({"died": true, "retry_s": null}));
    assert_eq!(puller.causes().await, ["expired", "expired"]);
    puller.stop().await;
}

/// The end of the last member ends the batch, whether it completes or dies.
#[tokio::test]
async fn the_last_leased_member_ends_its_batch() {
    let puller = Puller::start().await;
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let batch = puller.service.stage.queue.batch("import").unwrap().canvas(canvas);
        assert!(batch.open(Event::new("imported", &0).unwrap()).await.unwrap());
        for value in 1..=2 {
            puller.emits(mail(value).batch("import").unwrap().canvas(canvas)).await;
        }
        batch.close().await.unwrap();
    }
    let ends = "select count(*) from wakeq.events_v2 where name = 'imported'";
    let [first, second] = &puller.lease(json!({"max": 2})).await[..] else { panic!("two events") };
    assert_eq!(first["batch"], "import");
    puller.completes(first).await;
    assert_eq!(puller.service.stage.count(ends).await, 0);
    let died = puller.on(second, "release", json!({"error": "no such user", "dead": true})).await.json();
    assert_eq!(died["died"], true);
    assert_eq!(puller.service.stage.count(ends).await, 1, "that of this canvas");
    puller.stop().await;
}

#[tokio::test]
async fn an_event_is_kept_and_hands_on_its_checkpoint() {
    let puller = Puller::start().await;
    puller.emits(mail(1).keep(HOUR).unwrap()).await;
    puller.emit(OTHER, [2]).await;
    let event = puller.one().await;
    assert!(event.get("checkpoint").is_none(), "{event}");
    let path = format!("/events/{}/checkpoint", event["id"].as_str().unwrap());
    let left = json!({"claim": event["lease"], "value": {"page": 7}});
    assert_eq!(puller.service.put(&path, left.clone()).await.status, 204);
    let stranger = format!("/canvases/{OTHER}{path}");
    let stranger = puller.service.ask(&puller.other_key, Method::PUT, &stranger, left).await;
    assert_eq!(stranger.problem(), (404, "not-found".into()));
    puller.on(&event, "release", json!({})).await.json();
    let again = puller.one().await;
    assert_eq!(again["checkpoint"]["value"], json!({"page": 7}));
    puller.completes(&again).await;
    let [theirs] = &puller.lease_on(OTHER, json!({})).await[..] else { panic!("one event") };
    let completed = puller.on_as((OTHER, &theirs["id"]), &theirs["lease"], "complete", json!({})).await;
    assert_eq!(completed.status, 204);
    let kept = "select count(*) from wakeq.ended_events where outcome = 'completed' and took_us is not null";
    assert_eq!(puller.service.stage.count(kept).await, 1, "that of the other canvas asked for nothing");
    assert_eq!(puller.service.stage.rows().await, 0);
    puller.stop().await;
}

/// The result is part of the completion, and of what is kept. One that can't be stored is refused
/// before anything is done.
#[tokio::test]
async fn an_event_is_completed_with_a_result() {
    let puller = Puller::start().await;
    puller.emits(mail(1).keep(HOUR).unwrap()).await;
    puller.emits(mail(2)).await;
    puller.emit(OTHER, [3]).await;
    let [kept, dropped] = &puller.lease(json!({"max": 2})).await[..] else { panic!("two events") };
    let receipt = json!({"result": {"receipt": 7}});
    let long = puller.on(kept, "complete", json!({"result": "x".repeat(65_535)})).await;
    long.says((400, "bad-request"), "at most 65,536 bytes");
    let stranger = puller.on_as((OTHER, &kept["id"]), &kept["lease"], "complete", receipt.clone()).await;
    assert_eq!(stranger.problem(), (404, "not-found".into()));
    for event in [kept, dropped] {
        let completed = puller.on(event, "complete", receipt.clone()).await;
        assert_eq!(completed.status, 204, "{}", completed.text);
    }
    let shown = async |event: &Value| {
        puller.service.get(&format!("/events/{}?view=full", event["id"].as_str().unwrap())).await
    };
    let ended = shown(kept).await.json();
    has(&ended, json!({"state": "completed", "value": 1, "result": {"receipt": 7}}));
    assert_eq!(shown(dropped).await.problem(), (404, "not-found".into()));
    let theirs = format!("/canvases/{OTHER}/events/{}", kept["id"].as_str().unwrap());
    let theirs = puller.service.ask(&puller.other_key, Method::GET, &theirs, Value::Null).await;
    assert_eq!(theirs.problem(), (404, "not-found".into()));
    assert_eq!(puller.service.stage.rows().await, 1, "that of the other canvas");
    puller.stop().await;
}

/// `null` is a result as well, and the longest one has 65,536 bytes.
#[tokio::test]
async fn a_result_is_any_json_of_64_kib() {
    let puller = Puller::start().await;
    puller.emit(OTHER, [3]).await;
    let longest = json!("x".repeat(65_534));
    for result in [Value::Null, json!("\0"), longest] {
        puller.emits(mail(1).keep(HOUR).unwrap()).await;
        let event = puller.one().await;
        assert_eq!(puller.on(&event, "complete", json!({"result": result})).await.status, 204);
        let path = format!("/events/{}?view=full", event["id"].as_str().unwrap());
        let shown = puller.service.get(&path).await.json();
        assert_eq!((&shown["result"], shown.get("result").is_some()), (&result, true));
    }
    puller.stop().await;
}

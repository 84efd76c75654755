//! The history of leased events: an attempt is noted by the statement that ends its lease, and
//! measured from the lease on.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::{CanvasId, Event};

use super::Puller;
use crate::support::OTHER;
use crate::support::service::{Answer, NONE, has};

const HOUR: Duration = Duration::from_secs(3600);

/// Number, outcome and error of an attempt.
type Noted = (u64, String, Value);

impl Puller {
    /// What a canvas is shown of an event.
    async fn shown(&self, canvas: CanvasId, id: &Value) -> Answer {
        let path = format!("/canvases/{canvas}/events/{}", id.as_str().unwrap());
        self.service.ask(self.key(canvas), Method::GET, &path, NONE).await
    }

    /// The attempts that a canvas is shown of an event.
    async fn attempts(&self, canvas: CanvasId, id: &Value) -> Vec<Noted> {
        let shown = self.shown(canvas, id).await.json();
        let attempts = shown["attempts"].as_array().cloned().unwrap_or_default();
        let told = |attempt: &Value| {
            assert_eq!(attempt.get("worker"), None, "no worker has made it: {attempt}");
            let (number, outcome) = (&attempt["number"], &attempt["outcome"]);
            (number.as_u64().unwrap(), outcome.as_str().unwrap().to_owned(), attempt["error"].clone())
        };
        attempts.iter().map(told).collect()
    }

    /// The last attempts at all events of the handler on a canvas.
    async fn last(&self, canvas: CanvasId) -> Vec<Value> {
        let path = format!("/canvases/{canvas}/attempts?name=mail");
        let last = self.service.ask(self.key(canvas), Method::GET, &path, NONE).await.json();
        last["attempts"].as_array().unwrap().clone()
    }

    /// Moves the beginning of the leases of the default canvas to a minute ago.
    async fn hold_for_a_minute(&self) {
        let shift = "update wakeq.events_v2 set leased_at = leased_at - interval '1 minute'
                      where locked_at is not null and canvas_id = '00000000-0000-0000-0000-000000000000'";
        self.service.stage.execute(shift).await;
    }
}

fn noted(number: u64, outcome: &str, error: &str) -> Noted {
    (number, outcome.to_owned(), json!(error))
}

/// What was given back or ran out is not noted: its number is missing.
#[tokio::test]
async fn attempts_at_a_leased_event_are_noted() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let event = puller.one().await;
    let id = &event["id"];
    puller.hold_for_a_minute().await;
    puller.on(&event, "extend", json!({"lease_s": 600})).await.json();
    puller.on(&event, "release", json!({"error": "no route"})).await.json();
    let shown = puller.shown(CanvasId::DEFAULT, id).await.json();
    let took_s = shown["attempts"][0]["took_s"].as_f64().unwrap();
    assert!(took_s >= 60.0, "an extension begins no attempt: {shown}");
    assert_eq!(puller.attempts(CanvasId::DEFAULT, id).await, [noted(1, "retried", "no route")]);

    puller.on(&puller.one().await, "release", json!({})).await.json();
    puller.on(&puller.one().await, "release", json!({"retry_s": 0})).await.json();
    let lost = puller.one().await;
    puller.run_out().await;
    let late = puller.on(&lost, "release", json!({"error": "too late"})).await;
    assert_eq!(late.problem(), (410, "lease-over".into()));
    let died = puller.on(&puller.one().await, "release", json!({"error": "still no route"})).await.json();
    assert_eq!(died["died"], true);
    let expected = [
        noted(1, "retried", "no route"),
        noted(3, "postponed", "not yet"),
        noted(5, "dead", "still no route"),
    ];
    assert_eq!(puller.attempts(CanvasId::DEFAULT, id).await, expected);
    let last = puller.last(CanvasId::DEFAULT).await;
    assert!(last.len() == 3 && last.iter().all(|attempt| attempt["event"] == *id), "{last:?}");

    assert_eq!(puller.shown(OTHER, id).await.problem(), (404, "not-found".into()));
    assert_eq!(puller.last(OTHER).await, [] as [Value; 0]);
    let theirs = puller.lease_on(OTHER, json!({})).await.remove(0);
    assert_eq!(puller.attempts(OTHER, &theirs["id"]).await, [] as [Noted; 0]);
    let failed = json!({"error": "theirs"});
    puller.on_as((OTHER, &theirs["id"]), &theirs["lease"], "release", failed).await.json();
    assert_eq!(puller.attempts(OTHER, &theirs["id"]).await, [noted(1, "retried", "theirs")]);
    assert_eq!(puller.last(CanvasId::DEFAULT).await, last);
    puller.stop().await;
}

/// The attempt has the first thousand characters of the error. An event that dies when it would be
/// leased was not attempted.
#[tokio::test]
async fn the_attempt_that_killed_a_leased_event_is_noted() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let event = puller.one().await;
    let long = json!({"error": "é".repeat(1_200), "dead": true});
    assert_eq!(puller.on(&event, "release", long).await.json()["died"], true);
    let expected = [noted(1, "dead", &"é".repeat(1_000))];
    assert_eq!(puller.attempts(CanvasId::DEFAULT, &event["id"]).await, expected);

    let stage = &puller.service.stage;
    let now = stage.admin.clock().await.unwrap();
    let late = Event::new("mail", &3).unwrap().not_after(now - HOUR).unwrap();
    let late = json!(stage.queue.emit(late).await.unwrap().id);
    assert_eq!(puller.takes().await, [] as [u64; 0]);
    has(&puller.shown(CanvasId::DEFAULT, &late).await.json(), json!({"state": "dead"}));
    assert_eq!(puller.attempts(CanvasId::DEFAULT, &late).await, [] as [Noted; 0]);
    assert_eq!(puller.last(OTHER).await, [] as [Value; 0]);
    puller.stop().await;
}

/// It has its failed attempts, and when the one began that completed it. One that nobody keeps
/// leaves no row for its completion.
#[tokio::test]
async fn a_leased_event_that_is_kept_has_its_attempts() {
    let puller = Puller::start().await;
    let kept = Event::new("mail", &1).unwrap().keep(HOUR).unwrap();
    puller.service.stage.queue.emit(kept).await.unwrap();
    puller.emit(OTHER, [2]).await;
    let event = puller.one().await;
    puller.on(&event, "release", json!({"error": "no route"})).await.json();
    let again = puller.one().await;
    puller.hold_for_a_minute().await;
    puller.completes(&again).await;
    let shown = puller.shown(CanvasId::DEFAULT, &event["id"]).await.json();
    assert_eq!(shown["state"], "completed", "{shown}");
    assert!(shown["started_at"].is_string() && shown["took_s"].as_f64().unwrap() >= 60.0, "{shown}");
    let expected = [noted(1, "retried", "no route")];
    assert_eq!(puller.attempts(CanvasId::DEFAULT, &event["id"]).await, expected);
    let last = puller.last(CanvasId::DEFAULT).await;
    let outcomes: Vec<_> = last.iter().map(|attempt| attempt["outcome"].as_str().unwrap()).collect();
    assert!(outcomes.len() == 2 && outcomes.contains(&"completed"), "{last:?}");

    assert_eq!(puller.shown(OTHER, &event["id"]).await.problem(), (404, "not-found".into()));
    let theirs = puller.lease_on(OTHER, json!({})).await.remove(0);
    let completed = puller.on_as((OTHER, &theirs["id"]), &theirs["lease"], "complete", json!({})).await;
    assert_eq!(completed.status, 204);
    assert_eq!(puller.last(OTHER).await, [] as [Value; 0]);
    let rows = "select (select count(*) from wakeq.attempts) + (select count(*) from wakeq.ended_events)";
    assert_eq!(puller.service.stage.count(rows).await, 2);
    puller.stop().await;
}

/// The handler keeps what its emits ask nothing else for; the same handler of another canvas does
/// not.
#[tokio::test]
async fn a_pulled_handler_keeps_its_events() {
    let puller = Puller::start().await;
    let keep = json!({"completed": 3600, "failed": 0, "cancelled": 60});
    let put = puller.ask(CanvasId::DEFAULT, Method::PUT, "/pull", json!({"keep_s": keep})).await.json();
    assert_eq!(put["handler"]["policy"]["keep_s"], keep);
    puller.emit_two().await;
    let event = puller.one().await;
    let completed = puller.on(&event, "complete", json!({"result": {"receipt": 7}})).await;
    assert_eq!(completed.status, 204);
    let shown = puller.shown(CanvasId::DEFAULT, &event["id"]).await.json();
    has(&shown, json!({"state": "completed", "worker": NONE}));
    let result = format!("/events/{}?view=full", event["id"].as_str().unwrap());
    assert_eq!(puller.service.get(&result).await.json()["result"], json!({"receipt": 7}));
    let theirs = puller.lease_on(OTHER, json!({})).await.remove(0);
    puller.on_as((OTHER, &theirs["id"]), &theirs["lease"], "complete", json!({})).await;
    assert_eq!(puller.shown(OTHER, &theirs["id"]).await.problem().0, 404, "it is not kept there");

    let unkept = Event::new("mail", &2).unwrap().keep(Duration::ZERO).unwrap();
    puller.service.stage.queue.emit(unkept).await.unwrap();
    let unkept = puller.one().await;
    puller.completes(&unkept).await;
    assert_eq!(puller.shown(CanvasId::DEFAULT, &unkept["id"]).await.problem().0, 404);
    for wrong in [json!(7_776_001), json!(-1), json!(0.5), json!({"dead": 1})] {
        let refused = puller.ask(CanvasId::DEFAULT, Method::PUT, "/pull", json!({"keep_s": wrong})).await;
        assert_eq!(refused.problem().0, 400, "{wrong}");
    }
    puller.stop().await;
}

/// Each lease that was ended counts as a run for the statistics of its canvas.
#[tokio::test]
async fn how_long_leases_took_is_in_the_statistics() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let event = puller.one().await;
    puller.hold_for_a_minute().await;
    puller.on(&event, "release", json!({"error": "no route"})).await.json();
    puller.completes(&puller.one().await).await;
    let theirs = puller.lease_on(OTHER, json!({})).await.remove(0);
    puller.on_as((OTHER, &theirs["id"]), &theirs["lease"], "complete", json!({})).await;
    let stage = puller.service.stop().await;
    let runs =
        "select array[sum((select sum(bin) from unnest(run_bins) as bin)), sum(run_us / 60000000)]::bigint[]
                  from wakeq.minute_statistics where name = 'mail' and canvas_id = $1";
    for (canvas, expected) in [(CanvasId::DEFAULT, [2, 1]), (OTHER, [1, 0])] {
        let found: Vec<i64> = sqlx::query_scalar(runs).bind(canvas.0).fetch_one(&stage.pool).await.unwrap();
        assert_eq!(found, expected, "{canvas}: how many runs, and for how many minutes");
    }
}

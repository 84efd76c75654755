//! Handlers that are reached over HTTP: registered through the API, called by a worker, answered by
//! small servers.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;
use wakeq::machine::Outcome;
use wakeq::targets::{NewSecret, NewTarget, TargetPolicy};
use wakeq::{Actor, AdminError, CanvasId, Event, EventId, HandlerAddress, HandlerScope, Handlers, Name};
use wakeq_service::access::Scope;
use wiremock::ResponseTemplate;

use super::scene::{GREET, put, requests, row, service, worker};
use crate::support::handlers::recording;
use crate::support::receiver::{Receiver, address, answering, target};
use crate::support::service::has;
use crate::support::{Stage, Statements};

/// A registered target is called with the event, its id, its attempt and a signature that the
/// secret verifies.
// Shows: TARGET-01
#[tokio::test]
async fn an_event_is_sent_to_its_target_and_gone_when_that_answers() {
    let service = service().await;
    let mut receiver = Receiver::start().await;
    let mut running = worker(&service.stage, Handlers::new());
    let made = put(&service, &receiver.url, json!({})).await;
    has(&made, json!({"new": true, "woken": 0, "still": null}));
    let secret = made["secret"].as_str().unwrap().to_owned();

    let emitted = json!({"name": "greet", "value": {"to": "Ada", "n": 1.50}});
    let id = service.post("/events", emitted).await.json()["id"].as_str().unwrap().to_owned();
    let arrived = receiver.next().await;
    assert_eq!(arrived.line, "POST /events?from=queue");
    assert_eq!(serde_json::from_str::<Value>(&arrived.body).unwrap(), json!({"to": "Ada", "n": 1.5}));
    assert_eq!((arrived.header("webhook-id"), arrived.header("ce-id")), (id.as_str(), id.as_str()));
    assert_eq!((arrived.header("ce-type"), arrived.header("wakeq-attempt")), ("WORKER/greet/_", "1"));
    assert_eq!(arrived.signed_by(&secret), (1, Some(0)));
    let running_now = service.get(GREET).await.json();
    assert_eq!(running_now["running"], 1);
    assert_eq!(running_now["targets"][0]["url"], receiver.url);
    arrived.answer("204 No Content", &[]);
    running.until(EventId(id.parse().unwrap()), Outcome::Deleted).await;
    assert_eq!(service.stage.rows().await, 0);
    running.stop().await;
    service.stop().await;
}

/// Events that waited for an unknown handler run as soon as a target is registered, on workers that
/// are already running.
// Shows: TARGET-02
#[tokio::test]
async fn registering_wakes_what_waited() {
    let service = service().await;
    let mut receiver = Receiver::start().await;
    let mut running = worker(&service.stage, Handlers::new());
    let id = service.stage.emit("greet").await;
    running.until(id, Outcome::Deferred).await;
    let shown = service.get(GREET).await.json();
    assert_eq!((&shown["waiting"], shown["unknown_since"].is_string()), (&json!(1), true), "{shown}");
    let explained = service.get(&format!("/events/{id}")).await.json();
    assert!(explained["next"].as_str().unwrap().contains("for a target to be registered"), "{explained}");

    let made = put(&service, &receiver.url, json!({})).await;
    assert_eq!((&made["woken"], &made["waking"]), (&json!(1), &json!(false)), "{made}");
    let arrived = receiver.next().await;
    let explained = service.get(&format!("/events/{id}")).await.json();
    assert_eq!((&explained["target"], &explained["unknown_since"]), (&json!(receiver.url), &Value::Null));
    arrived.answer("200 OK", &[]);
    running.until(id, Outcome::Deleted).await;
    assert_eq!(service.stage.count("select count(*) from wakeq.unknown_handlers").await, 0);
    running.stop().await;
    service.stop().await;
}

/// Without a target, events wait as for an unknown handler, and are shown as such.
// Shows: TARGET-03
#[tokio::test]
async fn events_of_a_deleted_target_wait_for_the_next() {
    let service = service().await;
    let target = answering([ResponseTemplate::new(200)]).await;
    let mut running = worker(&service.stage, Handlers::new());
    put(&service, &target.uri(), json!({})).await;
    let deleted = service.delete(GREET).await;
    assert_eq!((deleted.status.as_u16(), deleted.text.as_str()), (204, ""));
    assert_eq!(service.delete(GREET).await.problem(), (404, "not-found".into()));
    let id = service.stage.emit("greet").await;
    running.until(id, Outcome::Deferred).await;
    let shown = service.get(GREET).await.json();
    assert_eq!((&shown["waiting"], &shown["targets"]), (&json!(1), &json!([])), "{shown}");
    assert!(shown["unknown_since"].is_string());
    assert_eq!(service.get(&format!("{GREET}/_")).await.problem(), (404, "not-found".into()));
    assert_eq!(requests(&target).await.len(), 0);

    assert_eq!(put(&service, &target.uri(), json!({})).await["woken"], 1);
    running.until(id, Outcome::Deleted).await;
    assert_eq!(requests(&target).await.len(), 1);
    running.stop().await;
    service.stop().await;
}

/// 410 holds the target that gave it, costs the event nothing, and is recorded and explained. The
/// handler's other targets and those of another canvas go on. A new registration lifts it, and so
/// does unpausing the handler.
// Shows: TARGET-04
#[tokio::test]
async fn a_target_that_answers_410_is_held_alone() {
    let service = service().await;
    let target = answering([410, 410, 200].map(ResponseTemplate::new)).await;
    let healthy = answering([200, 200].map(ResponseTemplate::new)).await;
    let mut running = worker(&service.stage, Handlers::new());
    put(&service, &target.uri(), json!({})).await;
    let other = "/handlers/WORKER/greet/bob";
    service.put(other, json!({"url": healthy.uri()})).await.json();
    let there = CanvasId(uuid::Uuid::from_u128(7));
    let theirs = HandlerAddress {
        scope: HandlerScope::worker(there, "greet").unwrap(),
        modifier: Name::no_modifier(),
    };
    let new = NewTarget {
        url: healthy.uri().parse().unwrap(),
        policy: TargetPolicy::default(),
        audience: None,
        secret: NewSecret::Keep,
        headers: None,
    };
    service.stage.admin.put_target(&theirs, &new, &Actor::user("ada")).await.unwrap();

    let id = service.stage.emit("greet").await;
    let report = running.until(id, Outcome::Released).await;
    let ended = [Outcome::LockClaimed, Outcome::HandlerGone, Outcome::HandlerPaused, Outcome::Released];
    assert_eq!(report.trail[report.trail.len() - 4..], ended);
    running.until(id, Outcome::Deferred).await;
    let (retries, losses, _) = row(&service.stage, id).await;
    assert_eq!((retries, losses), (0, 0));
    let listed = service.get(GREET).await.json();
    assert_eq!(listed["rules"], json!([]), "no rule: others go on");
    let held: Vec<_> =
        listed["targets"].as_array().unwrap().iter().map(|target| target["gone_since"].is_string()).collect();
    assert_eq!(held, [true, false]);
    let live = service.stage.live(CanvasId::DEFAULT, id).await;
    assert!(live.target_gone_since.is_some() && live.next().contains("410 Gone"), "{live:?}");
    let audit = service.admin(Method::GET, "/audit?limit=1", Value::Null).await.json();
    let detail = "modifier _; the target answered 410 Gone";
    has(&audit["items"][0], json!({"action": "pause", "actor": "target", "detail": detail}));
    let bob = Event::new("greet", "x").unwrap().modifier("bob").unwrap();
    let elsewhere = Event::new("greet", "x").unwrap().canvas(there);
    for event in [bob, elsewhere] {
        let id = service.stage.queue.emit(event).await.unwrap().id;
        running.until(id, Outcome::Deleted).await;
    }

    put(&service, &target.uri(), json!({})).await;
    running.until(id, Outcome::Deferred).await;
    assert_eq!(service.delete(&format!("{GREET}/pause")).await.json()["woken"], 1);
    running.until(id, Outcome::Deleted).await;
    assert_eq!(requests(&target).await, [(); 3].map(|()| (id.to_string(), "1".to_owned())));
    running.stop().await;
    service.stop().await;
}

/// The answer of a target that was replaced since holds nothing.
// Shows: TARGET-04
#[tokio::test]
async fn only_the_current_target_can_be_held() {
    let service = service().await;
    let (mut old, mut new) = (Receiver::start().await, Receiver::start().await);
    let mut running = worker(&service.stage, Handlers::new());
    put(&service, &old.url, json!({})).await;
    let id = service.stage.emit("greet").await;
    let arrived = old.next().await;
    assert_eq!(put(&service, &new.url, json!({})).await["new"], false);
    arrived.answer("410 Gone", &[]);
    let arrived = new.next().await;
    assert_eq!(arrived.header("webhook-id"), id.to_string());
    arrived.answer("410 Gone", &[]);
    running.until(id, Outcome::Deferred).await;
    service.delete(GREET).await;
    assert_eq!(put(&service, &old.url, json!({})).await["new"], true);
    old.next().await.answer("200 OK", &[]);
    running.until(id, Outcome::Deleted).await;
    running.stop().await;
    service.stop().await;
}

/// A target that has no capacity is asked again when it says, and no attempt is counted for a day
/// after its first refusal. From then on it is a failure, and the longer of both waits decides.
/// Other errors follow the policy; after the last retry the event is dead.
// Shows: CARD-02, TARGET-05
#[tokio::test]
async fn a_target_says_when_to_try_again() {
    let service = service().await;
    let answer = |(status, header, value)| ResponseTemplate::new::<u16>(status).insert_header(header, value);
    let answers = [
        (429, "retry-after", "soon"),
        (503, "retry-after", "2000"),
        (429, "retry-after", "999999"),
        (503, "retry-after", "2000"),
        (429, "retry-after", "0"),
        (500, "retry-after", "7"),
        (302, "location", "/elsewhere"),
    ];
    let target = answering(answers.map(answer)).await;
    let mut running = worker(&service.stage, Handlers::new());
    let policy = json!({"retries": 3, "delay_s": 500, "delay_max_s": 3000});
    put(&service, &target.uri(), json!({"policy": policy})).await;
    let id = service.stage.emit("greet").await;
    let aged =
        "update wakeq.events_v2 set postponed_since = postponed_since - interval '1 day' where id = $1";
    for (number, (retries, due_s)) in
        [(0, 1.0), (0, 2000.0), (0, 3000.0), (1, 2000.0), (2, 500.0), (3, 500.0)].into_iter().enumerate()
    {
        let ends = if retries == 0 { Outcome::Postponed } else { Outcome::RetryAllowed };
        running.until(id, ends).await;
        let (counted, losses, in_s) = row(&service.stage, id).await;
        assert_eq!((counted, losses), (retries, 0));
        assert!((due_s - 30.0..=1.2 * due_s + 10.0).contains(&in_s), "{number}: due in {in_s} s");
        if number == 2 {
            sqlx::query(aged).bind(id.0).execute(&service.stage.pool).await.unwrap();
        }
        // Registered again, the target is not held any longer.
        put(&service, &target.uri(), json!({"policy": policy})).await;
        service.post(&format!("/events/{id}/run-now"), json!({})).await;
    }
    running.until(id, Outcome::Deleted).await;
    let dead = service.get("/dead-events").await.json()["items"][0].clone();
    assert!(dead["last_error"].as_str().unwrap().contains("302 Found"), "{dead}");
    let attempts = ["1", "1", "1", "1", "2", "3", "4"].map(|attempt| (id.to_string(), attempt.to_owned()));
    assert_eq!(requests(&target).await, attempts, "the same id in each, and a redirect is not followed");
    running.stop().await;
    service.stop().await;
}

/// A target that answers "too early" gets the event again, and no attempt is counted.
// Shows: ORD-04
#[tokio::test]
async fn a_425_answer_postpones_the_event() {
    let service = service().await;
    let early = |after| ResponseTemplate::new(425).insert_header("retry-after", after);
    let target = answering([early("0"), early("1"), ResponseTemplate::new(200)]).await;
    let mut running = worker(&service.stage, Handlers::new());
    put(&service, &target.uri(), json!({"policy": {"retries": 0}})).await;
    let id = service.stage.emit("greet").await;
    for _ in 0..2 {
        running.until(id, Outcome::Postponed).await;
    }
    running.until(id, Outcome::Deleted).await;
    assert_eq!(requests(&target).await, [(); 3].map(|()| (id.to_string(), "1".to_owned())));
    running.stop().await;
    service.stop().await;
}

/// After a rotation both secrets sign for a day; no answer contains a secret except the one that
/// creates it.
// Shows: TARGET-06
#[tokio::test]
async fn both_secrets_sign_for_a_day_and_neither_is_shown() {
    let service = service().await;
    let mut receiver = Receiver::start().await;
    let mut running = worker(&service.stage, Handlers::new());
    let secret = |answer: &Value| answer["secret"].as_str().map(str::to_owned);
    let first = secret(&put(&service, &receiver.url, json!({})).await).unwrap();
    assert_eq!(secret(&put(&service, &receiver.url, json!({})).await), None, "replacing keeps it");
    let rotated = put(&service, &receiver.url, json!({"rotate_secret": true})).await;
    let second = secret(&rotated).unwrap();
    let given = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    assert_ne!(first, second);
    assert!(rotated["target"]["previous_secret_until"].is_string());
    let id = service.stage.emit("greet").await;
    let arrived = receiver.next().await;
    assert_eq!((arrived.signed_by(&second), arrived.signed_by(&first)), ((2, Some(0)), (2, Some(1))));
    arrived.answer("200 OK", &[]);
    running.until(id, Outcome::Deleted).await;

    let replaced = put(&service, &receiver.url, json!({"secret": given})).await;
    assert_eq!(secret(&replaced), None, "its giver knows it");
    let repeated = put(&service, &receiver.url, json!({"secret": given})).await;
    let until = &repeated["target"]["previous_secret_until"];
    assert_eq!(*until, replaced["target"]["previous_secret_until"], "the same again is no rotation");
    let day = "update wakeq.http_targets set previous_until = previous_until - interval '1 day'";
    let before = "select count(*) from wakeq.http_targets where previous_until between now() + interval '86000 s'
                                                                               and now() + interval '86400 s'";
    assert_eq!(service.stage.count(before).await, 1);
    service.stage.pool.run(day).await;
    let id = service.stage.emit("greet").await;
    let arrived = receiver.next().await;
    assert_eq!(arrived.signed_by(given), (1, Some(0)));
    arrived.answer("200 OK", &[]);
    running.until(id, Outcome::Deleted).await;

    let mut shown = service.admin(Method::GET, "/audit?limit=100", Value::Null).await.text;
    for path in [GREET, &format!("{GREET}/_"), "/handlers"] {
        shown.push_str(&service.get(path).await.text);
    }
    shown.push_str(&service.put(GREET, json!({"url": "x", "secret": given})).await.text);
    shown.push_str(&service.put(GREET, json!({"url": receiver.url, "secret": &given[..20]})).await.text);
    for secret in [first.as_str(), second.as_str(), given] {
        assert!(!shown.contains(&secret[6..26]), "{shown}");
    }
    assert!(shown.contains("put-target") && shown.contains("with a secret of its own"), "{shown}");
    running.stop().await;
    service.stop().await;
}

/// A target receives values, so registering one requires the right to see them.
// Shows: TARGET-11
#[tokio::test]
async fn targets_are_registered_by_operators_who_may_read() {
    let service = service().await;
    let receiver = Receiver::start().await;
    let operator = service.key("operator", CanvasId::DEFAULT, &[Scope::Operate, Scope::Emit]).await;
    let reader = service.key("reader", CanvasId::DEFAULT, &[Scope::Read]).await;
    let blind = service.key("blind", CanvasId::DEFAULT, &[Scope::Read, Scope::Operate]).await;
    let all = [Scope::Read, Scope::Values, Scope::Operate];
    let all = service.key("all", CanvasId::DEFAULT, &all).await;
    let handler = format!("/canvases/{}{GREET}", CanvasId::DEFAULT);
    for path in [handler.clone(), format!("{handler}/eu")] {
        for (key, words) in [(&operator, "`read`"), (&reader, "`values`"), (&blind, "`values`")] {
            let refused = service.ask(key, Method::PUT, &path, json!({"url": receiver.url})).await;
            assert_eq!(refused.problem(), (403, "forbidden".into()));
            assert!(refused.text.contains(words), "{}", refused.text);
        }
        service.ask(&all, Method::PUT, &path, json!({"url": receiver.url})).await.json();
        let deleted = service.ask(&operator, Method::DELETE, &path, Value::Null).await;
        assert!(deleted.status.is_success(), "{}", deleted.text);
    }
    service.stop().await;
}

/// A canvas has targets of its own, and a function takes precedence over a target.
// Shows: TARGET-07
#[tokio::test]
async fn a_target_is_of_one_canvas_and_a_function_goes_first() {
    let service = service().await;
    let (mut receiver, mut foreign) = (Receiver::start().await, Receiver::start().await);
    let (handler, mut seen) = recording();
    let mut running = worker(&service.stage, Handlers::new().on("local", handler));
    let other = CanvasId(Uuid::from_u128(7));
    let key = service.key("other", other, &Scope::ALL).await;
    let path = |name: &str| format!("/canvases/{other}/handlers/WORKER/{name}");
    service.ask(&key, Method::PUT, &path("greet"), json!({"url": foreign.url})).await.json();
    service.ask(&key, Method::PUT, &path("local"), json!({"url": foreign.url})).await.json();
    assert_eq!(service.get("/handlers").await.json()["items"], json!([]), "of another canvas");
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let body = if method == Method::PUT { json!({"url": receiver.url}) } else { Value::Null };
        let refused = service.ask(&service.key, method, &path("greet"), body).await;
        assert_eq!(refused.problem(), (404, "not-found".into()));
    }
    put(&service, &receiver.url, json!({})).await;
    service.put("/handlers/WORKER/greet/eu", json!({"url": foreign.url})).await.json();
    let ours = service.stage.emit("greet").await;
    let theirs = Event::new("greet", &1).unwrap().canvas(other);
    let theirs = service.stage.queue.emit(theirs).await.unwrap().id;
    let arrived = receiver.next().await;
    assert_eq!(arrived.header("webhook-id"), ours.to_string());
    assert_eq!(arrived.header("ce-source"), format!("/canvases/{}", CanvasId::DEFAULT));
    arrived.answer("200 OK", &[]);
    let arrived = foreign.next().await;
    assert_eq!(arrived.header("webhook-id"), theirs.to_string());
    arrived.answer("200 OK", &[]);
    running.until_count(2, Outcome::Deleted).await;

    let local = Event::new("local", &1).unwrap().canvas(other);
    let local = service.stage.queue.emit(local).await.unwrap().id;
    assert_eq!(seen.next().await.id, local);
    running.until(local, Outcome::Deleted).await;
    let europe = Event::new("greet", &1).unwrap().modifier("eu").unwrap();
    let europe = service.stage.queue.emit(europe).await.unwrap().id;
    let arrived = foreign.next().await;
    assert_eq!(arrived.header("ce-type"), "WORKER/greet/eu");
    arrived.answer("200 OK", &[]);
    running.until(europe, Outcome::Deleted).await;
    assert!(receiver.is_quiet());
    running.stop().await;
    service.stop().await;
}

/// No more concurrent requests than the policy says, and none is lost.
// Shows: TARGET-08
#[tokio::test]
async fn a_target_gets_no_more_at_a_time_than_it_wants() {
    let service = service().await;
    let mut receiver = Receiver::start().await;
    let mut running = worker(&service.stage, Handlers::new());
    put(&service, &receiver.url, json!({"policy": {"concurrency": 2}})).await;
    service.stage.emit_many("greet", 5).await;
    let mut inside = vec![receiver.next().await, receiver.next().await];
    let mut waiting = 0;
    while waiting < 3 {
        waiting += usize::from(running.report().await.verdict == wakeq::workers::Verdict::WaitsForRoom);
    }
    for _ in 0..3 {
        assert!(receiver.is_quiet());
        inside.pop().unwrap().answer("200 OK", &[]);
        inside.push(receiver.next().await);
    }
    inside.into_iter().for_each(|arrived| arrived.answer("200 OK", &[]));
    service.notifier.drained().await;
    assert_eq!(service.stage.rows().await, 0);
    running.stop().await;
    service.stop().await;
}

/// An invalid or forbidden target is refused, with a message that says what would be accepted.
// Shows: TARGET-09
#[tokio::test]
async fn rejects_invalid_targets_with_a_reason() {
    let service = service().await;
    let url = "http://127.0.0.1:8080/";
    for (path, body, words) in [
        (GREET, json!({}), "the field `url` is missing"),
        (GREET, json!({"url": ""}), "not a valid URL"),
        (GREET, json!({"url": "greet"}), "not a valid URL"),
        (GREET, json!({"url": "ftp://a.example/"}), "must begin with https://"),
        (GREET, json!({"url": "https://user:word@a.example/"}), "must not contain a user or password"),
        (GREET, json!({"url": "https://a.example/#x"}), "must not contain a fragment"),
        (GREET, json!({"url": format!("https://a.example/{}", "x".repeat(2048))}), "at most 2048 bytes"),
        (GREET, json!({"url": "http://127.0.0.2/"}), "--deliver-to"),
        (GREET, json!({"url": "http://169.254.169.254/"}), "metadata"),
        (GREET, json!({"url": "http://metadata.google.internal/"}), "metadata"),
        (GREET, json!({"url": "http://[::1]/"}), "--deliver-to"),
        (GREET, json!({"url": "http://2130706434/"}), "--deliver-to"),
        (GREET, json!({"url": "https://a.example:25/"}), "port 25"),
        (GREET, json!({"url": "https://a.example/", "audience": "https://a.example"}), "--deliver-audience"),
        (GREET, json!({"url": url, "secret": "whsec_short"}), "24 to 64 bytes"),
        (
            GREET,
            json!({"url": url, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "rotate_secret": true}),
            "not both",
        ),
        (GREET, json!({"url": "https://a.example/", "audience": "https://b.example"}), "--deliver-audience"),
        (GREET, json!({"url": url, "policy": {"retries": 1001}}), "1,000 times"),
        (GREET, json!({"url": url, "policy": {"retries": -1}}), "a value that is not allowed"),
        (GREET, json!({"url": url, "policy": {"delay_s": -1}}), "`delay_s`"),
        (GREET, json!({"url": url, "policy": {"delay_s": 90_000}}), "first delay"),
        (GREET, json!({"url": url, "policy": {"delay_max_s": 1e9}}), "30 days"),
        (GREET, json!({"url": url, "policy": {"factor": 0}}), "factor"),
        (GREET, json!({"url": url, "policy": {"timeout_s": 0.5}}), "1 s to 600 s"),
        (GREET, json!({"url": url, "policy": {"timeout_s": 601}}), "1 s to 600 s"),
        (GREET, json!({"url": url, "policy": {"concurrency": 0}}), "concurrency"),
        (GREET, json!({"url": url, "header": {}}), "a field is unknown: the fields are `url`, `policy`,"),
        ("/handlers/WORKER/greet/block", json!({"url": url}), "can't be modifiers"),
        ("/handlers/WORKER/a%20b", json!({"url": url}), "not a valid name"),
        ("/handlers/WORKER/greet/a%20b", json!({"url": url}), "not a valid name"),
    ] {
        let refused = service.put(path, body.clone()).await;
        assert_eq!(refused.problem().0, 400, "{body}");
        let detail: Value = serde_json::from_str(&refused.text).unwrap();
        let detail = detail["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{body}: {detail}");
        assert!(!detail.contains("word@") && !detail.contains("MfKQ"), "{detail}");
    }
    for path in ["/handlers/WORKER/greet/purge", "/handlers/WORKER/greet/statistics"] {
        let reserved = service.put(path, json!({"url": url})).await;
        assert_eq!(reserved.problem(), (405, "method-not-allowed".into()), "that path is another one");
    }
    assert_eq!(service.get("/handlers").await.json()["items"], json!([]), "nothing came of it");
    assert_eq!(service.stage.count("select count(*) from wakeq.http_targets").await, 0);
    service.stop().await;
}

/// A canvas has 1,000 targets at most, and those can be replaced.
// Shows: TARGET-09
#[tokio::test]
async fn a_canvas_has_a_thousand_targets() {
    let service = service().await;
    let fill = "insert into wakeq.http_targets (canvas_id, module, name, modifier, url, retries, delay_ms, factor,
                    delay_max_ms, timeout_ms, secret, created_by, updated_by)
                select $1, 'WORKER', 'h' || number, '_', 'https://a.example/', 2, 0, 1, 0, 1000, decode(repeat('ab', 32), 'hex'),
                       'test', 'test' from generate_series(1, 1000) as number";
    sqlx::query(fill).bind(CanvasId::DEFAULT.0).execute(&service.stage.pool).await.unwrap();
    let body = json!({"url": "http://127.0.0.1:8080/"});
    assert_eq!(service.put(GREET, body.clone()).await.problem(), (409, "quota-reached".into()));
    assert_eq!(service.put("/handlers/WORKER/h7", body.clone()).await.json()["new"], false);
    assert_eq!(service.items("/handlers?limit=1000").await.len(), 1000);
    assert_eq!(service.delete("/handlers/WORKER/h1").await.status.as_u16(), 204);
    assert_eq!(service.put(GREET, body).await.json()["new"], true);
    service.stop().await;
}

/// An attempt holds a capacity slot of the worker, so work that takes hours is for functions; and
/// Pub/Sub, if it pushes, waits no longer.
// Shows: TARGET-09
#[tokio::test]
async fn no_attempt_may_take_longer_than_ten_minutes() {
    let (stage, _) = Stage::memory().await;
    let address = address(CanvasId::DEFAULT, "greet");
    let target = |timeout_s| {
        let policy = TargetPolicy { timeout: Duration::from_secs(timeout_s), ..TargetPolicy::default() };
        NewTarget { policy, ..target("https://a.example/") }
    };
    let ada = Actor::user("ada");
    let refused = stage.admin.put_target(&address, &target(601), &ada).await.unwrap_err();
    assert!(matches!(refused, AdminError::Invalid(words) if words.contains("600 s")));
    assert!(stage.admin.put_target(&address, &target(600), &ada).await.unwrap().new);
}

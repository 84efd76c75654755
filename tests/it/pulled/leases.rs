//! Leases: how long they last, what their tokens allow, and which callers may have them.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use wakeq::{Actor, CanvasId, Event, Stop, Timestamp};

use super::Puller;
use crate::support::service::{Answer, has};
use crate::support::thread_log::ThreadLog;
use crate::support::{OTHER, scope};

#[tokio::test]
async fn an_event_is_leased_and_completed() {
    let puller = Puller::start().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let event = Event::new("mail", &42).unwrap().modifier("eu").unwrap().traceparent(trace).unwrap();
    let emitted = puller.service.stage.queue.emit(event).await.unwrap();
    puller.emit(OTHER, [7]).await;
    let explained = puller.service.get(&format!("/events/{}", emitted.id)).await.json();
    assert!(explained["next"].as_str().unwrap().contains("waits until a program leases it"), "{explained}");
    let event = puller.one().await;
    has(&event, json!({"id": emitted.id, "module": "WORKER", "name": "mail", "modifier": "eu"}));
    has(&event, json!({"value": 42, "attempt": 1, "place": null}));
    assert!(event["traceparent"].as_str().unwrap().contains("0af7651916cd43dd8448eb211c80319c"));
    let until: Timestamp = event["lease_until"].as_str().unwrap().parse().unwrap();
    let left = (until - puller.service.stage.admin.clock().await.unwrap()).num_seconds();
    assert!((50..=61).contains(&left), "{left}");
    assert_eq!(puller.lease(json!({})).await, [] as [Value; 0]);
    let running = puller.service.get(&format!("/events/{}", emitted.id)).await.json();
    has(&running, json!({"state": "running"}));
    assert!(running["next"].as_str().unwrap().contains("the service that leased it"), "{running}");
    let extended = puller.on(&event, "extend", json!({"lease_s": 600})).await.json();
    let until: Timestamp = extended["lease_until"].as_str().unwrap().parse().unwrap();
    let left = (until - puller.service.stage.admin.clock().await.unwrap()).num_seconds();
    assert!((590..=600).contains(&left), "{left}");
    puller.completes(&event).await;
    assert_eq!(puller.on(&event, "complete", json!({})).await.problem(), (404, "not-found".into()));
    assert_eq!(puller.service.stage.rows().await, 1, "that of the other canvas");
    puller.stop().await;
}

#[tokio::test]
async fn a_failed_event_is_tried_again_and_dies_at_last_or_at_once() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let event = puller.one().await;
    let released = puller.on(&event, "release", json!({"error": "no route"})).await.json();
    has(&released, json!({"died": false, "retry_s": 0.0}));
    let again = puller.one().await;
    assert_eq!((&again["id"], &again["attempt"]), (&event["id"], &json!(2)));
    let given_back = puller.on(&again, "release", json!({})).await.json();
    has(&given_back, json!({"died": false, "retry_s": 0.0}));
    let again = puller.one().await;
    assert_eq!(again["attempt"], 2, "what was given back is not counted");
    let died = puller.on(&again, "release", json!({"error": "still no route"})).await.json();
    has(&died, json!({"died": true, "retry_s": null}));
    puller.emit(CanvasId::DEFAULT, [3]).await;
    let hopeless = puller.one().await;
    let refused = puller.on(&hopeless, "release", json!({"dead": true})).await;
    refused.says((400, "bad-request"), "needs an `error`");
    let died = puller.on(&hopeless, "release", json!({"error": "no such user", "dead": true})).await.json();
    assert_eq!(died["died"], true);
    let expected = [("rejected", "no such user"), ("retries", "still no route")];
    let expected = expected.map(|(cause, error)| (cause.to_owned(), error.to_owned()));
    assert_eq!(puller.dead(CanvasId::DEFAULT).await, expected);
    assert!(puller.dead(OTHER).await.is_empty());
    assert_eq!(puller.service.stage.rows().await, 1, "that of the other canvas");
    puller.stop().await;
}

/// A token is valid for one claim of one event, on its own canvas and for its own handler.
#[tokio::test]
async fn a_wrong_token_changes_nothing() {
    let puller = Puller::start().await;
    puller.emit(CanvasId::DEFAULT, [1, 2]).await;
    puller.emit(OTHER, [3]).await;
    let [first, second] = &puller.lease(json!({"max": 2})).await[..] else { panic!("two events") };
    let [theirs] = &puller.lease_on(OTHER, json!({"max": 2})).await[..] else { panic!("one event") };
    let other_handler = "/handlers/WORKER/letters";
    puller.service.put(&format!("{other_handler}/pull"), json!({})).await.json();
    for verb in ["extend", "complete", "release"] {
        let wrong = puller.on_as((CanvasId::DEFAULT, &first["id"]), &second["lease"], verb, json!({})).await;
        wrong.says((409, "conflict"), "is not held by this lease");
        let stranger = puller.on_as((OTHER, &first["id"]), &first["lease"], verb, json!({})).await;
        assert_eq!(stranger.problem(), (404, "not-found".into()), "{verb} on another canvas");
        let stolen =
            puller.on_as((CanvasId::DEFAULT, &theirs["id"]), &theirs["lease"], verb, json!({})).await;
        assert_eq!(stolen.problem(), (404, "not-found".into()), "{verb} of another canvas");
        let (id, lease) = (first["id"].as_str().unwrap(), &first["lease"]);
        let path = format!("{other_handler}/leases/{id}/{verb}");
        let elsewhere = puller.service.post(&path, json!({"lease": lease})).await;
        assert_eq!(elsewhere.problem(), (404, "not-found".into()), "{verb} of another handler");
    }
    let intruder = "/canvases/00000000-0000-0000-0000-000000000000/handlers/WORKER/mail/leases";
    let intruder = puller.service.ask(&puller.other_key, Method::POST, intruder, json!({})).await;
    assert_eq!(intruder.problem(), (404, "not-found".into()));
    puller.completes(first).await;
    puller.completes(second).await;
    assert_eq!(puller.service.stage.rows().await, 1);
    puller.stop().await;
}

/// An event whose leases run out is leased again, alone after the second time, and dies the fifth.
#[tokio::test]
async fn leases_that_run_out_count_as_losses() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let [theirs] = &puller.lease_on(OTHER, json!({})).await[..] else { panic!("one event") };
    let mut last = puller.one().await;
    for loss in 1..=4 {
        puller.run_out().await;
        let late = puller.on(&last, "complete", json!({})).await;
        assert_eq!(late.problem(), (410, "lease-over".into()), "loss {loss}");
        puller.emit(CanvasId::DEFAULT, [9]).await;
        let leased = puller.lease(json!({"max": 10})).await;
        let of_it = |event: &&Value| event["id"] == last["id"];
        assert_eq!((leased.iter().filter(of_it).count(), leased.len() == 1), (1, loss >= 2), "loss {loss}");
        let lost = leased.iter().find(of_it).unwrap().clone();
        for other in leased.iter().filter(|event| event["id"] != lost["id"]) {
            puller.completes(other).await;
        }
        assert_eq!(lost["attempt"], 1);
        last = lost;
    }
    puller.run_out().await;
    assert_eq!(puller.takes().await, [9, 9, 9]);
    let words = "its leases ran out too often";
    assert_eq!(puller.dead(CanvasId::DEFAULT).await, [("poison".to_owned(), words.to_owned())]);
    let completed = puller.on_as((OTHER, &theirs["id"]), &theirs["lease"], "complete", json!({})).await;
    assert_eq!(completed.status, 204);
    puller.stop().await;
}

/// Between the look at the token and what is asked for, the lease may run out and another begin.
#[tokio::test]
async fn a_lease_that_is_lost_meanwhile_is_over_for_each_request() {
    let puller = Puller::start().await;
    let stage = &puller.service.stage;
    puller.emit(OTHER, [2]).await;
    let [theirs] = &puller.lease_on(OTHER, json!({})).await[..] else { panic!("one event") };
    for verb in ["extend", "complete", "release"] {
        puller.emit(CanvasId::DEFAULT, [1]).await;
        let event = puller.one().await;
        let another = "update wakeq.events_v2 set claims = claims + 1, nonce = 7
                        where canvas_id = '00000000-0000-0000-0000-000000000000'";
        let held = stage.hold(another).await;
        let begin = async {
            stage.until_waiting(1).await;
            held.commit().await.unwrap();
        };
        let (late, ()) = tokio::join!(puller.on(&event, verb, json!({})), begin);
        assert_eq!(late.problem(), (410, "lease-over".into()), "{verb}");
    }
    let leased = "select count(*) from wakeq.events_v2 where locked_at is not null";
    assert_eq!(stage.count(leased).await, 4);
    let released = puller.on_as((OTHER, &theirs["id"]), &theirs["lease"], "release", json!({})).await;
    assert_eq!(released.status, 200, "{}", released.text);
    puller.stop().await;
}

/// Each of them, also where a program leases without HTTP; nothing of the other canvas is leased.
#[tokio::test]
async fn what_dies_by_being_leased_is_logged() {
    let log = ThreadLog::begin();
    let puller = Puller::start().await;
    let (stage, hour) = (&puller.service.stage, Duration::from_secs(3600));
    let lease = async || stage.admin.lease_events(&scope("mail"), 10, hour, Duration::ZERO).await.unwrap();
    puller.emit(CanvasId::DEFAULT, [1]).await;
    for _ in 0..5 {
        assert_eq!(lease().await.len(), 1);
        puller.run_out().await;
    }
    let past = stage.admin.clock().await.unwrap() - hour;
    for canvas in [CanvasId::DEFAULT, OTHER] {
        let late = Event::new("mail", &2).unwrap().not_after(past).unwrap().canvas(canvas);
        stage.queue.emit(late).await.unwrap();
    }
    assert_eq!(lease().await.len(), 0);
    puller.emit(CanvasId::DEFAULT, [3]).await;
    let rejected = puller.one().await;
    puller.on(&rejected, "release", json!({"error": "no such user", "dead": true})).await.json();
    let said = log.lines("what was leased has died");
    assert_eq!(said.len(), 3, "{said:#?}");
    for (line, cause) in said.iter().zip(["poison", "expired", "rejected"]) {
        assert!(line.contains(cause) && line.contains(&CanvasId::DEFAULT.to_string()), "{cause}: {line}");
    }
    assert_eq!(stage.rows().await, 1, "that of the other canvas");
    puller.stop().await;
}

/// The events of an object come one after the other; each canvas has objects of its own.
#[tokio::test]
async fn an_object_is_worked_in_its_order() {
    let puller = Puller::start().await;
    for value in 1..=3 {
        for canvas in [CanvasId::DEFAULT, OTHER] {
            let event = Event::new("mail", &value).unwrap().canvas(canvas).on("work:1").unwrap();
            puller.service.stage.queue.emit(event).await.unwrap();
        }
    }
    puller.emit(CanvasId::DEFAULT, [4]).await;
    let [first, free] = &puller.lease(json!({"max": 10})).await[..] else { panic!("two events") };
    assert_eq!(
        (&first["value"], &first["place"]["object"], &free["value"]),
        (&json!(1), &json!("work:1"), &json!(4))
    );
    let mut before = first.clone();
    for expected in [2, 3] {
        assert_eq!(puller.takes().await, [] as [u64; 0], "{expected} is behind another");
        puller.completes(&before).await;
        before = puller.one().await;
        assert_eq!(before["value"], expected);
    }
    let [theirs] = &puller.lease_on(OTHER, json!({"max": 10})).await[..] else { panic!("one event") };
    assert_eq!(theirs["value"], 1);
    puller.stop().await;
}

#[tokio::test]
async fn a_paused_handler_or_canvas_is_not_leased() {
    let puller = Puller::start().await;
    let (admin, ada, root) = (&puller.service.stage.admin, Actor::user("ada"), Actor::admin("root"));
    puller.emit_two().await;
    admin.pause(&scope("mail"), &ada, &Stop::default()).await.unwrap();
    assert_eq!(puller.takes().await, [] as [u64; 0]);
    assert_eq!(puller.lease_on(OTHER, json!({})).await.len(), 1, "another canvas's pause");
    admin.unpause(&scope("mail"), &ada).await.unwrap();
    admin.pause_canvas(CanvasId::DEFAULT, &ada, &Stop::default()).await.unwrap();
    assert_eq!(puller.takes().await, [] as [u64; 0]);
    admin.unpause_canvas(CanvasId::DEFAULT, &ada).await.unwrap();
    admin.block(&scope("mail"), &root, &Stop::default()).await.unwrap();
    assert_eq!(puller.takes().await, [] as [u64; 0]);
    admin.unblock(&scope("mail"), &root).await.unwrap();
    assert_eq!(puller.takes().await, [1]);
    puller.stop().await;
}

/// A key for one handler runs that handler, and nothing else.
#[tokio::test]
async fn a_key_may_be_for_one_handler() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let blind = json!({"holder": "blind", "scopes": ["operate:WORKER/mail", "read:WORKER/mail"]});
    let blind = puller.service.admin(Method::POST, "/keys", blind).await.json();
    let path = format!("/canvases/{}/handlers/WORKER/mail/leases", CanvasId::DEFAULT);
    let refused = puller.service.ask(blind["key"].as_str().unwrap(), Method::POST, &path, json!({})).await;
    refused.says((403, "forbidden"), "`values`");
    let scopes = json!(["operate:WORKER/mail", "read:WORKER/mail", "values:WORKER/mail"]);
    let created = json!({"holder": "mailer", "scopes": scopes});
    let created = puller.service.admin(Method::POST, "/keys", created).await.json();
    let key = created["key"].as_str().unwrap();
    let ask = async |method: Method, path: &str, body: Value| {
        let path = format!("/canvases/00000000-0000-0000-0000-000000000000/{path}");
        puller.service.ask(key, method, &path, body).await
    };
    let leased = ask(Method::POST, "handlers/WORKER/mail/leases", json!({})).await.json();
    let (id, lease) = (leased["events"][0]["id"].as_str().unwrap(), &leased["events"][0]["lease"]);
    let complete = format!("handlers/WORKER/mail/leases/{id}/complete");
    assert_eq!(ask(Method::POST, &complete, json!({"lease": lease})).await.status, 204);
    for (method, path, body) in [
        (Method::POST, "handlers/WORKER/other/leases", json!({})),
        (Method::PUT, "handlers/WORKER/other/pull", json!({})),
        (Method::GET, "pulled-handlers", Value::Null),
        (Method::POST, "events", json!({"name": "mail"})),
    ] {
        assert_eq!(ask(method, path, body).await.problem(), (403, "forbidden".into()), "{path}");
    }
    puller.stop().await;
}

/// A program learns from its next extension that an event was cancelled.
#[tokio::test]
async fn a_leased_event_is_cancelled() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let event = puller.one().await;
    assert_eq!(puller.on(&event, "extend", json!({})).await.json()["cancelled"], false);
    let cancel = format!("/events/{}/cancel?running=true", event["id"].as_str().unwrap());
    assert_eq!(Answer::of(puller.service.on_canvas(Method::POST, &cancel)).await.status, 202);
    assert_eq!(puller.on(&event, "extend", json!({})).await.json()["cancelled"], true);
    puller.on(&event, "release", json!({})).await.json();
    assert_eq!(puller.takes().await, [] as [u64; 0], "it was cancelled");
    puller.service.stage.admin.wake(true).await.unwrap();
    assert_eq!(puller.service.stage.rows().await, 1, "that of the other canvas");
    puller.stop().await;
}

/// Lets the leases of the default canvas last for longer than a busy machine may take.
const LONG: &str = "update wakeq.events_v2 set locked_at = clock_timestamp() + interval '10 minutes'
                     where locked_at is not null and canvas_id = '00000000-0000-0000-0000-000000000000'";
/// Lets them end in eight seconds.
const SHORT: &str = "update wakeq.events_v2
                        set locked_at = clock_timestamp() - wakeq.duration_of('lease', '1 minute') + interval '8 s'
                      where locked_at is not null and canvas_id = '00000000-0000-0000-0000-000000000000'";

/// What these requests were answered while a lease stood, which a statement lets last before. A
/// grace may be over between two requests on a busy machine: then they are sent again.
async fn in_time(puller: &Puller, lasts: &'static str, ask: impl AsyncFn() -> Vec<Answer>) -> Vec<Value> {
    for _ in 0..20 {
        puller.service.stage.execute(lasts).await;
        let answers = ask().await;
        if answers.iter().all(|answer| answer.status != 410) {
            return answers.iter().map(Answer::json).collect();
        }
    }
    panic!("the lease was never in time");
}

fn lease_until(answer: &Value) -> Timestamp {
    answer["lease_until"].as_str().unwrap().parse().unwrap()
}

/// From the extension that says so the program has its grace, however often it extends the lease,
/// and whatever it asks for. The other tenant's lease is extended as ever.
#[tokio::test]
async fn the_lease_of_a_cancelled_event_ends_after_its_grace() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let (mine, theirs) = (puller.one().await, puller.lease_on(OTHER, json!({})).await.remove(0));
    let cancel = format!("/events/{}/cancel?running=true", mine["id"].as_str().unwrap());
    assert_eq!(Answer::of(puller.service.on_canvas(Method::POST, &cancel)).await.status, 202);
    let clock = async || puller.service.stage.admin.clock().await.unwrap();
    let before = clock().await;
    let extend_theirs = async || {
        let (of, asked) = ((OTHER, &theirs["id"]), json!({"lease_s": 600}));
        puller.on_as(of, &theirs["lease"], "extend", asked).await.json()
    };
    let far = extend_theirs().await;
    assert!(far["cancelled"] == false && (lease_until(&far) - before).num_seconds() >= 599, "{far}");

    let extend = async || {
        let mut answers = Vec::new();
        for lease_s in [1, 600, 1] {
            answers.push(puller.on(&mine, "extend", json!({"lease_s": lease_s})).await);
        }
        answers
    };
    let extended = in_time(&puller, LONG, extend).await;
    let until = lease_until(&extended[0]);
    assert!((until - clock().await).num_milliseconds() <= 10_000, "{until}");
    assert!((until - before).num_milliseconds() >= 9_999, "{until}");
    let expected = json!({"lease_until": extended[0]["lease_until"], "cancelled": true});
    assert_eq!(extended, vec![expected; 3], "it is not moved again");

    puller.run_out().await;
    for verb in ["extend", "complete", "release"] {
        assert_eq!(puller.on(&mine, verb, json!({})).await.problem(), (410, "lease-over".into()), "{verb}");
    }
    puller.service.stage.admin.wake(true).await.unwrap();
    assert_eq!(puller.takes().await, [] as [u64; 0], "it was cancelled");
    assert_eq!(puller.service.stage.rows().await, 1, "that of the other canvas");
    assert_eq!(extend_theirs().await["cancelled"], false);
    puller.stop().await;
}

/// A lease that would have ended sooner is not made longer either.
#[tokio::test]
async fn a_short_lease_of_a_cancelled_event_stays_short() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let event = puller.one().await;
    let cancel = format!("/events/{}/cancel?running=true", event["id"].as_str().unwrap());
    assert_eq!(Answer::of(puller.service.on_canvas(Method::POST, &cancel)).await.status, 202);
    let extend = async || vec![puller.on(&event, "extend", json!({"lease_s": 600})).await];
    let extended = in_time(&puller, SHORT, extend).await.remove(0);
    assert_eq!(extended["cancelled"], true);
    let left = lease_until(&extended) - puller.service.stage.admin.clock().await.unwrap();
    assert!(left.num_milliseconds() <= 8_000, "{left}");
    puller.service.stage.execute(LONG).await;
    puller.completes(&event).await;
    assert_eq!(puller.service.stage.rows().await, 1, "that of the other canvas");
    puller.stop().await;
}

//! Leases: how long they last, what their tokens allow, and which callers may have them.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};
use wakeq::queues::NewQueue;
use wakeq::{CanvasId, Event};
use wakeq_service::access::Scope;

use super::{NONE, PulledCopy, Puller, QUEUE, canvas, email, pulled};
use crate::support::service::{Answer, has};
use crate::support::{Statements, wait_while};

// Shows: DRV-25
#[tokio::test]
async fn a_copy_is_leased_and_completed() {
    let puller = Puller::start().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let event = email(canvas(1), 42).modifier("eu").unwrap().traceparent(trace).unwrap();
    let emitted = puller.stage().queue.emit(event).await.unwrap();
    puller.emit(2, [7]).await;
    let copy = puller.one().await;
    let json = &copy.json;
    let address = json!({"module": "email_event", "name": "opened", "modifier": "eu", "canvas": canvas(1)});
    has(json, address);
    has(json, json!({"value": 42, "attempt": 1, "origin": emitted.id}));
    assert!(json["traceparent"].as_str().unwrap().contains("0af7651916cd43dd8448eb211c80319c"));
    assert_eq!((&json["place"], copy.lease.len()), (&NONE, 40));
    let until: wakeq::Timestamp = json["lease_until"].as_str().unwrap().parse().unwrap();
    let left = (until - puller.stage().admin.clock().await.unwrap()).num_seconds();
    assert!((50..=61).contains(&left), "{left}");
    puller.complete(&copy).await;
    let again = puller.on(&copy, "complete", json!({})).await;
    again.says((404, "not-found"), "it was completed");
    assert_eq!(puller.stage().rows().await, 1, "that of the other canvas");
    puller.stop().await;
}

/// Neither an emit nor the minute's pass publishes notifications of copies in a pulled queue.
#[tokio::test]
async fn no_worker_is_notified() {
    let puller = Puller::start().await;
    puller.emit(1, 0..5).await;
    let both = Event::new("opened", &1).unwrap().module("email_event").unwrap().canvas(canvas(2));
    let event = puller.stage().queue.emit(both).await.unwrap();
    puller.stage().admin.wake(true).await.unwrap();
    let notifications = puller.service.notifier.published();
    let is_only_of_it = notifications.iter().all(|notification| notification.id == event.id);
    assert!(!notifications.is_empty() && is_only_of_it, "{notifications:?}");
    assert_eq!(puller.takes(10).await.len(), 6);
    puller.stop().await;
}

// Shows: DRV-25
#[tokio::test]
async fn a_lease_is_extended_beyond_its_first_end() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let [first, second] = &puller.lease(json!({"max": 2, "lease_s": 1})).await[..] else { panic!() };
    let extended = puller.on(first, "extend", json!({"lease_s": 600})).await.json();
    let until: wakeq::Timestamp = extended["lease_until"].as_str().unwrap().parse().unwrap();
    let left = (until - puller.stage().admin.clock().await.unwrap()).num_seconds();
    assert!((590..=600).contains(&left), "{left}");
    let back = puller.lease(json!({"max": 10, "wait_s": 15})).await;
    assert_eq!(back.iter().map(|copy| copy.value).collect::<Vec<_>>(), [2], "the other one ran out");
    for verb in ["extend", "complete", "release"] {
        let late = puller.on(second, verb, json!({})).await;
        assert_eq!(late.problem(), (410, "lease-over".into()), "{verb}");
    }
    assert_eq!((back[0].attempt, &back[0].id), (1, &second.id));
    assert_ne!(back[0].lease, second.lease);
    puller.complete(first).await;
    puller.complete(&back[0]).await;
    assert_eq!(puller.stage().rows().await, 0);
    puller.stop().await;
}

/// A copy that has lost leases comes alone, and dies after the fifth loss; copies leased together
/// with it survive.
#[tokio::test]
async fn leases_that_run_out_count_as_losses() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let both = puller.lease(json!({"max": 10})).await;
    assert_eq!(both.len(), 2);
    puller.complete(&both[1]).await;
    puller.run_out(&both[..1]).await;
    for loss in 1..=4 {
        puller.emit(3, [loss]).await;
        let copies = puller.lease(json!({"max": 10})).await;
        let lost: Vec<PulledCopy> =
            copies.iter().filter(|copy| copy.value == 1 && copy.canvas == 1).cloned().collect();
        assert_eq!(lost.len(), 1, "loss {loss}: {copies:?}");
        assert_eq!((copies.len() == 1, lost[0].attempt), (loss >= 2, 1), "loss {loss}");
        for copy in copies.iter().filter(|copy| copy.canvas == 3) {
            puller.complete(copy).await;
        }
        puller.run_out(&lost).await;
    }
    let rest = puller.takes(10).await;
    assert_eq!(rest, [(3, 2), (3, 3), (3, 4)]);
    assert_eq!(puller.dead(1).await, [("poison".to_owned(), "its leases ran out too often".to_owned())]);
    assert_eq!(puller.dead(3).await, []);
    puller.stop().await;
}

/// Where the others can't be released, they are handed out beside the one that has lost leases:
/// nobody else would get them before the end of their leases.
#[tokio::test]
async fn copies_that_cannot_be_released_are_handed_out() {
    let puller = Puller::start().await;
    puller.emit(1, [1]).await;
    for _ in 0..2 {
        let copy = puller.one().await;
        puller.run_out(&[copy]).await;
    }
    puller.emit(2, [2]).await;
    for refuses in [
        "create function public.refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$",
        "create trigger refuse before update on wakeq.events_v2 for each row
         when (old.locked_at is not null and new.locked_at is null) execute function public.refuse()",
    ] {
        puller.stage().pool.run(refuses).await;
    }
    let copies = puller.lease(json!({"max": 10})).await;
    let mut values: Vec<u64> = copies.iter().map(|copy| copy.value).collect();
    values.sort_unstable();
    assert_eq!(values, [1, 2]);
    for copy in &copies {
        puller.complete(copy).await;
    }
    assert_eq!(puller.stage().rows().await, 0);
    puller.stop().await;
}

/// A token is valid for one claim of one copy in one queue.
#[tokio::test]
async fn a_wrong_token_changes_nothing() {
    let puller = Puller::start().await;
    puller.register("others", &pulled()).await;
    puller.emit_two().await;
    let [first, second] = &puller.lease(json!({"max": 2})).await[..] else { panic!() };
    let before = rows(&puller).await;
    for verb in ["extend", "complete", "release"] {
        let wrong = PulledCopy { lease: second.lease.clone(), ..first.clone() };
        let answer = puller.on(&wrong, verb, json!({})).await;
        assert_eq!(answer.problem(), (409, "conflict".into()), "{verb}: of another copy");
        let mut made_up = first.clone();
        let last = if made_up.lease.ends_with('0') { "1" } else { "0" };
        made_up.lease.replace_range(39.., last);
        assert_eq!(puller.on(&made_up, verb, json!({})).await.problem(), (409, "conflict".into()), "{verb}");
        let short = PulledCopy { lease: "short".into(), ..first.clone() };
        let answer = puller.on(&short, verb, json!({})).await;
        assert_eq!(answer.problem(), (400, "bad-request".into()), "{verb}");
        assert!(!answer.text.contains("short"), "{}", answer.text);
        let path = format!("/admin/queues/others/copies/{}/{verb}", first.id);
        let elsewhere =
            puller.service.ask(&puller.key, Method::POST, &path, json!({"lease": first.lease})).await;
        assert_eq!(elsewhere.problem(), (404, "not-found".into()), "{verb}: of another queue");
        let nobody = PulledCopy { id: first.json["origin"].as_str().unwrap().into(), ..first.clone() };
        assert_eq!(puller.on(&nobody, verb, json!({})).await.problem().0, 404, "{verb}: of no copy");
    }
    assert_eq!(rows(&puller).await, before);
    puller.complete(first).await;
    puller.complete(second).await;
    puller.stop().await;
}

async fn rows(puller: &Puller) -> Vec<String> {
    let rows = "select e::text from wakeq.events_v2 e order by id";
    puller.stage().pool.values(rows).await
}

/// Only the service that holds it can stop its work: its lease has to be ended first.
#[tokio::test]
async fn a_leased_copy_is_not_cancelled() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let copies = puller.lease(json!({"max": 2})).await;
    let copy = copies.iter().find(|copy| copy.canvas == 1).unwrap();
    let cancel = async |of: u128| {
        let path = format!("/canvases/{}/events/{}/cancel?running=true", canvas(of), copy.id);
        puller.service.ask(&puller.key, Method::POST, &path, Value::Null).await
    };
    cancel(1).await.says((409, "conflict"), &format!("`wakeq queues end-lease {QUEUE} {}`", copy.id));
    assert_eq!(cancel(2).await.problem(), (404, "not-found".to_owned()));
    const CANCELLED: &str = "select count(*) from wakeq.events_v2 where cancelled_by is not null";
    assert_eq!(puller.stage().count(CANCELLED).await, 0);
    let end = format!("/admin/queues/{QUEUE}/leases/{}", copy.id);
    let ended = puller.service.ask(&puller.key, Method::DELETE, &end, Value::Null).await;
    assert_eq!(ended.status.as_u16(), 204, "{}", ended.text);
    assert_eq!(cancel(1).await.json(), json!({"id": copy.id}));
    assert_eq!(puller.stage().rows().await, 1, "that of the other canvas");
    puller.stop().await;
}

/// Copies may belong to any canvas, so a key of single canvases can neither take nor end one.
#[tokio::test]
async fn a_key_of_single_canvases_gets_nothing() {
    let puller = Puller::start().await;
    puller.emit(0, [1]).await;
    puller.emit(7, [2]).await;
    let copy = puller.one().await;
    let before = rows(&puller).await;
    let own = puller.service.key.clone();
    let elsewhere = puller.service.key("them", canvas(7), &Scope::ALL).await;
    let reader = puller.service.wide_key("reader", &[Scope::Read, Scope::Admin]).await;
    let operator = puller.service.wide_key("operator", &[Scope::Operate, Scope::Emit]).await;
    let blind = puller.service.wide_key("blind", &[Scope::Operate, Scope::Read]).await;
    let held = json!({"lease": copy.lease});
    let requests: [(&str, Value); 4] = [
        ("lease", json!({"max": 10})),
        (&format!("{}/extend", copy.id), held.clone()),
        (&format!("{}/complete", copy.id), held.clone()),
        (&format!("{}/release", copy.id), held),
    ];
    for (path, body) in &requests {
        let path = format!("/admin/queues/{QUEUE}/copies/{path}");
        for key in [&own, &elsewhere, &reader] {
            let answer = puller.service.ask(key, Method::POST, &path, body.clone()).await;
            assert_eq!(answer.problem(), (403, "forbidden".into()), "{path}");
        }
        let tenants = format!("/canvases/{}/queues/{QUEUE}/copies/lease", CanvasId::DEFAULT);
        assert_eq!(puller.service.ask(&own, Method::POST, &tenants, body.clone()).await.problem().0, 404);
    }
    let leasing = format!("/admin/queues/{QUEUE}/copies/lease");
    for key in [&operator, &blind] {
        let answer = puller.service.ask(key, Method::POST, &leasing, json!({})).await;
        assert_eq!(answer.problem(), (403, "forbidden".into()), "a caller that takes copies sees them");
    }
    assert_eq!(rows(&puller).await, before);
    puller.stop().await;
}

#[tokio::test]
async fn a_request_waits_until_there_is_something() {
    let puller = Puller::start().await;
    puller.register("idle", &NewQueue { patterns: vec![":nothing:".parse().unwrap()], ..pulled() }).await;
    let idle = puller.waits_for_all_of_its_time("idle");
    let (copies, ()) = tokio::join!(puller.lease(json!({"max": 5, "wait_s": 20})), async {
        // Time for the request to find nothing: nothing shows that it waits.
        tokio::time::sleep(Duration::from_millis(300)).await;
        puller.emit_two().await;
    });
    assert!(!copies.is_empty() && !idle.is_finished());
    puller.takes(10).await;
    let since = Instant::now();
    assert!(puller.lease(json!({"wait_s": 1})).await.is_empty());
    assert!(since.elapsed() >= Duration::from_secs(1));
    puller.stop().await;
}

/// A waiting lease request does not hold up a shutdown.
#[tokio::test]
async fn a_stopping_server_answers_waiting_lease_requests() {
    let puller = Puller::start().await;
    let path = format!("/v1/admin/queues/{QUEUE}/copies/lease");
    let request = puller.service.request(Method::POST, &path).bearer_auth(&puller.key);
    let waiting = tokio::spawn(Answer::of(request.json(&json!({"wait_s": 20}))));
    let used = "select count(*) from wakeq.access_keys where holder = 'puller' and last_used_at is not null";
    wait_while!(puller.stage().count(used).await == 0, "the request does not arrive");
    // Time for it to find nothing: nothing shows that it waits.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let idle = puller.waits_for_all_of_its_time(QUEUE);
    puller.stop().await;
    assert_eq!(waiting.await.unwrap().json(), json!({"copies": []}));
    assert!(!idle.is_finished());
}

#[tokio::test]
async fn rejects_invalid_arguments() {
    let puller = Puller::start().await;
    puller.emit(1, [1]).await;
    for (body, words) in [
        (json!({"max": 0}), "1 to 100"),
        (json!({"max": 101}), "1 to 100"),
        (json!({"lease_s": 0.5}), "1 s to 3,600 s"),
        (json!({"lease_s": 3601}), "1 s to 3,600 s"),
        (json!({"lease_s": -1}), "`lease_s`"),
        (json!({"wait_s": 20.5}), "at most 20 s"),
        (json!({"wait_s": 1e300}), "`wait_s`"),
        (json!({"wait": 1}), "a field is unknown"),
    ] {
        let answer = puller.ask("lease", body.clone()).await;
        answer.says((400, "bad-request"), words);
    }
    let copy = puller.one().await;
    for (verb, body, words) in [
        ("extend", json!({"lease_s": 0}), "1 s to 3,600 s"),
        ("release", json!({"retry_s": 2_592_001}), "30 days"),
        ("release", json!({"retry_s": -1}), "`retry_s`"),
        ("complete", json!({"error": "x"}), "a field is unknown"),
    ] {
        let answer = puller.on(&copy, verb, body.clone()).await;
        answer.says((400, "bad-request"), words);
    }
    puller.complete(&copy).await;
    puller.stop().await;
}

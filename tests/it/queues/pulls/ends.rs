//! Giving up a lease: as if it had never been taken, for later, or as a failed attempt.

use serde_json::json;
use wakeq::Actor;
use wakeq::control::DeadFilter;
use wakeq::queues::{NewQueue, PullPolicy};

use super::{Puller, canvas, email, pulled};

fn tried(retries: u32, halts: bool) -> NewQueue {
    let delay = std::time::Duration::ZERO;
    NewQueue { pull: Some(PullPolicy { retries, delay, halts, ..PullPolicy::default() }), ..pulled() }
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn a_returned_copy_comes_first_and_costs_no_attempt() {
    let puller = Puller::start().await;
    puller.emit(1, [1, 2]).await;
    puller.emit(2, [3]).await;
    for _ in 0..7 {
        let copies = puller.lease(json!({"max": 3})).await;
        let first = copies.iter().find(|copy| copy.value == 1).unwrap();
        assert_eq!((copies.len(), first.attempt), (3, 1));
        for copy in &copies {
            let answer = puller.on(copy, "release", json!({})).await.json();
            assert_eq!(answer, json!({"died": false, "retry_s": 0.0}));
            assert_eq!(puller.on(copy, "complete", json!({})).await.problem().0, 410, "it is given back");
        }
    }
    let copies = puller.lease(json!({"max": 3})).await;
    let of_one: Vec<u64> = copies.iter().filter(|copy| copy.canvas == 1).map(|copy| copy.value).collect();
    assert_eq!(of_one, [1, 2]);
    puller.stop().await;
}

/// For later: as when a handler returns "not yet".
#[tokio::test]
async fn a_copy_returned_for_later_waits_and_costs_no_attempt() {
    let puller = Puller::start().await;
    puller.emit_two().await;
    let copy = puller.one().await;
    let answer = puller.on(&copy, "release", json!({"retry_s": 1.5})).await.json();
    assert_eq!(answer, json!({"died": false, "retry_s": 1.5}));
    assert_eq!(puller.takes(10).await, [(2, 2)]);
    let back = puller.lease(json!({"wait_s": 15})).await;
    assert_eq!(back.iter().map(|copy| (copy.value, copy.attempt)).collect::<Vec<_>>(), [(1, 1)]);
    puller.stop().await;
}

// Shows: DRV-25
#[tokio::test]
async fn a_failing_copy_is_retried_then_dies() {
    let puller = Puller::of(tried(2, false)).await;
    puller.emit_two().await;
    for attempt in 1..=3 {
        let copies = puller.lease(json!({"max": 10})).await;
        let failing = copies.iter().find(|copy| copy.canvas == 1).unwrap();
        assert_eq!(failing.attempt, attempt);
        let answer = puller.fails(failing, 0.0).await;
        assert_eq!(answer["died"], json!(attempt == 3), "{answer}");
    }
    assert_eq!(puller.takes(10).await, []);
    assert_eq!(puller.dead(1).await, [("retries".to_owned(), "no route".to_owned())]);
    assert_eq!(puller.dead(2).await, [], "that of the other canvas is leased");
    let all = DeadFilter { canvas: canvas(1), scope: None, id: None, since: None, before: None };
    let redriven = puller.stage().admin.redrive(&all, &Actor::user("ada"), false).await.unwrap();
    assert_eq!(redriven.count, 1);
    let back = puller.lease(json!({"max": 10})).await;
    assert_eq!(back.iter().map(|copy| (copy.canvas, copy.attempt)).collect::<Vec<_>>(), [(1, 1)]);
    puller.stop().await;
}

/// A failure waits as long as the queue's policy says, or as it asks for if that is longer, up to
/// the longest delay, and its jitter.
#[tokio::test]
async fn the_queue_says_when_it_is_tried_again() {
    let second = std::time::Duration::from_secs(1);
    let (delay, delay_max) = (10 * second, 40 * second);
    let policy = PullPolicy { retries: 5, delay, factor: 3, delay_max, ..PullPolicy::default() };
    let puller = Puller::of(NewQueue { pull: Some(policy), ..pulled() }).await;
    puller.emit_two().await;
    for (asked, delay_s) in
        [(json!(0), 10.0), (json!(35), 35.0), (json!(null), 40.0), (json!(3600), 40.0), (json!(0), 40.0)]
    {
        let copies = puller.lease(json!({"max": 10})).await;
        let copy = copies.iter().find(|copy| copy.canvas == 1).unwrap();
        let release = json!({"error": "e".repeat(5000), "retry_s": asked});
        let answer = puller.on(copy, "release", release).await.json();
        let retry_s = answer["retry_s"].as_f64().unwrap();
        assert!((delay_s..=1.2 * delay_s).contains(&retry_s), "with its jitter: {answer}");
        assert_eq!(puller.takes(10).await, []);
        let due = "update wakeq.events_v2 set delay_until = now() where canvas_id = $1 returning length(last_error)";
        let kept: i32 =
            sqlx::query_scalar(due).bind(canvas(1).0).fetch_one(&puller.stage().pool).await.unwrap();
        assert_eq!(kept, 4000);
    }
    assert_eq!(puller.fails(&puller.one().await, 0.0).await["died"], true, "five retries");
    puller.stop().await;
}

/// After a death the next copy of the object may come, unless the queue halts.
#[tokio::test]
async fn a_death_hands_the_object_on_or_halts_it() {
    for halts in [false, true] {
        let puller = Puller::of(tried(0, halts)).await;
        for (of, value) in [(1, 1), (1, 2), (2, 3), (2, 4)] {
            puller.stage().queue.emit(email(canvas(of), value).on("work:1").unwrap()).await.unwrap();
        }
        let copies = puller.lease(json!({"max": 10})).await;
        assert_eq!(copies.iter().map(|copy| copy.value).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(puller.fails(&copies[0], 0.0).await["died"], true);
        let next = puller.takes(10).await;
        assert_eq!(next, if halts { vec![] } else { vec![(1, 2)] }, "halts: {halts}");
        puller.complete(&copies[1]).await;
        assert_eq!(puller.takes(10).await, [(2, 4)], "the object of the other canvas goes on");
        puller.stop().await;
    }
}

/// Whatever retries the queue's policy leaves.
#[tokio::test]
async fn a_copy_that_no_retry_can_help_dies_at_once() {
    let puller = Puller::of(tried(5, false)).await;
    puller.emit_two().await;
    let copies = puller.lease(json!({"max": 10})).await;
    for (body, words) in [
        (json!({"dead": true}), "needs an `error`"),
        (json!({"dead": true, "error": "no card", "retry_s": 1}), "is not delayed"),
    ] {
        puller.on(&copies[0], "release", body).await.says((400, "bad-request"), words);
    }
    let answer = puller.on(&copies[0], "release", json!({"dead": true, "error": "no card"})).await.json();
    assert_eq!(answer, json!({"died": true, "retry_s": null}));
    let died = [("rejected".to_owned(), "no card".to_owned())];
    let of = copies[0].canvas;
    assert_eq!((puller.dead(of).await, puller.dead(3 - of).await), (died.to_vec(), vec![]));
    let noted = "select count(*) from wakeq.attempts";
    assert_eq!(puller.stage().count(noted).await, 0, "attempts at copies are not noted");
    puller.complete(&copies[1]).await;
    puller.stop().await;
}

/// The token of a lease begins with the claim.
#[tokio::test]
async fn a_puller_completes_a_copy_in_its_own_transaction() {
    let puller = Puller::start().await;
    for (of, value) in [(1, 1), (1, 2), (2, 3)] {
        puller.stage().queue.emit(email(canvas(of), value).on("work:1").unwrap()).await.unwrap();
    }
    let copies = puller.lease(json!({"max": 10})).await;
    let first = copies.iter().find(|copy| copy.canvas == 1).unwrap();
    let complete = sqlx::query("select wakeq.complete($1::uuid, $2)").bind(&first.id).bind(&first.lease);
    complete.execute(&puller.stage().pool).await.unwrap();
    puller.on(first, "complete", json!({})).await.says((404, "not-found"), "it was completed");
    // Nobody announces the next one, so the minute's pass does.
    puller.stage().admin.wake(true).await.unwrap();
    assert_eq!(puller.takes(10).await, [(1, 2)], "the next of the object, and none of the other canvas");
    puller.stop().await;
}

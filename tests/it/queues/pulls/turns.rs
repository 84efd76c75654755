//! Whose copies come next: round-robin over canvases, oldest first, subject to weights, caps, rules
//! and objects.

use serde_json::json;
use wakeq::notify::Notifier;
use wakeq::queues::{FacetSettings, NewQueue};
use wakeq::{Actor, CanvasId, Event, HandlerScope, Queue, QueueConfig, Stop};

use super::{Puller, canvas, email, pulled};

fn settings(weight: Option<u32>, in_flight_max: Option<u32>) -> FacetSettings {
    FacetSettings { weight, in_flight_max }
}

/// Round-robin over canvases, and first in, first out within one, however many are leased at a
/// time.
// Shows: DRV-16, DRV-17
#[tokio::test]
async fn canvases_take_turns_and_each_is_first_in_first_out() {
    let puller = Puller::start().await;
    assert_eq!(puller.takes(10).await, [], "a turn of an empty queue gives nothing");
    for number in 1..=3 {
        puller.emit(number, [1, 2, 3, 4]).await;
    }
    assert_eq!(puller.takes(1).await, [(1, 1)]);
    assert_eq!(puller.takes(1).await, [(2, 1)]);
    assert_eq!(puller.takes(1).await, [(3, 1)]);
    assert_eq!(puller.takes(4).await, [(1, 2), (2, 2), (3, 2), (1, 3)]);
    let rest = puller.takes(100).await;
    assert_eq!(rest.len(), 5);
    for number in 1..=3 {
        let values: Vec<u64> = rest.iter().filter(|(of, _)| *of == number).map(|(_, value)| *value).collect();
        assert!(values.is_sorted() && values.last() == Some(&4), "{rest:?}");
    }
    assert_eq!(puller.takes(10).await, []);
    puller.stop().await;
}

/// A busy canvas delays another one by one turn, and weights say how many copies come per round.
#[tokio::test]
async fn weights_count_and_a_weight_of_none_pauses() {
    let puller = Puller::start().await;
    puller.lets(1, settings(Some(3), None)).await;
    puller.lets(2, settings(Some(0), None)).await;
    puller.emit(1, 0..50).await;
    puller.emit(2, 0..5).await;
    puller.emit(3, 0..5).await;
    let mut turns = Vec::new();
    for _ in 0..8 {
        turns.extend(puller.takes(1).await.into_iter().map(|(of, _)| of));
    }
    assert_eq!(turns, [1, 1, 1, 3, 1, 1, 1, 3]);
    puller.lets(2, settings(Some(1), None)).await;
    let turns: Vec<u128> = puller.takes(10).await.into_iter().map(|(of, _)| of).collect();
    assert_eq!(turns.iter().filter(|of| **of == 2).count(), 2, "{turns:?}");
    puller.stop().await;
}

/// A cap counts leased copies, and each end of a lease makes room, even while other canvases keep
/// the rotation busy.
#[tokio::test]
async fn a_canvas_has_as_many_in_flight_as_it_may() {
    let puller = Puller::start().await;
    puller.lets(1, settings(None, Some(2))).await;
    puller.emit(1, 0..5).await;
    puller.emit(2, 0..100).await;
    let copies = puller.lease(json!({"max": 6})).await;
    let (capped, others): (Vec<_>, Vec<_>) = copies.into_iter().partition(|copy| copy.canvas == 1);
    assert_eq!((capped.len(), others.len()), (2, 4));
    assert!(puller.takes(4).await.iter().all(|(of, _)| *of == 2));
    puller.complete(&capped[0]).await;
    let next = puller.takes(4).await;
    assert_eq!(next.iter().filter(|turn| **turn == (1, 2)).count(), 1, "{next:?}");
    let released = puller.on(&capped[1], "release", json!({})).await;
    assert_eq!(released.json(), json!({"died": false, "retry_s": 0.0}));
    let next = puller.takes(4).await;
    assert_eq!(next.iter().filter(|turn| **turn == (1, 1)).count(), 1, "{next:?}");
    puller.stop().await;
}

/// Rules hold copies if the queue shows them to their canvases, and only those of their own canvas.
#[tokio::test]
async fn copies_under_a_rule_are_not_leased() {
    let puller = Puller::of(NewQueue { tenant_visible: true, ..pulled() }).await;
    let admin = &puller.stage().admin;
    let (user, root) = (Actor::user("ada"), Actor::admin("root"));
    let of = |number| {
        let (module, name) = ("email_event".parse().unwrap(), "opened".parse().unwrap());
        HandlerScope { canvas: canvas(number), module, name }
    };
    admin.pause(&of(1), &user, &Stop::default()).await.unwrap();
    admin.block(&of(2), &root, &Stop::default()).await.unwrap();
    for number in 1..=3 {
        puller.emit(number, [1]).await;
    }
    assert_eq!(puller.takes(10).await, [(3, 1)]);
    assert_eq!(puller.takes(10).await, []);
    admin.unpause(&of(1), &user).await.unwrap();
    // Stands in for the minute's pass, which takes care of copies that no worker parks.
    admin.wake(true).await.unwrap();
    assert_eq!(puller.takes(10).await, [(1, 1)]);
    admin.unblock(&of(2), &root).await.unwrap();
    admin.wake(true).await.unwrap();
    assert_eq!(puller.takes(10).await, [(2, 1)]);
    puller.stop().await;
}

/// The switch of a canvas holds its copies where the queue shows them to it; that of everything
/// holds all copies.
#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn copies_under_a_switch_are_not_leased() {
    for tenant_visible in [true, false] {
        let puller = Puller::of(NewQueue { tenant_visible, ..pulled() }).await;
        let admin = &puller.stage().admin;
        let (user, root, none) = (Actor::user("ada"), Actor::admin("root"), Stop::default());
        let takes = async || {
            let mut taken = puller.takes(10).await;
            taken.sort_unstable();
            taken
        };
        admin.pause_canvas(canvas(1), &user, &none).await.unwrap();
        for number in 1..=2 {
            puller.emit(number, [1]).await;
        }
        let expected = if tenant_visible { vec![(2, 1)] } else { vec![(1, 1), (2, 1)] };
        assert_eq!(takes().await, expected);
        admin.block_all(&root, &none).await.unwrap();
        for number in 1..=2 {
            puller.emit(number, [2]).await;
        }
        assert_eq!(takes().await, []);
        admin.unblock_all(&root).await.unwrap();
        admin.unpause_canvas(canvas(1), &user).await.unwrap();
        // Stands in for the minute's pass, which takes care of copies that no worker parks.
        admin.wake(true).await.unwrap();
        let rest = if tenant_visible { vec![(1, 1), (1, 2), (2, 2)] } else { vec![(1, 2), (2, 2)] };
        assert_eq!(takes().await, rest);
        puller.stop().await;
    }
}

fn on_work(of: CanvasId, value: u64) -> Event {
    email(of, value).on("work:1").unwrap()
}

/// The copies of an object come one after the other; each canvas has objects of its own.
#[tokio::test]
async fn an_object_is_worked_in_its_order() {
    let puller = Puller::start().await;
    for value in 1..=3 {
        for number in 1..=2 {
            puller.stage().queue.emit(on_work(canvas(number), value)).await.unwrap();
        }
    }
    let first = puller.lease(json!({"max": 10})).await;
    let turns: Vec<_> = first.iter().map(|copy| (copy.canvas, copy.value)).collect();
    assert_eq!(turns, [(1, 1), (2, 1)]);
    assert_eq!(first[0].json["place"]["object"], "work:1");
    assert_eq!(puller.takes(10).await, []);
    puller.complete(&first[0]).await;
    let second = puller.lease(json!({"max": 10})).await;
    assert_eq!(second.iter().map(|copy| (copy.canvas, copy.value)).collect::<Vec<_>>(), [(1, 2)]);
    assert!(second[0].json["place"]["prev"].as_i64() >= first[0].json["place"]["id"].as_i64());
    // A retried copy keeps its place.
    puller.fails(&second[0], 0.0).await;
    assert_eq!(puller.takes(10).await, [(1, 2)]);
    puller.complete(&first[1]).await;
    assert_eq!(puller.takes(10).await, [(2, 2)]);
    puller.stop().await;
}

/// At most 4 MiB of values, or one copy; the rest comes next, and no canvas loses its turn.
#[tokio::test]
async fn an_answer_is_bounded_in_bytes() {
    let puller = Puller::start().await;
    let stage = puller.stage();
    let config = QueueConfig { payload_limit_bytes: 8 * 1024 * 1024, ..QueueConfig::default() };
    let notifier: std::sync::Arc<dyn Notifier> = stage.notifier.clone();
    let large = Queue::new(stage.store.clone(), notifier, config);
    let mebibytes = |of: u128, size: f64| {
        let text = "x".repeat((size * 1024.0 * 1024.0) as usize);
        let event = Event::new("opened", &text).unwrap().module("email_event").unwrap();
        event.canvas(canvas(of)).only_to_queues()
    };
    for _ in 0..3 {
        for number in 1..=3 {
            large.emit(mebibytes(number, 1.5)).await.unwrap();
        }
    }
    let mut turns = Vec::new();
    for _ in 0..5 {
        let taken: Vec<u128> = puller.takes(100).await.into_iter().map(|(of, _)| of).collect();
        assert!((1..=2).contains(&taken.len()), "{taken:?}");
        turns.extend(taken);
    }
    assert_eq!(turns, [1, 2, 3, 1, 2, 3, 1, 2, 3], "two at a time");
    large.emit(mebibytes(1, 6.0)).await.unwrap();
    puller.emit(2, [7]).await;
    let copies = puller.lease(json!({"max": 10})).await;
    assert_eq!(copies.iter().map(|copy| copy.canvas).collect::<Vec<_>>(), [1], "alone");
    assert!(copies[0].json["value"].as_str().unwrap().len() > 6_000_000);
    assert_eq!(puller.takes(10).await, [(2, 7)]);
    puller.stop().await;
}

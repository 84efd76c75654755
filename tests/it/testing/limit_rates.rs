//! Rates of limits in the kit's tables and on Postgres: the same steps with the same starts.

use std::time::Duration;

use wakeq::control::Explanation;
use wakeq::limits::{NewLimit, OnFull, Rate};
use wakeq::testing::TestKit;
use wakeq::{Actor, CanvasId, Event, EventId, Timestamp};

use super::limits::{KILO, event, ran, syncing};
use super::on_postgres;
use crate::support::OTHER;

async fn starts_at_its_rate(kit: TestKit) {
    let kit = syncing(kit);
    let rate = Rate { burst: 2, ..Rate::new(1, KILO) };
    kit.limit("api", NewLimit { rate: Some(rate), ..NewLimit::default() }).await.unwrap();
    let mut ids = Vec::new();
    for at in 0..5 {
        let value = if at == 1 { "fails" } else { "ok" };
        let event = Event::new("sync", value).unwrap().limit("api").unwrap();
        ids.push(kit.emit(event).await.unwrap().id);
    }
    // Two at once, then one per kilosecond. The retry comes due with the fourth, and is counted.
    assert_eq!(kit.drain().await.unwrap().attempts(), 2);
    for started in 1..=4 {
        kit.advance(KILO / 2).await.unwrap();
        assert_eq!(kit.drain().await.unwrap().attempts(), 0, "start {started} comes too early");
        kit.advance(KILO / 2).await.unwrap();
        assert_eq!(kit.drain().await.unwrap().attempts(), 1, "start {started} does not come");
    }
    assert_eq!(kit.drain().await.unwrap().waiting, 0);
    let theirs = kit.emit(event(&["api"]).canvas(OTHER)).await.unwrap().id;
    assert_eq!(ran(&kit.drain().await.unwrap()), [theirs], "another tenant's key has no limit");
}

#[tokio::test]
async fn events_start_at_the_rate_of_their_key() {
    starts_at_its_rate(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    starts_at_its_rate(kit).await;
}

/// Until when an event waits for its rate, as an explanation of it says.
async fn explained(kit: &TestKit, canvas: CanvasId, id: EventId) -> Timestamp {
    let explanation = kit.admin().explain(canvas, id).await.unwrap();
    let Explanation::Live(live) = explanation else { panic!("{id} has ended") };
    let waits = live.limited.expect("it waits for its rate");
    assert_eq!(live.until, waits.next);
    waits.next.expect("a time")
}

/// The time that an explanation says is that of the start. Those of the next two minutes were told
/// theirs, and the others stand in the line.
async fn says_when_it_starts(kit: TestKit) {
    const MINUTE: Duration = Duration::from_secs(60);
    let (kit, ada) = (syncing(kit), Actor::admin("ada"));
    for (canvas, period) in [(CanvasId::DEFAULT, MINUTE), (OTHER, 2 * KILO)] {
        let limit = NewLimit { rate: Some(Rate::new(1, period)), ..NewLimit::default() };
        kit.admin().put_limit(canvas, &"api".parse().unwrap(), &limit, &ada).await.unwrap();
    }
    let (mut ids, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        ids.push(kit.emit(event(&["api"])).await.unwrap().id);
        theirs.push(kit.emit(event(&["api"]).canvas(OTHER)).await.unwrap().id);
        kit.advance(Duration::from_secs(1)).await.unwrap();
    }
    let began = kit.now().await.unwrap();
    assert_eq!(kit.drain().await.unwrap().attempts(), 2, "one of each canvas");
    let ended = kit.now().await.unwrap();
    let mut before = None;
    for (number, (id, theirs)) in (1..).zip(ids.iter().zip(&theirs).skip(1)) {
        let start = explained(&kit, CanvasId::DEFAULT, *id).await;
        let possible = began + MINUTE * number..=ended + MINUTE * number;
        assert!(possible.contains(&start), "event {number}: {start}, and not in {possible:?}");
        assert!(before.is_none_or(|before| start == before + MINUTE), "event {number}");
        before = Some(start);
        let possible = began + 2 * KILO * number..=ended + 2 * KILO * number;
        assert!(possible.contains(&explained(&kit, OTHER, *theirs).await), "another rate of another canvas");
    }
    for id in &ids[1..] {
        let start = explained(&kit, CanvasId::DEFAULT, *id).await;
        let left = (start - kit.now().await.unwrap()).to_std().unwrap();
        kit.advance(left - MINUTE / 2).await.unwrap();
        assert_eq!(kit.drain().await.unwrap().attempts(), 0, "{id} does not start before its time");
        kit.advance(MINUTE / 2).await.unwrap();
        // The one before it ran milliseconds after its time on a clock that runs by itself, and
        // starts are a minute apart.
        assert_eq!(ran(&kit.drain_for(Duration::from_secs(1)).await.unwrap()), [*id]);
    }
}

#[tokio::test]
async fn an_event_that_waits_for_its_rate_says_when_it_starts() {
    says_when_it_starts(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    says_when_it_starts(kit).await;
}

/// An event that was told to come for a place, and has to wait for a rate then, leaves the place to
/// the one behind it, and a newcomer finds nobody that it could replace.
async fn leaves_its_place_for_a_rate(kit: TestKit) {
    let kit = syncing(kit);
    let one = NewLimit { concurrency: Some(1), ..NewLimit::default() };
    let slowly = NewLimit { rate: Some(Rate::new(1, KILO / 10)), ..NewLimit::default() };
    kit.limit("place", one).await.unwrap();
    kit.limit("rate", slowly).await.unwrap();
    let running = kit.start_elsewhere(event(&["place"])).await.unwrap();
    let both = kit.emit(event(&["place", "rate"])).await.unwrap().id;
    kit.advance(KILO / 1000).await.unwrap();
    let behind = kit.emit(event(&["place"])).await.unwrap().id;
    assert_eq!(kit.drain().await.unwrap().limited, 2);
    let paid = kit.start_elsewhere(event(&["rate"])).await.unwrap();
    kit.limit("place", NewLimit { on_full: OnFull::Replace, ..one }).await.unwrap();
    running.complete().await.unwrap();
    let newcomer = kit.emit(event(&["place"])).await.unwrap().id;
    let drained = kit.drain().await.unwrap();
    assert_eq!(ran(&drained), [behind, newcomer], "{drained}");
    paid.complete().await.unwrap();
    assert_eq!(ran(&kit.drain_for(KILO / 5).await.unwrap()), [both]);
}

#[tokio::test]
async fn a_place_is_not_kept_for_what_waits_for_a_rate() {
    leaves_its_place_for_a_rate(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    leaves_its_place_for_a_rate(kit).await;
}

/// Another rate counts at once, also for what the rate before has told to come later. That of
/// another tenant stays as it is.
async fn starts_at_another_rate(kit: TestKit) {
    let (kit, ada) = (syncing(kit), Actor::admin("ada"));
    let every = |period| NewLimit { rate: Some(Rate::new(1, period)), ..NewLimit::default() };
    let slowly = every(KILO / 10);
    let emit_three = async |key: &str, canvas| {
        kit.admin().put_limit(canvas, &key.parse().unwrap(), &slowly, &ada).await.unwrap();
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(kit.emit(event(&[key]).canvas(canvas)).await.unwrap().id);
            kit.advance(Duration::from_secs(1)).await.unwrap();
        }
        assert_eq!(ran(&kit.drain().await.unwrap()), ids[..1], "{key}");
        ids
    };
    for (key, then) in [("faster", KILO / 20), ("slower", KILO)] {
        let ids = emit_three(key, CanvasId::DEFAULT).await;
        kit.limit(key, every(then)).await.unwrap();
        for id in &ids[1..] {
            assert_eq!(ran(&kit.drain().await.unwrap()), [*id], "{key}");
            kit.advance(then).await.unwrap();
        }
    }
    emit_three("removed", OTHER).await;
    let ids = emit_three("removed", CanvasId::DEFAULT).await;
    assert!(kit.admin().remove_limit(CanvasId::DEFAULT, &"removed".parse().unwrap(), &ada).await.unwrap());
    let mut started = ran(&kit.drain().await.unwrap());
    started.sort_by_key(|id| ids.iter().position(|known| known == id));
    assert_eq!(started, ids[1..]);
}

#[tokio::test]
async fn events_start_at_the_rate_that_is_in_force() {
    starts_at_another_rate(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    starts_at_another_rate(kit).await;
}

/// Two rates in either order: no event uses one up while it waits for the other, and those of
/// another tenant are its own.
async fn takes_a_start_of_both_rates(kit: TestKit) {
    let (kit, ada) = (syncing(kit), Actor::admin("ada"));
    let slowly = NewLimit { rate: Some(Rate::new(1, KILO)), ..NewLimit::default() };
    for canvas in [CanvasId::DEFAULT, OTHER] {
        for key in ["a", "b"] {
            kit.admin().put_limit(canvas, &key.parse().unwrap(), &slowly, &ada).await.unwrap();
        }
    }
    for key in ["a", "b"] {
        let alone = kit.emit(event(&[key])).await.unwrap().id;
        assert_eq!(ran(&kit.drain().await.unwrap()), [alone]);
        kit.advance(KILO / 4).await.unwrap();
    }
    let both = kit.emit(event(&["a", "b"])).await.unwrap().id;
    kit.advance(KILO / 1000).await.unwrap();
    let crossed = kit.emit(event(&["b", "a"])).await.unwrap().id;
    let theirs = kit.emit(event(&["b", "a"]).canvas(OTHER)).await.unwrap().id;
    assert_eq!(ran(&kit.drain().await.unwrap()), [theirs], "ours wait for one rate or the other");
    // Well within the hour after which what waits is looked at anyway.
    let mut started = Vec::new();
    for _ in 0..6 {
        kit.advance(KILO / 2).await.unwrap();
        let now = ran(&kit.drain().await.unwrap());
        assert!(now.len() <= 1, "{now:?} start at once");
        started.extend(now);
    }
    started.sort_by_key(|id| *id != both);
    assert_eq!(started, [both, crossed]);
    assert_eq!(kit.drain().await.unwrap().waiting, 0);
}

#[tokio::test]
async fn events_that_name_two_rates_in_either_order_all_start() {
    takes_a_start_of_both_rates(TestKit::new()).await;
    let (_stage, kit) = on_postgres().await;
    takes_a_start_of_both_rates(kit).await;
}

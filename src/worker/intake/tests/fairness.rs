//! Whatever other canvases do, a canvas waits for one handler at most: random mixes of everything
//! that can wait in a worker.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::bench::{LONGEST, Plan, Scene};
use super::*;

/// The number of slots of a worker, and of canvases. The quiet one is canvas 0.
const SLOTS: usize = 6;
/// Queues in which all canvases may have copies.
const QUEUES: usize = 2;
/// Size of a small parking lot: an equal share of it is more than the quiet canvas ever needs.
const SMALL: usize = SLOTS * 24;

/// One of the things that a canvas does.
#[derive(Clone, Debug)]
enum Kind {
    Events(usize),
    Chain(usize),
    Retries(u32),
    Delays(usize),
    /// Events for a function with a concurrency limit.
    Narrow(usize, usize),
    /// Events for this many targets, the first of which has a concurrency limit.
    Targets(Vec<usize>),
    /// Copies in a queue, each with this many retries.
    Copies(usize, usize, u32),
}

#[derive(Clone, Debug)]
struct Activity {
    canvas: u8,
    kind: Kind,
    at: Duration,
    lasts: Duration,
}

fn seconds(range: std::ops::RangeInclusive<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_secs)
}

fn kind(most: usize) -> impl Strategy<Value = Kind> {
    prop_oneof![
        (1..=most).prop_map(Kind::Events),
        (2..=most).prop_map(Kind::Chain),
        (1..5_u32).prop_map(Kind::Retries),
        (1..=most / 2).prop_map(Kind::Delays),
        (2..=most / 2, 1..3_usize).prop_map(|(count, limit)| Kind::Narrow(count, limit)),
        prop::collection::vec(1..=most / 4, 1..4).prop_map(Kind::Targets),
        (1..=most / 2, 0..QUEUES, 0..2_u32)
            .prop_map(|(count, queue, retries)| Kind::Copies(count, queue, retries)),
    ]
}

/// Other canvases emit a lot, mostly at the start, and their handlers are slow.
fn noise() -> impl Strategy<Value = Activity> {
    let at = prop_oneof![4 => Just(Duration::ZERO), 1 => seconds(0..=60)];
    (1..SLOTS as u8, kind(80), at, seconds(1..=LONGEST.as_secs()))
        .prop_map(|(canvas, kind, at, lasts)| Activity { canvas, kind, at, lasts })
}

/// The quiet canvas emits little, before or during the flood.
fn quiet() -> impl Strategy<Value = Activity> {
    (kind(6), seconds(0..=90), seconds(0..=LONGEST.as_secs())).prop_map(|(kind, at, lasts)| Activity {
        canvas: 0,
        kind,
        at,
        lasts,
    })
}

/// The share of the worker that each canvas's targets may take.
type Shares = [usize; SLOTS];

fn scene_of(all: &[Activity], shares: &Shares) -> Scene {
    let mut scene = Scene { queues: vec![Default::default(); QUEUES], ..Scene::default() };
    let shares = shares.map(|size| scene.limit(size));
    for Activity { canvas, kind, at, lasts } in all {
        let (canvas, at, lasts) = (*canvas, *at, *lasts);
        let mut publish = |count: usize, plan: &Plan| {
            (0..count).for_each(|_| scene.publish_at(at, canvas, plan.clone()));
        };
        let plain = Plan { lasts, ..Plan::default() };
        match kind {
            Kind::Events(count) => publish(*count, &plain),
            Kind::Chain(count) => scene.chain_at(at, canvas, *count, lasts),
            Kind::Retries(retries) => {
                publish(1, &Plan { retries: *retries, retry_delay: lasts / 2, ..plain })
            }
            Kind::Delays(count) => {
                (0..*count as u32)
                    .for_each(|number| publish(1, &Plan { due: at + lasts * (number / 4), ..plain.clone() }));
            }
            Kind::Narrow(count, limit) => {
                let limit = Some(scene.limit(*limit));
                (0..*count).for_each(|_| scene.publish_at(at, canvas, Plan { limit, ..plain.clone() }));
            }
            Kind::Targets(counts) => {
                let (share, limited) = (Some(shares[usize::from(canvas)]), scene.limit(1));
                for (number, count) in counts.iter().enumerate() {
                    let limit = (number == 0).then_some(limited);
                    let plan = Plan { limit, share, ..plain.clone() };
                    (0..*count).for_each(|_| scene.publish_at(at, canvas, plan.clone()));
                }
            }
            Kind::Copies(count, queue, retries) => {
                let plan = Plan { queue: Some(*queue), retries: *retries, retry_delay: lasts / 2, ..plain };
                publish(*count, &plan);
            }
        }
    }
    scene
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// There are as many other canvases as slots, doing anything, and any flood of theirs is held.
    /// An event of the quiet canvas (plain, in a chain, a retry, for a target, or a copy in a
    /// shared queue) starts at the latest when the handlers that were running when it could have
    /// started have ended, provided that it was the first of its canvas then: each look at an event
    /// is a turn of its canvas. Everything also runs as often as it should, however little may be
    /// held. With a small parking lot, events of other canvases are left to their promises, which
    /// no process keeps in this test.
    // Shows: EV2-19
    #[test]
    fn a_due_event_waits_for_one_handler_at_most(
        noises in prop::collection::vec(noise(), 1..12),
        quiet in prop::collection::vec(quiet(), 1..8),
        shares in prop::array::uniform6(1..4_usize),
        prefetch in prop_oneof![Just(Some(SLOTS)), Just(Some(4 * SLOTS)), Just(Some(5_000)), Just(None)],
        lot_max in prop_oneof![Just(SMALL), Just(5_000)],
    ) {
        let is_little = lot_max == SMALL;
        let awaits = |event: Notification| !is_little || event.canvas.0.is_nil();
        let flood = Activity { canvas: 1, kind: Kind::Delays(2 * SMALL), at: Duration::ZERO, lasts: LONGEST };
        let flood = is_little.then_some(flood).into_iter().collect();
        let scene = scene_of(&[quiet, noises, flood].concat(), &shares);
        let expected: BTreeMap<EventId, u32> =
            scene.plans_of(awaits).map(|(id, plan)| (id, 1 + plan.retries)).collect();
        let config = WorkerConfig { capacity: SLOTS, prefetch, lot_max, ..WorkerConfig::default() };
        let starts = scene.play_until(&config, awaits);
        for start in starts.iter().filter(|start| start.asker.canvas.0.is_nil()) {
            let waited = start.at - start.since;
            prop_assert!(waited <= LONGEST + Duration::from_millis(100), "{:?} waited {:?}", start, waited);
        }
        let mut ran: BTreeMap<EventId, u32> = BTreeMap::new();
        let awaited = starts.iter().filter(|start| awaits(start.notification));
        awaited.for_each(|start| *ran.entry(start.notification.id).or_default() += 1);
        prop_assert_eq!(ran, expected);
    }
}

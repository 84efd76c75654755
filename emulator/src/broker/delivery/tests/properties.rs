//! Properties that hold for any sequence of publishing, taking, settling and expiry.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::super::key::Availability;
use super::super::list::{List, NONE};
use super::super::slot::{Lane, State};
use super::super::{Contents, MessageQuery, PageSize, Place, PlaceResult};
use super::model::{Model, Verdict};
use super::*;
use crate::broker::faults::{Faults, Purpose, SeededRng};

const MOST: usize = 4;
const MOST_BYTES: usize = 35;

#[derive(Clone, Debug)]
enum Step {
    Publish {
        key: usize,
        late: u64,
    },
    Take {
        holder: usize,
        most: usize,
    },
    Ack(Vec<Index>),
    Modify {
        id: Index,
        seconds: u64,
    },
    Pass(u64),
    /// A stream ends, and another one takes its place.
    Reopen(usize),
    /// To this many seconds ago.
    Seek(u64),
    Snapshot,
    /// To the last snapshot.
    SeekToSnapshot,
    Configure(Settings),
    /// One of the messages that are not acknowledged, by its place.
    AckPlace(Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..4_usize, prop_oneof![9 => Just(0), 1 => 1..30_u64]).prop_map(|(key, late)| Step::Publish { key, late }),
        5 => (0..4_usize, 1..6_usize).prop_map(|(holder, most)| Step::Take { holder, most }),
        4 => vec(any::<Index>(), 1..4).prop_map(Step::Ack),
        2 => (any::<Index>(), prop_oneof![Just(0), 1..40_u64]).prop_map(|(id, seconds)| Step::Modify { id, seconds }),
        2 => (0..25_u64).prop_map(Step::Pass),
        1 => (0..2_usize).prop_map(Step::Reopen),
    ];
    vec(step, 1..120)
}

/// Includes the steps for which the model has no rules.
fn all_steps() -> impl Strategy<Value = Vec<Step>> {
    let change = prop_oneof![
        (0..400_u64).prop_map(Step::Seek),
        Just(Step::Snapshot),
        Just(Step::SeekToSnapshot),
        any::<Index>().prop_map(Step::AckPlace),
        (any_settings(), any::<bool>()).prop_map(|(settings, retain_acked)| {
            Step::Configure(Settings { retain_acked, retention: secs(600), ..settings })
        }),
    ];
    (steps(), vec((any::<Index>(), change), 0..12)).prop_map(|(mut steps, changes)| {
        for (at, change) in changes {
            steps.insert(at.index(steps.len()), change);
        }
        steps
    })
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let policy = prop_oneof![Just(None), Just(retry(10, 25)), Just(retry(0, 10))];
    (any::<bool>(), any::<bool>(), policy, prop_oneof![2 => Just(None), 1 => Just(Some(2))]).prop_map(
        |(ordering, exactly_once, retry, dead_letter_after)| Settings {
            ordering,
            exactly_once,
            retry,
            dead_letter_after,
            ..settings()
        },
    )
}

/// A delivery, and all ack ids that it ever issued.
struct Run {
    bench: Bench,
    ids: Vec<String>,
    streams: [StreamId; 2],
    opened: u64,
    snapshot: Contents,
}

impl Run {
    fn new(settings: &Settings) -> Self {
        let streams = [StreamId(1), StreamId(2)];
        Self {
            bench: Bench::new(settings.clone()),
            ids: Vec::new(),
            streams,
            opened: 2,
            snapshot: Contents::default(),
        }
    }

    fn holder(&self, number: usize) -> Holder {
        [Holder::Stream(self.streams[0]), Holder::Stream(self.streams[1]), Holder::Pull, Holder::Push][number]
    }

    fn reopen(&mut self, stream: usize) {
        self.bench.delivery.release(self.bench.now, self.streams[stream]);
        self.opened += 1;
        self.streams[stream] = StreamId(self.opened);
    }

    fn publish(&mut self, key: usize, late: u64) -> u64 {
        let fate = if late == 0 { Fate::OnTime } else { Fate::Late(secs(late)) };
        self.bench.publish_with(["", "x", "y", "z"][key], fate);
        self.bench.last
    }

    /// Takes within the flow control that all streams here have.
    fn take(&mut self, holder: Holder, most: usize) -> (Vec<LeasedMessage>, usize, usize) {
        let (messages, bytes) = match holder {
            Holder::Stream(stream) => self.bench.delivery.held_by(stream),
            Holder::Pull | Holder::Push => (0, 0),
        };
        let (most, room) = (most.min(MOST - messages), MOST_BYTES - bytes);
        let taken = self.bench.delivery.take(self.bench.now, holder, most, room, LEASE);
        self.ids.extend(taken.iter().map(|taken| taken.ack_id.clone()));
        (taken, most, room)
    }

    /// Acknowledges that message and no other, unless it has to wait for an earlier one of its key.
    fn acknowledge_place(&mut self, index: &Index) {
        let places = places(&self.bench.delivery);
        if places.is_empty() {
            return;
        }
        let place = *index.get(&places);
        let result = self.bench.delivery.acknowledge_at(self.bench.now, place);
        assert_ne!(result, PlaceResult::Gone);
        let is_left = |other: &&Place| result == PlaceResult::Unordered || **other != place;
        let left: Vec<Place> = places.iter().filter(is_left).copied().collect();
        assert_eq!(self::places(&self.bench.delivery), left);
    }

    fn id(&self, index: &Index) -> Option<String> {
        (!self.ids.is_empty()).then(|| index.get(&self.ids).clone())
    }

    fn ids(&self, indices: &[Index]) -> Vec<String> {
        let mut ids: Vec<String> = indices.iter().filter_map(|index| self.id(index)).collect();
        ids.sort();
        ids.dedup();
        ids
    }
}

fn verdict(answer: &super::super::AckResult, id: &String) -> Verdict {
    assert!(answer.invalid.is_empty());
    if answer.acked.contains(id) {
        Verdict::Acked
    } else if answer.lapsed.contains(id) {
        Verdict::Lapsed
    } else {
        assert!(answer.unordered.contains(id), "{id} is answered");
        Verdict::Unordered
    }
}

fn agree(settings: &Settings, steps: Vec<Step>) {
    let mut run = Run::new(settings);
    let mut model = Model::new(settings.clone(), run.bench.now);
    let mut dead = Vec::new();
    for step in steps {
        match step {
            Step::Publish { key, late } => {
                let id = run.publish(key, late);
                model.publish(
                    id,
                    ["", "x", "y", "z"][key],
                    10 + ["", "x", "y", "z"][key].len(),
                    run.bench.now + secs(late),
                );
            }
            Step::Take { holder: number, most } => {
                let holder = run.holder(number);
                let (taken, most, room) = run.take(holder, most);
                let bytes: usize = taken.iter().map(|taken| taken.message.size()).sum();
                assert!(bytes <= room, "flow control");
                model.took(holder, LEASE, &taken, taken.len() < most && bytes + 11 <= room);
            }
            Step::Ack(indices) => {
                let ids = run.ids(&indices);
                let answer = run.bench.delivery.acknowledge(run.bench.now, &ids);
                let verdicts: Vec<Verdict> = ids.iter().map(|id| verdict(&answer, id)).collect();
                assert_eq!(verdicts, model.acknowledge(&ids));
            }
            Step::Modify { id, seconds } => {
                if let Some(id) = run.id(&id) {
                    let answer =
                        run.bench.delivery.modify_deadline(run.bench.now, &[(id.clone(), secs(seconds))]);
                    assert_eq!(verdict(&answer, &id), model.modify(&id, secs(seconds)));
                }
            }
            Step::Pass(seconds) => {
                dead.extend(run.bench.pass(secs(seconds)).dead);
                model.pass(run.bench.now);
            }
            Step::Reopen(stream) => {
                model.close(run.holder(stream));
                run.reopen(stream);
            }
            Step::Seek(_)
            | Step::Snapshot
            | Step::SeekToSnapshot
            | Step::Configure(_)
            | Step::AckPlace(_) => {
                unreachable!("not among the simple steps")
            }
        }
        let figures = run.bench.delivery.figures(run.bench.now);
        assert_eq!((figures.backlog, figures.leased), model.figures());
        for stream in run.streams {
            assert_eq!(run.bench.delivery.held_by(stream), model.held_by(Holder::Stream(stream)));
        }
    }
    dead.extend(run.bench.pass(Duration::ZERO).dead);
    let dead: Vec<(u64, u32)> = dead.iter().map(|dead| (dead.message.id, dead.attempts)).collect();
    assert_eq!(dead, model.dead);
    nothing_is_left(run);
}

/// Every message that is neither acknowledged nor dead is redelivered, and once it is acknowledged
/// nothing is left of it.
fn nothing_is_left(mut run: Run) {
    let bench = &mut run.bench;
    for _ in 0..100 {
        bench.pass(secs(700));
        let taken = bench.delivery.take(bench.now, Holder::Pull, usize::MAX, usize::MAX, LEASE);
        bench.ack_all(&taken);
    }
    assert_eq!(bench.delivery.figures(bench.now), super::super::Figures::default());
    assert_eq!(bench.delivery.keys.in_use().count(), 0);
    assert_eq!((bench.delivery.streams.len(), bench.delivery.timers.len()), (0, 0));
    assert_eq!((bench.delivery.all().count(), bench.delivery.next_due()), (0, None));
}

/// The places of the messages that are not acknowledged, page by page.
fn places(delivery: &Delivery) -> Vec<Place> {
    let size = PageSize { messages: 2, bytes: usize::MAX };
    let mut query = MessageQuery { after: None, acknowledged: false, size };
    let mut places = Vec::new();
    loop {
        let page = delivery.page(&query);
        places.extend(page.messages.iter().map(|view| view.place));
        if page.next.is_none() {
            return places;
        }
        query.after = page.next;
    }
}

/// The running counts equal a recount.
fn add_up(bench: &Bench) {
    let delivery = &bench.delivery;
    let all: Vec<_> = delivery.all().map(|at| &delivery.slots[at]).collect();
    assert!(all.is_sorted_by_key(|slot| slot.order()));
    let count = |is: fn(&State) -> bool| all.iter().filter(|slot| is(&slot.state)).count();
    let pending: Vec<_> = all.iter().filter(|slot| slot.is_pending()).collect();
    let bytes: usize = pending.iter().map(|slot| slot.message.size()).sum();
    let paged: Vec<_> = places(delivery).into_iter().map(Place::order).collect();
    assert_eq!(paged, pending.iter().map(|slot| slot.order()).collect::<Vec<_>>());
    let figures = delivery.figures(bench.now);
    assert_eq!((figures.backlog, figures.bytes), (pending.len(), bytes));
    assert_eq!(figures.leased, count(|state| matches!(state, State::Leased { .. })));
    assert_eq!(figures.acked_retained, count(|state| *state == State::Kept));
    let oldest = pending.first().map(|slot| bench.now.since(slot.message.published));
    let is_blocked = |key: &u32| {
        matches!(delivery.keys[*key].availability, Availability::Waiting(_) | Availability::Blocked)
    };
    let blocked = delivery.keys.in_use().filter(is_blocked).count();
    assert_eq!((figures.oldest_unacked, figures.ordering_keys_blocked), (oldest, blocked));
    listed_once(delivery);
}

/// Every slot in a list has a message, and is in the list that its state calls for.
fn listed_once(delivery: &Delivery) {
    let all: BTreeSet<u32> = delivery.all().collect();
    let follow = |list: &List, lane| {
        let first = (list.head != NONE).then_some(list.head);
        let listed: Vec<u32> = std::iter::successors(first, |at| {
            Some(delivery.slots[*at].after(lane)).filter(|after| *after != NONE)
        })
        .take(all.len() + 1)
        .collect();
        assert_eq!(listed.last().copied().unwrap_or(NONE), list.tail);
        assert!(listed.iter().all(|at| all.contains(at)), "what is in a list is among all messages");
        listed
    };
    let states = |is: &dyn Fn(u32) -> bool| all.iter().copied().filter(|at| is(*at)).collect::<Vec<u32>>();
    let sorted = |mut listed: Vec<u32>| {
        listed.sort_unstable();
        listed
    };
    let state = |at: u32| delivery.slots[at].state;
    assert!(all.iter().all(|at| state(*at) != State::Free), "a free place is in no list");
    for (list, expected) in [(&delivery.ready, false), (&delivery.ahead, true)] {
        let there = states(&|at| state(at) == State::Ready { ahead: expected });
        assert_eq!(sorted(follow(list, Lane::Queue)), there);
    }
    let leased: Vec<u32> = delivery.leases.values().flat_map(|list| follow(list, Lane::Lease)).collect();
    assert_eq!(sorted(leased), states(&|at| matches!(state(at), State::Leased { .. })));
    let lined: Vec<u32> =
        delivery.keys.in_use().flat_map(|key| follow(&delivery.keys[key].line, Lane::Queue)).collect();
    assert_eq!(sorted(lined), states(&|at| delivery.slots[at].key != NONE));
}

/// What a run hands out, step by step; time passes in leaps, or from one due event to the next.
fn transcript(settings: &Settings, steps: &[Step], leaps: bool) -> Vec<Vec<(String, u64)>> {
    let mut run = Run::new(settings);
    let mut transcript = Vec::new();
    for step in steps {
        match step {
            Step::Publish { key, late } => {
                run.publish(*key, *late);
            }
            Step::Take { holder: number, most } => {
                let (taken, ..) = run.take(run.holder(*number), *most);
                transcript.push(taken.iter().map(|taken| (taken.ack_id.clone(), taken.message.id)).collect());
            }
            Step::Ack(indices) => {
                run.bench.delivery.acknowledge(run.bench.now, &run.ids(indices));
            }
            Step::Modify { id, seconds } => {
                if let Some(id) = run.id(id) {
                    run.bench.delivery.modify_deadline(run.bench.now, &[(id, secs(*seconds))]);
                }
            }
            Step::Pass(seconds) => {
                let end = run.bench.now + secs(*seconds);
                while let Some(due) = run.bench.delivery.next_due().filter(|due| !leaps && *due <= end) {
                    run.bench.now = due;
                    run.bench.delivery.advance(due);
                }
                run.bench.now = end;
                run.bench.delivery.advance(end);
            }
            Step::Reopen(stream) => run.reopen(*stream),
            Step::Seek(ago) => {
                run.bench.delivery.seek_to_time(run.bench.now, run.bench.now.before(secs(*ago)))
            }
            Step::Snapshot => run.snapshot = run.bench.delivery.snapshot(run.bench.now),
            Step::SeekToSnapshot => run.bench.delivery.seek_to(run.bench.now, &run.snapshot),
            Step::Configure(settings) => run.bench.delivery.configure(run.bench.now, settings.clone()),
            Step::AckPlace(index) => run.acknowledge_place(index),
        }
        add_up(&run.bench);
    }
    run.bench.delivery.configure(run.bench.now, Settings { retain_acked: false, ..settings.clone() });
    nothing_is_left(run);
    transcript
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn delivery_agrees_with_a_simple_model(settings in any_settings(), steps in steps()) {
        agree(&settings, steps);
    }

    #[test]
    fn a_leap_in_time_is_the_same_as_many_steps(settings in any_settings(), steps in all_steps()) {
        let settings = Settings { retention: secs(600), ..settings };
        assert_eq!(transcript(&settings, &steps, true), transcript(&settings, &steps, false));
    }

    /// Ordered per key, none lost, none twice unless duplicated: with faults, two streams, and
    /// everything acknowledged.
    #[test]
    fn faults_do_only_what_they_are_configured_to_do(seed: u64, ordering: bool, exactly_once: bool) {
        let faults = Faults { duplicate: 0.2, delay: 0.2, reorder: 0.2, longest_delay: secs(60), ..Faults::default() };
        let run = || {
            let mut rng = SeededRng::new(seed, Purpose::Messages);
            let mut bench = Bench::new(Settings { ordering, exactly_once, ..settings() });
            let mut taken = Vec::new();
            for round in 0..40 {
                if round < 20 {
                    for key in ["", "x", "y"] {
                        bench.publish_with(key, faults.fate(&mut rng).unwrap());
                    }
                }
                let now = [A, B].into_iter().flat_map(|holder| bench.take(holder, 4)).collect::<Vec<_>>();
                assert_eq!(bench.ack_all(&now).acked.len(), now.len());
                taken.extend(now.iter().map(|taken| (taken.message.id, taken.message.ordering_key.clone())));
                bench.pass(secs(5));
            }
            assert_eq!(bench.backlog(), 0);
            taken
        };
        let taken = run();
        prop_assert_eq!(&taken, &run(), "the same seed gives the same run");
        for id in 1..=60 {
            let times = taken.iter().filter(|(taken, _)| *taken == id).count();
            prop_assert!(times == 1 || times == 2 && !exactly_once, "{} came {} times", id, times);
        }
        for key in ["x", "y"] {
            let order: Vec<u64> = taken.iter().filter(|(_, of)| of == key).map(|(id, _)| *id).collect();
            prop_assert!(!ordering || order.is_sorted(), "{:?}", order);
        }
    }
}

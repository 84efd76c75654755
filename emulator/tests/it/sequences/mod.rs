//! Generated sequences of calls, on our emulator and on Google's: what clients see has to be the
//! same. Where it is not, the shortest sequence that shows it is sought.
//!
//! What depends on time is left out, and so is what the cases ask for anyhow. Google's emulator
//! does some things a moment later, so a difference counts only if it is seen each time.

mod actor;
mod operation;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use tokio::runtime::Runtime;
use tonic::Code;
use wakeq_emulator::{Faults, Options};
use wakeq_testbed::TestTime;

use crate::limited::LimitedEmulator;
use crate::sides::{google, say};
use crate::stage::Stage;
use actor::Actor;
use operation::{Operation, Seen, sequences};

/// How many sequences are generated if the variable does not say so.
const SEQUENCES: u32 = 1_000;
const VARIABLE: &str = "SEQUENCES";
/// A line is printed each time that so many have passed.
const PROGRESS: u32 = 1_000;

/// Something that Google's emulator 0.8.20 does otherwise.
struct Known {
    does: &'static str,
    /// What the documentation says, and where.
    documented: &'static str,
    is: fn(&Operation, &Seen, &Seen) -> bool,
}

const KNOWN: &[Known] = &[Known {
    does: "lists nothing for a topic that is not there",
    documented: "google/rpc/code.proto, NOT_FOUND: a requested entity was not found",
    is: |operation, ours, theirs| {
        matches!(operation, Operation::ListSubscriptionsOf(_))
            && (ours, theirs) == (&Seen::Refused(Code::NotFound), &Seen::Done)
    },
}];

/// Two emulators, the second of which has to do what the first does.
struct Pair {
    runtime: Runtime,
    first: Stage,
    second: Stage,
    /// For how long the second is waited for.
    patience: Duration,
    /// How often a difference has to be seen.
    times: usize,
}

impl Pair {
    /// What first differs in a sequence, if it does so each time.
    fn difference(&self, operations: &[Operation]) -> Option<String> {
        let mut words = None;
        for _ in 0..self.times {
            words = Some(self.runtime.block_on(self.run(operations))?);
        }
        words
    }

    async fn run(&self, operations: &[Operation]) -> Option<String> {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let project = format!("sequence-{}-{number}", std::process::id());
        let mut first = Actor::new(&self.first, &project, Duration::ZERO);
        let mut second = Actor::new(&self.second, &project, self.patience);
        let (mut words, mut bodies) = (None, 0);
        for operation in &start().into_iter().chain(operations.iter().cloned()).collect::<Vec<_>>() {
            let one = first.carry_out(operation, bodies, 0).await;
            let other = second.carry_out(operation, bodies, one.count()).await;
            bodies += operation.messages();
            if one != other && !KNOWN.iter().any(|known| (known.is)(operation, &one, &other)) {
                words = Some(format!("{operation:?}: {one:?}, and on the other {other:?}"));
                break;
            }
        }
        first.clean_up().await;
        second.clean_up().await;
        words
    }

    /// Fails with the shortest sequence in which they differ.
    fn compare(&self, count: u32) -> Result<(), TestError<Vec<Operation>>> {
        let config =
            Config { cases: count, failure_persistence: None, max_shrink_iters: 1_000, ..Config::default() };
        let passed = AtomicU32::new(0);
        TestRunner::new(config).run(&sequences(), |operations| {
            if let Some(words) = self.difference(&operations) {
                return Err(TestCaseError::fail(words));
            }
            let passed = passed.fetch_add(1, Ordering::Relaxed) + 1;
            if passed.is_multiple_of(PROGRESS) {
                say(&format!("{passed} sequences are the same"));
            }
            Ok(())
        })
    }
}

/// How every sequence begins: without a topic and a subscription, little happens.
fn start() -> [Operation; 2] {
    let (subscription, topic) = (0, 0);
    [
        Operation::CreateTopic(topic),
        Operation::Subscribe { subscription, topic, ordered: false, keeps_acknowledged: true },
    ]
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn stage(emulator: &LimitedEmulator) -> Stage {
    Stage::new(emulator.host(), String::new()).await
}

#[test]
fn two_of_ours_do_the_same() {
    let runtime = runtime();
    let (emulators, first, second) = runtime.block_on(async {
        let one = LimitedEmulator::start(Options::default()).await;
        let other = LimitedEmulator::start(Options::default()).await;
        let (first, second) = (stage(&one).await, stage(&other).await);
        ([one, other], first, second)
    });
    let pair = Pair { runtime, first, second, patience: Duration::ZERO, times: 1 };
    pair.compare(30).unwrap();
    for emulator in emulators {
        pair.runtime.block_on(emulator.stop());
    }
}

#[test]
fn an_emulator_that_loses_messages_is_found_by_a_short_sequence() {
    let runtime = runtime();
    let (emulators, first, second) = runtime.block_on(async {
        let one = LimitedEmulator::start(Options::default()).await;
        let faults = Faults { lose: 1.0, ..Faults::default() };
        let other = LimitedEmulator::start(Options { faults, ..Options::default() }).await;
        let (first, second) = (stage(&one).await, stage(&other).await);
        ([one, other], first, second)
    });
    let pair = Pair { runtime, first, second, patience: Duration::ZERO, times: 1 };
    let Err(TestError::Fail(words, shortest)) = pair.compare(1_000) else { panic!("they do the same") };
    let is_pull = matches!(shortest.last(), Some(Operation::Pull(_)));
    assert!(is_pull && shortest.len() <= 5, "{words}: {shortest:?}");
    for emulator in emulators {
        pair.runtime.block_on(emulator.stop());
    }
}

#[test]
#[ignore = "thousands of sequences: `cargo xtask pubsub-sequences` runs it"]
fn google_s_emulator_does_the_same() {
    let _time = TestTime::begin();
    let runtime = runtime();
    let Some(host) = runtime.block_on(google()) else { return };
    let (emulator, first, second) = runtime.block_on(async {
        let emulator = LimitedEmulator::start(Options::default()).await;
        let (first, second) = (stage(&emulator).await, Stage::new(host, String::new()).await);
        (emulator, first, second)
    });
    let pair = Pair { runtime, first, second, patience: Duration::from_secs(2), times: 3 };
    let count = std::env::var(VARIABLE).ok().map_or(SEQUENCES, |count| count.parse().unwrap());
    if let Err(error) = pair.compare(count) {
        panic!("{error}");
    }
    pair.runtime.block_on(emulator.stop());
}

#[test]
fn known_differences_name_their_source() {
    for Known { does, documented, .. } in KNOWN {
        assert!(!does.is_empty() && !documented.is_empty(), "{does}");
    }
}

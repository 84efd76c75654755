//! The simulated worlds once more, on the emulator's broker: it loses, duplicates, delays, reorders
//! and forgets notifications by its seed, in virtual time. No event is lost, and without a lost
//! claim none runs twice.

use std::time::Duration;

use super::random_worlds::{Faults, Simulation};
use super::world::emulated::BrokerFaults;
use super::world::{Defect, World};
use crate::support::crash_scene::{figure, size};

/// Each seed has its own mix of faults; one in four has all of them at their worst.
fn faults(seed: u64) -> wakeq_emulator::Faults {
    let share = |shift: u64| ((seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) % 100) as f64 / 100.0;
    let mix = |shift, most: f64| if seed.is_multiple_of(4) { most } else { most * share(shift) };
    wakeq_emulator::Faults {
        seed,
        lose: mix(8, 0.5),
        duplicate: mix(16, 0.8),
        delay: mix(24, 0.6),
        reorder: mix(32, 0.9),
        longest_delay: Duration::from_secs(1_200),
        ..wakeq_emulator::Faults::default()
    }
}

fn play(seed: u64, of: Faults, defect: Option<Defect>, traced: bool) -> (Vec<String>, World) {
    Simulation::new(seed, of, defect, traced).over(faults(seed)).play()
}

/// Totals over this many worlds.
#[derive(Debug, Default)]
struct Totals {
    broker_faults: BrokerFaults,
    completed: u32,
    lost_claims: u32,
}

fn check(worlds: usize, of: Faults) -> Totals {
    let mut totals = Totals::default();
    for seed in 0..worlds as u64 {
        let play = |traced| play(seed, of, None, traced);
        let (violations, world) = play(false);
        if !violations.is_empty() {
            let trace = play(true).1.trace.unwrap_or_default().join("\n  ");
            panic!("seed {seed}, {of:?}: {}\n  {trace}", violations.join("; "));
        }
        totals.broker_faults.add(world.broker.emulated.as_ref().unwrap().broker_faults());
        totals.completed += world.records.values().filter(|record| record.completions > 0).count() as u32;
        totals.lost_claims += world.records.values().map(|record| record.last.losses).sum::<u32>();
    }
    figure(&format!("{worlds} worlds with faults {of:?}"), format_args!("{totals:?}"));
    let BrokerFaults { published, lost, repeated, overtaken, forgotten, injected } = totals.broker_faults;
    let sums = [published, lost, repeated, overtaken, forgotten, totals.completed as usize];
    let injected = [injected.lost, injected.duplicated, injected.delayed, injected.reordered];
    // Each of them occurs more than once per four worlds.
    let enough = |sum: usize| sum * 4 > worlds;
    assert!(sums.into_iter().all(enough), "too quiet: {totals:?}");
    assert!(injected.into_iter().all(|sum| enough(sum as usize)), "too quiet: {totals:?}");
    totals
}

/// EV2-15, EV2-52.
#[test]
fn no_event_is_lost_or_runs_twice_whatever_the_emulator_does_to_notifications() {
    let totals = check(size(100, 1_000), Faults::OfMessages);
    assert_eq!(totals.lost_claims, 0);
}

#[test]
fn no_event_is_lost_when_processes_die_and_stall_as_well() {
    let totals = check(size(100, 1_000), Faults::OfProcesses);
    assert!(totals.lost_claims > 0);
}

/// The checks above can fail: they notice an event that is lost, and one that runs twice.
#[test]
fn each_broken_statement_is_caught_over_the_emulator() {
    for (defect, sign) in [
        (Defect::LiftWithoutJob, "no rule stands and no job will wake it"),
        (Defect::RetryWithoutPromise, "no rule stands and no job will wake it"),
        (Defect::ClaimWithoutLock, "the row of a live owner was taken"),
        (Defect::RemoveNothing, "is neither over nor parked"),
        (Defect::RemoveNothing, "ran to completion"),
        (Defect::RemoveNothing, "was started"),
    ] {
        let caught = (0..1_000).any(|seed| {
            let (violations, _) = play(seed, Faults::OfMessages, Some(defect), false);
            violations.iter().any(|violation| violation.contains(sign))
        });
        assert!(caught, "no world noticed {defect:?}: {sign}");
    }
}

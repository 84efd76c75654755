//! `cargo xtask chaos`: the crash tests at full size, one after another, with their figures.
//!
//! It holds no tests itself: the same ones run at a small size in `cargo test` or `cargo xtask
//! long`, apart from those that only measure.

use std::process::Command;

use anyhow::{Result, bail};

use crate::{cargo, integration_tests, succeed};

/// The short name of each test, what it shows, and its path, or that of a module.
const TESTS: &[(&str, &str, &str)] = &[
    (
        "unpause",
        "20,000 events are paused and unpaused; the admin process is killed halfway",
        "processes::killed::an_admin_is_killed_half_way_through_an_unpause",
    ),
    (
        "worker",
        "a worker is killed while it runs 2,000 events",
        "processes::killed::a_worker_is_killed_amid_running_events",
    ),
    (
        "emulator",
        "Pub/Sub is killed, and forgets everything, while 5,000 events are emitted",
        "processes::killed::the_emulator_is_killed_while_events_flow",
    ),
    (
        "postgres",
        "Postgres is killed while 5,000 events are emitted",
        "processes::killed::postgres_is_killed_while_events_flow",
    ),
    (
        "second-worker",
        "600 events of 2 s, a second worker that starts later, and the first one killed",
        "processes::scaling_out::a_second_process_runs_at_capacity_within_a_second",
    ),
    (
        "eight-workers",
        "100,000 events shared by eight workers",
        "processes::scaling_out::eight_workers_share_a_backlog_evenly",
    ),
    (
        "killed-worker",
        "100,000 events shared by eight worker processes, one of which is killed halfway",
        "processes::scaling_out::a_kill_of_one_of_eight_loses_nothing",
    ),
    (
        "cancelled",
        "60 runs are cancelled, and nothing but the renewal tells them: gone within a third of the lease and their grace",
        "worker::cancelling::a_cancelled_run_ends_within_a_third_of_the_lease_and_its_grace",
    ),
    (
        "busy",
        "100,000 events on 1,000 objects and a lease of 3 s: no claim is lost, no object stalls",
        "worker::under_load::a_busy_worker_loses_no_claim_and_stalls_no_object",
    ),
    (
        "scaler",
        "5,000 events, and workers scaled by depth with the numbers of deploy/: up to 16, back one by one",
        "deploy::scaler::workers_follow_the_depth_up_once_and_down_once",
    ),
    (
        "kills",
        "1,000 events, workers killed at random",
        "processes::killed::workers_are_killed_at_random_moments",
    ),
    (
        "exactly-once",
        "20,000 handlers that complete in their transactions, 60 workers killed and 20 frozen, Postgres killed thrice, 5 s of silence",
        "processes::transactions::an_effect_is_there_exactly_once_whatever_is_killed",
    ),
    (
        "batches",
        "a batch of 100,000 events, workers killed 60 times: its event once, with the counts",
        "emit::batch_crashes::a_batch_ends_once_and_counts_right_while_workers_are_killed",
    ),
    (
        "limits",
        "20,000 events and five places for eight workers, killed 23 times and frozen 7 times, Postgres killed twice",
        "processes::limits::there_are_never_more_than_the_limit_whatever_is_killed",
    ),
    (
        "limits",
        "10,000 keys with a place each, workers killed eight times",
        "processes::limits::each_of_many_keys_has_a_place_of_its_own_whatever_is_killed",
    ),
    (
        "rates",
        "100 starts a second for a minute, then 10, then 100 again, each within 2 %, from its first second on",
        "processes::limits::a_rate_is_kept_and_changed_while_events_wait",
    ),
    (
        "urgent",
        "urgent events behind 100,000 that have all places but one for 10 s each, and 10,000 others under a flood",
        "worker::urgent_load::",
    ),
    (
        "publish",
        "an emitter is killed between commit and publish",
        "processes::killed::an_emitter_dies_between_commit_and_publish",
    ),
    (
        "poison",
        "an event that kills its process, next to 63 that do not",
        "processes::leases::an_event_that_kills_its_process_ends_among_the_dead",
    ),
    (
        "order",
        "10,000 events on 50 objects, emitters and workers killed, every notification twice",
        "order::crashes::order_outlives_the_processes",
    ),
    (
        "order-emit",
        "20,000 events on 20 objects by 32 emitters",
        "order::chains::ids_grow_in_the_order_of_the_commits",
    ),
    (
        "queue",
        "100,000 copies for 50 canvases in a queue, an emitter and workers killed, many notifications twice",
        "queues::crashes::copies_outlive_the_processes",
    ),
    (
        "languages",
        "10,000 events that a program in JavaScript works off, which is killed 20 times, and so is the API",
        "pulled::crashes::every_event_runs_in_javascript_whatever_is_killed",
    ),
    (
        "languages",
        "the same with one in Python",
        "pulled::crashes::every_event_runs_in_python_whatever_is_killed",
    ),
    (
        "entities",
        "200 owners of an entity type killed at random: memory matches the repository, one answer each",
        "streams::entities::crashes::memory_matches_the_repository_after_owners_are_killed",
    ),
    (
        "poison-entity",
        "an entity event that hangs, among 10,000 others on two canvases",
        "streams::entities::poison::the_others_are_done_while_an_event_hangs",
    ),
    (
        "poison-entity",
        "one that panics",
        "streams::entities::poison::the_others_are_done_while_an_event_panics",
    ),
    (
        "poison-entity",
        "one that ends its process",
        "streams::entities::poison::the_others_are_done_while_an_event_kills",
    ),
    (
        "groups",
        "3 nodes, 50 groups of 4 partitions each: one killed, one stopped beyond its lease, all replaced, while events flow",
        "streams::groups::crashes::every_event_reaches_every_group_whatever_becomes_of_the_nodes",
    ),
    (
        "coordinator",
        "the coordinator is stopped during a write, and resumed after another took over",
        "streams::groups::crashes::a_deposed_coordinator_writes_nothing",
    ),
    ("pauses", "200 pauses under load", "processes::several::no_event_is_claimed_after_a_pause_has_returned"),
    (
        "idle",
        "1,000,000 paused events and nothing else to do: two runs of two minutes",
        "database::idle::an_idle_queue_asks_one_small_statement_a_period",
    ),
    (
        "worlds",
        "1,000 worlds in virtual time over the emulator, which loses, duplicates, delays, reorders, forgets",
        "simulation::over_the_emulator::no_event_is_lost_or_runs_twice_whatever_the_emulator_does_to_notifications",
    ),
    (
        "deaths",
        "1,000 more, in which processes die and stall as well",
        "simulation::over_the_emulator::no_event_is_lost_when_processes_die_and_stall_as_well",
    ),
    (
        "kit",
        "random steps with unique keys, which the test kit and Postgres answer alike",
        "testing::unique::memory_and_postgres_agree_on_unique_keys",
    ),
    (
        "pulls",
        "random leases, of which none passes a copy over",
        "queues::pulls::crowd::no_copy_is_forgotten",
    ),
    ("worlds", "thousands more, in memory, with limits and classes", "simulation::random_worlds::"),
    (
        "notifier",
        "a notifier in memory that loses, doubles, delays, reorders and forges, 48 seeds",
        "notify::hostile::every_event_completes_once_whatever_the_notifier_does",
    ),
    (
        "grpc",
        "the same faults and more over gRPC and the official client, 20 seeds",
        "notify::hostile::every_event_completes_once_whatever_the_emulator_does",
    ),
];

/// The same of the library's own tests, which only measure.
const OF_LIBRARY: &[(&str, &str, &str)] = &[(
    "attempts",
    "failed attempts, noted in the history and not: at most 1.3 times as long",
    "store::tests::history::a_noted_attempt_costs_at_most_a_third_more",
)];

/// A benchmark with limits, run only by its own name, because it has to be compiled for release.
const MILLION: &str = "million";

/// At full size a test takes up to half an hour.
const LIMIT_S: &str = "10800";

/// The short names, separated by commas.
pub(crate) fn names() -> String {
    TESTS.iter().chain(OF_LIBRARY).map(|(short, ..)| *short).chain([MILLION]).collect::<Vec<_>>().join(", ")
}

/// Runs one of them, or all.
pub(crate) fn run(name: Option<&str>) -> Result<()> {
    if name == Some(MILLION) {
        println!("{MILLION}: a start with a million entities, in 60 s and 2 GiB, no statement over 1 s");
        let bench = ["bench", "--package", "wakeq-service", "--bench", "entities", "--", MILLION];
        return succeed(cargo().args(bench));
    }
    let chosen = |short: &str| name.is_none_or(|name| name == short);
    let of_service = TESTS.iter().map(|test| (test, integration_test as fn(&str) -> Command));
    let of_library = OF_LIBRARY.iter().map(|test| (test, library_test as fn(&str) -> Command));
    let chosen: Vec<_> = of_service.chain(of_library).filter(|((short, ..), _)| chosen(short)).collect();
    if chosen.is_empty() {
        bail!("there is no such test: use one of {}", names());
    }
    succeed(integration_tests().arg("--no-run"))?;
    let mut failed = Vec::new();
    for ((short, shows, path), test) in chosen {
        println!("\n{short}: {shows}");
        let mut test = test(path);
        test.env("WAKEQ_CHAOS", "full").env("TEST_LIMIT_S", LIMIT_S);
        if succeed(&mut test).is_err() {
            failed.push(*short);
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

/// A test of the service's integration tests, or a module of them.
fn integration_test(path: &str) -> Command {
    let mut test = integration_tests();
    test.args(["--", "--nocapture", "--include-ignored", path]);
    if !path.ends_with("::") {
        test.arg("--exact");
    }
    test
}

/// A test beside the library's code that is ignored otherwise.
fn library_test(path: &str) -> Command {
    let mut test = cargo();
    test.args(["test", "--quiet", "--lib"]);
    test.args(["--", "--nocapture", "--ignored", "--exact", path]);
    test
}

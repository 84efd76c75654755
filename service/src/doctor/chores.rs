//! Judges the queue's own rows: whether the minute's pass is made, and whether the tables stay
//! small.

use std::time::Duration;

use super::{Finding, list};
use crate::store::checkup::{Chores, CrowdedLimit, ReleaseWorkers, Switched, TableSize, UnknownHandler};
use wakeq::Timing;

/// The age from which a promise counts as not kept, if a pass is due every `period`.
pub(crate) fn overdue_after(period: Duration) -> Duration {
    Duration::from_secs(300).max(3 * period)
}

/// How long a worker may be silent until it is lost, as lists of workers have it.
pub(crate) fn lost_after(period: Duration) -> Duration {
    5 * period
}

/// How long ago a worker may have lacked a handler for it to be reported.
pub(crate) const UNKNOWN_WITHIN: Duration = Duration::from_secs(7200);

/// A resume job wakes a million events in a minute: an older one is not being processed.
const JOB_AGE_MAX_S: f64 = 600.0;

/// How many events may wait for a limit before that is reported.
pub(crate) const CROWD: i64 = 1_000;

/// Dead rows beyond those that vacuum is configured to leave (10,000), with a margin for a busy
/// hour.
const DEAD_ROWS_MAX: i64 = 100_000;

/// How many dead rows there may be per live row.
const DEAD_PER_LIVE: i64 = 2;

/// Whether the minute's pass is made, promises are kept, and resume jobs progress.
pub(crate) fn chores(chores: &Chores, period: Duration) -> Vec<Finding> {
    let start =
        "start a long-running process (`wakeq all`, or a worker), or run `wakeq wake` from a cron job";
    let late_s = chores.late_s;
    let pass = if late_s <= 2.0 * period.as_secs_f64() {
        Finding::ok("minute's pass", format!("{} passes so far, none is late", chores.passes))
    } else {
        let since =
            if chores.passes == 0 { "was never made".into() } else { format!("is {late_s:.0} s late") };
        Finding::warn("minute's pass", format!("it {since}: no process makes it"), start)
    };
    let promises = match chores.overdue {
        0 => Finding::ok("promises", "none is overdue"),
        overdue => {
            let found = format!(
                "{overdue} events should have been woken more than {} s ago",
                overdue_after(period).as_secs()
            );
            Finding::warn(
                "promises",
                found,
                "check that workers run and that what wakes them (--notifier) works; then run `wakeq wake`",
            )
        }
    };
    let found = format!("{} open", chores.jobs);
    let jobs = match chores.oldest_job_s {
        Some(age_s) if age_s > JOB_AGE_MAX_S => {
            let found = format!("{found}, the oldest for {age_s:.0} s");
            Finding::warn(
                "resume jobs",
                found,
                "the log of the process that makes the minute's pass shows why",
            )
        }
        Some(_) | None => Finding::ok("resume jobs", found),
    };
    vec![pass, promises, jobs]
}

/// Whether the durations given here are the deployment's; `ours` are the deployment's, overridden
/// by the given ones.
pub(crate) fn durations(standing: Option<&Timing>, ours: Option<&Timing>) -> Finding {
    let Some((standing, ours)) = standing.zip(ours) else {
        return Finding::ok(
            "durations",
            "none are written yet: the first process that emits or works writes its own",
        );
    };
    match ours.first_difference(standing) {
        None => Finding::ok("durations", "those given here are the deployment's"),
        Some((name, ours, deployment)) => {
            let found = format!(
                "{name} is {ours:?} here and {deployment:?} in the deployment: no process \
                         starts like that"
            );
            let advice = "remove the flag or variable, or change the deployment's value: `wakeq \
                          settings set`, then restart every process";
            Finding::fail("durations", found, advice)
        }
    }
}

/// Whether vacuum keeps up.
pub(crate) fn sizes(sizes: &[TableSize]) -> Finding {
    let swollen =
        |size: &&TableSize| size.dead > DEAD_ROWS_MAX && size.dead > size.live.saturating_mul(DEAD_PER_LIVE);
    let swollen: Vec<String> = sizes
        .iter()
        .filter(swollen)
        .map(|size| format!("{} has {} dead rows and {} live ones", size.table, size.dead, size.live))
        .collect();
    if !swollen.is_empty() {
        let advice = "look for old transactions first, then `vacuum` the table";
        return Finding::warn("tables", list(&swollen), advice);
    }
    let megabytes = sizes.iter().map(|size| size.bytes).sum::<i64>() / 1_000_000;
    let rows: i64 = sizes.iter().map(|size| size.live).sum();
    Finding::ok("tables", format!("about {rows} rows in {megabytes} MB"))
}

/// Handlers that events name and some worker does not have.
pub(crate) fn unknown_handlers(unknown: &[UnknownHandler]) -> Finding {
    if unknown.is_empty() {
        return Finding::ok("handlers", "no worker lacked one in the last 2 hours");
    }
    let names: Vec<String> = unknown
        .iter()
        .map(|one| format!("{} ({})", one.handler, one.last_seen.format("%H:%M:%SZ")))
        .collect();
    let found = format!("some worker lacks {}", list(&names));
    Finding::warn(
        "handlers",
        found,
        "give all workers of the subscription the same handlers; check names letter by letter",
    )
}

/// Which workers there are, and whether they are of one release.
pub(crate) fn workers(workers: &[ReleaseWorkers]) -> Finding {
    let seen: Vec<String> = workers
        .iter()
        .filter(|of| of.seen > 0)
        .map(|of| format!("{} of release {}", of.seen, of.release))
        .collect();
    let lost: i64 = workers.iter().map(|of| of.lost).sum();
    let lost = if lost > 0 { format!(", and {lost} lost within a day") } else { String::new() };
    match seen.as_slice() {
        [] => Finding::ok("workers", format!("none was seen lately{lost}")),
        [one] => Finding::ok("workers", format!("{one}{lost}")),
        several => Finding::warn(
            "workers",
            format!("{}{lost}", list(several)),
            "finish the upgrade: `wakeq workers list` shows which are of an older release",
        ),
    }
}

/// Whether everything is blocked, which may have been forgotten, and how many canvases are stopped.
pub(crate) fn switches(switched: &Switched) -> Finding {
    let canvases = match switched.canvases {
        0 => "no canvas is stopped as a whole".to_owned(),
        1 => "1 canvas is stopped as a whole".to_owned(),
        more => format!("{more} canvases are stopped as a whole"),
    };
    match &switched.everything {
        None => Finding::ok("switches", canvases),
        Some(by) => Finding::warn(
            "switches",
            format!("everything is blocked by {by}; {canvases}"),
            "when it may go on: `wakeq unblock --all-canvases`",
        ),
    }
}

/// Limits for which so many events wait that they may be too low, or that what runs may hang.
pub(crate) fn limits(crowded: &[CrowdedLimit]) -> Finding {
    if crowded.is_empty() {
        return Finding::ok("limits", format!("no more than {CROWD} events wait for any"));
    }
    let names: Vec<String> =
        crowded.iter().map(|limit| format!("{} ({})", limit.name, limit.place)).collect();
    let found = format!("more than {CROWD} events wait for {}", list(&names));
    let advice = "see what holds the places: `wakeq limits show NAME`; end what hangs, or set a higher limit";
    Finding::warn("limits", found, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    const PERIOD: Duration = Duration::from_secs(60);

    fn idle() -> Chores {
        Chores { late_s: -20.0, passes: 9, overdue: 0, jobs: 0, oldest_job_s: None }
    }

    #[test]
    fn warns_when_no_process_makes_the_minutes_pass() {
        let levels =
            |one: Chores| chores(&one, PERIOD).iter().map(|finding| finding.level).collect::<Vec<_>>();
        use Level::{Ok, Warn};
        assert_eq!(levels(idle()), [Ok, Ok, Ok]);
        assert_eq!(levels(Chores { late_s: 120.0, ..idle() }), [Ok, Ok, Ok]);
        assert_eq!(levels(Chores { late_s: 121.0, ..idle() }), [Warn, Ok, Ok]);
        assert_eq!(levels(Chores { overdue: 1, ..idle() }), [Ok, Warn, Ok]);
        assert_eq!(levels(Chores { jobs: 1, oldest_job_s: Some(599.0), ..idle() }), [Ok, Ok, Ok]);
        assert_eq!(levels(Chores { jobs: 1, oldest_job_s: Some(601.0), ..idle() }), [Ok, Ok, Warn]);
        let never = chores(&Chores { late_s: 500.0, passes: 0, ..idle() }, PERIOD);
        assert!(never[0].found.contains("never made"), "{}", never[0]);
        assert_eq!((overdue_after(PERIOD).as_secs(), overdue_after(10 * PERIOD).as_secs()), (300, 1800));
    }

    #[test]
    fn reports_durations_that_differ_from_the_deployment() {
        let standing = Timing::default();
        assert_eq!(durations(None, None).level, Level::Ok);
        assert_eq!(durations(Some(&standing), Some(&standing)).level, Level::Ok);
        let other = Timing { lease: PERIOD / 2, ..standing.clone() };
        let finding = durations(Some(&standing), Some(&other));
        assert_eq!(finding.level, Level::Fail);
        assert!(finding.found.starts_with("lease is 30s here and 60s in the deployment"), "{finding}");
    }

    #[test]
    fn warns_when_workers_of_several_releases_work() {
        let of = |release: &str, seen, lost| ReleaseWorkers { release: release.to_owned(), seen, lost };
        let found = |all: &[ReleaseWorkers]| {
            let finding = workers(all);
            (finding.level, finding.found)
        };
        assert_eq!(found(&[]), (Level::Ok, "none was seen lately".to_owned()));
        let one = [of("0.1.0", 0, 2), of("0.2.0", 3, 0)];
        assert_eq!(found(&one), (Level::Ok, "3 of release 0.2.0, and 2 lost within a day".to_owned()));
        let two = [of("0.1.0", 1, 0), of("0.2.0", 3, 0)];
        assert_eq!(found(&two), (Level::Warn, "1 of release 0.1.0, 3 of release 0.2.0".to_owned()));
    }

    #[test]
    fn warns_while_everything_is_blocked() {
        let found = |everything: Option<&str>, canvases| {
            let finding = switches(&Switched { everything: everything.map(str::to_owned), canvases });
            (finding.level, finding.found)
        };
        assert_eq!(found(None, 0), (Level::Ok, "no canvas is stopped as a whole".to_owned()));
        assert_eq!(found(None, 1), (Level::Ok, "1 canvas is stopped as a whole".to_owned()));
        let words = "everything is blocked by cli:ada: fire; 2 canvases are stopped as a whole";
        assert_eq!(found(Some("cli:ada: fire"), 2), (Level::Warn, words.to_owned()));
    }

    #[test]
    fn warns_about_limits_for_which_many_events_wait() {
        assert_eq!(limits(&[]).level, Level::Ok);
        let crowded = CrowdedLimit { name: "customer:7".to_owned(), place: "all canvases".to_owned() };
        let finding = limits(&[crowded]);
        assert_eq!(finding.level, Level::Warn);
        assert_eq!(finding.found, "more than 1000 events wait for customer:7 (all canvases)");
    }

    #[test]
    fn warns_about_many_dead_rows() {
        let size = |live, dead| TableSize { table: "wakeq.events_v2".into(), live, dead, bytes: 5_000_000 };
        assert_eq!(sizes(&[size(10, 90_000)]).level, Level::Ok);
        assert_eq!(sizes(&[size(10_000_000, 150_000)]).level, Level::Ok);
        assert_eq!(sizes(&[size(10, 150_000)]).level, Level::Warn);
    }
}

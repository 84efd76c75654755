//! Labels containers with the process that they belong to, and tells from labels whether that
//! process has gone.
//!
//! It must never take a container for abandoned whose process may still run: on another machine, or
//! in another PID namespace, only its age counts.

use std::collections::HashMap;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, gethostname};

/// The label by which all containers of tests are found; its value is the machine and PID namespace
/// of the process.
pub(super) const MACHINE_LABEL: &str = "wakeq.test.machine";
const PROCESS_LABEL: &str = "wakeq.test.process";
/// No test runs this long, on whatever machine.
const LONGEST_LIFE: Duration = Duration::from_secs(12 * 60 * 60);

/// The labels of this process's containers.
pub(super) fn labels() -> [(&'static str, String); 2] {
    [(MACHINE_LABEL, machine()), (PROCESS_LABEL, std::process::id().to_string())]
}

/// Whether a container with these labels and of this age is abandoned.
pub(super) fn is_left(labels: &HashMap<String, String>, age: Duration) -> bool {
    let is_of_here = labels.get(MACHINE_LABEL) == Some(&machine());
    let process = labels.get(PROCESS_LABEL).and_then(|number| number.parse().ok());
    age > LONGEST_LIFE || is_of_here && process.is_some_and(|number| !is_running(number))
}

/// The machine's name and, on Linux, the PID namespace.
fn machine() -> String {
    let name = gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(space) => format!("{name} {}", space.display()),
        Err(_) => name,
    }
}

/// A process of another user cannot be signalled, but exists.
fn is_running(number: i32) -> bool {
    kill(Pid::from_raw(number), None) != Err(Errno::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const YOUNG: Duration = Duration::from_secs(60);

    fn labelled(machine: &str, process: i32) -> HashMap<String, String> {
        [(MACHINE_LABEL, machine.to_owned()), (PROCESS_LABEL, process.to_string())]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    #[test]
    fn containers_of_dead_processes_are_leftovers() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = child.id().cast_signed();
        child.wait().unwrap();
        assert!(is_left(&labelled(&machine(), process), YOUNG));
    }

    #[test]
    fn containers_of_live_or_foreign_processes_are_not_leftovers() {
        let own: HashMap<_, _> = labels().map(|(name, value)| (name.to_owned(), value)).into();
        assert!(!is_left(&own, YOUNG));
        assert!(!is_left(&labelled("elsewhere", i32::MAX), YOUNG));
        assert!(!is_left(&HashMap::new(), YOUNG));
    }

    #[test]
    fn containers_older_than_a_day_are_leftovers() {
        let own: HashMap<_, _> = labels().map(|(name, value)| (name.to_owned(), value)).into();
        for labels in [own, labelled("elsewhere", 1), HashMap::new()] {
            assert!(is_left(&labels, Duration::from_secs(24 * 60 * 60)));
        }
    }
}

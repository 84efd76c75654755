//! How much of a processor a Postgres cluster has used, by what Linux says of its processes.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// `/proc` counts in hundredths of a second, whatever the kernel's own clock is.
const TICK: Duration = Duration::from_millis(10);

/// What all processes of a cluster have used since it began, those that have ended among them: the
/// parent of all has waited for these.
pub(super) fn used(postmaster: u32) -> Result<Duration> {
    let own = Times::of(postmaster).context("the server has ended")?;
    let mut ticks = own.own + own.of_ended_children;
    for entry in fs::read_dir("/proc").context("this needs Linux")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may have ended just now.
        let Some(times) = Times::of(pid) else { continue };
        if times.parent == postmaster {
            ticks += times.own;
        }
    }
    Ok(TICK * u32::try_from(ticks)?)
}

/// Of one process, in ticks.
#[derive(Debug, PartialEq, Eq)]
struct Times {
    parent: u32,
    own: u64,
    of_ended_children: u64,
}

impl Times {
    fn of(pid: u32) -> Option<Self> {
        Self::read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The fields of `stat` that proc(5) calls ppid, utime and stime, cutime and cstime. A name in
    /// parentheses is before them, and may have blanks.
    fn read(stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own: number(11)? + number(12)?,
            of_ended_children: number(13)? + number(14)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_whatever_a_process_is_called() {
        let stat = "71 (postgres: (a) b) S 7 71 71 0 -1 4194560 3 0 0 0 500 20 3 4 20 0 1 0 99 1 2";
        assert_eq!(Times::read(stat), Some(Times { parent: 7, own: 520, of_ended_children: 7 }));
        assert_eq!(Times::read("71 (postgres) S"), None);
    }
}

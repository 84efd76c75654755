//! Which ticks of a schedule are emitted now, and which comes next; and what happens to those that
//! were not emitted in time.

use std::str::FromStr;
use std::time::Duration;

use chrono::TimeDelta;

use super::CronSchedule;
use crate::event::{Timestamp, displayed_as_text};

/// Maximum number of missed ticks that are made up for.
pub(crate) const MAKE_UP_MAX: usize = 1000;

/// What happens to ticks that were missed, because no process ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MissedTicks {
    /// They are skipped.
    #[default]
    Skip,
    /// The last of them is made up for.
    Once,
    /// Each of them is made up for; if there are more than 1,000, the last 1,000.
    All,
}

impl MissedTicks {
    /// As a word: `skip`, `once` or `all`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Once => "once",
            Self::All => "all",
        }
    }
}

displayed_as_text!(MissedTicks);

impl FromStr for MissedTicks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Skip, Self::Once, Self::All]
            .into_iter()
            .find(|missed| missed.as_str() == text)
            .ok_or_else(|| format!("{text:?} is not a policy for missed ticks: use skip, once or all"))
    }
}

/// The current time, and the limits of what is early and what is missed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// The database's clock.
    pub(crate) now: Timestamp,
    /// Ticks up to this far ahead are emitted.
    pub(crate) ahead: Duration,
    /// Ticks that are later than this are missed; others are only late.
    pub(crate) late: Duration,
}

/// What to do about a schedule now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The ticks to emit, in order.
    pub(crate) ticks: Vec<Timestamp>,
    /// The first tick that is not emitted.
    pub(crate) next: Option<Timestamp>,
    /// The first tick that is skipped for good, if any is.
    pub(crate) left_out: Option<Timestamp>,
}

/// Plans a schedule whose first tick that was not emitted is `next`: at most `most` ticks, at least
/// one.
pub(crate) fn plan(
    schedule: &CronSchedule,
    missed: MissedTicks,
    next: Timestamp,
    at: &Moment,
    most: usize,
) -> Plan {
    let late = TimeDelta::from_std(at.late).unwrap_or(TimeDelta::MAX);
    let ahead = TimeDelta::from_std(at.ahead).unwrap_or(TimeDelta::MAX);
    let until = at.now.checked_add_signed(ahead).unwrap_or(Timestamp::MAX_UTC);
    let line = at.now.checked_sub_signed(late).unwrap_or(Timestamp::MIN_UTC);
    let most = most.max(1);
    let mut plan = Plan { ticks: Vec::new(), next: Some(next), left_out: None };
    if next < line {
        make_up(&mut plan, schedule, missed, next, line, most);
    }
    while let Some(tick) = plan.next.filter(|tick| *tick <= until && plan.ticks.len() < most) {
        plan.ticks.push(tick);
        plan.next = schedule.next(tick);
    }
    plan
}

/// Plans the missed ticks: those from `next` on that are before `line`.
fn make_up(
    plan: &mut Plan,
    schedule: &CronSchedule,
    missed: MissedTicks,
    next: Timestamp,
    line: Timestamp,
    most: usize,
) {
    // The last moment before the line; the database's clock counts microseconds.
    let before = line - TimeDelta::microseconds(1);
    let mut made_up = match missed {
        MissedTicks::Skip => Vec::new(),
        MissedTicks::Once => newest(schedule, next, before, 1),
        MissedTicks::All => newest(schedule, next, before, MAKE_UP_MAX),
    };
    plan.left_out = (made_up.first() != Some(&next)).then_some(next);
    plan.next = if made_up.len() > most {
        let rest = made_up.split_off(most);
        rest.first().copied()
    } else {
        schedule.next(made_up.last().copied().unwrap_or(before))
    };
    plan.ticks = made_up;
}

/// The last ticks up to `until`, at most `most`, none before `first`, which is a tick.
fn newest(schedule: &CronSchedule, first: Timestamp, until: Timestamp, most: usize) -> Vec<Timestamp> {
    let mut found: Vec<Timestamp> = Vec::new();
    let mut end = until;
    let mut width = TimeDelta::seconds(i64::try_from(most).unwrap_or(i64::MAX / 1000));
    while end > first && found.len() < most {
        let start = end.checked_sub_signed(width).unwrap_or(first).max(first);
        let ticks: Vec<_> = std::iter::successors(schedule.next(start), |tick| schedule.next(*tick))
            .take_while(|tick| *tick <= end)
            .take(most + 1)
            .collect();
        if ticks.len() > most {
            // Too many to be sure of the last ones. Ticks are at least a second apart, so this
            // ends.
            width = width / 2;
            continue;
        }
        if ticks.len() * 2 <= most {
            width = width.checked_mul(2).unwrap_or(width);
        }
        found.splice(0..0, ticks);
        end = start;
    }
    if found.len() < most {
        found.insert(0, first);
    }
    found.split_off(found.len().saturating_sub(most))
}

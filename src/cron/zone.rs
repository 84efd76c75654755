//! The wall clock of a zone: which moments a local time stands for when clocks are put forward or
//! back.

use chrono::{DateTime, FixedOffset, NaiveDateTime, NaiveTime, Offset, TimeDelta, TimeZone};
use chrono_tz::{TZ_VARIANTS, Tz};

use crate::event::Timestamp;

/// The most by which a zone's clock has ever been put forward or back: a little more than a day,
/// where the date line moved.
const SHIFT_HOURS: i64 = 26;

/// How many letters of a zone's name may be wrong for a suggestion.
const TYPOS: usize = 2;
/// Shorter names resemble too many others.
const GUESSED_LEAST: usize = 6;

/// A zone of the IANA database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Zone(Tz);

/// The moments that a local time stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalTime {
    /// One moment, as nearly always.
    Once(Timestamp),
    /// Two: the clock was put back, and showed the time again.
    Twice(Timestamp, Timestamp),
    /// None: the clock was put forward past it.
    Never {
        /// The moment when that happened.
        forward: Timestamp,
        /// Whether the whole day was skipped.
        day: bool,
    },
}

impl Zone {
    /// The zone of this name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        name.parse().map(Self).ok()
    }

    pub(super) fn name(self) -> &'static str {
        self.0.name()
    }

    /// The local time at a moment.
    pub(super) fn wall(self, moment: Timestamp) -> NaiveDateTime {
        moment.with_timezone(&self.0).naive_local()
    }

    /// A moment with the zone's offset from UTC.
    pub(super) fn local(self, moment: Timestamp) -> DateTime<FixedOffset> {
        moment.with_timezone(&self.0).fixed_offset()
    }

    fn offset_s(self, moment: Timestamp) -> i32 {
        self.0.offset_from_utc_datetime(&moment.naive_utc()).fix().local_minus_utc()
    }

    /// The moments at which the clock shows this local time. `None` at the ends of the calendar.
    pub(super) fn resolve(self, wall: NaiveDateTime) -> Option<LocalTime> {
        match self.0.from_local_datetime(&wall) {
            chrono::LocalResult::Single(moment) => Some(LocalTime::Once(moment.to_utc())),
            chrono::LocalResult::Ambiguous(one, other) => {
                let (one, other) = (one.to_utc(), other.to_utc());
                Some(LocalTime::Twice(one.min(other), one.max(other)))
            }
            chrono::LocalResult::None => {
                let forward = self.put_forward(wall)?;
                Some(LocalTime::Never { forward, day: self.leaves_out_the_day(wall, forward)? })
            }
        }
    }

    /// The moment at which the clock was put forward past this local time.
    fn put_forward(self, wall: NaiveDateTime) -> Option<Timestamp> {
        let around = TimeDelta::hours(SHIFT_HOURS);
        let before = wall.and_utc().checked_sub_signed(around)?;
        let after = wall.and_utc().checked_add_signed(around)?;
        Some(first(before, after, |moment| self.wall(moment) > wall))
    }

    fn leaves_out_the_day(self, wall: NaiveDateTime, forward: Timestamp) -> Option<bool> {
        let second = TimeDelta::seconds(1);
        let left = self.wall(forward.checked_sub_signed(second)?).checked_add_signed(second)?;
        let day = wall.date().and_time(NaiveTime::MIN);
        let next_day = day.checked_add_signed(TimeDelta::days(1))?;
        Some(left <= day && next_day <= self.wall(forward))
    }

    /// The next moment, within [`SHIFT_HOURS`], at which the clock is put back.
    pub(super) fn put_back(self, after: Timestamp) -> Option<Timestamp> {
        let hour = TimeDelta::hours(1);
        let mut from = after;
        for _ in 0..SHIFT_HOURS {
            let to = from.checked_add_signed(hour)?;
            let (here, there) = (self.offset_s(from), self.offset_s(to));
            if there < here {
                return Some(first(from, to, |moment| self.offset_s(moment) == there));
            }
            from = to;
        }
        None
    }
}

/// The first second after `no` for which it holds; it does for `yes`, and does not for `no`.
fn first(no: Timestamp, yes: Timestamp, holds: impl Fn(Timestamp) -> bool) -> Timestamp {
    let (mut no, mut yes) = (no, yes);
    while (yes - no).num_seconds() > 1 {
        let middle = no + TimeDelta::seconds((yes - no).num_seconds() / 2);
        if holds(middle) { yes = middle } else { no = middle }
    }
    yes
}

/// The zone whose name is most similar to this one, if any is: other letters (case, blanks,
/// dashes), the city alone, or a typo.
pub(super) fn meant(name: &str) -> Option<&'static str> {
    let plain = |text: &str| text.trim().replace([' ', '-'], "_").to_ascii_lowercase();
    let wanted = plain(name);
    let names = || TZ_VARIANTS.iter().map(|zone| zone.name());
    let city = |name: &str| name.rsplit('/').next().map(plain);
    let guessed = wanted.len() >= GUESSED_LEAST;
    names()
        .find(|name| plain(name) == wanted)
        .or_else(|| names().find(|name| name.contains('/') && city(name).as_deref() == Some(&wanted)))
        .or_else(|| {
            let distances = names().filter(|_| guessed).map(|name| (distance(&plain(name), &wanted), name));
            let near = distances.filter(|(typos, _)| *typos <= TYPOS);
            near.min_by_key(|(typos, _)| *typos).map(|(_, name)| name)
        })
}

/// The edit distance: how many letters have to be changed, added or removed to turn one text into
/// the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, against) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *against);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

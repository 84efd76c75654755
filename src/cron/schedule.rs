//! A cron expression in a zone, and the moments at which it ticks.
//!
//! The expression is matched against the wall clock, and the zone says which moments that means. A
//! schedule that names hours is about times of day: each comes once, and one that the clock is put
//! forward past comes at that moment. A schedule for every hour is about intervals: it follows the
//! clock, so it ticks in both hours of the same name, and not in one that is skipped. A day that a
//! zone skipped entirely has no ticks.

use chrono::{DateTime, Datelike, FixedOffset, NaiveDateTime, TimeDelta};
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};

use super::zone::{self, LocalTime, Zone};
use crate::event::Timestamp;

/// Longest expression, in bytes.
pub(super) const EXPRESSION_BYTES_MAX: usize = 256;

/// Longest name of a zone, in bytes. The longest existing one has 32.
const ZONE_BYTES_MAX: usize = 64;

/// The fields of an expression, the optional one first, and how many values each has.
const FIELDS: [(&str, u32); 6] =
    [("seconds", 60), ("minutes", 60), ("hours", 24), ("days", 31), ("months", 12), ("weekdays", 7)];

/// The parser stops searching at the year 5000. A search from this year covers a hundred years.
const SEARCHED_FROM_MAX: i32 = 4899;
/// The calendar repeats itself, including weekdays and leap years, after this many years, which
/// have this many days.
const CYCLE_YEARS: i32 = 400;
const CYCLE_DAYS: i64 = 146_097;

/// A new schedule has to tick after this moment; any will do.
const ORIGIN: Timestamp = DateTime::UNIX_EPOCH;

/// A cron expression in a zone.
///
/// ```
/// use wakeq::crons::CronSchedule;
///
/// let schedule = CronSchedule::new("30 8 * * MON-FRI", "Europe/Berlin").unwrap();
/// let friday = "2027-01-01T12:00:00Z".parse().unwrap();
/// assert_eq!(schedule.next(friday), Some("2027-01-04T07:30:00Z".parse().unwrap()));
///
/// let never = CronSchedule::new("0 0 30 2 *", "UTC").unwrap_err();
/// assert_eq!(never.to_string(), "`0 0 30 2 *` never occurs: no date within a hundred years matches it");
/// ```
#[derive(Clone, Debug)]
pub struct CronSchedule {
    expression: Box<str>,
    cron: Cron,
    zone: Zone,
    every_hour: bool,
}

/// Why a schedule is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSchedule {
    /// The expression is not valid.
    #[error(
        "{expression:?} is not a cron expression ({reason}): write minute, hour, day, month and \
         weekday, such as `30 8 * * MON-FRI`, with seconds before them if needed"
    )]
    Expression {
        /// The expression, cut off at 256 bytes.
        expression: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No date matches it.
    #[error("`{0}` never occurs: no date within a hundred years matches it")]
    Never(String),
    /// No zone has this name.
    #[error("{name:?} is not a time zone: {}", hint(.name))]
    Zone {
        /// The name, cut off at 64 bytes.
        name: String,
    },
}

/// Searched only when the error is displayed, because it compares all names: a pass over many
/// unreadable crons logs only one of them.
fn hint(name: &str) -> String {
    match zone::meant(name) {
        Some(name) => format!("did you mean {name}?"),
        None => "give its name in the IANA database, such as Europe/Berlin, or UTC".to_owned(),
    }
}

/// Says what is wrong with a step that is as long as its field: `*/90` would tick every hour, and
/// not every 90 minutes.
fn too_long_a_step(expression: &str) -> Option<String> {
    let fields: Vec<_> = expression.split(' ').collect();
    let named = FIELDS.get(FIELDS.len().checked_sub(fields.len())?..)?;
    named.iter().zip(fields).find_map(|((name, values), field)| {
        let steps = field.split(',').filter_map(|part| part.split_once('/')?.1.parse::<u32>().ok());
        let step = steps.into_iter().find(|step| step >= values)?;
        Some(format!("a step of {step} is as long as all {values} {name}, or longer"))
    })
}

impl CronSchedule {
    /// A schedule of five fields (minute, hour, day of the month, month, weekday), or six with
    /// seconds first; or one of `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. The
    /// expression has at most 256 bytes.
    pub fn new(expression: &str, zone: &str) -> Result<Self, InvalidSchedule> {
        let invalid = |reason: String| InvalidSchedule::Expression {
            expression: cut(expression, EXPRESSION_BYTES_MAX),
            reason,
        };
        if expression.len() > EXPRESSION_BYTES_MAX {
            return Err(invalid(format!("it has more than {EXPRESSION_BYTES_MAX} bytes")));
        }
        let expression = expression.split_whitespace().collect::<Vec<_>>().join(" ");
        let cron = parsed(&expression).map_err(|error| invalid(reason(&error)))?;
        if let Some(reason) = too_long_a_step(&expression) {
            return Err(invalid(reason));
        }
        let zone =
            Zone::parse(zone).ok_or_else(|| InvalidSchedule::Zone { name: cut(zone, ZONE_BYTES_MAX) })?;
        let every_hour = cron.pattern.hours.values().len() == 24;
        let schedule = Self { expression: expression.into(), cron, zone, every_hour };
        match schedule.next(ORIGIN) {
            Some(_) => Ok(schedule),
            None => Err(InvalidSchedule::Never(schedule.expression.into())),
        }
    }

    /// The expression, with single blanks between its fields.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The zone's name.
    pub fn zone(&self) -> &str {
        self.zone.name()
    }

    /// The most ticks that it has within one minute: 1 to 60.
    pub fn minute_ticks(&self) -> i16 {
        i16::try_from(self.cron.pattern.seconds.values().len()).unwrap_or(60).clamp(1, 60)
    }

    /// The first tick after a moment. Ticks are whole seconds.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = DateTime::from_timestamp(after.timestamp(), 0)?;
        let wall = self.zone.wall(after);
        match (self.ahead(wall, after), self.again(wall, after)) {
            (Some(ahead), Some(again)) => Some(ahead.min(again)),
            (ahead, again) => ahead.or(again),
        }
    }

    /// The next ticks after a moment, at most `count`.
    pub fn upcoming(&self, after: Timestamp, count: usize) -> Vec<Timestamp> {
        std::iter::successors(self.next(after), |tick| self.next(*tick)).take(count).collect()
    }

    /// A moment as local time of the zone.
    pub fn local(&self, moment: Timestamp) -> DateTime<FixedOffset> {
        self.zone.local(moment)
    }

    /// The first tick whose local time is still ahead.
    fn ahead(&self, mut wall: NaiveDateTime, after: Timestamp) -> Option<Timestamp> {
        loop {
            wall = self.matching(wall)?;
            match self.zone.resolve(wall)? {
                LocalTime::Once(moment) | LocalTime::Twice(moment, _) if moment > after => {
                    return Some(moment);
                }
                LocalTime::Twice(_, again) if self.every_hour && again > after => return Some(again),
                LocalTime::Never { forward, day: false } if !self.every_hour && forward > after => {
                    return Some(forward);
                }
                // Continue with what the clock showed when it had been put forward.
                LocalTime::Never { forward, .. } => {
                    wall = wall.max(self.zone.wall(forward).checked_sub_signed(TimeDelta::seconds(1))?);
                }
                LocalTime::Once(_) | LocalTime::Twice(..) => {}
            }
        }
    }

    /// The first tick at a local time that the clock shows once more, because it is put back.
    fn again(&self, wall: NaiveDateTime, after: Timestamp) -> Option<Timestamp> {
        if !self.every_hour {
            return None;
        }
        let back = self.zone.put_back(after)?;
        let from = self.zone.wall(back);
        let tick = self.matching(from.checked_sub_signed(TimeDelta::seconds(1))?)?;
        (tick <= wall).then(|| back + (tick - from))
    }

    /// The first local time after this one that matches the expression, ignoring changes of the
    /// clock.
    ///
    /// The search starts in an equivalent year not far before the parser's limit, so that a search
    /// for a date that never comes ends after one to five hundred years, and not after thousands.
    fn matching(&self, wall: NaiveDateTime) -> Option<NaiveDateTime> {
        let shift = equivalent_years(wall.year());
        let found = self.cron.find_next_occurrence(&wall.checked_add_signed(shift)?, false).ok()?;
        found.checked_sub_signed(shift)
    }
}

/// From a year to the last equivalent one from which the parser may search.
pub(super) fn equivalent_years(year: i32) -> TimeDelta {
    let cycles = (SEARCHED_FROM_MAX - year).div_euclid(CYCLE_YEARS);
    TimeDelta::days(i64::from(cycles) * CYCLE_DAYS)
}

/// The fields of an expression.
pub(super) fn parsed(expression: &str) -> Result<Cron, CronError> {
    CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build().parse(expression)
}

/// The parser's reason, without the parser's names for things.
fn reason(error: &CronError) -> String {
    match error {
        CronError::EmptyPattern => "it is empty".to_owned(),
        CronError::InvalidPattern(words)
        | CronError::IllegalCharacters(words)
        | CronError::ComponentError(words) => {
            words.trim_end_matches('.').replace("CronPattern", "it").replace("Pattern", "it")
        }
        CronError::InvalidDate | CronError::InvalidTime | CronError::TimeSearchLimitExceeded => {
            error.to_string()
        }
    }
}

fn cut(text: &str, bytes_max: usize) -> String {
    let end = (0..=bytes_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or_default()].to_owned()
}

//! Statistics for charts: what happened to the events of a handler, or of a canvas, in steps of
//! time.

use std::time::Duration;

use chrono::{DateTime, TimeDelta};

use super::{Admin, AdminError};
use crate::event::{CanvasId, EventCounts, HandlerScope, Timestamp, is_storable};

/// Maximum number of steps of one answer.
const POINTS_MAX: i64 = 1_500;
const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 24 * HOUR_S;
/// For how long minutes can be told apart, and an hour in which a caller that asks for a day is
/// answered, however long its request took.
const MINUTES_S: i64 = 25 * HOUR_S;
/// Longest step.
const STEP_MAX_S: i64 = 14 * DAY_S;

/// Which time is asked for, and in which steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatisticsRange {
    /// Its beginning. The beginning of its minute or, if the step is in whole hours, of its hour is
    /// taken. Default: a day before the end.
    pub from: Option<Timestamp>,
    /// Its end. Default: now.
    pub to: Option<Timestamp>,
    /// The length of a step: whole minutes, and whole hours if the time begins more than a day ago;
    /// up to 14 days. Default: a minute for the last day, else an hour.
    pub step: Option<Duration>,
}

/// What happened in a time, step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// The length of a step.
    pub step: Duration,
    /// The steps in order, without gaps. The last one ends with the time that was asked for, or
    /// after it.
    pub points: Vec<StatisticsPoint>,
}

impl Statistics {
    /// What happened in all steps together, such as how waiting and run times are spread over the
    /// bins of their histograms.
    pub fn whole(&self) -> EventCounts {
        let mut whole = EventCounts::default();
        self.points.iter().for_each(|point| whole.add(&point.counts));
        whole
    }
}

/// What happened in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatisticsPoint {
    /// When the step begins.
    pub at: Timestamp,
    /// What happened in it.
    pub counts: EventCounts,
}

/// The steps of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Steps {
    /// When the first one begins, in seconds since 1970.
    from_s: i64,
    step_s: i64,
    count: i64,
}

impl Admin {
    /// What happened to the events of a canvas, or of one handler, in up to 1,500 steps of time.
    /// Minutes can be told apart for a day, hours for 14 days, and older ones are empty.
    ///
    /// Each process counts what it does itself, and writes that once a minute: what happened may be
    /// found half a minute off, and is not yet found within a minute. Copies in queues do not
    /// count, nor do events that plain SQL emits as emitted.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::control::StatisticsRange;
    /// use wakeq::{CanvasId, HandlerScope};
    ///
    /// let handler = HandlerScope::worker(CanvasId::DEFAULT, "send-email")?;
    /// let last_day = StatisticsRange::default();
    /// for point in admin.statistics(CanvasId::DEFAULT, Some(&handler), &last_day).await?.points {
    ///     let median = point.counts.run.quantile(0.5);
    ///     println!("{}: {} completed, in {median:?}", point.at, point.counts.completed);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: [`AdminError::Invalid`] for a handler of another canvas, and for a time or a step
    /// that can't be answered.
    pub async fn statistics(
        &self,
        canvas: CanvasId,
        handler: Option<&HandlerScope>,
        range: &StatisticsRange,
    ) -> Result<Statistics, AdminError> {
        if handler.is_some_and(|handler| handler.canvas != canvas) {
            return Err(AdminError::Invalid("the handler belongs to another canvas"));
        }
        let steps = Steps::of(range, self.store.clock().await?)?;
        let found = self.store.statistics(canvas, handler, (steps.at(0)?, steps.at(steps.count)?)).await?;
        let mut points = (0..steps.count)
            .map(|step| Ok(StatisticsPoint { at: steps.at(step)?, counts: EventCounts::default() }))
            .collect::<Result<Vec<_>, AdminError>>()?;
        for (at, counts) in found {
            let step = usize::try_from(steps.of_moment(at)).ok();
            if let Some(point) = step.and_then(|step| points.get_mut(step)) {
                point.counts.add(&counts);
            }
        }
        Ok(Statistics { step: Duration::from_secs(steps.step_s.unsigned_abs()), points })
    }
}

impl Steps {
    fn of(range: &StatisticsRange, now: Timestamp) -> Result<Self, AdminError> {
        let invalid = |words| Err(AdminError::Invalid(words));
        let to = range.to.unwrap_or(now);
        if !is_storable(to) || range.from.is_some_and(|from| !is_storable(from)) {
            return invalid("a moment lies in the years 1 to 9999");
        }
        let from_s = range.from.map_or(to.timestamp() - DAY_S, |from| from.timestamp());
        let is_recent = from_s >= now.timestamp() - MINUTES_S;
        let is_a_day = to.timestamp() - from_s <= DAY_S + HOUR_S / 2;
        let usual_s = if is_recent && is_a_day { MINUTE_S } else { HOUR_S };
        let step_s = match range.step {
            Some(step) if step.subsec_nanos() > 0 => return invalid(WHOLE_MINUTES),
            Some(step) => i64::try_from(step.as_secs()).unwrap_or(i64::MAX),
            None => usual_s,
        };
        if step_s < MINUTE_S || step_s % MINUTE_S != 0 {
            return invalid(WHOLE_MINUTES);
        }
        if step_s > STEP_MAX_S {
            return invalid("a step has at most 14 days, which is how long statistics are kept");
        }
        let is_in_hours = step_s % HOUR_S == 0;
        if !is_recent && !is_in_hours {
            return invalid(
                "what is more than a day ago is kept by the hour: let the step be whole hours, or begin \
                 later",
            );
        }
        let unit_s = if is_in_hours { HOUR_S } else { MINUTE_S };
        let from_s = from_s.div_euclid(unit_s) * unit_s;
        // The end may be within a second.
        let length_s = to.timestamp() + i64::from(to.timestamp_subsec_nanos() > 0) - from_s;
        let count = (length_s + step_s - 1).div_euclid(step_s);
        match count {
            ..=0 => invalid("the time ends before it begins: let `from` be before `to`"),
            1..=POINTS_MAX => Ok(Self { from_s, step_s, count }),
            _ => invalid("an answer has at most 1,500 steps: ask for a longer step, or for less time"),
        }
    }

    /// When a step begins.
    fn at(&self, step: i64) -> Result<Timestamp, AdminError> {
        let begins =
            DateTime::UNIX_EPOCH.checked_add_signed(TimeDelta::seconds(self.from_s + step * self.step_s));
        begins.ok_or(AdminError::Invalid("a moment lies in the years 1 to 9999"))
    }

    /// The step that a moment is in.
    fn of_moment(&self, at: Timestamp) -> i64 {
        (at.timestamp() - self.from_s).div_euclid(self.step_s)
    }
}

const WHOLE_MINUTES: &str = "a step has whole minutes, one at least";

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    const NOW: &str = "2030-05-20T12:34:56.789Z";

    /// The first step, the length of each in seconds, and how many there are; or why there are
    /// none.
    fn steps(
        from: Option<&str>,
        to: Option<&str>,
        step_s: Option<u64>,
    ) -> Result<(String, i64, i64), String> {
        let (from, to) = (from.map(moment), to.map(moment));
        let range = StatisticsRange { from, to, step: step_s.map(Duration::from_secs) };
        let steps = Steps::of(&range, moment(NOW)).map_err(|error| error.to_string())?;
        let at = steps.at(0).unwrap();
        Ok((at.format("%d. %H:%M:%S").to_string(), steps.step_s, steps.count))
    }

    #[test]
    fn a_day_is_answered_by_minutes_and_what_is_older_by_hours() {
        let some = |at: &str, step_s, count| Ok((at.to_owned(), step_s, count));
        for (from, to, step_s, expected) in [
            (None, None, None, some("19. 12:34:00", 60, 1441)),
            (None, None, Some(3600), some("19. 12:00:00", 3600, 25)),
            (None, None, Some(300), some("19. 12:34:00", 300, 289)),
            (Some("2030-05-20T12:00:00Z"), Some("2030-05-20T12:01:00Z"), None, some("20. 12:00:00", 60, 1)),
            (Some("2030-05-20T12:00:59Z"), Some("2030-05-20T12:01:00.5Z"), None, some("20. 12:00:00", 60, 2)),
            (Some("2030-05-19T11:40:00Z"), None, Some(60), some("19. 11:40:00", 60, 1495)),
            (Some("2030-05-06T12:34:00Z"), None, None, some("06. 12:00:00", 3600, 337)),
            (None, Some("2030-05-10T01:30:00Z"), None, some("09. 01:00:00", 3600, 25)),
            (
                Some("2030-05-20T12:00:00Z"),
                Some("2030-05-23T12:00:00Z"),
                None,
                some("20. 12:00:00", 3600, 72),
            ),
            (Some("2030-05-06T12:34:00Z"), None, Some(14 * 86_400), some("06. 12:00:00", 1_209_600, 2)),
        ] {
            assert_eq!(steps(from, to, step_s), expected, "{from:?} {to:?} {step_s:?}");
        }
    }

    #[test]
    fn what_can_not_be_answered_says_what_to_do() {
        for (from, to, step_s, words) in [
            (Some("2030-05-20T12:00:00Z"), Some("2030-05-20T12:00:00Z"), None, "before `to`"),
            (Some("2030-05-21T12:00:00Z"), None, None, "before `to`"),
            (None, None, Some(0), "whole minutes"),
            (None, None, Some(90), "whole minutes"),
            (None, None, Some(u64::MAX), "whole minutes"),
            (None, None, Some(15 * 86_400), "at most 14 days"),
            (Some("2030-05-19T11:00:00Z"), None, Some(60), "whole hours"),
            (Some("2030-05-20T12:00:00Z"), Some("2030-06-20T12:00:00Z"), Some(60), "at most 1,500"),
            (Some("0001-01-01T00:00:00Z"), None, Some(14 * 86_400), "at most 1,500"),
            (Some("0001-01-01T00:00:00Z"), Some("9999-12-31T23:59:59Z"), None, "at most 1,500"),
        ] {
            let refused = steps(from, to, step_s).unwrap_err();
            assert!(refused.contains(words), "{from:?} {to:?} {step_s:?}: {refused}");
        }
        for moment in [Timestamp::MIN_UTC, Timestamp::MAX_UTC] {
            for range in [
                StatisticsRange { from: Some(moment), ..StatisticsRange::default() },
                StatisticsRange { to: Some(moment), ..StatisticsRange::default() },
            ] {
                let refused = Steps::of(&range, self::moment(NOW)).unwrap_err().to_string();
                assert!(refused.contains("years 1 to 9999"), "{refused}");
            }
        }
        let range =
            StatisticsRange { step: Some(Duration::from_millis(60_500)), ..StatisticsRange::default() };
        assert!(Steps::of(&range, moment(NOW)).unwrap_err().to_string().contains("whole minutes"));
    }

    /// A moment is in the step that begins with it or before it.
    #[test]
    fn each_minute_is_in_one_step() {
        let range = StatisticsRange { step: Some(Duration::from_secs(300)), ..StatisticsRange::default() };
        let steps = Steps::of(&range, moment(NOW)).unwrap();
        for (at, step) in
            [("2030-05-19T12:33:00Z", -1), ("2030-05-19T12:34:00Z", 0), ("2030-05-19T12:38:00Z", 0)]
        {
            assert_eq!(steps.of_moment(moment(at)), step, "{at}");
        }
        assert_eq!(steps.of_moment(steps.at(288).unwrap()), 288);
    }
}

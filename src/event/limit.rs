//! Limits over all workers: how they are defined, and what is in use. Plain data: the store
//! decides which events have a place.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use uuid::Uuid;

use super::{CanvasId, EventId, LimitName, Spelled, Timestamp};

/// How many events may start in a period, retries included. Starts are spread evenly over it; up to
/// `burst` of them come at once if none came for a while.
///
/// ```
/// use std::time::Duration;
/// use wakeq::limits::Rate;
///
/// let rate = Rate { burst: 10, ..Rate::new(100, Duration::from_secs(60)) };
/// assert_eq!(rate.to_string(), "100 per 1m, 10 at once");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Starts in a period: 1 to 1,000,000, and a start per microsecond at most.
    pub count: u32,
    /// The period: a millisecond to 31 days.
    pub period: Duration,
    /// How many may start at once: 1 to 1,000,000, and at most as many as 31 days allow otherwise.
    pub burst: u32,
}

impl Rate {
    /// So many starts per period, one by one.
    pub fn new(count: u32, period: Duration) -> Self {
        Self { count, period, burst: 1 }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} per {}, {} at once", self.count, Spelled(self.period), self.burst)
    }
}

/// What happens to an event that would start while all places of a limit are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnFull {
    /// It waits for a place, in the order in which events are due.
    #[default]
    Wait,
    /// It is cancelled.
    Drop,
    /// It waits, and of those that wait already the oldest is cancelled.
    Replace,
    /// It waits, and the running event that has had its place the longest is cancelled.
    Cancel,
}

impl OnFull {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Wait, Self::Drop, Self::Replace, Self::Cancel];

    /// Its word in the API, on the command line and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Drop => "drop",
            Self::Replace => "replace",
            Self::Cancel => "cancel",
        }
    }
}

/// A text that does not say what happens at a full limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what happens at a full limit is wait, drop, replace or cancel: choose one of them")]
pub struct InvalidOnFull;

impl FromStr for OnFull {
    type Err = InvalidOnFull;

    fn from_str(text: &str) -> Result<Self, InvalidOnFull> {
        Self::ALL.into_iter().find(|on_full| on_full.as_str() == text).ok_or(InvalidOnFull)
    }
}

displayed_as_text!(OnFull);

/// A limit as it is set: a concurrency, a rate, or both.
///
/// ```
/// use std::time::Duration;
/// use wakeq::limits::{NewLimit, Rate};
///
/// let five = NewLimit { concurrency: Some(5), ..NewLimit::default() };
/// let slowly = NewLimit { rate: Some(Rate::new(100, Duration::from_secs(60))), ..five };
/// assert!(slowly.check().is_ok());
/// assert_eq!(slowly.to_string(), "5 at a time; 100 per 1m, 1 at once; full: wait");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewLimit {
    /// How many events run at a time: 1 to 1,000.
    pub concurrency: Option<u32>,
    /// How many events start in a period.
    pub rate: Option<Rate>,
    /// What happens if as many as `concurrency` run.
    pub on_full: OnFull,
    /// At how many waiting events emits that name the key are refused: 1 to 10,000. Only for keys.
    pub waiting_max: Option<u32>,
}

/// Why a limit can't be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidLimit {
    /// It would limit nothing.
    #[error("a limit has a concurrency, a rate or both: set one, or remove the limit")]
    Empty,
    /// Too few or too many places.
    #[error("a limit's concurrency is 1 to 1,000: to run nothing, pause the handler or the canvas instead")]
    Concurrency,
    /// Too few or too many starts in a period.
    #[error("a rate is 1 to 1,000,000 starts per period, and at most one per microsecond")]
    Count,
    /// The period is too short or too long.
    #[error("a rate's period is a millisecond to 31 days")]
    Period,
    /// Too few or too many starts at once, also for the period.
    #[error("a rate's burst is 1 to 1,000,000, and at most as many starts as it allows in 31 days")]
    Burst,
    /// Without a concurrency the limit is never full.
    #[error(
        "only a limit with a concurrency is ever full: set one, or leave it at wait, as always for a rate"
    )]
    OnFull,
    /// Nothing waits for a place, too few or too many events may.
    #[error("a limit's waiting_max is 1 to 10,000, and needs a concurrency")]
    WaitingMax,
    /// Emits don't name the limit.
    #[error(
        "waiting_max is for keys that emits name: leave it out for a handler and a canvas, or set a quota"
    )]
    WaitingMaxOf,
}

impl NewLimit {
    /// Highest concurrency.
    pub const CONCURRENCY_MAX: u32 = 1000;
    /// Most starts in a period, and most at once.
    pub const COUNT_MAX: u32 = 1_000_000;
    /// Shortest period of a rate.
    pub const PERIOD_MIN: Duration = Duration::from_millis(1);
    /// Longest period of a rate.
    pub const PERIOD_MAX: Duration = Duration::from_secs(31 * 24 * 3600);
    /// Most events that may wait.
    pub const WAITING_MAX: u32 = 10_000;

    /// Refuses what is out of bounds.
    pub fn check(&self) -> Result<(), InvalidLimit> {
        if self.concurrency.is_none() && self.rate.is_none() {
            return Err(InvalidLimit::Empty);
        }
        if self.concurrency.is_some_and(|places| !(1..=Self::CONCURRENCY_MAX).contains(&places)) {
            return Err(InvalidLimit::Concurrency);
        }
        if let Some(rate) = self.rate {
            if !(Self::PERIOD_MIN..=Self::PERIOD_MAX).contains(&rate.period) {
                return Err(InvalidLimit::Period);
            }
            let is_count = (1..=Self::COUNT_MAX).contains(&rate.count);
            if !is_count || u128::from(rate.count) > rate.period.as_micros() {
                return Err(InvalidLimit::Count);
            }
            let saved = u128::from(rate.burst) * rate.period.as_micros();
            let saved_max = u128::from(rate.count) * Self::PERIOD_MAX.as_micros();
            if !(1..=Self::COUNT_MAX).contains(&rate.burst) || saved > saved_max {
                return Err(InvalidLimit::Burst);
            }
        }
        if self.concurrency.is_none() && self.on_full != OnFull::Wait {
            return Err(InvalidLimit::OnFull);
        }
        let is_max = |most: u32| self.concurrency.is_some() && (1..=Self::WAITING_MAX).contains(&most);
        if self.waiting_max.is_some_and(|most| !is_max(most)) {
            return Err(InvalidLimit::WaitingMax);
        }
        Ok(())
    }

    /// Refuses what is out of bounds, and what a limit of this name can't have.
    pub fn check_as(&self, name: &LimitName) -> Result<(), InvalidLimit> {
        self.check()?;
        if self.waiting_max.is_some() && !name.is_key() { Err(InvalidLimit::WaitingMaxOf) } else { Ok(()) }
    }
}

impl fmt::Display for NewLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(concurrency) = self.concurrency {
            write!(formatter, "{concurrency} at a time; ")?;
        }
        if let Some(rate) = self.rate {
            write!(formatter, "{rate}; ")?;
        }
        write!(formatter, "full: {}", self.on_full)?;
        match self.waiting_max {
            Some(most) => write!(formatter, "; at most {most} wait"),
            None => Ok(()),
        }
    }
}

/// A limit that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// Its canvas. On [`CanvasId::OF_QUEUES`] it is the operator's.
    pub canvas: CanvasId,
    /// What it limits.
    pub name: LimitName,
    /// How much it allows.
    pub definition: NewLimit,
    /// When it was first set.
    pub created_at: Timestamp,
    /// Who first set it.
    pub created_by: String,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Who last changed it.
    pub updated_by: String,
}

/// What is in use of a limit under one counted name: of a family, one key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitUse {
    /// The canvas on which it is counted. [`CanvasId::OF_QUEUES`] is all canvases together.
    pub canvas: CanvasId,
    /// The counted name.
    pub name: LimitName,
    /// How many events hold a place.
    pub running: u32,
    /// The first 20 of them.
    pub holders: Vec<EventId>,
    /// How many events wait for a place, counted to [`LimitUse::WAITING_MAX`]: that many, or more.
    pub waiting: u64,
    /// When the rate lets the next event start, unless it may start now.
    pub next_start: Option<Timestamp>,
}

impl LimitUse {
    /// Most holders that are listed.
    pub const HOLDERS_MAX: usize = 20;
    /// Up to how many waiting events are counted.
    pub const WAITING_MAX: u64 = 10_000;
}

/// What an event waits for: a place of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitWait {
    /// The canvas on which the limit is counted. [`CanvasId::OF_QUEUES`] is all canvases together.
    pub canvas: CanvasId,
    /// The counted name of the limit that was full.
    pub name: LimitName,
    /// Since when the event waits.
    pub since: Timestamp,
    /// The first 20 of the events that hold its places, those of other canvases left out.
    pub holders: Vec<EventId>,
    /// When the rate of the limit lets it start, after those that wait before it, unless it may
    /// start now. If it waits for a place as well, it may start later.
    pub next: Option<Timestamp>,
}

/// A limit under the name by which it is counted, of which an event holds a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HeldLimit {
    /// The canvas on which it is counted.
    pub(crate) canvas: CanvasId,
    /// The counted name.
    pub(crate) name: String,
}

impl HeldLimit {
    /// Parses `canvas/name`, as the statements return it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (canvas, name) = text.split_once('/')?;
        Some(Self { canvas: CanvasId(canvas.parse::<Uuid>().ok()?), name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_bounds() {
        let five = NewLimit { concurrency: Some(5), ..NewLimit::default() };
        let second = Duration::from_secs(1);
        let paced = |rate| NewLimit { rate: Some(rate), ..NewLimit::default() };
        for limit in [
            NewLimit { concurrency: Some(1000), on_full: OnFull::Cancel, waiting_max: Some(10_000), ..five },
            paced(Rate { burst: 1_000_000, ..Rate::new(1_000_000, second) }),
            paced(Rate::new(1000, NewLimit::PERIOD_MIN)),
            paced(Rate::new(1, NewLimit::PERIOD_MAX)),
            paced(Rate { burst: 7, ..Rate::new(7, NewLimit::PERIOD_MAX) }),
        ] {
            assert_eq!(limit.check(), Ok(()), "{limit}");
        }
        for (limit, refused) in [
            (NewLimit::default(), InvalidLimit::Empty),
            (NewLimit { concurrency: Some(0), ..five }, InvalidLimit::Concurrency),
            (NewLimit { concurrency: Some(1001), ..five }, InvalidLimit::Concurrency),
            (paced(Rate::new(0, second)), InvalidLimit::Count),
            (paced(Rate::new(1_000_001, 2 * second)), InvalidLimit::Count),
            (paced(Rate::new(1001, NewLimit::PERIOD_MIN)), InvalidLimit::Count),
            (paced(Rate::new(1, Duration::from_micros(999))), InvalidLimit::Period),
            (paced(Rate::new(1, NewLimit::PERIOD_MAX + second)), InvalidLimit::Period),
            (paced(Rate { burst: 0, ..Rate::new(1, second) }), InvalidLimit::Burst),
            (paced(Rate { burst: 1_000_001, ..Rate::new(1, second) }), InvalidLimit::Burst),
            (paced(Rate { burst: 1_000_000, ..Rate::new(1, NewLimit::PERIOD_MAX) }), InvalidLimit::Burst),
            (paced(Rate { burst: 8, ..Rate::new(7, NewLimit::PERIOD_MAX) }), InvalidLimit::Burst),
            (NewLimit { on_full: OnFull::Drop, ..paced(Rate::new(1, second)) }, InvalidLimit::OnFull),
            (NewLimit { waiting_max: Some(1), ..paced(Rate::new(1, second)) }, InvalidLimit::WaitingMax),
            (NewLimit { waiting_max: Some(0), ..five }, InvalidLimit::WaitingMax),
            (NewLimit { waiting_max: Some(10_001), ..five }, InvalidLimit::WaitingMax),
        ] {
            assert_eq!(limit.check(), Err(refused), "{limit}");
        }
    }

    #[test]
    fn only_limits_of_keys_have_a_waiting_length() {
        let limit = NewLimit { concurrency: Some(5), waiting_max: Some(100), ..NewLimit::default() };
        let check = |name: &str| limit.check_as(&name.parse().unwrap());
        assert_eq!((check("customer"), check("customer:7")), (Ok(()), Ok(())));
        assert_eq!(check("canvas"), Err(InvalidLimit::WaitingMaxOf));
        assert_eq!(check("handler:WORKER/greet"), Err(InvalidLimit::WaitingMaxOf));
        assert_eq!(limit.to_string(), "5 at a time; full: wait; at most 100 wait");
    }

    #[test]
    fn words_are_read_back() {
        for on_full in OnFull::ALL {
            assert_eq!(on_full.as_str().parse(), Ok(on_full));
            assert!(InvalidOnFull.to_string().contains(on_full.as_str()), "{on_full}");
        }
        assert_eq!("DROP".parse::<OnFull>(), Err(InvalidOnFull));
    }

    #[test]
    fn a_held_limit_is_its_canvas_and_its_counted_name() {
        let canvas = CanvasId(Uuid::from_u128(7));
        let held = HeldLimit::parse(&format!("{canvas}/handler:WORKER/greet")).unwrap();
        assert_eq!(held, HeldLimit { canvas, name: "handler:WORKER/greet".to_owned() });
        assert_eq!((HeldLimit::parse("a/b"), HeldLimit::parse("")), (None, None));
    }
}

//! What a consumer does, and how often: its name, its source, and what becomes of an event that fails.

use std::time::Duration;

use crate::event::{EventSource, Name, PageLimit, Partition};

/// Longest period, delay or time-out.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Most events that are read at a time, and most between two writes of a position.
const EVENTS_MAX: u32 = 10_000;
/// Most bytes that may be read at a time.
const PAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How the names of the groups begin that processors of entities have.
const OF_ENTITIES: &str = "entities.";

/// How a consumer works.
///
/// ```
/// use wakeq::{ConsumerConfig, ErrorStrategy};
///
/// let config = ConsumerConfig { on_error: ErrorStrategy::skip(), ..ConsumerConfig::default() };
/// assert_eq!(config.commit_every, 100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerConfig {
    /// How long after its last look a consumer looks again when nothing told it of new events. Default 10 s.
    pub poll_interval: Duration,
    /// After how many events the position is written; as many at most are handled again after a crash. It is also
    /// written whenever there is nothing left to read. 1 to 10,000, default 100.
    pub commit_every: u32,
    /// How many events are read at a time, 1 to 10,000. Default 500.
    pub page: u32,
    /// How many bytes of events are read at a time for a source, up to 64 MiB; one event in any case. Default 4 MiB. Of all sources
    /// together: [`ReadBudget`](crate::ReadBudget).
    pub page_bytes: usize,
    /// How long an event may be handled before that counts as a failure. Default 5 minutes.
    pub timeout: Duration,
    /// How long the event that is being handled may go on when its source is withdrawn; then it is cut off. Default 5 s.
    pub withdraw_grace: Duration,
    /// What becomes of an event that fails. Default: it is tried again, after a second at first and after a minute at last, until it
    /// succeeds. Its source waits for it, and no other one.
    pub on_error: ErrorStrategy,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_secs(10),
            commit_every: 100,
            page: 500,
            page_bytes: PageLimit::BYTES,
            timeout: Duration::from_secs(300),
            withdraw_grace: Duration::from_secs(5),
            on_error: ErrorStrategy::retry(),
        }
    }
}

/// What becomes of an event that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorStrategy {
    /// How often it is tried again.
    pub retries: u32,
    /// How long before the first time; twice as long before each next.
    pub backoff: Duration,
    /// How long at most.
    pub backoff_max: Duration,
    /// What then.
    pub give_up: GiveUp,
}

/// What becomes of an event that has failed for the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// The consumer stops there and is unhealthy, until it is recovered; others of its group are given its sources.
    Stop,
    /// The event is kept among the dead of the group, and the next one is handled.
    Skip,
}

/// What comes after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Retry(Duration),
    GiveUp(GiveUp),
}

impl ErrorStrategy {
    /// Tries an event again until it succeeds: its source waits for it, and no other one. Operators see which one that is, and why.
    pub fn retry() -> Self {
        Self { retries: u32::MAX, ..Self::stop() }
    }

    /// Stops at the first failure.
    pub fn stop() -> Self {
        let (backoff, backoff_max) = (Duration::from_secs(1), Duration::from_secs(60));
        Self { retries: 0, backoff, backoff_max, give_up: GiveUp::Stop }
    }

    /// Gives an event up at its first failure, and goes on.
    pub fn skip() -> Self {
        Self { give_up: GiveUp::Skip, ..Self::stop() }
    }

    /// The same after so many further attempts.
    pub fn retrying(self, retries: u32, backoff: Duration) -> Self {
        Self { retries, backoff, ..self }
    }

    /// What comes after so many failed attempts, 1 or more.
    pub(super) fn after(self, attempts: u32) -> After {
        if attempts > self.retries {
            return After::GiveUp(self.give_up);
        }
        let factor = 2_u32.saturating_pow(attempts.saturating_sub(1));
        After::Retry(self.backoff.saturating_mul(factor).min(self.backoff_max))
    }
}

/// A consumer can't be made like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConsumer(&'static str);

impl ConsumerConfig {
    pub(super) fn check(&self) -> Result<(), InvalidConsumer> {
        let within = |duration: Duration| (Duration::from_millis(1)..=LONGEST).contains(&duration);
        if !(1..=EVENTS_MAX).contains(&self.commit_every) || !(1..=EVENTS_MAX).contains(&self.page) {
            return Err(InvalidConsumer("commit_every and page of a consumer are 1 to 10,000"));
        }
        if !(1..=PAGE_BYTES_MAX).contains(&self.page_bytes) {
            return Err(InvalidConsumer("page_bytes of a consumer is 1 byte to 64 MiB"));
        }
        let ErrorStrategy { backoff, backoff_max, .. } = self.on_error;
        if ![self.poll_interval, self.timeout, backoff, backoff_max].into_iter().all(within) {
            return Err(InvalidConsumer("durations of a consumer are 1 ms to one day"));
        }
        Ok(())
    }
}

/// What a group consumes: the sources that its members share among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) group: Name,
    pub(super) sources: Vec<EventSource>,
    /// The last one that was added, as a whole, and where it begins among the sources.
    last: (EventSource, usize),
}

/// The names of processors of entities are theirs: a consumer of such a name would take the inbox from its processor.
pub(super) fn check_name(group: &Name) -> Result<(), InvalidConsumer> {
    if group.as_str().starts_with(OF_ENTITIES) {
        return Err(InvalidConsumer(
            "a group whose name begins with `entities.` is that of a type's processors: choose another name for the consumer",
        ));
    }
    Ok(())
}

impl Work {
    /// One source is one piece of work.
    pub(super) fn new(group: Name, source: EventSource) -> Self {
        Self { group, sources: vec![source.clone()], last: (source, 0) }
    }

    /// Another one besides.
    pub(super) fn and(mut self, source: EventSource) -> Result<Self, InvalidConsumer> {
        if self.sources.iter().any(|one| one.overlaps(&source)) {
            return Err(InvalidConsumer(
                "the sources of a consumer must have nothing in common: an event would be handled twice",
            ));
        }
        self.last = (source.clone(), self.sources.len());
        self.sources.push(source);
        Ok(self)
    }

    /// The last one is a category in so many partitions, each of which is a piece of work.
    pub(super) fn partitioned(mut self, of: u16) -> Result<Self, InvalidConsumer> {
        let (whole, begins) = &self.last;
        let partitioned = Partition::all(of).into_iter().map(|partition| whole.partition(partition));
        let sources: Option<Vec<_>> = partitioned.collect();
        let sources = sources.filter(|sources| !sources.is_empty()).ok_or(InvalidConsumer(
            "a category can be divided into 1 to 1,024 partitions, and nothing else can",
        ))?;
        self.sources.truncate(*begins);
        self.sources.extend(sources);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::CanvasId;

    // SUB-X3
    #[test]
    fn a_failure_is_followed_by_what_the_strategy_says() {
        let seconds = Duration::from_secs;
        assert_eq!(ErrorStrategy::stop().after(1), After::GiveUp(GiveUp::Stop));
        assert_eq!(ErrorStrategy::skip().after(1), After::GiveUp(GiveUp::Skip));
        assert_eq!(ErrorStrategy::retry().after(u32::MAX), After::Retry(seconds(60)));
        let strategy = ErrorStrategy::skip().retrying(40, seconds(2));
        let waits = [1, 2, 3, 6, 40].map(|attempts| strategy.after(attempts));
        assert_eq!(waits, [2, 4, 8, 60, 60].map(|wait| After::Retry(seconds(wait))));
        assert_eq!(strategy.after(41), After::GiveUp(GiveUp::Skip));
    }

    // SUB-02
    #[test]
    fn a_category_is_one_piece_of_work_unless_it_is_divided() {
        let group: Name = "group".parse().unwrap();
        let companies = EventSource::category("companies").unwrap();
        let work = |source: &EventSource| Work::new(group.clone(), source.clone());
        assert_eq!(work(&companies).sources, std::slice::from_ref(&companies));
        assert_eq!(work(&companies).partitioned(16).unwrap().sources.len(), 16);
        assert!(work(&companies).partitioned(0).is_err() && work(&companies).partitioned(1025).is_err());
        assert!(work(&EventSource::Log { canvas: None }).partitioned(2).is_err());
    }

    #[test]
    fn a_group_may_have_several_sources_that_have_nothing_in_common() {
        let source = |text: &str| text.parse::<EventSource>().unwrap();
        let work = Work::new("group".parse().unwrap(), source("category/companies"));
        let work = work.partitioned(2).unwrap().and(source("category/contacts")).unwrap();
        let work = work.partitioned(2).unwrap().and(source("category/people")).unwrap();
        let texts: Vec<String> = work.sources.iter().map(EventSource::to_string).collect();
        let expected = [
            "category/companies/1-of-2",
            "category/companies/2-of-2",
            "category/contacts/1-of-2",
            "category/contacts/2-of-2",
            "category/people",
        ];
        assert_eq!(texts, expected);
        let (one, other) = (CanvasId(uuid::Uuid::from_u128(1)), CanvasId(uuid::Uuid::from_u128(2)));
        let of_one = Work::new("group".parse().unwrap(), source("category/companies").on(one));
        assert!(of_one.clone().and(source("category/companies").on(other)).is_ok(), "canvases are apart");
        let stream = |canvas: CanvasId| source(&format!("stream/{canvas}/companies/company-7"));
        assert!(of_one.clone().and(stream(other)).is_ok());
        for twice in
            [source("log"), source("category/companies"), source("category/companies/1-of-3"), stream(one)]
        {
            let refused = of_one.clone().and(twice).unwrap_err().to_string();
            assert!(refused.contains("nothing in common"), "{refused}");
        }
    }

    #[test]
    fn a_name_of_processors_is_no_consumer_s() {
        for name in ["entities.account", "entities.x"] {
            let refused = check_name(&name.parse().unwrap()).unwrap_err().to_string();
            assert!(refused.contains("choose another name"), "{refused}");
        }
        assert!(check_name(&"entities".parse().unwrap()).is_ok());
    }

    #[test]
    fn a_page_has_limits() {
        for page_bytes in [0, PAGE_BYTES_MAX + 1] {
            let config = ConsumerConfig { page_bytes, ..ConsumerConfig::default() };
            assert!(config.check().unwrap_err().to_string().contains("page_bytes"));
        }
    }
}

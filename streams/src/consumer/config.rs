//! The configuration of a consumer: periods, limits, sources, and what happens to an event that
//! fails.

use std::time::Duration;

use wakeq::Name;
use wakeq::log::{EventSource, PageLimit, Partition};

/// Longest period, delay or time-out.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of events per read, and between two writes of a position.
const EVENTS_MAX: u32 = 10_000;
/// Maximum bytes per read.
const PAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The prefix of the groups that processors of entities use.
const OF_ENTITIES: &str = "entities.";

/// How a consumer reads its sources and treats failures.
///
/// ```
/// use wakeq_streams::{ConsumerConfig, ErrorStrategy};
///
/// let config = ConsumerConfig { on_error: ErrorStrategy::skip(), ..ConsumerConfig::default() };
/// assert_eq!(config.commit_every, 100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerConfig {
    /// How long a consumer that receives no signal waits before it looks for new events again. 1 ms
    /// to one day, default 10 s.
    pub poll_interval: Duration,
    /// The position is written after this many events, and whenever nothing is left to read. After
    /// a crash, up to this many events are handled again. 1 to 10,000, default 100.
    pub commit_every: u32,
    /// Maximum number of events per read, 1 to 10,000. Default 500.
    pub page: u32,
    /// Maximum bytes of events per read of a source, up to 64 MiB; one event is read in any case.
    /// Default 4 MiB. For all sources together, see [`ReadBudget`](crate::consumers::ReadBudget).
    pub page_bytes: usize,
    /// How long handling an event may take before the attempt counts as failed. 1 ms to one day,
    /// default 5 minutes.
    pub timeout: Duration,
    /// How long the event that is being handled may continue after its source was withdrawn, before
    /// it is cut off. Default 5 s. A broker refuses more than a third of its lease.
    pub withdraw_grace: Duration,
    /// What happens to an event that fails. Default: [`ErrorStrategy::retry`].
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

/// What happens to an event that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorStrategy {
    /// How often it is retried.
    pub retries: u32,
    /// The delay before the first retry; it doubles with each further one, up to `backoff_max`.
    /// 1 ms to one day.
    pub backoff: Duration,
    /// The longest delay between retries, before jitter: each is up to 20 % longer. 1 ms to one
    /// day.
    pub backoff_max: Duration,
    /// What happens after the last retry.
    pub give_up: GiveUp,
}

/// What happens to an event whose last attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// The consumer stops at this event and is unhealthy until it is recovered. Its sources are
    /// given to other members of the group.
    Stop,
    /// The event is stored among the dead events of the group, and the next one is handled.
    Skip,
}

/// The next step after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureAction {
    Retry(Duration),
    GiveUp(GiveUp),
}

impl ErrorStrategy {
    /// Retries an event until it succeeds; the delay doubles from 1 s up to 60 s. Its source waits
    /// for it; other sources do not. Operators can see the event and its error.
    pub fn retry() -> Self {
        Self { retries: u32::MAX, ..Self::stop() }
    }

    /// Stops at the first failure.
    pub fn stop() -> Self {
        let (backoff, backoff_max) = (Duration::from_secs(1), Duration::from_secs(60));
        Self { retries: 0, backoff, backoff_max, give_up: GiveUp::Stop }
    }

    /// Gives up an event at its first failure and continues with the next.
    pub fn skip() -> Self {
        Self { give_up: GiveUp::Skip, ..Self::stop() }
    }

    /// The same strategy after this many retries, the first of them after `backoff`, or after
    /// `backoff_max` (60 s, unless it is changed) if that is shorter.
    pub fn retrying(self, retries: u32, backoff: Duration) -> Self {
        Self { retries, backoff, ..self }
    }

    /// The next step after this many failed attempts, 1 or more.
    pub(super) fn after(self, attempts: u32) -> FailureAction {
        if attempts > self.retries {
            return FailureAction::GiveUp(self.give_up);
        }
        let factor = 2_u32.saturating_pow(attempts.saturating_sub(1));
        FailureAction::Retry(self.backoff.saturating_mul(factor).min(self.backoff_max))
    }
}

/// The configuration, the group's name or the sources of a consumer are not valid.
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

/// The sources that a group consumes, which its members share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) group: Name,
    pub(super) sources: Vec<EventSource>,
    /// The source that was added last, undivided, and its first index in `sources`.
    last: (EventSource, usize),
}

/// Rejects the names of processors of entities: a consumer of such a group would take the inbox
/// from its processor.
pub(super) fn check_name(group: &Name) -> Result<(), InvalidConsumer> {
    if group.as_str().starts_with(OF_ENTITIES) {
        return Err(InvalidConsumer(
            "group names that begin with `entities.` are reserved for the processors of entity \
             types: choose another name for the consumer",
        ));
    }
    Ok(())
}

impl Work {
    /// One source, which one member reads as a whole.
    pub(super) fn new(group: Name, source: EventSource) -> Self {
        Self { group, sources: vec![source.clone()], last: (source, 0) }
    }

    /// Adds a source.
    pub(super) fn and(mut self, source: EventSource) -> Result<Self, InvalidConsumer> {
        if self.sources.iter().any(|one| one.overlaps(&source)) {
            return Err(InvalidConsumer(
                "the sources of a consumer must not overlap: an event would be handled twice",
            ));
        }
        self.last = (source.clone(), self.sources.len());
        self.sources.push(source);
        Ok(self)
    }

    /// Divides the last source, a category, into this many partitions, each of which is assigned by
    /// itself.
    pub(super) fn partitioned(mut self, of: u16) -> Result<Self, InvalidConsumer> {
        let (whole, begins) = &self.last;
        let partitioned = Partition::all(of).into_iter().map(|partition| whole.partition(partition));
        let sources: Option<Vec<_>> = partitioned.collect();
        let sources = sources
            .filter(|sources| !sources.is_empty())
            .ok_or(InvalidConsumer("only a category can be divided, into 1 to 1,024 partitions"))?;
        self.sources.truncate(*begins);
        self.sources.extend(sources);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wakeq::CanvasId;

    // SUB-X3
    #[test]
    fn a_failure_is_followed_by_what_the_strategy_says() {
        let seconds = Duration::from_secs;
        assert_eq!(ErrorStrategy::stop().after(1), FailureAction::GiveUp(GiveUp::Stop));
        assert_eq!(ErrorStrategy::skip().after(1), FailureAction::GiveUp(GiveUp::Skip));
        assert_eq!(ErrorStrategy::retry().after(u32::MAX), FailureAction::Retry(seconds(60)));
        let strategy = ErrorStrategy::skip().retrying(40, seconds(2));
        let waits = [1, 2, 3, 6, 40].map(|attempts| strategy.after(attempts));
        assert_eq!(waits, [2, 4, 8, 60, 60].map(|wait| FailureAction::Retry(seconds(wait))));
        assert_eq!(strategy.after(41), FailureAction::GiveUp(GiveUp::Skip));
    }

    // Shows: SUB-02
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
            assert!(refused.contains("must not overlap"), "{refused}");
        }
    }

    #[test]
    fn rejects_consumer_names_reserved_for_entity_processors() {
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

//! Reads one source: reads new events, handles each, writes the position, and waits for more.
//!
//! The error strategy decides what happens after a failure. No event is started once the source was
//! withdrawn.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::budget::BudgetShare;
use super::config::{FailureAction, GiveUp};
use super::{
    ConsumerConfig, ConsumerError, DeadLetter, EventProcessor, EventProvider, PositionKey, PositionStore,
    ReadBudget, Waits,
};
use crate::machine::{FencedPosition, Narrowing};
use crate::store::REDRIVEN_PAGE;
use crate::telemetry::ConsumerMetrics;
use wakeq::Name;
use wakeq::internals::spread;
use wakeq::internals::telemetry::faults;
use wakeq::log::{LogEvent, LogPage, PageLimit};

/// Half the delay after a first failure of the provider or the position store.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// Half the delay before a first look for what an open transaction holds back.
const FIRST_HELD: Duration = Duration::from_millis(10);

/// What the readings of a consumer share.
pub(super) struct Shared {
    provider: Arc<dyn EventProvider>,
    positions: Arc<dyn PositionStore>,
    processor: Arc<dyn EventProcessor>,
    pub(super) config: ConsumerConfig,
    metrics: ConsumerMetrics,
    /// Incremented each time the consumer is recovered.
    pub(super) recovered: watch::Sender<u64>,
}

impl Shared {
    pub(super) fn new(
        group: Name,
        provider: Arc<dyn EventProvider>,
        positions: Arc<dyn PositionStore>,
        processor: Arc<dyn EventProcessor>,
        config: ConsumerConfig,
    ) -> Self {
        let metrics = ConsumerMetrics::new(&group);
        Self { provider, positions, processor, config, metrics, recovered: watch::Sender::new(0) }
    }
}

/// How a reading ended.
pub(super) enum End {
    /// The source was withdrawn.
    Withdrawn,
    /// The source has another owner.
    Fenced,
    /// An event failed for the last time, with this error.
    Failed(String),
}

/// Why reading stops for now.
enum Halt {
    Error(ConsumerError),
    End(End),
}

impl From<ConsumerError> for Halt {
    fn from(error: ConsumerError) -> Self {
        Self::Error(error)
    }
}

/// Events that were read and not handled yet, and their share of the budget.
#[derive(Default)]
struct Page {
    events: std::vec::IntoIter<LogEvent>,
    bytes: usize,
    share: Option<BudgetShare>,
    /// Whether the remaining events were dropped, to be read again.
    is_cut: bool,
}

impl Page {
    /// The next event; the share of those before it is returned to the budget.
    fn next(&mut self) -> Option<LogEvent> {
        self.shrink();
        let event = self.events.next()?;
        self.bytes = self.bytes.saturating_sub(event.size_bytes());
        Some(event)
    }

    fn shrink(&mut self) {
        if let Some(share) = &mut self.share {
            share.shrink(self.bytes);
        }
    }

    fn cut(&mut self) {
        *self = Self { is_cut: true, ..Self::default() };
    }
}

/// The reading of one source, under one epoch.
pub(super) struct Reading {
    key: PositionKey,
    epoch: i64,
    shared: Arc<Shared>,
    budget: ReadBudget,
    cancel: CancellationToken,
    page: Page,
    position: FencedPosition,
    /// Everything up to this `seq` is done.
    done: i64,
    /// Events handled since the position was written.
    uncommitted: u32,
    /// By how much a page is divided, because reads have failed: a full one may take longer than
    /// the statement timeout.
    narrowing: Narrowing,
}

impl Reading {
    pub(super) fn new(
        key: PositionKey,
        epoch: i64,
        shared: Arc<Shared>,
        budget: ReadBudget,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            key,
            epoch,
            shared,
            budget,
            cancel,
            page: Page::default(),
            position: FencedPosition::UNOPENED,
            done: 0,
            uncommitted: 0,
            narrowing: Narrowing::NONE,
        }
    }

    /// Consumes the source until it is withdrawn, gets another owner, or an event fails for the
    /// last time.
    pub(super) async fn run(mut self) -> End {
        let (grown, poll) = (self.shared.provider.watch(&self.key.source), self.shared.config.poll_interval);
        let mut waits = Waits::new(grown, poll, poll, (FIRST_WAIT, FIRST_HELD));
        loop {
            waits.looks();
            let consumed = self.consume_all().await;
            // The rest of a page is read again, so that nothing is held while waiting.
            self.page = Page::default();
            let pause = match consumed {
                Ok(held) => waits.after_all(held),
                Err(Halt::End(end)) => return self.leave(end).await,
                Err(Halt::Error(ConsumerError::Fenced { epoch, .. })) => {
                    self.shared.metrics.refused();
                    if epoch != self.epoch {
                        tracing::warn!(group = %self.key.group, source = %self.key.source, own = self.epoch, epoch,
                            "the source has another owner by now; stopped working on it");
                        return End::Fenced;
                    }
                    // The position was moved from outside.
                    self.position = self.position.doubted();
                    continue;
                }
                Err(Halt::Error(error @ ConsumerError::Unavailable { .. })) => {
                    tracing::warn!(group = %self.key.group, source = %self.key.source,
                        error = &error as &dyn std::error::Error, "a consumer can't continue; retrying");
                    waits.after_failure()
                }
            };
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return self.leave(End::Withdrawn).await,
                () = tokio::time::sleep(pause) => self.look_again(),
                () = waits.grown() => {}
            }
        }
    }

    /// The position may have been moved from outside, which an owner with nothing to commit would
    /// not notice.
    fn look_again(&mut self) {
        if self.position.known() == Some(self.done) {
            self.position = self.position.doubted();
        }
    }

    /// Reads new events, handles each, and writes the position. Returns whether an open transaction
    /// holds more of them back.
    async fn consume_all(&mut self) -> Result<bool, Halt> {
        self.open().await?;
        loop {
            if self.cancel.is_cancelled() {
                return Err(Halt::End(End::Withdrawn));
            }
            let LogPage { events, through, more, held } = self.read().await?;
            let is_empty = events.is_empty();
            self.page.events = events.into_iter();
            while let Some(event) = self.page.next() {
                if self.uncommitted >= self.shared.config.commit_every {
                    self.commit().await?;
                }
                self.handle(&event).await?;
            }
            if std::mem::take(&mut self.page).is_cut {
                continue;
            }
            self.done = self.done.max(through);
            // Commit even if the page held nothing for this source, so that it is not scanned
            // again.
            if !more || is_empty {
                self.commit().await?;
            }
            if !more {
                // More may be redriven. Events that were appended meanwhile come first.
                if self.redrive().await? {
                    continue;
                }
                return Ok(held);
            }
        }
    }

    /// Opens the position, unless it is known. If the answer to a write was lost, this shows
    /// whether it was carried out; if not, the reading keeps what it has handled.
    async fn open(&mut self) -> Result<(), ConsumerError> {
        if self.position.known().is_some() {
            return Ok(());
        }
        let at = self.shared.positions.open(&self.key, self.epoch).await?;
        if !self.position.is_unwritten(at) {
            (self.done, self.uncommitted) = (at, 0);
        }
        self.position = FencedPosition::At(at);
        Ok(())
    }

    /// Notes the outcome of a write of the position.
    fn written(&mut self, to: i64, answer: Result<(), ConsumerError>) -> Result<(), ConsumerError> {
        match &answer {
            Ok(()) => (self.position, self.done, self.uncommitted) = (FencedPosition::At(to), to, 0),
            Err(ConsumerError::Fenced { .. }) => {}
            // Opening the position shows whether it was moved.
            Err(ConsumerError::Unavailable { .. }) => self.position = self.position.unanswered(),
        }
        answer
    }

    /// Retries, once each, a page of the events that the group gave up and an operator wants
    /// retried. Returns whether the page was full, so that more may follow.
    async fn redrive(&mut self) -> Result<bool, Halt> {
        let seqs = self.shared.positions.redriven(&self.key).await?;
        let is_full = seqs.len() >= REDRIVEN_PAGE;
        for seq in seqs {
            if self.cancel.is_cancelled() {
                return Err(Halt::End(End::Withdrawn));
            }
            let limit = PageLimit { events: 1, bytes: self.shared.config.page_bytes };
            let read = self.shared.provider.read(&self.key.source, seq - 1, limit).await?;
            let failed = match read.events.first().filter(|event| event.seq == seq) {
                Some(event) => self.attempt(event).await?.err(),
                None => Some((faults::ERROR, "it is no longer in the log".to_owned())),
            };
            self.shared.metrics.handled(failed.as_ref().map(|(fault, _)| *fault));
            let error = failed.as_ref().map(|(_, error)| error.as_str());
            if let Some(error) = error {
                tracing::warn!(group = %self.key.group, source = %self.key.source, seq, error,
                    "a redriven event has failed");
            }
            self.shared.positions.redone(&self.key, self.epoch, seq, error).await?;
        }
        Ok(is_full)
    }

    /// Reads as much as the budget allows, at least one event.
    async fn read(&mut self) -> Result<LogPage, Halt> {
        let ConsumerConfig { page, page_bytes, .. } = self.shared.config;
        let share = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(Halt::End(End::Withdrawn)),
            share = self.budget.share(page_bytes) => share,
        };
        let narrowing = self.narrowing;
        let limit = match &share {
            Some(share) => PageLimit {
                events: narrowing.part_of(usize::try_from(page).unwrap_or(usize::MAX)),
                bytes: narrowing.part_of(share.bytes().min(page_bytes)),
            },
            None => PageLimit { events: 1, bytes: narrowing.part_of(page_bytes) },
        };
        let read = self.shared.provider.read(&self.key.source, self.done, limit).await;
        self.narrowing = if read.is_ok() { narrowing.widened() } else { narrowing.narrowed() };
        let read = read?;
        self.page.bytes = read.events.iter().map(LogEvent::size_bytes).sum();
        self.page.share = share;
        self.page.shrink();
        Ok(read)
    }

    /// Hands an event to the processor until it is done, following the error strategy.
    async fn handle(&mut self, event: &LogEvent) -> Result<(), Halt> {
        let mut attempts = 0_u32;
        let mut recovered = self.shared.recovered.subscribe();
        loop {
            if self.cancel.is_cancelled() {
                return Err(Halt::End(End::Withdrawn));
            }
            attempts = attempts.saturating_add(1);
            let Err((fault, error)) = self.attempt(event).await? else {
                self.shared.metrics.handled(None);
                self.done = event.seq;
                self.uncommitted += 1;
                return Ok(());
            };
            self.shared.metrics.handled(Some(fault));
            let after = self.shared.config.on_error.after(attempts);
            tracing::warn!(group = %self.key.group, source = %self.key.source, seq = event.seq, event = %event.id,
                attempts, error, "an event failed");
            match after {
                FailureAction::Retry(delay) => {
                    // The retries may take long, so the events after this one are dropped and read
                    // again.
                    self.page.cut();
                    self.note(event, attempts, &error).await?;
                    tokio::select! {
                        biased;
                        () = self.cancel.cancelled() => return Err(Halt::End(End::Withdrawn)),
                        () = tokio::time::sleep(spread(delay)) => {}
                        _ = recovered.changed() => {}
                    }
                }
                FailureAction::GiveUp(GiveUp::Skip) => return self.skip(event, attempts, &error).await,
                FailureAction::GiveUp(GiveUp::Stop) => {
                    let why = format!("event {} of {} failed: {error}", event.seq, self.key.source);
                    return Err(Halt::End(End::Failed(why)));
                }
            }
        }
    }

    /// One attempt. Returns the kind and the text of its error, if it failed. Once the source is
    /// withdrawn, the attempt lasts no longer than the grace.
    async fn attempt(&self, event: &LogEvent) -> Result<Result<(), (&'static str, String)>, Halt> {
        let ConsumerConfig { timeout, withdraw_grace, .. } = self.shared.config;
        let handling = AssertUnwindSafe(self.shared.processor.handle_event(event)).catch_unwind();
        let cut_off = async {
            self.cancel.cancelled().await;
            tokio::time::sleep(withdraw_grace).await;
        };
        tokio::select! {
            biased;
            handled = tokio::time::timeout(timeout, handling) => Ok(match handled {
                Ok(Ok(Ok(()))) => Ok(()),
                Ok(Ok(Err(error))) => Err((faults::ERROR, error.to_string())),
                Ok(Err(_)) => Err((faults::PANIC, "the processor panicked".to_owned())),
                Err(_) => Err((faults::TIMEOUT, format!("not handled within {timeout:?}"))),
            }),
            () = cut_off => Err(Halt::End(End::Withdrawn)),
        }
    }

    /// Notes for operators that an event is failing, after committing what was handled before it.
    async fn note(&mut self, event: &LogEvent, attempts: u32, error: &str) -> Result<(), Halt> {
        self.commit().await?;
        let failing = DeadLetter { event, attempts, error };
        match self.shared.positions.note(&self.key, self.epoch, &failing).await {
            Ok(()) | Err(ConsumerError::Unavailable { .. }) => Ok(()),
            Err(fenced @ ConsumerError::Fenced { .. }) => Err(fenced.into()),
        }
    }

    async fn skip(&mut self, event: &LogEvent, attempts: u32, error: &str) -> Result<(), Halt> {
        let dead = DeadLetter { event, attempts, error };
        let from = self.position.known().unwrap_or_default();
        let answer = self.shared.positions.skip(&self.key, self.epoch, from, &dead).await;
        self.written(event.seq, answer)?;
        self.shared.metrics.died();
        Ok(())
    }

    /// Writes the position, if it has moved.
    async fn commit(&mut self) -> Result<(), ConsumerError> {
        let (Some(from), to) = (self.position.known().filter(|from| *from < self.done), self.done) else {
            return Ok(());
        };
        wakeq::internals::fault::point("consumer.commit");
        let answer = self.shared.positions.commit(&self.key, self.epoch, from, to).await;
        self.written(to, answer)
    }

    /// Writes the position for the next owner, if possible.
    async fn leave(mut self, end: End) -> End {
        let committed = async {
            if matches!(self.position, FencedPosition::Unconfirmed { .. }) {
                self.open().await?;
            }
            self.commit().await
        };
        match committed.await {
            Ok(()) => end,
            Err(ConsumerError::Fenced { epoch, .. }) => {
                self.shared.metrics.refused();
                tracing::warn!(group = %self.key.group, source = %self.key.source, own = self.epoch, epoch,
                    "the last position was refused; the events handled since the previous one will \
                     be handled again");
                end
            }
            Err(error @ ConsumerError::Unavailable { .. }) => {
                tracing::warn!(group = %self.key.group, source = %self.key.source,
                    error = &error as &dyn std::error::Error,
                    "the last position was not written; the events handled since the previous one \
                     will be handled again");
                end
            }
        }
    }
}

//! Warns about handlers that events ask for and the worker lacks: now and then for each handler,
//! however many events and canvases there are. Never once per event.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::counters::RunReport;
use crate::machine::Outcome;

/// How long a handler is not mentioned again.
const PERIOD: Duration = Duration::from_secs(600);
/// Most handlers mentioned within it: callers invent names.
const HANDLERS_MAX: usize = 100;

/// The handlers that were mentioned in this period.
#[derive(Default)]
pub(super) struct UnknownHandlers(Mutex<Mentioned>);

#[derive(Default)]
struct Mentioned {
    since: Option<Instant>,
    handlers: HashSet<String>,
}

impl UnknownHandlers {
    /// Warns if the run ended because there is no handler for its event.
    pub(super) fn warn(&self, report: &RunReport) {
        let Some(address) = report.address.as_ref() else { return };
        if !report.trail.contains(&Outcome::HandlerUnknown) {
            return;
        }
        let handler = match &report.queue {
            Some(queue) => format!("queue {queue}"),
            None => address.to_string(),
        };
        let mut mentioned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if mentioned.is_news(&handler, Instant::now()) {
            tracing::warn!(
                handler,
                "this worker has no such handler, and there is no target: its events wait; add the handler, \
                 or correct the name that is emitted"
            );
        }
    }
}

impl Mentioned {
    fn is_news(&mut self, handler: &str, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.duration_since(since) >= PERIOD) {
            *self = Self { since: Some(now), handlers: HashSet::new() };
        }
        self.handlers.len() < HANDLERS_MAX && self.handlers.insert(handler.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_is_mentioned_once_in_a_period() {
        let (mut mentioned, start) = (Mentioned::default(), Instant::now());
        for (handler, after, is_news) in [
            ("WORKER/greet/_", Duration::ZERO, true),
            ("WORKER/greet/_", Duration::from_secs(599), false),
            ("WORKER/other/_", Duration::from_secs(599), true),
            ("WORKER/greet/_", Duration::from_secs(600), true),
            ("WORKER/greet/_", Duration::from_secs(601), false),
        ] {
            assert_eq!(mentioned.is_news(handler, start + after), is_news, "{handler} after {after:?}");
        }
    }

    #[test]
    fn a_flood_of_names_is_cut() {
        let (mut mentioned, start) = (Mentioned::default(), Instant::now());
        let news = (0..10_000).filter(|name| mentioned.is_news(&name.to_string(), start)).count();
        assert_eq!((news, mentioned.handlers.len()), (HANDLERS_MAX, HANDLERS_MAX));
    }
}

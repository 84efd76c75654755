//! Warns about handlers that events ask for and the worker lacks, now and then for each handler and
//! never once per event, however many events and canvases there are.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::counters::RunReport;
use crate::machine::Outcome;

/// Handlers are forgotten, all at once, after this long.
const PERIOD: Duration = Duration::from_secs(600);
/// Maximum number of handlers of all tenants that are mentioned within it, since callers invent
/// names.
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
    /// Warns if the run ended because this worker has no handler for its event.
    pub(super) fn warn(&self, report: &RunReport, calls_targets: bool) {
        let Some(address) = report.address.as_ref() else { return };
        if !report.trail.contains(&Outcome::HandlerUnknown) {
            return;
        }
        let handler = match &report.queue {
            Some(queue) => format!("queue {queue}"),
            None => address.to_string(),
        };
        let mut mentioned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !mentioned.first_mention(&handler, Instant::now()) {
            return;
        }
        let nor_target =
            if calls_targets { ", and no target is registered" } else { ", and calls no targets" };
        tracing::warn!(
            handler,
            "this worker has no such handler{nor_target}: its events wait; add the handler, or correct the name that \
             is emitted"
        );
        if mentioned.handlers.len() == HANDLERS_MAX {
            tracing::warn!("no more missing handlers are mentioned for a while: `wakeq doctor` lists them");
        }
    }
}

impl Mentioned {
    fn first_mention(&mut self, handler: &str, now: Instant) -> bool {
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
        for (handler, after, is_first) in [
            ("WORKER/greet/_", Duration::ZERO, true),
            ("WORKER/greet/_", Duration::from_secs(599), false),
            ("WORKER/other/_", Duration::from_secs(599), true),
            ("WORKER/greet/_", Duration::from_secs(600), true),
            ("WORKER/greet/_", Duration::from_secs(601), false),
        ] {
            assert_eq!(
                mentioned.first_mention(handler, start + after),
                is_first,
                "{handler} after {after:?}"
            );
        }
    }

    #[test]
    fn a_flood_of_names_is_cut() {
        let (mut mentioned, start) = (Mentioned::default(), Instant::now());
        let news = (0..10_000).filter(|name| mentioned.first_mention(&name.to_string(), start)).count();
        assert_eq!((news, mentioned.handlers.len()), (HANDLERS_MAX, HANDLERS_MAX));
    }
}

//! Which waiting notifications are of urgent routes. A notification does not name its handler, so a
//! worker that has such routes looks the events up, many at once, while it is full. A worker
//! without them keeps nothing here and asks nothing.

use tokio::task::JoinSet;

use crate::event::Notification;

/// Maximum number of notifications that one question is about.
const ASKED_MAX: usize = 1_000;
/// Maximum number of notifications whose handlers are not known; those beyond it keep their order.
const UNKNOWN_MAX: usize = 10_000;

/// The notifications whose handlers are not known, and the question about some of them.
#[derive(Debug)]
pub(super) struct RouteLooks {
    are_any: bool,
    unknown: Vec<Notification>,
    asking: JoinSet<Vec<Notification>>,
}

impl RouteLooks {
    /// Of a worker with urgent routes, or without any.
    pub(super) fn new(are_any: bool) -> Self {
        Self { are_any, unknown: Vec::new(), asking: JoinSet::new() }
    }

    /// A notification begins to wait.
    pub(super) fn waits(&mut self, notification: Notification) {
        if self.are_any && !notification.urgent && self.unknown.len() < UNKNOWN_MAX {
            self.unknown.push(notification);
        }
    }

    /// Whether there is something to ask, and no question is open.
    pub(super) fn may_ask(&self) -> bool {
        !self.unknown.is_empty() && self.asking.is_empty()
    }

    /// Asks about those that have waited longest.
    pub(super) fn ask<F>(&mut self, ask: impl FnOnce(Vec<Notification>) -> F)
    where
        F: Future<Output = Vec<Notification>> + Send + 'static,
    {
        let rest = self.unknown.split_off(self.unknown.len().min(ASKED_MAX));
        let asked = std::mem::replace(&mut self.unknown, rest);
        self.asking.spawn(ask(asked));
    }

    /// Nothing waits any longer.
    pub(super) fn forget(&mut self) {
        self.unknown.clear();
    }

    /// The urgent ones among those that were asked about. Cancel safe; pending if none were.
    pub(super) async fn answer(&mut self) -> Vec<Notification> {
        loop {
            match self.asking.join_next().await {
                Some(Ok(urgent)) => return urgent,
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

//! What the intake asks of the machine. It decides nothing.

use std::time::Duration;

use crate::event::{CanvasId, EventId, Notification};
use crate::worker::finished::FinishedRun;
use crate::worker::permits::Permits;
use crate::worker::run::Runner;

/// Runs a notification to its end: the machine, or a replacement in tests.
pub(in crate::worker) trait NotificationRunner: Send + Sync + 'static {
    fn run(&self, notification: Notification, permits: Permits) -> impl Future<Output = FinishedRun> + Send;

    /// Another canvas that has events, if any; also if that is not known in time.
    fn other_canvas(&self, canvas: CanvasId) -> impl Future<Output = Option<CanvasId>> + Send;

    /// Puts off the promises of events by this long.
    fn put_off(&self, later: Vec<(EventId, Duration)>) -> impl Future<Output = ()> + Send;

    /// Whether some of its routes are urgent.
    fn has_urgent_routes(&self) -> bool;

    /// Those of these notifications that are of urgent routes; none if that can't be found out.
    fn of_urgent_routes(&self, asked: Vec<Notification>) -> impl Future<Output = Vec<Notification>> + Send;
}

impl NotificationRunner for Runner {
    fn run(&self, notification: Notification, permits: Permits) -> impl Future<Output = FinishedRun> + Send {
        self.run(notification, permits)
    }

    fn other_canvas(&self, canvas: CanvasId) -> impl Future<Output = Option<CanvasId>> + Send {
        self.other_canvas(canvas)
    }

    fn put_off(&self, later: Vec<(EventId, Duration)>) -> impl Future<Output = ()> + Send {
        self.put_off(later)
    }

    fn has_urgent_routes(&self) -> bool {
        self.registry.has_urgent()
    }

    fn of_urgent_routes(&self, asked: Vec<Notification>) -> impl Future<Output = Vec<Notification>> + Send {
        self.of_urgent_routes(asked)
    }
}

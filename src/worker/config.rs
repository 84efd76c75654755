//! How much work a worker takes on, and how it stops.

use std::time::Duration;

use crate::event::{CANCEL_GRACE, Name};
use crate::store::Retention;
use crate::wake::CANVAS_EVENT_RATE;

/// Upper limit of the capacity, the prefetch and the parking lot.
pub(super) const LOT_MAX: usize = 50_000;
/// Default prefetch, as a multiple of the capacity.
const PREFETCH_ROUNDS: usize = 4;
/// Notifications taken ahead beyond the prefetch while handlers are quick.
const AHEAD: usize = 5_000;

/// How much work a worker takes on, and how it stops.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// The worker's name, shown with the events that it has claimed. Default `None`: the host's
    /// name and eight random hexadecimal digits, which the workers of a process share.
    pub name: Option<Name>,
    /// The build of the program, such as a commit or an image's tag, for lists of workers. Default
    /// `None`: they show the release of wakeq alone.
    pub build: Option<Name>,
    /// Maximum number of handlers that run at once. Default 64.
    pub capacity: usize,
    /// How many of the capacity's places are kept for urgent events, so that one starts at once
    /// although the others are taken. Default 0: an urgent event has the next place that is free.
    pub urgent_slots: usize,
    /// Maximum number of concurrent requests to the HTTP targets of one canvas, or of one queue.
    /// Default `None`: a quarter of the capacity whatever else runs, and more as long as a quarter
    /// is left free for others. A single target leaves some of it to its canvas's others, unless
    /// its policy sets a limit.
    pub target_share: Option<usize>,
    /// Notifications held ahead beyond the capacity, which no other worker has in the meantime.
    /// Default `None`: four times the capacity, and 5,000 more while handlers are so quick that
    /// those would be done within ten seconds, so that canvases take turns among many. A smaller
    /// value spreads handlers that take minutes more evenly over the workers.
    pub prefetch: Option<usize>,
    /// Notifications that wait here for their time, or for room at their handler. Default 5,000;
    /// beyond this limit, the row's promise wakes the event.
    pub lot_max: usize,
    /// Maximum bytes of large values of running events. Default 64 MiB, at least 1 MiB. A value is
    /// large if it exceeds 256 KiB, or this limit divided by the capacity if that is less. Events
    /// with large values run concurrently only as far as the values fit into the limit together;
    /// one that exceeds it runs alone.
    pub value_bytes_max: usize,
    /// When many events of a canvas wait, this worker's minute's pass wakes them as fast as workers
    /// take them. Two seconds' worth at this rate, in events per second, is woken ahead of the
    /// workers, and a tenth of the rate whatever they take. Default 1,000. The limit prevents one
    /// canvas's backlog from delaying what others emit. It does not apply to
    /// [`CanvasId::DEFAULT`](crate::CanvasId::DEFAULT).
    pub canvas_event_rate: u32,
    /// How long handlers may continue after a shutdown request. Default 28 s; at most 8 s on Cloud
    /// Run.
    pub shutdown_grace: Duration,
    /// How long a handler may continue after somebody has cancelled its running event. Then it is
    /// dropped, which closes the request to an HTTP target, and the event is deleted. Default 10 s.
    pub cancel_grace: Duration,
    /// The number of lost claims at which an event dies as poison, without being started. Default
    /// 5.
    pub losses_max: u32,
    /// The number of lost claims from which on an event is a suspect: a worker runs one suspect at
    /// a time. Default 2.
    pub suspect_losses: u32,
    /// Whether the worker sends nothing to the database while its process is idle and nothing is
    /// due, so that a serverless Postgres may suspend. An event whose notification was lost then
    /// waits until something else happens. Default false: a statement a minute looks for them.
    pub lets_database_sleep: bool,
    /// How long data that is removed by age, such as dead events, is kept.
    pub retention: Retention,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            name: None,
            build: None,
            capacity: 64,
            urgent_slots: 0,
            prefetch: None,
            target_share: None,
            lot_max: 5_000,
            value_bytes_max: 64 * 1024 * 1024,
            canvas_event_rate: CANVAS_EVENT_RATE,
            shutdown_grace: Duration::from_secs(28),
            cancel_grace: CANCEL_GRACE,
            losses_max: 5,
            suspect_losses: 2,
            lets_database_sleep: false,
            retention: Retention::default(),
        }
    }
}

impl WorkerConfig {
    /// Maximum number of notifications of a class that run or wait for a slot at once.
    pub(super) fn held_max(&self) -> usize {
        let prefetch = self.prefetch.unwrap_or(PREFETCH_ROUNDS * self.capacity);
        self.capacity + prefetch.min(LOT_MAX)
    }

    /// Maximum number of further notifications that wait while handlers are quick.
    pub(super) fn ahead_max(&self) -> usize {
        if self.prefetch.is_none() { AHEAD } else { 0 }
    }
}

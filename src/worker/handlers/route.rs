//! Which events a handler gets, and how it runs; and why a list of routes is not valid.

use std::time::Duration;

use crate::event::{CanvasId, InvalidLimit, InvalidName, Keep, NewLimit};
use crate::machine::RetryPolicy;

/// Default of [`Route::patience`].
pub(in crate::worker) const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Which events go to a handler, and how it runs.
///
/// ```
/// use std::time::Duration;
/// use wakeq::{Handlers, RetryPolicy, Route};
///
/// let retry = RetryPolicy { retries: 5, delay: Duration::from_secs(10), factor: 2, ..Default::default() };
/// let weekly = Route::new("report").module("REPORTS").modifier("weekly").retry(retry).concurrency(2);
/// let handlers = Handlers::new().on(weekly, |_event| async { Ok(()) });
/// ```
#[derive(Clone, Debug)]
pub struct Route {
    pub(super) canvas: Option<CanvasId>,
    pub(super) module: String,
    pub(super) name: String,
    pub(super) modifier: String,
    pub(super) retry: RetryPolicy,
    pub(super) timeout: Option<Duration>,
    pub(super) concurrency: Option<usize>,
    pub(super) halts: bool,
    pub(super) patience: Duration,
    pub(super) keep: Keep,
    pub(super) limit: Option<NewLimit>,
    pub(super) urgent: bool,
}

impl Route {
    /// Events for the handler `name` of module `WORKER`, modifier `_`, on every canvas.
    pub fn new(name: &str) -> Self {
        Self {
            canvas: None,
            module: "WORKER".into(),
            name: name.into(),
            modifier: "_".into(),
            retry: RetryPolicy::default(),
            timeout: None,
            concurrency: None,
            halts: false,
            patience: PATIENCE,
            keep: Keep::default(),
            limit: None,
            urgent: false,
        }
    }

    /// Restricts the route to this canvas. It takes precedence over a route for every canvas.
    pub fn canvas(mut self, canvas: CanvasId) -> Self {
        self.canvas = Some(canvas);
        self
    }

    /// Sets the module. Default `WORKER`.
    pub fn module(mut self, module: &str) -> Self {
        self.module = module.into();
        self
    }

    /// Sets the modifier. Default `_`.
    pub fn modifier(mut self, modifier: &str) -> Self {
        self.modifier = modifier.into();
        self
    }

    /// Sets when and how often a failed event is retried.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the time after which an attempt is cut off as an operational error. Default: none.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets for how long an event can be postponed with
    /// [`HandlerError::not_yet`](crate::HandlerError::not_yet) without counting an attempt, from
    /// the first time. Default 24 h. Earlier waits of the event do not count, and a redriven event
    /// starts anew.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// When an event of an object dies, halts the object's later events for this handler until the
    /// dead event is redriven or skipped. Default: they run.
    ///
    /// ```
    /// use wakeq::{Handlers, Route};
    ///
    /// let bookings = Route::new("book").halt_on_death();
    /// let handlers = Handlers::new().on(bookings, |_event| async { Ok(()) });
    /// ```
    pub fn halt_on_death(mut self) -> Self {
        self.halts = true;
        self
    }

    /// Keeps these events after they have ended, with their values and results, so that people can
    /// look at them. Default: they are deleted. An emit can ask for another time
    /// ([`Event::keep`](crate::Event::keep)).
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeq::events::Keep;
    /// use wakeq::{Handlers, Route};
    ///
    /// let week = Duration::from_secs(7 * 24 * 3600);
    /// let refunds = Route::new("refund").keep(Keep::all(week));
    /// let handlers = Handlers::new().on(refunds, |_event| async { Ok(()) });
    /// ```
    pub fn keep(mut self, keep: Keep) -> Self {
        self.keep = keep;
        self
    }

    /// Limits the events of the handler over all workers: how many run at a time, and how many
    /// start in a period. Default: no limit.
    ///
    /// The worker sets this limit when it starts, unless it is set already. It is that of the
    /// handler with all its modifiers, on the route's canvas, or the operator's for all canvases
    /// together ([`Admin::put_limit`](crate::Admin::put_limit)). Leaving it out of the route later
    /// removes nothing: [`Admin::remove_limit`](crate::Admin::remove_limit) does. If operators
    /// change the limit, that holds until a worker with this route starts. While two releases with
    /// different limits run, each start of a worker sets its own, and a changed rate begins without
    /// a burst. A canvas that has 1,000 limits gets none from a route, which is logged as an error.
    /// The operator's 1,000 stop the worker.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeq::limits::{NewLimit, Rate};
    /// use wakeq::{Handlers, Route};
    ///
    /// let rate = Some(Rate::new(100, Duration::from_secs(60)));
    /// let mails = Route::new("send-mail").limit(NewLimit { concurrency: Some(5), rate, ..NewLimit::default() });
    /// let handlers = Handlers::new().on(mails, |_event| async { Ok(()) });
    /// ```
    pub fn limit(mut self, limit: NewLimit) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Lets these events start before others that wait in the same worker. It looks up the handlers
    /// of what waits, some of which has started by then. Where the notifier has a stream of urgent
    /// notifications, [`Event::urgent`](crate::Event::urgent) is quicker: the class is then known
    /// from the emit on. Default: in their order.
    ///
    /// ```
    /// use wakeq::{Handlers, Route};
    ///
    /// let codes = Route::new("send-login-code").urgent();
    /// let handlers = Handlers::new().on(codes, |_event| async { Ok(()) });
    /// ```
    pub fn urgent(mut self) -> Self {
        self.urgent = true;
        self
    }

    /// Sets how many of these events run at once on one worker. Default: the worker's capacity.
    /// [`Route::limit`] counts over all workers.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = Some(concurrency);
        self
    }
}

impl From<&str> for Route {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// Why a list of handlers is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidRoute {
    /// A part of a route's address is not a valid name.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Two handlers for the same events.
    #[error("two handlers are registered for {0}: keep one")]
    Twice(String),
    /// A handler that could never run.
    #[error("the handler for {0} has concurrency 0: use at least 1, or leave it out")]
    NoConcurrency(String),
    /// A handler that would keep events for too long.
    #[error("the handler for {0} keeps events for more than 90 days: choose a shorter time")]
    Keep(String),
    /// The limit of a handler is not valid.
    #[error("the handler for {0}: {1}")]
    Limit(String, InvalidLimit),
    /// Routes of one handler ask for different limits.
    #[error(
        "two routes set the limit {0} differently: it is that of the handler with all its modifiers, so set \
         it on one of them, or alike"
    )]
    TwoLimits(String),
    /// Copies in queues have no limits.
    #[error(
        "the handler for {0} has a limit, and copies in queues have none: set in_flight_max of a facet instead"
    )]
    LimitOfQueue(String),
    /// A batch handler whose events can't gather like that: its name, and what to change.
    #[error("the batch handler for {0}: {1}")]
    Batch(String, &'static str),
}

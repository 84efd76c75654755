//! An event before it is emitted.

use std::time::Duration;

use serde::Serialize;

use super::{
    CanvasId, Category, EventId, HandlerAddress, HandlerScope, InvalidLogName, InvalidName, InvalidObjectKey,
    InvalidTraceparent, JsonError, Name, ObjectKey, StreamId, StreamName, Timestamp, Traceparent,
    is_storable, json,
};

/// Longest delay: a hundred years.
const DELAY_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// When an event may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// At once.
    Now,
    /// This long after it was emitted, on the database's clock.
    After(Duration),
    /// At a moment.
    At(Timestamp),
}

/// An event to be emitted: a value for a handler.
///
/// ```
/// use std::time::Duration;
/// use wakeq::Event;
///
/// # fn main() -> Result<(), wakeq::EventError> {
/// let welcome = Event::new("send-email", &"ada@example.com")?;
/// let reminder = Event::new("send-email", &"ada@example.com")?.after(Duration::from_secs(86_400))?;
/// let report = Event::new("report", &42)?.module("REPORTS")?.modifier("weekly")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Event {
    pub(crate) id: Option<EventId>,
    pub(crate) canvas: Option<CanvasId>,
    pub(crate) module: Name,
    pub(crate) name: Name,
    pub(crate) modifier: Name,
    pub(crate) value: String,
    pub(crate) due: Due,
    pub(crate) traceparent: Option<Traceparent>,
    pub(crate) object: Option<ObjectKey>,
    pub(crate) only_queues: bool,
    pub(crate) logged: Option<Logged>,
}

/// Where an event is appended to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Logged {
    /// Where its address and object say.
    Where,
    /// In this stream of a category.
    In(Category, StreamName),
}

/// Why an event can't be emitted. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// A category of the log that is kept for entities.
    #[error("only entities write into {0}: send the event to its entity, or take another category")]
    ReservedCategory(Category),
    /// A module that is kept for events that wakeq itself emits.
    #[error(
        "only wakeq itself emits events of module {0} (ticks of crons, answers of entities, copies in queues): take another \
         module; handlers for its events are free to all"
    )]
    ReservedModule(Name),
    /// A part of the handler's address is not a valid name.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The value can't be stored.
    #[error(transparent)]
    Value(#[from] JsonError),
    /// The object has no valid key.
    #[error(transparent)]
    Object(#[from] InvalidObjectKey),
    /// The category or the stream of the log is none.
    #[error(transparent)]
    LogName(#[from] InvalidLogName),
    /// The trace context is not one.
    #[error(transparent)]
    Trace(#[from] InvalidTraceparent),
    /// The value is larger than the queue accepts.
    #[error(
        "the value has {size_bytes} bytes, the limit is {limit_bytes}: store it elsewhere and emit a reference"
    )]
    TooLarge {
        /// Size of the value as JSON.
        size_bytes: usize,
        /// The queue's limit.
        limit_bytes: usize,
    },
    /// The event would run more than a hundred years from now, or the moment is out of range.
    #[error("the delay is out of range: an event can wait for 100 years at most")]
    TooLate,
    /// No tenant has this canvas.
    #[error("no canvas has the largest uuid: take another one")]
    ReservedCanvas,
}

impl Event {
    /// An event for the handler `name` of module `WORKER`, to run at once. The value is stored as JSON.
    pub fn new(name: &str, value: &(impl Serialize + ?Sized)) -> Result<Self, EventError> {
        let value = serde_json::to_string(value).map_err(JsonError::Invalid)?;
        Self::with_json(name, value)
    }

    /// The same with a value that is JSON text already; it is kept to the letter.
    pub fn from_json(name: &str, value: impl Into<String>) -> Result<Self, EventError> {
        Self::with_json(name, value.into())
    }

    fn with_json(name: &str, value: String) -> Result<Self, EventError> {
        json::check(&value)?;
        Ok(Self {
            id: None,
            canvas: None,
            module: Name::worker(),
            name: name.parse()?,
            modifier: Name::no_modifier(),
            value,
            due: Due::Now,
            traceparent: None,
            object: None,
            only_queues: false,
            logged: None,
        })
    }

    /// The handler's module, when it is not `WORKER`. `CRON`, `ANSWER` and `QUEUE` are refused: only wakeq itself emits
    /// events of these.
    pub fn module(mut self, module: &str) -> Result<Self, EventError> {
        self.module = module.parse()?;
        if self.module.is_reserved_module() {
            return Err(EventError::ReservedModule(self.module));
        }
        Ok(self)
    }

    /// The handler's modifier, when it is not `_`.
    pub fn modifier(mut self, modifier: &str) -> Result<Self, EventError> {
        self.modifier = modifier.parse()?;
        Ok(self)
    }

    /// The canvas, when it is not the queue's default.
    pub fn canvas(mut self, canvas: CanvasId) -> Self {
        self.canvas = Some(canvas);
        self
    }

    /// Only for the registered queues that want it: no handler of its own runs it. If none wants it, nothing is stored.
    ///
    /// ```
    /// use wakeq::Event;
    ///
    /// # fn main() -> Result<(), wakeq::EventError> {
    /// let opened = Event::new("opened_email", &42)?.module("email_event")?.only_to_queues();
    /// # Ok(())
    /// # }
    /// ```
    pub fn only_to_queues(mut self) -> Self {
        self.only_queues = true;
        self
    }

    /// Runs this long after it was emitted.
    pub fn after(mut self, delay: Duration) -> Result<Self, EventError> {
        if delay > DELAY_MAX {
            return Err(EventError::TooLate);
        }
        self.due = Due::After(delay);
        Ok(self)
    }

    /// Runs at a moment; at once, if it has passed.
    pub fn at(mut self, moment: Timestamp) -> Result<Self, EventError> {
        if !is_storable(moment) {
            return Err(EventError::TooLate);
        }
        self.due = Due::At(moment);
        Ok(self)
    }

    /// An id of the caller's choice: emitting it again within 7 days adds nothing, also when the event has completed, and as long as it
    /// waits or is among the dead events. It counts within the canvas: on every other one the same id is free. The event's own
    /// id is [`EventId::chosen`] of it; where one event is named, [`Admin`](crate::Admin) takes either.
    ///
    /// ```
    /// use wakeq::{Event, EventId};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let order: EventId = "0194e4f2-8a31-7c55-9d02-6f0a4b1c2d3e".parse()?;
    /// let charge = Event::new("charge-card", &42)?.id(order);
    /// # Ok(())
    /// # }
    /// ```
    pub fn id(mut self, id: EventId) -> Self {
        self.id = Some(id);
        self
    }

    /// The object it is about, or a part of one: it runs after every earlier event that is on this object and for the same
    /// handler. Emit it alone, or several at once with [`Queue::emit_on`](crate::Queue::emit_on).
    ///
    /// ```
    /// use wakeq::Event;
    ///
    /// # fn main() -> Result<(), wakeq::EventError> {
    /// let changed = Event::new("index", &"title")?.on("work:1")?;
    /// let posted = Event::new("index", &"a new post")?.on("work:1/post:7")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on(mut self, object: &str) -> Result<Self, EventError> {
        self.object = Some(object.parse()?);
        Ok(self)
    }

    /// It is also appended to the log, in the transaction that emits it, and stays there when it has run. Its category is its
    /// module, and its stream its object, or, without one, its handler's name; its name is the handler's, and its payload the
    /// value. Whoever has the same stream logged into at the same time waits: see [`Event::logged_in`] for another one.
    ///
    /// ```
    /// use wakeq::Event;
    ///
    /// # fn main() -> Result<(), wakeq::EventError> {
    /// let paid = Event::new("paid", &42)?.module("orders")?.on("order:7")?.logged();
    /// # Ok(())
    /// # }
    /// ```
    pub fn logged(mut self) -> Self {
        self.logged = Some(Logged::Where);
        self
    }

    /// The same in this stream of a category.
    pub fn logged_in(mut self, category: &str, stream: &str) -> Result<Self, EventError> {
        let category: Category = category.parse()?;
        if category.is_reserved() {
            return Err(EventError::ReservedCategory(category));
        }
        self.logged = Some(Logged::In(category, stream.parse()?));
        Ok(self)
    }

    /// The trace that caused the event; its handler continues it. Default: that of the handler that emits it, else new.
    pub fn traceparent(mut self, traceparent: &str) -> Result<Self, EventError> {
        self.traceparent = Some(traceparent.parse()?);
        Ok(self)
    }

    /// Refuses a value of more than `limit_bytes`.
    pub(crate) fn check_size(&self, limit_bytes: usize) -> Result<(), EventError> {
        let size_bytes = self.value.len();
        if size_bytes > limit_bytes { Err(EventError::TooLarge { size_bytes, limit_bytes }) } else { Ok(()) }
    }

    /// The stream of the log that it is appended to, if it is, on a queue whose default canvas is `canvas`.
    pub(crate) fn log_stream(&self, canvas: CanvasId) -> Result<Option<StreamId>, EventError> {
        let canvas = self.canvas.unwrap_or(canvas);
        match &self.logged {
            None => Ok(None),
            Some(Logged::In(category, name)) => {
                Ok(Some(StreamId { canvas, category: category.clone(), name: name.clone() }))
            }
            Some(Logged::Where) => {
                let stream = self.object.as_ref().map_or(self.name.as_str(), ObjectKey::as_str);
                Ok(Some(StreamId::new(canvas, self.module.as_str(), stream)?))
            }
        }
    }

    /// The module and the name of its handler.
    #[cfg(feature = "http")]
    pub(crate) fn handler(&self) -> (&Name, &Name) {
        (&self.module, &self.name)
    }

    /// Where it goes, on a queue whose default canvas is `canvas`.
    pub(crate) fn address(&self, canvas: CanvasId) -> HandlerAddress {
        let canvas = self.canvas.unwrap_or(canvas);
        let scope = HandlerScope { canvas, module: self.module.clone(), name: self.name.clone() };
        HandlerAddress { scope, modifier: self.modifier.clone() }
    }
}

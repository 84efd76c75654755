//! Events before they are emitted.

use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    CanvasId, Category, EventId, EventOptions, HandlerAddress, HandlerScope, InvalidLogName, InvalidMetadata,
    InvalidName, InvalidObjectKey, InvalidOptions, InvalidUnique, JsonError, Link, Metadata, Name, ObjectKey,
    Place, StreamId, StreamName, Timestamp, Traceparent, Unique, is_storable, json,
};

/// Longest delay: a hundred years.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// When an event may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Immediately.
    Now,
    /// This long after it is emitted, on the database's clock.
    After(Duration),
    /// At this moment.
    At(Timestamp),
}

impl Due {
    /// The moment, if the event is emitted now.
    pub(crate) fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::After(delay) => now + delay,
            Self::At(moment) => moment,
        }
    }
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
    pub(crate) metadata: Metadata,
    pub(crate) object: Option<ObjectKey>,
    pub(crate) only_queues: bool,
    pub(crate) logged: Option<Logged>,
    pub(crate) unique: Option<Box<Unique>>,
    pub(crate) options: Option<Box<EventOptions>>,
}

/// The fields of an event that the other packages of wakeq read.
#[derive(Clone, Copy, Debug)]
pub struct EventFields<'a> {
    /// The chosen id.
    pub id: Option<EventId>,
    /// The canvas, if the event names one.
    pub canvas: Option<CanvasId>,
    /// The value, as JSON.
    pub value: &'a str,
    /// When it is due.
    pub due: Due,
    /// The object it belongs to.
    pub object: Option<&'a ObjectKey>,
    /// Its metadata.
    pub metadata: &'a Metadata,
    /// Whether it is also appended to the log.
    pub is_logged: bool,
    /// Its unique key.
    pub unique: Option<&'a Unique>,
    /// What it asks for beside its handler's policy.
    pub options: Option<&'a EventOptions>,
}

/// An event of the module of answers, which only wakeq itself emits.
pub fn answer_event(name: &str, value: Box<RawValue>) -> Result<Event, EventError> {
    let event = Event::from_json(name, "null")?.with_value(value);
    Ok(Event { module: Name::answer(), ..event })
}

/// Which stream of the log an event is appended to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Logged {
    /// The stream given by its address and object.
    ByAddress,
    /// This stream of a category.
    In(Category, StreamName),
}

/// Why an event can't be emitted. Nothing was stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The category of the log is reserved for entities.
    #[error("only entities write into {0}: send the event to its entity, or choose another category")]
    ReservedCategory(Category),
    /// The module is reserved for events that wakeq itself emits.
    #[error(
        "only wakeq itself emits events of module {0} (ticks of crons, answers of entities, copies \
         in queues): choose another module; handlers for its events are allowed"
    )]
    ReservedModule(Name),
    /// A part of the handler's address is not a valid name.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// The value can't be stored.
    #[error(transparent)]
    Value(#[from] JsonError),
    /// The object's key is not valid.
    #[error(transparent)]
    Object(#[from] InvalidObjectKey),
    /// The name of the category or of the stream is not valid.
    #[error(transparent)]
    LogName(#[from] InvalidLogName),
    /// A field of its metadata is not valid.
    #[error(transparent)]
    Metadata(#[from] InvalidMetadata),
    /// Its unique key is not valid, or not beside its other fields.
    #[error(transparent)]
    Unique(#[from] InvalidUnique),
    /// What it asks for is out of bounds.
    #[error(transparent)]
    Options(#[from] InvalidOptions),
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
    /// The delay is longer than a hundred years, or the moment is outside the years 1 to 9999.
    #[error("the delay is out of range: at most 100 years from now, or a moment in the years 1 to 9999")]
    TooLate,
    /// The canvas is reserved: no tenant can have it.
    #[error("the largest uuid is reserved and can't be a canvas: choose another one")]
    ReservedCanvas,
}

impl Event {
    /// An event for the handler `name` of module `WORKER`, due immediately. The value becomes JSON.
    pub fn new(name: &str, value: &(impl Serialize + ?Sized)) -> Result<Self, EventError> {
        let value = serde_json::to_string(value).map_err(JsonError::Invalid)?;
        Self::with_json(name, value)
    }

    /// Like [`Event::new`], with a value that already is JSON text; it is stored verbatim.
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
            metadata: Metadata::default(),
            object: None,
            only_queues: false,
            logged: None,
            unique: None,
            options: None,
        })
    }

    /// Sets the handler's module. Default `WORKER`. `CRON`, `ANSWER`, `QUEUE` and `CANVAS` are
    /// refused: only wakeq itself uses these modules.
    pub fn module(mut self, module: &str) -> Result<Self, EventError> {
        self.module = module.parse()?;
        if self.module.is_reserved_module() {
            return Err(EventError::ReservedModule(self.module));
        }
        Ok(self)
    }

    /// Sets the handler's modifier. Default `_`.
    pub fn modifier(mut self, modifier: &str) -> Result<Self, EventError> {
        self.modifier = modifier.parse()?;
        Ok(self)
    }

    /// Sets the canvas. Default: that of the queue.
    pub fn canvas(mut self, canvas: CanvasId) -> Self {
        self.canvas = Some(canvas);
        self
    }

    /// Emits the event only to the registered queues that match it; its own handler does not run
    /// it. If no queue matches, nothing is stored.
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

    /// Runs the event this long after it is emitted: 100 years at most.
    pub fn after(mut self, delay: Duration) -> Result<Self, EventError> {
        if delay > DELAY_MAX {
            return Err(EventError::TooLate);
        }
        self.due = Due::After(delay);
        Ok(self)
    }

    /// Runs the event at a moment, or immediately if that has passed.
    pub fn at(mut self, moment: Timestamp) -> Result<Self, EventError> {
        if !is_storable(moment) {
            return Err(EventError::TooLate);
        }
        self.due = Due::At(moment);
        Ok(self)
    }

    /// Sets an id chosen by the caller: emitting it again adds nothing as long as the event is
    /// waiting, running or dead, nor within 7 days after it was due, unless the deployment's
    /// [`Retention`](crate::database::Retention) differs. The id is unique within its canvas; other
    /// canvases can use it, too, but no other handler ([`IdTaken`](crate::StoreError::IdTaken)).
    /// The event's own id is [`EventId::chosen`] of it; [`Admin`](crate::Admin) takes either.
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

    /// Sets the object that the event is about, or a part of one: the event runs after every
    /// earlier event on this object for the same handler. Emit it alone, or several at once with
    /// [`Queue::emit_on`](crate::Queue::emit_on).
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

    /// Also appends the event to the log, in the transaction that emits it; it stays there after it
    /// has run. The category is the event's module, the stream its object or, without one, its
    /// handler's name; the log event has the handler's name and the value as its payload.
    /// Transactions that append to the same stream wait for one another: [`Event::logged_in`]
    /// chooses another stream.
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
        self.logged = Some(Logged::ByAddress);
        self
    }

    /// Like [`Event::logged`], to this stream of a category.
    pub fn logged_in(mut self, category: &str, stream: &str) -> Result<Self, EventError> {
        let category: Category = category.parse()?;
        if category.is_reserved() {
            return Err(EventError::ReservedCategory(category));
        }
        self.logged = Some(Logged::In(category, stream.parse()?));
        Ok(self)
    }

    /// Gives the event a unique key: of the events for its handler on its canvas, at most one has
    /// the key at a time. [`Emitted::unique`](crate::Emitted::unique) says what became of an event
    /// that has the key already. Such an event can't be on an object or only for queues, and can
    /// neither be logged nor have a chosen id.
    ///
    /// ```
    /// use wakeq::Event;
    /// use wakeq::events::Unique;
    ///
    /// # fn main() -> Result<(), wakeq::EventError> {
    /// let recompute = Event::new("recompute", &42)?.unique(Unique::key("invoice:42")?)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn unique(mut self, unique: Unique) -> Result<Self, EventError> {
        unique.check()?;
        self.unique = Some(Box::new(unique));
        Ok(self)
    }

    /// Sets the trace that the event's handler continues. Default: that of the handler that emits
    /// the event, or else a new one.
    pub fn traceparent(mut self, traceparent: &str) -> Result<Self, EventError> {
        self.metadata.traceparent = Some(traceparent.parse()?);
        Ok(self)
    }

    /// The same event in a trace, unless it is in one already.
    #[doc(hidden)]
    pub fn in_trace(mut self, trace: Option<Traceparent>) -> Self {
        self.metadata.traceparent = self.metadata.traceparent.or(trace);
        self
    }

    /// The same event with another value.
    #[doc(hidden)]
    pub fn with_value(self, value: Box<RawValue>) -> Self {
        Self { value: String::from(Box::<str>::from(value)), ..self }
    }

    /// Its fields, for the other packages of wakeq.
    #[doc(hidden)]
    pub fn fields(&self) -> EventFields<'_> {
        EventFields {
            id: self.id,
            canvas: self.canvas,
            value: &self.value,
            due: self.due,
            object: self.object.as_ref(),
            metadata: &self.metadata,
            is_logged: self.logged.is_some(),
            unique: self.unique.as_deref(),
            options: self.options.as_deref(),
        }
    }

    /// Refuses a value of more than `limit_bytes`.
    pub(crate) fn check_size(&self, limit_bytes: usize) -> Result<(), EventError> {
        let size_bytes = self.value.len();
        if size_bytes > limit_bytes { Err(EventError::TooLarge { size_bytes, limit_bytes }) } else { Ok(()) }
    }

    /// Refuses what an event with a unique key can't have.
    fn check_unique(&self) -> Result<(), InvalidUnique> {
        let excluded = [
            (self.id.is_some(), "have an id of the caller's choice"),
            (self.object.is_some(), "be on an object"),
            (self.only_queues, "be only for queues"),
            (self.logged.is_some(), "be appended to the log"),
        ];
        match excluded.into_iter().find(|(has, _)| *has && self.unique.is_some()) {
            Some((_, what)) => Err(InvalidUnique::With(what)),
            None => Ok(()),
        }
    }

    /// When the event is due. A debounce delays the first event, too.
    fn due(&self) -> Due {
        let waits = self.unique.as_ref().and_then(|unique| unique.conflict().waits());
        match (self.due, waits) {
            (Due::Now, Some((by, _))) => Due::After(by),
            (due, _) => due,
        }
    }

    /// The event in the form in which it is inserted, on a queue whose default canvas is `canvas`;
    /// `trace` makes its trace context of the one that it names.
    pub(crate) fn checked(
        self,
        canvas: CanvasId,
        limit_bytes: usize,
        trace: impl FnOnce(Option<Traceparent>) -> Traceparent,
    ) -> Result<NewEvent, EventError> {
        self.check_size(limit_bytes)?;
        let address = self.address(canvas);
        let canvas = address.scope.canvas;
        if canvas.is_reserved() {
            return Err(EventError::ReservedCanvas);
        }
        self.check_unique()?;
        self.check_options()?;
        Ok(NewEvent {
            id: self.id.map_or_else(EventId::new, |id| EventId::chosen(canvas, id)),
            address,
            logged: self.log_stream(canvas)?,
            due: self.due(),
            value: self.value,
            metadata: self.metadata.traced(trace),
            object: self.object,
            only_queues: self.only_queues,
            unique: self.unique,
            options: self.options,
        })
    }

    /// The log stream that the event is appended to on its canvas, if any.
    #[doc(hidden)]
    pub fn log_stream(&self, canvas: CanvasId) -> Result<Option<StreamId>, EventError> {
        match &self.logged {
            None => Ok(None),
            Some(Logged::In(category, name)) => {
                Ok(Some(StreamId { canvas, category: category.clone(), name: name.clone() }))
            }
            Some(Logged::ByAddress) => {
                let stream = self.object.as_ref().map_or(self.name.as_str(), ObjectKey::as_str);
                Ok(Some(StreamId::new(canvas, self.module.as_str(), stream)?))
            }
        }
    }

    /// The module and the name of its handler.
    #[doc(hidden)]
    pub fn handler(&self) -> (&Name, &Name) {
        (&self.module, &self.name)
    }

    /// The handler's address, on a queue whose default canvas is `canvas`.
    #[doc(hidden)]
    pub fn address(&self, canvas: CanvasId) -> HandlerAddress {
        let canvas = self.canvas.unwrap_or(canvas);
        let scope = HandlerScope { canvas, module: self.module.clone(), name: self.name.clone() };
        HandlerAddress { scope, modifier: self.modifier.clone() }
    }
}

/// A checked event that is to be inserted.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// Its id.
    pub id: EventId,
    pub(crate) address: HandlerAddress,
    pub(crate) value: String,
    pub(crate) due: Due,
    pub(crate) metadata: Metadata,
    /// The object whose chain it is linked into.
    pub object: Option<ObjectKey>,
    /// Only its copies get rows.
    pub(crate) only_queues: bool,
    /// The stream of the log that it is also appended to.
    pub(crate) logged: Option<StreamId>,
    /// Its unique key.
    pub(crate) unique: Option<Box<Unique>>,
    /// What was asked for beside it; its copies in queues do not have it.
    pub(crate) options: Option<Box<EventOptions>>,
}

impl NewEvent {
    /// An event that is due now, is on no object, and begins a trace.
    pub(crate) fn new(address: HandlerAddress, value: String) -> Self {
        Self {
            id: EventId::new(),
            address,
            value,
            due: Due::Now,
            metadata: Metadata::root(),
            object: None,
            only_queues: false,
            logged: None,
            unique: None,
            options: None,
        }
    }

    /// Its place in the chain of its object, with the link that it got there.
    pub(crate) fn place(&self, link: Option<Link>) -> Option<Place> {
        self.object.clone().zip(link).map(|(object, link)| Place { object, link })
    }
}

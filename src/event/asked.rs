//! What an event asks for beside its handler's policy: the functions that set its options.

use std::time::Duration;

use super::options::Seconds;
use super::{BatchName, Event, EventError, EventOptions, InvalidOptions, NewEvent, Tag, Timestamp};

impl Event {
    /// Sets how often the event is retried after its first failure, in place of what its handler's
    /// [`Route`](crate::Route) or target says: 1,000 times at most.
    ///
    /// ```
    /// use wakeq::Event;
    ///
    /// # fn main() -> Result<(), wakeq::EventError> {
    /// let once = Event::new("charge-card", &42)?.retries(0)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn retries(self, retries: u32) -> Result<Self, EventError> {
        self.asking(|options| options.retries = Some(retries))
    }

    /// Sets the delays before the event's retries, in place of those of its handler: up to 100,
    /// each of 30 days at most. The last one counts for all further retries. The deployment's
    /// longest delay bounds them, and they are spread by the jitter of the handler's policy.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeq::Event;
    ///
    /// # fn main() -> Result<(), wakeq::EventError> {
    /// let delays = [1, 10, 600].map(Duration::from_secs);
    /// let webhook = Event::new("call-back", &42)?.retries(5)?.delays(delays)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn delays(self, delays: impl IntoIterator<Item = Duration>) -> Result<Self, EventError> {
        let delays = delays.into_iter().map(Seconds).collect();
        self.asking(|options| options.delays_s = Some(delays))
    }

    /// Sets the time after which an attempt is cut off, in place of that of its handler: a
    /// millisecond to 30 days. A request to an HTTP target takes 10 minutes at most all the same.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeq::Event;
    ///
    /// # fn main() -> Result<(), wakeq::EventError> {
    /// let large = Event::new("render", &"a long film")?.timeout(Duration::from_secs(3600))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn timeout(self, timeout: Duration) -> Result<Self, EventError> {
        self.asking(|options| options.timeout_s = Some(Seconds(timeout)))
    }

    /// Sets the moment after which no attempt of the event starts: it then dies, and its cause is
    /// `expired`. An attempt that runs at that moment goes on, and
    /// [`Execution::deadline`](crate::Execution::deadline) tells it of the moment.
    ///
    /// ```
    /// use wakeq::Event;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let code = Event::new("send-code", "ada@example.com")?.not_after("2026-01-31T08:05:00Z".parse()?)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn not_after(self, moment: Timestamp) -> Result<Self, EventError> {
        self.asking(|options| options.not_after = Some(moment))
    }

    /// Makes the event a member of a batch of its canvas, which has to be open. Emits are refused
    /// once the batch is over. A member can't have a unique key, and is not only for queues. See
    /// [`Queue::batch`](crate::Queue::batch).
    ///
    /// ```
    /// use wakeq::Event;
    ///
    /// # fn main() -> Result<(), wakeq::EventError> {
    /// let row = Event::new("import-row", &17)?.batch("import:42")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn batch(self, name: &str) -> Result<Self, EventError> {
        let name: BatchName = name.parse().map_err(InvalidOptions::from)?;
        self.asking(|options| options.batch = Some(name))
    }

    /// Refuses what a member of a batch can't have: its end would not be the end of one row.
    pub(super) fn check_batch(&self) -> Result<(), InvalidOptions> {
        if self.options().is_none_or(|options| options.batch.is_none()) {
            return Ok(());
        }
        match (self.unique.is_some(), self.only_queues) {
            (true, _) => Err(InvalidOptions::BatchWith("have a unique key")),
            (false, true) => Err(InvalidOptions::BatchWith("be only for queues")),
            (false, false) => Ok(()),
        }
    }

    /// Keeps the event for this long after it has ended, with its value and its result, in place of
    /// what its handler's [`Route`](crate::Route) or target says: 90 days at most, and zero for not
    /// at all. If it dies, it is kept as any dead event is.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeq::Event;
    ///
    /// # fn main() -> Result<(), wakeq::EventError> {
    /// let refund = Event::new("refund", &42)?.keep(Duration::from_secs(30 * 24 * 3600))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep(self, time: Duration) -> Result<Self, EventError> {
        self.asking(|options| options.keep_s = Some(Seconds(time)))
    }

    /// Gives the event a tag, by which it is found among others: up to ten of 1 to 100 printable
    /// ASCII characters, without commas. The same tag again changes nothing.
    ///
    /// ```
    /// use wakeq::Event;
    ///
    /// # fn main() -> Result<(), wakeq::EventError> {
    /// let mail = Event::new("send-email", &42)?.tag("customer:7")?.tag("newsletter")?;
    /// assert_eq!(mail.options().map_or(0, |options| options.tags().len()), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn tag(self, tag: &str) -> Result<Self, EventError> {
        let tag: Tag = tag.parse().map_err(InvalidOptions::Tag)?;
        self.asking(|options| {
            if !options.tags.contains(&tag) {
                options.tags.push(tag);
            }
        })
    }

    /// What the event asks for, if anything.
    pub fn options(&self) -> Option<&EventOptions> {
        self.options.as_deref()
    }

    /// The event with another option, which is checked.
    fn asking(mut self, set: impl FnOnce(&mut EventOptions)) -> Result<Self, EventError> {
        let options: &mut EventOptions = self.options.get_or_insert_default();
        set(options);
        options.check()?;
        Ok(self)
    }
}

impl NewEvent {
    /// Whether it is to start before others that are not urgent.
    pub(crate) fn is_urgent(&self) -> bool {
        self.options.as_deref().is_some_and(EventOptions::is_urgent)
    }
}

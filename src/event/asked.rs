//! What an event asks for beside its handler's policy: the functions that set its options.

use std::time::Duration;

use super::seconds::Seconds;
use super::{
    BatchName, Event, EventError, EventOptions, InvalidOptions, Keep, LimitKey, NewEvent, Tag, Timestamp,
};

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

    /// Refuses options that the event can't have beside its other fields.
    pub(super) fn check_options(&self) -> Result<(), InvalidOptions> {
        let Some(options) = self.options() else { return Ok(()) };
        self.check_batch()?;
        match (self.only_queues, options.limits.is_empty(), options.urgent) {
            (true, false, _) => Err(InvalidOptions::OnlyQueuesWith("name limits")),
            (true, true, true) => Err(InvalidOptions::OnlyQueuesWith("be urgent")),
            // An urgent event has not been checked as a whole yet.
            (false, _, true) => options.check(),
            (_, _, false) => Ok(()),
        }
    }

    /// Refuses what a member of a batch can't have: its end would not be the end of one row.
    fn check_batch(&self) -> Result<(), InvalidOptions> {
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
    /// at all. A [`Keep`] has a time for each outcome. If the event dies, it is kept as any dead
    /// event is.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wakeq::Event;
    /// use wakeq::events::Keep;
    ///
    /// # fn main() -> Result<(), wakeq::EventError> {
    /// let day = Duration::from_secs(24 * 3600);
    /// let refund = Event::new("refund", &42)?.keep(30 * day)?;
    /// let payment = Event::new("pay", &42)?.keep(Keep { failed: 30 * day, ..Keep::all(7 * day) })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep(self, keep: impl Into<Keep>) -> Result<Self, EventError> {
        let keep = keep.into();
        self.asking(|options| options.keep_s = Some(keep.into()))
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

    /// Names a key, such as `customer:7`, under which [limits](crate::limits) count the event
    /// beside its handler and its canvas: up to three different ones. A key for which no limit is
    /// set limits nothing. The event can't be only for queues.
    ///
    /// ```
    /// use wakeq::Event;
    ///
    /// # fn main() -> Result<(), wakeq::EventError> {
    /// let sync = Event::new("sync-orders", &42)?.limit("customer:7")?.limit("shop-api")?;
    /// assert_eq!(sync.options().map_or(0, |options| options.limits().len()), 2);
    /// assert!(Event::new("sync-orders", &42)?.limit("canvas").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn limit(self, key: &str) -> Result<Self, EventError> {
        let key: LimitKey = key.parse().map_err(InvalidOptions::Limit)?;
        self.asking(|options| {
            if !options.limits.contains(&key) {
                options.limits.push(key);
            }
        })
    }

    /// Makes the event urgent: a worker that has more to do than it has room for starts it before
    /// those that are not. The event can't be only for queues.
    ///
    /// ```
    /// use wakeq::Event;
    ///
    /// # fn main() -> Result<(), wakeq::EventError> {
    /// let code = Event::new("send-code", "ada@example.com")?.urgent();
    /// assert!(code.options().is_some_and(|options| options.is_urgent()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn urgent(mut self) -> Self {
        let options: &mut EventOptions = self.options.get_or_insert_default();
        options.urgent = true;
        self
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

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event::new("greet", &1).unwrap()
    }

    #[test]
    fn a_key_counts_once_and_a_fourth_is_refused() {
        let three =
            ["a", "b", "a", "c"].iter().try_fold(event(), |event, key| event.limit(key)).unwrap().urgent();
        let options = three.options().unwrap();
        assert_eq!(options.json(), r#"{"limits":["a","b","c"],"urgent":true}"#);
        assert_eq!(three.check_options(), Ok(()));
        let fourth = three.limit("d").unwrap_err();
        assert!(matches!(fourth, EventError::Options(InvalidOptions::Limits)), "{fourth}");
    }

    #[test]
    fn copies_have_neither_limits_nor_a_class() {
        let limited = event().limit("a").unwrap().only_to_queues();
        assert_eq!(limited.check_options(), Err(InvalidOptions::OnlyQueuesWith("name limits")));
        let urgent = event().urgent().only_to_queues();
        assert_eq!(urgent.check_options(), Err(InvalidOptions::OnlyQueuesWith("be urgent")));
        assert_eq!(event().tag("a").unwrap().only_to_queues().check_options(), Ok(()));
    }

    #[test]
    fn an_urgent_event_is_checked_as_a_whole() {
        let tags = (0..10).map(|number| format!("{number}{}", "\"".repeat(99)));
        let delays = [Duration::from_nanos(1_234_567_123_456_789); 100];
        let long = tags.fold(event().delays(delays).unwrap(), |event, tag| event.tag(&tag).unwrap());
        let long = long.limit(&"x".repeat(150)).unwrap();
        let room = 4096 - long.options().unwrap().json().len();
        let full = long.limit(&"y".repeat(room - r#","""#.len())).unwrap();
        assert_eq!(full.check_options(), Ok(()));
        assert_eq!(
            full.urgent().check_options(),
            Err(InvalidOptions::TooLong(4096 + r#","urgent":true"#.len()))
        );
    }
}

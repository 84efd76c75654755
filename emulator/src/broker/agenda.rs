//! The due-time index of resources: expiring leases, messages past their retention, subscriptions
//! and snapshots that expire. An entry may be too early (its reason was settled meanwhile), but
//! never too late.
//!
//! It does not know what has to be done then.

use std::collections::{BTreeMap, BTreeSet};

use super::{Name, Time};

/// The resource that is due.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Entry {
    Subscription(Name),
    Snapshot(Name),
    Topic(Name),
    /// A subscription's pushes, which resume after a pause.
    Push(Name),
}

/// At most one due time per resource.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    by_time: BTreeSet<(Time, Entry)>,
    times: BTreeMap<Entry, Time>,
}

impl Agenda {
    /// Schedules a resource for this time at the latest.
    pub(super) fn no_later(&mut self, entry: Entry, due: Time) {
        if let Some(time) = self.times.get_mut(&entry) {
            if *time <= due {
                return;
            }
            let planned = std::mem::replace(time, due);
            self.by_time.remove(&(planned, entry.clone()));
        } else {
            self.times.insert(entry.clone(), due);
        }
        self.by_time.insert((due, entry));
    }

    /// Removes the entry of a resource.
    pub(super) fn forget(&mut self, entry: Entry) {
        if let Some(time) = self.times.remove(&entry) {
            self.by_time.remove(&(time, entry));
        }
    }

    /// The earliest due time.
    pub(super) fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(time, _)| *time)
    }

    /// Takes the first due entry, if there is one, with its due time.
    pub(super) fn take(&mut self, now: Time) -> Option<(Time, Entry)> {
        if self.next()? > now {
            return None;
        }
        let (time, entry) = self.by_time.pop_first()?;
        self.times.remove(&entry);
        Some((time, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        Entry::Subscription(name.into())
    }

    #[test]
    fn each_resource_comes_once_at_its_earliest_time() {
        let mut agenda = Agenda::default();
        agenda.no_later(entry("a"), Time::from_secs(5));
        agenda.no_later(entry("b"), Time::from_secs(4));
        agenda.no_later(entry("a"), Time::from_secs(3));
        agenda.no_later(entry("a"), Time::from_secs(9));
        agenda.no_later(entry("c"), Time::from_secs(1));
        agenda.forget(entry("c"));
        assert_eq!(agenda.next(), Some(Time::from_secs(3)));
        assert_eq!(agenda.take(Time::from_secs(2)), None);
        let now = Time::from_secs(10);
        assert_eq!(agenda.take(now), Some((Time::from_secs(3), entry("a"))));
        assert_eq!(agenda.take(now), Some((Time::from_secs(4), entry("b"))));
        assert_eq!((agenda.take(now), agenda.next()), (None, None));
    }
}

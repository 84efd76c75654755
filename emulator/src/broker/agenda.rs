//! When which resource needs a look: leases that lapse, messages that get too old, subscriptions and snapshots that
//! expire. An entry may come too early (what it was for was settled meanwhile), never too late.
//!
//! It does not know what is to be done then.

use std::collections::{BTreeMap, BTreeSet};

use super::{Name, Time};

/// Whose turn it is.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Entry {
    Subscription(Name),
    Snapshot(Name),
    Topic(Name),
}

/// One time for each resource that waits for one.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    by_time: BTreeSet<(Time, Entry)>,
    times: BTreeMap<Entry, Time>,
}

impl Agenda {
    /// Looks at a resource at this time at the latest.
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

    /// A resource is gone.
    pub(super) fn forget(&mut self, entry: Entry) {
        if let Some(time) = self.times.remove(&entry) {
            self.by_time.remove(&(time, entry));
        }
    }

    /// When the first is due.
    pub(super) fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(time, _)| *time)
    }

    /// Takes the first that is due, if one is.
    pub(super) fn take(&mut self, now: Time) -> Option<Entry> {
        if self.next()? > now {
            return None;
        }
        let (_, entry) = self.by_time.pop_first()?;
        self.times.remove(&entry);
        Some(entry)
    }
}

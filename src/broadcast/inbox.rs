//! The events that a listener has not read yet. They are bounded: new events displace the oldest,
//! and the reader is told how many were lost. An inbox can also stand for many listeners, and
//! passes events on to theirs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::selection::Selection;
use crate::event::Broadcast;

/// Maximum number of events that wait for a reader.
const WAITING_MAX: usize = 1_000;
/// Maximum bytes of these events; a single larger one is kept.
const WAITING_BYTES: usize = 4 * 1024 * 1024;
/// Maximum bytes that wait for all readers of a process, or are being read; an event that exceeds
/// this is missed.
const ALL_BYTES: usize = 32 * 1024 * 1024;

/// The bytes that wait for the listeners of one process, including those that were just taken.
/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct QueuedBytes(Arc<AtomicUsize>);

impl QueuedBytes {
    /// Counts this many more bytes if there is room for them; returns whether there was.
    fn add(&self, bytes: usize) -> bool {
        let added = |all: usize| all.checked_add(bytes).filter(|all| *all <= ALL_BYTES);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, added).is_ok()
    }

    fn remove(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// An item that a listener receives.
#[derive(Clone, Debug, PartialEq)]
pub enum ListenItem {
    /// An event was emitted.
    Event(Box<Broadcast>),
    /// Events were missed here. The count is known if the reader was too slow, and unknown if the
    /// listener's subscription was deleted and created again.
    Missed(Option<u64>),
}

/// The events that wait for one listener.
#[derive(Debug)]
pub(crate) struct Inbox {
    selection: Selection,
    waiting: Mutex<InboxState>,
    all: QueuedBytes,
    changed: Notify,
    /// The inboxes of many listeners, where events wait instead of here.
    members: Option<Mutex<Vec<Arc<Inbox>>>>,
}

#[derive(Debug, Default)]
struct InboxState {
    broadcasts: VecDeque<Broadcast>,
    bytes: usize,
    /// Bytes of the event that the reader took last and is still processing.
    taken: usize,
    /// How many were displaced before those that wait.
    missed: u64,
    /// Whether the subscription was lost meanwhile.
    lost: bool,
    closed: bool,
    trouble: Option<String>,
}

impl Inbox {
    pub(super) fn new(selection: Selection, all: QueuedBytes) -> Self {
        Self { selection, waiting: Mutex::default(), all, changed: Notify::new(), members: None }
    }

    /// An inbox for many listeners, which join it.
    pub(super) fn of_many(selection: Selection) -> Self {
        Self {
            selection,
            waiting: Mutex::default(),
            all: QueuedBytes::default(),
            changed: Notify::new(),
            members: Some(Mutex::default()),
        }
    }

    /// Gives a listener the events from now on. Returns false if this inbox is closed.
    pub(super) fn join(&self, member: &Arc<Inbox>) -> bool {
        let Some(mut members) = self.members() else { return false };
        if self.waiting().closed {
            return false;
        }
        member.waiting().trouble = self.trouble();
        members.push(Arc::clone(member));
        true
    }

    /// Gives the listener nothing more.
    pub(super) fn leave(&self, member: &Arc<Inbox>) {
        if let Some(mut members) = self.members() {
            members.retain(|other| !Arc::ptr_eq(other, member));
        }
        self.changed.notify_one();
    }

    /// Closes the inbox and returns once no listener has joined for this long; returns at once if
    /// it is closed.
    pub(super) async fn unused(&self, linger: Duration) {
        let is_empty = || self.members().is_none_or(|members| members.is_empty());
        while !self.waiting().closed {
            if is_empty() {
                tokio::time::sleep(linger).await;
                let members = self.members();
                if members.as_ref().is_none_or(|members| members.is_empty()) {
                    self.waiting().closed = true;
                }
            } else {
                self.changed.notified().await;
            }
        }
    }

    fn members(&self) -> Option<MutexGuard<'_, Vec<Arc<Inbox>>>> {
        Some(self.members.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn each_member(&self, action: impl Fn(&Inbox)) {
        let members = self.members().map(|members| members.clone()).unwrap_or_default();
        members.iter().for_each(|member| action(member));
    }

    #[cfg(feature = "pubsub")]
    pub(crate) fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Adds an event if it is for this listener.
    pub(crate) fn offer(&self, broadcast: &Broadcast) {
        if !self.selection.selects(broadcast) {
            return;
        }
        if self.members.is_some() {
            return self.each_member(|member| member.offer(broadcast));
        }
        let mut waiting = self.waiting();
        if waiting.closed {
            return;
        }
        let size = broadcast.size_bytes();
        while waiting.broadcasts.len() >= WAITING_MAX
            || (waiting.bytes + size > WAITING_BYTES && !waiting.broadcasts.is_empty())
        {
            self.crowd_out(&mut waiting);
        }
        // The listener's own events are displaced first; those of others are not.
        while !self.all.add(size) {
            if waiting.broadcasts.is_empty() {
                waiting.missed += 1;
                drop(waiting);
                self.changed.notify_one();
                return;
            }
            self.crowd_out(&mut waiting);
        }
        waiting.bytes += size;
        waiting.broadcasts.push_back(broadcast.clone());
        drop(waiting);
        self.changed.notify_one();
    }

    fn crowd_out(&self, waiting: &mut InboxState) {
        if let Some(oldest) = waiting.broadcasts.pop_front() {
            let size = oldest.size_bytes();
            waiting.bytes -= size;
            waiting.missed += 1;
            self.all.remove(size);
        }
    }

    /// Notes that an unknown number of events was missed.
    pub(crate) fn lost(&self) {
        if self.members.is_some() {
            return self.each_member(Self::lost);
        }
        self.waiting().lost = true;
        self.changed.notify_one();
    }

    /// Sets why nothing can be received now; `None` if all is well.
    pub(crate) fn in_trouble(&self, words: Option<String>) {
        self.each_member(|member| member.in_trouble(words.clone()));
        self.waiting().trouble = words;
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.waiting().trouble.clone()
    }

    /// Nothing more will come.
    pub(super) fn close(&self) {
        self.waiting().closed = true;
        self.each_member(Self::close);
        self.changed.notify_one();
    }

    /// The next item; `None` once the inbox is closed and empty. For one reader. Cancel safe.
    pub(super) async fn next(&self) -> Option<ListenItem> {
        loop {
            let changed = self.changed.notified();
            {
                let mut waiting = self.waiting();
                self.all.remove(std::mem::take(&mut waiting.taken));
                if let Some(next) = waiting.take() {
                    return next;
                }
            }
            changed.await;
        }
    }

    fn waiting(&self) -> MutexGuard<'_, InboxState> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let waiting = self.waiting();
        self.all.remove(waiting.bytes + waiting.taken);
    }
}

impl InboxState {
    /// The next item, or `Some(None)` if there will be none; `None` if there is nothing yet.
    fn take(&mut self) -> Option<Option<ListenItem>> {
        if std::mem::take(&mut self.lost) {
            return Some(Some(ListenItem::Missed(None)));
        }
        if self.missed > 0 {
            return Some(Some(ListenItem::Missed(Some(std::mem::take(&mut self.missed)))));
        }
        match self.broadcasts.pop_front() {
            Some(broadcast) => {
                self.taken = broadcast.size_bytes();
                self.bytes -= self.taken;
                Some(Some(ListenItem::Event(Box::new(broadcast))))
            }
            None if self.closed => Some(None),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broadcast::tests::broadcast;

    fn inbox() -> Inbox {
        inbox_among(&QueuedBytes::default())
    }

    fn inbox_among(all: &QueuedBytes) -> Inbox {
        Inbox::new(Selection::new("*".parse().unwrap(), None), all.clone())
    }

    async fn names(inbox: &Inbox) -> Vec<String> {
        inbox.close();
        let mut names = Vec::new();
        while let Some(item) = inbox.next().await {
            names.push(match item {
                ListenItem::Event(broadcast) => broadcast.address.scope.name.to_string(),
                ListenItem::Missed(count) => format!("{count:?} missed"),
            });
        }
        names
    }

    #[tokio::test]
    async fn a_full_inbox_drops_the_oldest_and_reports_the_count() {
        let inbox = inbox();
        for number in 0..WAITING_MAX + 7 {
            inbox.offer(&broadcast(&format!("n{number}"), "1"));
        }
        let names = names(&inbox).await;
        assert_eq!((names.len(), names[0].as_str(), names[1].as_str()), (1001, "Some(7) missed", "n7"));
        assert_eq!(names[1000], "n1006");
    }

    #[tokio::test]
    async fn large_values_are_few() {
        let inbox = inbox();
        let large = format!("\"{}\"", "x".repeat(WAITING_BYTES / 3));
        for number in 0..5 {
            inbox.offer(&broadcast(&format!("n{number}"), &large));
        }
        assert_eq!(names(&inbox).await, ["Some(3) missed", "n3", "n4"]);
        let inbox = self::inbox();
        inbox.offer(&broadcast("small", "1"));
        inbox.offer(&broadcast("huge", &format!("\"{}\"", "x".repeat(2 * WAITING_BYTES))));
        assert_eq!(names(&inbox).await, ["Some(1) missed", "huge"]);
    }

    /// However many listeners wait for large values and read none of them.
    #[tokio::test]
    async fn all_inboxes_share_a_byte_limit_and_report_drops() {
        let all = QueuedBytes::default();
        let large = format!("\"{}\"", "x".repeat(WAITING_BYTES / 2 - 4096));
        let full: Vec<Inbox> = (0..ALL_BYTES / WAITING_BYTES).map(|_| inbox_among(&all)).collect();
        for inbox in &full {
            (0..5).for_each(|number| inbox.offer(&broadcast(&format!("n{number}"), &large)));
        }
        let held = all.0.load(Ordering::Relaxed);
        assert!(held <= ALL_BYTES && held > ALL_BYTES - WAITING_BYTES, "{held}");
        let late = inbox_among(&all);
        late.offer(&broadcast("large", &large));
        late.offer(&broadcast("small", "1"));
        assert_eq!(late.next().await, Some(ListenItem::Missed(Some(1))));
        assert!(
            matches!(late.next().await, Some(ListenItem::Event(small)) if small.value.as_deref() == Some("1"))
        );
        drop(late);
        assert_eq!(names(&full[0]).await, ["Some(3) missed", "n3", "n4"], "what others hold stays theirs");
        drop(full);
        assert_eq!(all.0.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_closed_inbox_drains_but_accepts_nothing() {
        let inbox = inbox();
        inbox.offer(&broadcast("before", "1"));
        inbox.close();
        inbox.offer(&broadcast("after", "1"));
        assert_eq!(names(&inbox).await, ["before"]);
    }
}

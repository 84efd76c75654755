//! Publishes what this process, and others that were interrupted with it, may have missed, and what
//! it had no room for.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::{PAGE_PERIOD, WakeError, Waker};
use crate::event::{CanvasId, spread};
use crate::store::MissedCursor;

/// Maximum number of pages that are looked at after one interruption. The promises wake the rest.
const PAGES: usize = 10;
/// How often it is tried, since an interruption of the notifier has often broken other connections,
/// too.
const TRIES: u32 = 6;
/// The pause before the second try; it doubles each time. Jitter makes it longer, since many
/// processes are interrupted together.
const RETRY: Duration = Duration::from_millis(250);
/// How many pages a look goes on for the sake of other canvases, once one of them has no room.
const OTHERS_PAGES: usize = 25;
/// From one page to the next at least, as a multiple of the time that the first takes.
const PERIOD_MULTIPLE: u32 = 2;

/// How far a look for the events that wait has come.
enum Look {
    /// There are no more.
    Over,
    /// There is no more room: where it continues.
    Full(Option<MissedCursor>),
}

impl Waker {
    /// After each interruption of the notifier, looks once for what was missed. After each time
    /// that it had no room, looks for what waits.
    pub(crate) async fn find_missed(self) {
        tokio::join!(self.after_interruptions(), self.after_overflows());
    }

    async fn after_interruptions(&self) {
        loop {
            let missed = self.notifier.missed().await;
            let noticed = Instant::now();
            for attempt in 0..TRIES {
                match self.publish_missed(missed + noticed.elapsed()).await {
                    Ok(woken) => {
                        tracing::info!(woken, ?missed, "looked for events that were missed");
                        break;
                    }
                    Err(error) => report(&error, attempt),
                }
                sleep(spread(RETRY * 2_u32.pow(attempt))).await;
            }
        }
    }

    /// Publishes the events that were emitted in this time until now and have not begun; returns
    /// how many.
    async fn publish_missed(&self, missed: Duration) -> Result<usize, WakeError> {
        let (mut woken, mut after) = (0, None);
        for _ in 0..PAGES {
            let page = self.store.missed_for(missed, after).await?;
            self.publish(&page.notifications).await?;
            woken += page.notifications.len();
            after = page.next;
            if after.is_none() {
                break;
            }
            sleep(PAGE_PERIOD).await;
        }
        Ok(woken)
    }

    /// Each event that waits is published once after an overflow, whether or not it can start, so
    /// this ends even if none can.
    async fn after_overflows(&self) {
        loop {
            self.notifier.overflowed().await;
            let (mut after, mut attempt) = (None, 0);
            while attempt < TRIES {
                match self.publish_waiting(after).await {
                    Ok(Look::Over) => {
                        tracing::info!("looked for all events for whose notifications there was no room");
                        break;
                    }
                    Ok(Look::Full(from)) => {
                        (after, attempt) = (from, 0);
                        self.notifier.drained().await;
                    }
                    Err(error) => {
                        report(&error, attempt);
                        sleep(spread(RETRY * 2_u32.pow(attempt))).await;
                        attempt += 1;
                    }
                }
            }
        }
    }

    /// Publishes the events that wait from here on, in the order of their promises, until there is
    /// no more room: then it goes on for a while for the sake of the canvases that have some.
    async fn publish_waiting(&self, mut after: Option<MissedCursor>) -> Result<Look, WakeError> {
        let (mut full, mut stopped, mut others) = (HashSet::<CanvasId>::new(), None, 0);
        loop {
            let started = Instant::now();
            let without: Vec<CanvasId> = full.iter().copied().collect();
            let page = self.store.waiting_after(after, &without).await?;
            let mut found = page.notifications;
            if page.may_be_pulled {
                // Leases find those, and no worker may have them.
                found = self.store.split_pulled(&found).await?.workers;
            }
            full.extend(self.notifier.publish_again(&found).await?);
            if !full.is_empty() {
                // This page again, since not all of it was taken.
                stopped.get_or_insert(after);
                others += 1;
            }
            match (stopped, page.next) {
                (Some(from), None) => return Ok(Look::Full(from)),
                (Some(from), _) if others > OTHERS_PAGES => return Ok(Look::Full(from)),
                (None, None) => return Ok(Look::Over),
                (_, next) => after = next,
            }
            // However long the statements take, half of the time is others'.
            sleep_until(started + PAGE_PERIOD.max(PERIOD_MULTIPLE * started.elapsed())).await;
        }
    }
}

fn report(error: &WakeError, attempt: u32) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        attempt,
        "could not look for missed events; retrying, and in the end their promises wake them"
    );
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::future::select_all;
    use tokio::time::timeout;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;
    use crate::event::{EventId, Notification};
    use crate::notify::{LocalNotifier, Notifier, PostgresNotifier, Subscription};
    use crate::store::tests::Table;

    /// How many notifications wait in a process here.
    const ROOM: usize = 1_600;
    /// The end of a test in which something is never found.
    const END: Duration = Duration::from_secs(120);

    /// Completes what is delivered until these are all done.
    async fn work(table: &Table, subscriptions: &mut [Box<dyn Subscription>], all: &[Notification]) {
        let completion = table.completion();
        let mut left: HashSet<EventId> = all.iter().map(|one| one.id).collect();
        while !left.is_empty() {
            let (delivery, ..) = select_all(subscriptions.iter_mut().map(|one| one.next())).await;
            let delivery = delivery.unwrap();
            let notification = *delivery.notification.as_ref().unwrap();
            completion.complete(&[notification]).await;
            left.remove(&notification.id);
            delivery.acknowledge();
        }
    }

    /// Emits more than these processes have room for, and has all of it handled while no promise
    /// comes due.
    async fn overflow(table: &Table, notifiers: &[Arc<dyn Notifier>]) {
        let all = table.backlog().await;
        let (mut subscriptions, mut looking) = (Vec::new(), Vec::new());
        for notifier in notifiers {
            let waker = Waker::new(table.store.clone(), Arc::clone(notifier));
            subscriptions.push(notifier.subscribe(10).await.unwrap());
            looking.push(AbortOnDropHandle::new(tokio::spawn(waker.find_missed())));
        }
        for notifier in notifiers {
            assert_eq!(notifier.starts_empty().await, notifiers.len() == 1, "they know each other");
        }
        notifiers[0].publish(&all).await.unwrap();
        let worked = timeout(END, work(table, &mut subscriptions, &all)).await;
        let left = table.left().await;
        assert!(worked.is_ok(), "{} events wait for their promises", left - 12_000);
        assert_eq!(left, 12_000, "delayed ones are left alone");
    }

    #[tokio::test]
    async fn events_that_overflow_a_process_run_before_their_promises() {
        let table = Table::new().await;
        overflow(&table, &[Arc::new(PostgresNotifier::holding(&table.store, ROOM))]).await;
    }

    #[tokio::test]
    async fn several_processes_find_what_each_of_them_had_no_room_for() {
        let table = Table::new().await;
        let notifier = || -> Arc<dyn Notifier> { Arc::new(PostgresNotifier::holding(&table.store, ROOM)) };
        overflow(&table, &[notifier(), notifier()]).await;
    }

    #[tokio::test]
    async fn so_it_is_in_a_process_that_wakes_itself() {
        let table = Table::new().await;
        overflow(&table, &[Arc::new(LocalNotifier::holding(ROOM))]).await;
    }

    /// Events that can't start, such as those that wait for an earlier one on their object, are
    /// published once after an overflow and not for ever.
    #[tokio::test]
    async fn a_look_ends_though_nothing_that_it_finds_can_start() {
        let table = Table::new().await;
        let all = table.backlog().await;
        let notifier = LocalNotifier::holding(ROOM);
        let mut subscription = notifier.subscribe(10).await.unwrap();
        let waker = Waker::new(table.store.clone(), Arc::new(notifier.clone()));
        let mut left: HashSet<EventId> = all.iter().map(|one| one.id).collect();
        let passing_over = async {
            while let Some(delivery) = subscription.next().await {
                left.remove(&delivery.notification.as_ref().unwrap().id);
                delivery.acknowledge();
            }
        };
        let looking = async {
            let mut after = None;
            while let Look::Full(from) = waker.publish_waiting(after).await.unwrap() {
                after = from;
                notifier.drained().await;
            }
            while notifier.waiting() > 0 {
                notifier.drained().await;
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = passing_over => {}
            ended = timeout(END, looking) => assert!(ended.is_ok(), "it does not end"),
        }
        assert_eq!(left.len(), 0, "each was published");
    }
}

//! Removes events that were cancelled while they ran, where neither their handler nor the next
//! claim could: they failed and wait, are held by a rule, or have lost their worker.

use super::{Trouble, WakeError, Waker};
use crate::event::Lane;
use crate::store::CANCELLED_PAGE;

/// Maximum number of pages that one pass removes; the next continues.
const PAGES: usize = 10;

impl Waker {
    /// A page that can't be removed is left to the next pass, and stops nothing else.
    pub(super) async fn remove_cancelled(&self, trouble: &mut Trouble) {
        for _ in 0..PAGES {
            let removed = self.store.remove_unclaimed_cancelled().await;
            let Some((count, lanes)) = trouble.look("cancelled events", removed) else { return };
            if count > 0 {
                tracing::info!(events = count, "removed events that were cancelled while they ran");
            }
            trouble.look("the next events of objects", self.wake_firsts(&lanes).await);
            if count < CANCELLED_PAGE || self.is_over() {
                return;
            }
        }
    }

    /// Wakes the events whose turn it is now.
    async fn wake_firsts(&self, lanes: &[Lane]) -> Result<(), WakeError> {
        let firsts = self.store.arm_firsts(lanes).await?;
        self.publish(&firsts).await
    }
}

#[cfg(test)]
mod tests {
    use crate::store::tests::Table;
    use crate::wake::backlog::tests::waker;

    const CANCEL: &str =
        "update wakeq.events_v2 set cancelled_by = 'ada', notify_at = null where name = 'gone'";
    const TAKE_LONG: &str = "create function public.take_long() returns trigger language plpgsql as $$
                             begin raise query_canceled using message = 'canceling statement due to statement timeout'; end $$";
    const GONE: &str = "select count(*) from wakeq.events_v2 where name = 'gone'";

    /// Where such an event can't be removed, everything else of the pass is done; and the event is
    /// removed once that is possible again.
    #[tokio::test]
    async fn a_removal_that_fails_stops_nothing_else() {
        let table = Table::new().await;
        table.add(1).await;
        table.run("update wakeq.events_v2 set name = 'gone'").await;
        table.run(CANCEL).await;
        table.add(2).await;
        table.run(TAKE_LONG).await;
        table.run("create trigger take_long before delete on wakeq.events_v2 for each row execute function public.take_long()").await;
        let (waker, broker) = waker(&table, 1_000);
        let error = waker.pass(None).await.unwrap_err();
        assert!(error.of_store().is_some_and(crate::store::StoreError::is_too_long), "{error:?}");
        assert_eq!((broker.events().len(), table.number(GONE).await), (2, 1));
        table.run("drop trigger take_long on wakeq.events_v2").await;
        table.run("update wakeq.chores set next_at = now()").await;
        waker.pass(None).await.unwrap();
        assert_eq!((table.number(GONE).await, table.left().await), (0, 2));
    }

    /// However many there are, and the next event of each object is woken in the same pass.
    #[tokio::test]
    async fn a_pass_removes_several_pages_and_wakes_what_follows() {
        let table = Table::new().await;
        table.add(2_500).await;
        table
            .run(
                "update wakeq.events_v2 e
                    set object = 'o' || n.seq % 1250, seq = n.seq, prev = greatest(n.seq - 1250, 0), notify_at = now() + interval '1 h',
                        cancelled_by = case when n.seq <= 1250 then 'ada' end
                   from (select id, row_number() over (order by id) as seq from wakeq.events_v2) n where n.id = e.id",
            )
            .await;
        let (waker, broker) = waker(&table, 10_000);
        waker.pass(None).await.unwrap();
        assert_eq!((table.left().await, broker.events().len()), (1_250, 1_250));
    }
}

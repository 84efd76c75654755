//! Continues resume jobs: the events that waited for a rule to end, or for a handler, are published
//! page by page, and operations are carried on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};

use super::pace::PAGE;
use super::{WakeError, Waker};
use crate::broadcast::Signal;
use crate::event::CanvasId;

/// Maximum number of jobs made by a lifted switch that are continued at once, as in a pass.
const MADE_MAX: usize = 1_000;
/// How long workers are waited for that have to learn of cancelled events, which only saves time.
const SIGNALLED_WITHIN: Duration = Duration::from_secs(1);

impl Waker {
    /// Continues a resume job of a canvas to its end, until another process has it, or until the
    /// time limit; then the jobs that it made. Returns whether another process has some of that.
    /// Counts the events as they are published. Between two pages no lock is held.
    pub(crate) async fn resume(
        &self,
        canvas: CanvasId,
        job: i64,
        published: &AtomicUsize,
    ) -> Result<bool, WakeError> {
        self.resume_from(canvas, job, published, false).await
    }

    /// Carries on an operation that was just begun. One that publishes nothing waits for no turn of
    /// its canvas, not even at first: it may be what ends a flood.
    pub(crate) async fn carry_on_operation(
        &self,
        canvas: CanvasId,
        job: i64,
        publishes: bool,
    ) -> Result<bool, WakeError> {
        self.resume_from(canvas, job, &AtomicUsize::new(0), !publishes).await
    }

    /// Continues a job, of which is known or not that its pages publish nothing.
    async fn resume_from(
        &self,
        canvas: CanvasId,
        job: i64,
        published: &AtomicUsize,
        mut is_quiet: bool,
    ) -> Result<bool, WakeError> {
        let (mut made, mut is_elsewhere) = (Vec::new(), false);
        loop {
            let turn = if is_quiet { None } else { self.turn(canvas, PAGE).await };
            match &turn {
                Some(_) => {}
                None if is_quiet => self.pace.quiet_page(canvas).await,
                None => break,
            }
            let page = self.store.resume_page(job).await?;
            crate::fault::point("resume.page");
            self.publish(&page.notifications).await?;
            is_quiet = page.quiet;
            if let Some(turn) = turn {
                turn.took(&page.notifications);
                if !is_quiet {
                    // The pages of the others are not many events, but much work of the database.
                    self.pace.page_had(page.notifications.len());
                }
            }
            self.wake_firsts(&page.lanes).await?;
            self.wake_where_places_were_kept(&page.limits).await;
            if page.stops {
                self.tell_cancelled().await;
            }
            published.fetch_add(page.notifications.len(), Ordering::Relaxed);
            made.extend(page.jobs);
            if !page.more || self.is_over() {
                is_elsewhere = page.elsewhere;
                break;
            }
        }
        if made.is_empty() {
            return Ok(is_elsewhere);
        }
        Ok(self.resume_made(made, published).await? || is_elsewhere)
    }

    /// The same for several jobs of a canvas, one after the other.
    pub(crate) async fn resume_all(
        &self,
        canvas: CanvasId,
        jobs: &[i64],
        published: &AtomicUsize,
    ) -> Result<bool, WakeError> {
        let mut is_elsewhere = false;
        for job in jobs {
            is_elsewhere |= self.resume(canvas, *job, published).await?;
        }
        Ok(is_elsewhere)
    }

    /// The same for the jobs that were made by that of a lifted switch, all canvases side by side.
    /// Where the time is over, other passes continue them.
    fn resume_made<'a>(
        &'a self,
        made: Vec<(CanvasId, i64)>,
        published: &'a AtomicUsize,
    ) -> BoxFuture<'a, Result<bool, WakeError>> {
        Box::pin(async move {
            let mut is_elsewhere = false;
            for made in made.chunks(MADE_MAX) {
                if self.is_over() {
                    return Ok(true);
                }
                let mut canvases = BTreeMap::<CanvasId, Vec<i64>>::new();
                for (canvas, job) in made {
                    canvases.entry(*canvas).or_default().push(*job);
                }
                let each = canvases.iter().map(|(canvas, jobs)| self.resume_all(*canvas, jobs, published));
                for ended in join_all(each).await {
                    is_elsewhere |= ended?;
                }
            }
            Ok(is_elsewhere)
        })
    }

    /// Tells workers to look for running events that were cancelled.
    pub(crate) async fn tell_cancelled(&self) {
        self.notifier.signals().send_within(Signal::Cancellations, SIGNALLED_WITHIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Actor, EventFilter, NewOperation, OperationKind, OperationPreview, OperationState};
    use crate::store::tests::Table;
    use crate::wake::backlog::tests::waker;

    /// What ends a flood waits for no turn of the flood, which is taken here all the time.
    #[tokio::test]
    async fn an_operation_that_publishes_nothing_waits_for_no_turn_of_its_canvas() {
        let (table, canvas) = (Table::new().await, CanvasId::DEFAULT);
        table.add(5).await;
        let (waker, _) = waker(&table, 1_000);
        let filter = EventFilter { name: Some("known".parse().unwrap()), ..EventFilter::default() };
        let new = NewOperation::new(OperationKind::Delete, filter);
        let before = table.store.clock().await.unwrap();
        let preview = OperationPreview { count: 5, more: false, looked_at: 5, before };
        let begun =
            table.store.begin_operation(canvas, &new, (&preview, false), &Actor::user("test")).await.unwrap();
        let begun = begun.expect("there is room");
        let turn = waker.pace.turn(canvas).await;
        waker.carry_on_operation(canvas, begun.job, new.kind.publishes()).await.unwrap();
        drop(turn);
        let ended = table.store.operation(canvas, begun.operation.id).await.unwrap().unwrap();
        assert_eq!((ended.state, ended.changed), (OperationState::Done, 5));
    }
}

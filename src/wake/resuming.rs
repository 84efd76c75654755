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
        let (mut made, mut is_elsewhere) = (Vec::new(), false);
        let mut is_quiet = false;
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
            if let Some(turn) = turn {
                turn.took(&page.notifications);
            }
            is_quiet = page.quiet;
            if !is_quiet {
                // The pages of the others are not many events, but much work of the database.
                self.pace.page_had(page.notifications.len());
            }
            self.wake_firsts(&page.lanes).await?;
            if page.stops {
                self.notifier.signals().send_within(Signal::Cancellations, SIGNALLED_WITHIN).await;
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
}

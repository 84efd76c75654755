//! Gathers events for the calls of a batch handler: each event joins the batch of its canvas, which
//! begins when it is full, when it has waited, or when nothing more can join it.
//!
//! An event gathers after its claim, within its own run: its lease, time-out and shutdown are those
//! of any run. Must never put events of two canvases into one call.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tracing::Instrument;

use super::batch::{Batch, BatchHandler, BoxedBatch};
use super::room::Room;
use super::route::{InvalidRoute, Route};
use crate::event::{CanvasId, Traceparent};
use crate::telemetry;
use crate::worker::answers::{Completion, HandlerError, HandlerResult, panic_message};
use crate::worker::cancellation::CancelReason;
use crate::worker::execution::{BoxedHandler, Execution};

/// The batches of one handler.
pub(super) struct Gatherer {
    run: BoxedBatch,
    batch: Batch,
    room: Arc<Room>,
    last_number: AtomicU64,
    /// By canvas. Those that have begun are no longer here.
    open: Mutex<HashMap<CanvasId, Gathering>>,
}

/// Events of one canvas that gather for a call.
struct Gathering {
    number: u64,
    members: Vec<Member>,
    bytes: usize,
    /// Passes the members to the task that waits for them, once there are enough.
    begins: oneshot::Sender<Vec<Member>>,
}

/// An event in a batch, and the run that waits for its result. The run leaves by ending: then its
/// receiver is gone.
struct Member {
    execution: Execution,
    answer: oneshot::Sender<Ended>,
}

/// How the call ended for one of its events.
enum Ended {
    Returned(HandlerResult<Completion>),
    Panicked(String),
}

impl Gatherer {
    /// The handler of each of a batch handler's events: one that joins a batch, and returns the
    /// event's part of the results.
    pub(super) fn joining(
        handler: BatchHandler,
        route: &Route,
        room: &Arc<Room>,
    ) -> Result<BoxedHandler, InvalidRoute> {
        let BatchHandler { batch, run } = handler;
        if let Some(fault) = batch.fault(route.timeout) {
            return Err(InvalidRoute::Batch(route.name.clone(), fault));
        }
        let max = batch.max.min(route.concurrency.unwrap_or(usize::MAX));
        let gatherer = Arc::new(Self {
            run,
            batch: Batch { max, ..batch },
            room: Arc::clone(room),
            last_number: AtomicU64::new(0),
            open: Mutex::default(),
        });
        Ok(Arc::new(move |execution: Execution| -> BoxFuture<'static, HandlerResult<Completion>> {
            Box::pin(Arc::clone(&gatherer).join(execution))
        }))
    }

    async fn join(self: Arc<Self>, execution: Execution) -> HandlerResult<Completion> {
        let (answer, answered) = oneshot::channel();
        self.add(Member { execution, answer });
        match answered.await {
            Ok(Ended::Returned(result)) => result,
            // It unwinds on here as it would from the handler of one event.
            Ok(Ended::Panicked(message)) => resume_unwind(Box::new(message)),
            // Only while the runtime ends.
            Err(_) => Err(HandlerError::operational("the batch was dropped before it ended")),
        }
    }

    fn add(self: &Arc<Self>, member: Member) {
        // If its process dies again, the others of its batch would have lost their workers as well.
        if self.room.is_suspect(member.execution.losses) {
            tokio::spawn(Arc::clone(self).call(vec![member]));
            return;
        }
        let (canvas, bytes) = (member.execution.address.scope.canvas, member.execution.json.len());
        let is_full = self.room.enter();
        {
            let mut open = self.open();
            let is_too_much = |gathering: &Gathering| gathering.bytes + bytes > self.batch.bytes_max;
            if open.get(&canvas).is_some_and(is_too_much) {
                begin(&mut open, canvas);
            }
            let gathering = open.entry(canvas).or_insert_with(|| self.gather(canvas));
            gathering.bytes += bytes;
            gathering.members.push(member);
            if gathering.members.len() >= self.batch.max || gathering.bytes >= self.batch.bytes_max {
                begin(&mut open, canvas);
            }
        }
        if is_full {
            self.room.close();
        }
    }

    /// Starts the task of a new batch.
    fn gather(self: &Arc<Self>, canvas: CanvasId) -> Gathering {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed);
        let (begins, begun) = oneshot::channel();
        tokio::spawn(Arc::clone(self).carry_out(canvas, number, begun, self.room.until_closed()));
        Gathering { number, members: Vec::new(), bytes: 0, begins }
    }

    /// Waits for the members of a batch, and calls the handler with them.
    async fn carry_out(
        self: Arc<Self>,
        canvas: CanvasId,
        number: u64,
        mut begun: oneshot::Receiver<Vec<Member>>,
        closed: impl Future<Output = ()>,
    ) {
        let complete = tokio::select! {
            biased;
            members = &mut begun => Some(members.unwrap_or_default()),
            _ = tokio::time::timeout(self.batch.wait, closed) => None,
        };
        let members = match complete.or_else(|| self.take(canvas, number)) {
            Some(members) => members,
            // It was completed in the same moment.
            None => begun.await.unwrap_or_default(),
        };
        self.room.leave(members.len());
        self.call(members).await;
    }

    /// Takes the members of a batch that has not begun.
    fn take(&self, canvas: CanvasId, number: u64) -> Option<Vec<Member>> {
        let mut open = self.open();
        open.get(&canvas).filter(|gathering| gathering.number == number)?;
        open.remove(&canvas).map(|gathering| gathering.members)
    }

    /// Calls the handler, as long as any member waits for its result.
    async fn call(self: Arc<Self>, members: Vec<Member>) {
        // Those that have ended meanwhile, by their time-out or their lease, run nothing, nor do
        // those that were cancelled.
        let stays = |member: &Member| {
            !member.answer.is_closed() && member.execution.cancel_reason() != Some(CancelReason::Cancelled)
        };
        let staying = members.into_iter().filter(stays);
        let (executions, mut answers): (Vec<Execution>, Vec<oneshot::Sender<Ended>>) =
            staying.map(|member| (member.execution, member.answer)).unzip();
        let Some(first) = executions.first() else { return };
        let events = executions.len();
        let span = telemetry::batch_span!(first.address, events);
        let trace = first.metadata.traceparent.clone().unwrap_or_else(Traceparent::root);
        // Created inside, so that a panic before the first await is caught as well.
        let running = async { (self.run)(executions).await };
        let running = telemetry::in_trace(trace, AssertUnwindSafe(running).catch_unwind()).instrument(span);
        let results = tokio::select! {
            biased;
            ended = running => results(ended, events),
            () = all_left(&mut answers) => return,
        };
        for (answer, result) in answers.into_iter().zip(results) {
            // A run that has left needs none.
            let _ = answer.send(result);
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<CanvasId, Gathering>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has a canvas's batch begin; the next event opens another.
fn begin(open: &mut HashMap<CanvasId, Gathering>, canvas: CanvasId) {
    if let Some(Gathering { members, begins, .. }) = open.remove(&canvas) {
        // Its task waits for them, unless the runtime ends.
        let _ = begins.send(members);
    }
}

/// Completes when no run waits for a result any longer.
async fn all_left(answers: &mut [oneshot::Sender<Ended>]) {
    for answer in answers {
        answer.closed().await;
    }
}

/// The result of each event of a call.
fn results(ended: std::thread::Result<Vec<HandlerResult<Completion>>>, events: usize) -> Vec<Ended> {
    match ended {
        Ok(results) if results.len() == events => results.into_iter().map(Ended::Returned).collect(),
        Ok(results) => {
            let words = format!(
                "the batch handler returned {} results for {events} events: it has to return one for each, \
                 in their order",
                results.len()
            );
            let failed = || Ended::Returned(Err(HandlerError::operational(&words)));
            std::iter::repeat_with(failed).take(events).collect()
        }
        Err(panic) => {
            let panicked = || Ended::Panicked(panic_message(panic.as_ref()).to_owned());
            std::iter::repeat_with(panicked).take(events).collect()
        }
    }
}

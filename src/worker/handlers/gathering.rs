//! Gathers events for the calls of a batch handler: each event joins the batch of its canvas, which
//! begins when it is full, when it has waited, or when nothing more can join it.
//!
//! An event gathers after its claim, within its own run: its lease, time-out and shutdown are those
//! of any run. Must never put events of two canvases into one call.

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{oneshot, watch};
use tracing::Instrument;

use super::batch::{Batch, BatchHandler, BoxedBatch};
use super::room::Room;
use super::route::{InvalidRoute, Route};
use crate::event::{CanvasId, HandlerScope, Traceparent};
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
        let (address, bytes) = (member.execution.address.clone(), member.execution.json.len());
        let canvas = address.scope.canvas;
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
            let events = gathering.members.len();
            let is_enough = events >= self.batch.max || gathering.bytes >= self.batch.bytes_max;
            if is_enough || self.room.is_share(&address, events) {
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
        let closed = (self.room.until_closed(), self.room.refusals());
        tokio::spawn(Arc::clone(self).carry_out(canvas, number, begun, closed));
        Gathering { number, members: Vec::new(), bytes: 0, begins }
    }

    /// Waits for the members of a batch, and calls the handler with them.
    async fn carry_out(
        self: Arc<Self>,
        canvas: CanvasId,
        number: u64,
        mut begun: oneshot::Receiver<Vec<Member>>,
        (closed, refusals): (impl Future<Output = ()>, watch::Receiver<()>),
    ) {
        let complete = tokio::select! {
            biased;
            members = &mut begun => Some(members.unwrap_or_default()),
            _ = tokio::time::timeout(self.batch.wait, closed) => None,
            () = self.until_share(canvas, number, refusals) => None,
        };
        let members = match complete.or_else(|| self.take(canvas, number)) {
            Some(members) => members,
            // It was completed in the same moment.
            None => begun.await.unwrap_or_default(),
        };
        self.room.leave(members.len());
        let members = self.unless_held(members).await;
        self.call(members).await;
    }

    /// Completes when a batch has all the places that its function may have: that can become so
    /// while it gathers, and another event is refused then.
    async fn until_share(&self, canvas: CanvasId, number: u64, mut refusals: watch::Receiver<()>) {
        while refusals.changed().await.is_ok() {
            let open = self.open();
            let Some(gathering) = open.get(&canvas).filter(|gathering| gathering.number == number) else {
                continue;
            };
            let last = gathering.members.last();
            if last.is_some_and(|last| self.room.is_share(&last.execution.address, gathering.members.len())) {
                return;
            }
        }
        std::future::pending().await
    }

    /// The members whose handler no rule holds by now: one may have been added while they gathered.
    /// The runs of the others end, as if they had not claimed their events.
    async fn unless_held(&self, members: Vec<Member>) -> Vec<Member> {
        let handlers: BTreeSet<HandlerScope> =
            members.iter().map(|member| member.execution.address.scope.clone()).collect();
        let mut held = BTreeSet::new();
        for handler in handlers {
            if self.room.is_held(&handler).await {
                held.insert(handler);
            }
        }
        let is_held = |member: &Member| held.contains(&member.execution.address.scope);
        let (mut leaving, staying): (Vec<Member>, Vec<Member>) = members.into_iter().partition(is_held);
        for member in &leaving {
            member.execution.hold_back();
        }
        for member in &mut leaving {
            // Before that its run must not see that its answer is dropped.
            member.answer.closed().await;
        }
        staying
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::event::{HandlerAddress, Name};
    use crate::worker::handlers::Handlers;
    use crate::worker::places::{PlaceKind, PlaceRequest, Places};

    const WAIT: Duration = Duration::from_secs(60);

    fn address(name: &str) -> HandlerAddress {
        let scope = HandlerScope::worker(CanvasId::DEFAULT, name).unwrap();
        HandlerAddress { scope, modifier: Name::no_modifier() }
    }

    /// The last places are for other handlers, so a batch with the others begins without them.
    #[tokio::test(start_paused = true)]
    async fn a_batch_with_all_places_of_a_slow_function_does_not_wait() {
        let places = Places::new(8, None, 0);
        let function = |name| PlaceRequest { address: address(name), kind: PlaceKind::Function };
        drop(places.try_take(&function("other")));
        let room = Room::new(places.clone(), None, 2, CancellationToken::new());
        let (sizes, mut calls) = tokio::sync::mpsc::channel(8);
        let handlers: Handlers = Handlers::new()
            .state(sizes)
            .on_batch(
                "rows",
                Batch { wait: WAIT, ..Batch::default() },
                async |sizes: tokio::sync::mpsc::Sender<usize>, events: Vec<Execution>| {
                    sizes.try_send(events.len()).unwrap();
                    Ok(())
                },
            )
            .into();
        let registry = handlers.registry(&room).unwrap();
        let handler = registry.find(&address("rows")).unwrap();
        let started = Instant::now();
        let mut runs = tokio::task::JoinSet::new();
        for _ in 0..7 {
            let place = places.try_take(&function("rows")).unwrap();
            let run =
                (handler.run)(Execution::new(address("rows"), "1", "2026-01-31T08:00:00Z".parse().unwrap()));
            runs.spawn(async move {
                run.await.unwrap();
                drop(place);
            });
        }
        // None has ended by then, so the function counts as slow.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(calls.try_recv().is_err());
        assert!(places.try_take(&function("rows")).is_none());
        assert_eq!(calls.recv().await, Some(7));
        runs.join_all().await;
        assert!(started.elapsed() < WAIT);
    }
}

//! Turns single requests into batches: the requests that wait while the previous statement is in
//! flight become the next one.
//!
//! At low load a request goes out at once, alone, also beside another; at high load hundreds share
//! a statement. Only requests that nothing waits for may linger for others.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::{Store, StoreError};

/// Maximum number of requests in one statement. The knee of the measured curve is at 100 to 500.
pub(crate) const BATCH_MAX: usize = 250;
/// How many statements of a kind are in flight at once.
pub(crate) const IN_FLIGHT: usize = 2;
/// Maximum number of waiting requests. Further ones are refused.
const WAITING_MAX: usize = 20_000;
/// How often a batch is halved because the server cancelled its statement, which may take seconds
/// each time: enough to get from the largest batch to one request.
const TOO_LONG_MAX: u32 = 8;
/// How often a single request that meets a lock is tried.
const CONTENTION_TRIES: u32 = 5;

/// How long a statement waits for another, to get all its requests: it may have met a lock.
const TOGETHER_WAIT: Duration = Duration::from_millis(5);
/// How often a task lets others run after a statement of several requests.
const YIELDS: usize = 4;

type WaitingRequest<Q, A> = (Q, oneshot::Sender<Result<A, StoreError>>);

/// How much goes into one statement.
struct BatchLimits<Q> {
    count_max: usize,
    bytes_max: usize,
    bytes: fn(&Q) -> usize,
    /// How long the first request waits for others.
    linger: Duration,
    /// How often other tasks may run before the batch begins.
    yields: usize,
}

/// A queue in front of a batched statement. Its tasks end when the last clone is dropped.
pub struct Coalescer<Q, A> {
    queue: mpsc::Sender<WaitingRequest<Q, A>>,
}

impl<Q, A> Clone for Coalescer<Q, A> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone() }
    }
}

impl<Q, A> Coalescer<Q, A>
where
    Q: Clone + Send + Sync + 'static,
    A: Send + 'static,
{
    /// Runs `statement` over batches of at most `batch_max` requests, `in_flight` batches at once.
    /// It answers every request, in their order.
    pub(crate) fn new<S, F>(batch_max: usize, in_flight: usize, statement: S) -> Self
    where
        S: Fn(Vec<Q>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Vec<A>, StoreError>> + Send + 'static,
    {
        Self::lingering(batch_max, Duration::ZERO, in_flight, statement)
    }

    /// As [`Coalescer::new`], but a batch that is not full waits this long for more requests.
    pub(crate) fn lingering<S, F>(batch_max: usize, linger: Duration, in_flight: usize, statement: S) -> Self
    where
        S: Fn(Vec<Q>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Vec<A>, StoreError>> + Send + 'static,
    {
        let batch = BatchLimits { linger, ..BatchLimits::of_count(batch_max) };
        Self::over(batch, in_flight, statement)
    }

    /// As [`Coalescer::new`], but a batch begins when other tasks have run: of those that were
    /// ready at the same time, none goes ahead alone.
    pub(crate) fn gathering<S, F>(batch_max: usize, in_flight: usize, statement: S) -> Self
    where
        S: Fn(Vec<Q>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Vec<A>, StoreError>> + Send + 'static,
    {
        let batch = BatchLimits { yields: YIELDS, ..BatchLimits::of_count(batch_max) };
        Self::over(batch, in_flight, statement)
    }

    /// As [`Coalescer::new`], with batches that end with the request that brings them to
    /// `bytes_max`.
    pub(crate) fn within<S, F>(
        (batch_max, bytes_max): (usize, usize),
        bytes: fn(&Q) -> usize,
        in_flight: usize,
        statement: S,
    ) -> Self
    where
        S: Fn(Vec<Q>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Vec<A>, StoreError>> + Send + 'static,
    {
        let batch = BatchLimits { bytes_max, bytes, ..BatchLimits::of_count(batch_max) };
        Self::over(batch, in_flight, statement)
    }

    fn over<S, F>(batch: BatchLimits<Q>, in_flight: usize, statement: S) -> Self
    where
        S: Fn(Vec<Q>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Vec<A>, StoreError>> + Send + 'static,
    {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        let (statement, batch) = (Arc::new(statement), Arc::new(batch));
        let flights = Arc::new(Flights::new(in_flight));
        for _ in 0..in_flight {
            let flights = Arc::clone(&flights);
            tokio::spawn(serve(Arc::clone(&waiting), Arc::clone(&statement), Arc::clone(&batch), flights));
        }
        Self { queue }
    }

    /// Waits for the answer of the batch that this request becomes part of.
    #[doc(hidden)]
    pub async fn call(&self, request: Q) -> Result<A, StoreError> {
        let (sender, answer) = oneshot::channel();
        self.queue.try_send((request, sender)).map_err(|_| StoreError::Overloaded)?;
        answer.await.map_err(|_| StoreError::Overloaded)?
    }
}

impl Store {
    /// A queue in front of a statement of this store.
    #[doc(hidden)]
    pub fn batched<Q, A, S, F>(&self, statement: S) -> Coalescer<Q, A>
    where
        Q: Clone + Send + Sync + 'static,
        A: Send + 'static,
        S: Fn(Self, Vec<Q>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Vec<A>, StoreError>> + Send + 'static,
    {
        let store = self.clone();
        Coalescer::new(BATCH_MAX, IN_FLIGHT, move |requests| statement(store.clone(), requests))
    }

    /// The same, as [`Coalescer::gathering`].
    pub(crate) fn gathered<Q, A, S, F>(&self, statement: S) -> Coalescer<Q, A>
    where
        Q: Clone + Send + Sync + 'static,
        A: Send + 'static,
        S: Fn(Self, Vec<Q>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Vec<A>, StoreError>> + Send + 'static,
    {
        let store = self.clone();
        Coalescer::gathering(BATCH_MAX, IN_FLIGHT, move |requests| statement(store.clone(), requests))
    }
}

async fn serve<Q, A, S, F>(
    waiting: Arc<Mutex<mpsc::Receiver<WaitingRequest<Q, A>>>>,
    statement: Arc<S>,
    batch: Arc<BatchLimits<Q>>,
    flights: Arc<Flights>,
) where
    Q: Clone,
    S: Fn(Vec<Q>) -> F,
    F: Future<Output = Result<Vec<A>, StoreError>>,
{
    let mut requests = Vec::new();
    loop {
        let mut queue = waiting.lock().await;
        let Some(first) = queue.recv().await else { return };
        let flight = flights.begin(1 + queue.len(), batch.count_max).await;
        requests.push(first);
        batch.fill(&mut requests, &mut queue).await;
        drop(queue);
        // Requests whose callers have left get no statement.
        requests.retain(|(_, sender)| !sender.is_closed());
        let shared = requests.len();
        answer(std::mem::take(&mut requests), statement.as_ref()).await;
        flights.end(shared).await;
        drop(flight);
    }
}

/// Which statements are in flight together: those of one request, and full ones. If requests wait
/// for each other anyway, one statement of all of them costs less than several.
struct Flights {
    permits: Semaphore,
    all: u32,
    /// Whether the last statement was of several requests.
    shared: AtomicBool,
}

impl Flights {
    fn new(in_flight: usize) -> Self {
        Self { permits: Semaphore::new(in_flight), all: in_flight as u32, shared: AtomicBool::new(false) }
    }

    /// Waits until a statement of this many requests may begin, as far as is known.
    async fn begin(&self, requests: usize, full: usize) -> Option<SemaphorePermit<'_>> {
        let is_alone = requests == 1 && !self.shared.load(Ordering::Relaxed);
        if !is_alone && requests < full {
            let all = self.permits.acquire_many(self.all);
            if let Ok(all) = timeout(TOGETHER_WAIT, all).await {
                return all.ok();
            }
        }
        self.permits.acquire().await.ok()
    }

    /// A statement of this many requests was answered. Its callers may have another request at
    /// once, which then shares the next statement.
    async fn end(&self, requests: usize) {
        self.shared.store(requests > 1, Ordering::Relaxed);
        if requests > 1 {
            for _ in 0..YIELDS {
                tokio::task::yield_now().await;
            }
        }
    }
}

impl<Q> BatchLimits<Q> {
    fn of_count(count_max: usize) -> Self {
        Self { count_max, bytes_max: usize::MAX, bytes: |_| 0, linger: Duration::ZERO, yields: 0 }
    }

    /// Adds waiting requests to the first one, and those that come while it may linger.
    async fn fill<A>(
        &self,
        requests: &mut Vec<WaitingRequest<Q, A>>,
        waiting: &mut mpsc::Receiver<WaitingRequest<Q, A>>,
    ) {
        for _ in 0..self.yields {
            tokio::task::yield_now().await;
        }
        let mut bytes: usize = requests.iter().map(|(request, _)| (self.bytes)(request)).sum();
        while requests.len() < self.count_max
            && bytes < self.bytes_max
            && let Ok(next) = waiting.try_recv()
        {
            bytes = bytes.saturating_add((self.bytes)(&next.0));
            requests.push(next);
        }
        if !self.linger.is_zero() {
            self.linger(requests, waiting).await;
        }
    }

    /// Takes requests until the batch is full or its time is over.
    async fn linger<A>(
        &self,
        requests: &mut Vec<WaitingRequest<Q, A>>,
        waiting: &mut mpsc::Receiver<WaitingRequest<Q, A>>,
    ) {
        let end = Instant::now() + self.linger;
        while requests.len() < self.count_max {
            let room = self.count_max - requests.len();
            match timeout_at(end, waiting.recv_many(requests, room)).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

/// Runs a batch. If a row's data, a lock or the time that it takes spoils it, it is halved until
/// the bad row stands alone. Each part is answered at once: claimed events must not wait for a lock
/// that another row met.
async fn answer<Q, A, S, F>(batch: Vec<WaitingRequest<Q, A>>, statement: &S)
where
    Q: Clone,
    S: Fn(Vec<Q>) -> F,
    F: Future<Output = Result<Vec<A>, StoreError>>,
{
    let (mut todo, mut too_long) = (VecDeque::from([(batch, 1)]), 0);
    while let Some((mut part, tries)) = todo.pop_front() {
        if part.is_empty() {
            continue;
        }
        let requests = part.iter().map(|(request, _)| request.clone()).collect();
        // A panic in a statement must not end the task that serves all callers.
        let answered = AssertUnwindSafe(async { statement(requests).await }).catch_unwind().await;
        match answered.unwrap_or(Err(StoreError::Defect)) {
            Ok(answers) => {
                for ((_, sender), answer) in part.into_iter().zip(answers) {
                    // The caller may have left meanwhile; its request took effect all the same.
                    let _ = sender.send(Ok(answer));
                }
            }
            Err(error) if part.len() > 1 && (error.is_contention() || error.is_data()) => {
                let second = part.split_off(part.len() / 2);
                todo.extend([(part, tries), (second, tries)]);
            }
            Err(error) if part.len() > 1 && error.is_too_long() && too_long < TOO_LONG_MAX => {
                too_long += 1;
                let second = part.split_off(part.len() / 2);
                todo.extend([(part, tries), (second, tries)]);
            }
            // To the back of the queue: the others should not wait for it.
            Err(error) if error.is_contention() && tries < CONTENTION_TRIES => {
                todo.push_back((part, tries + 1))
            }
            Err(error) => part.into_iter().for_each(|(_, sender)| drop(sender.send(Err(error.clone())))),
        }
    }
}

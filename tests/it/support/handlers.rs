//! Handlers that tests observe and hold: one that reports, one that waits behind a door.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use wakeq::{Execution, HandlerError, HandlerResult};

use super::TIMEOUT;

/// More than any test makes happen.
const MANY: usize = 100_000;

/// What a handler did, in order.
pub(crate) struct Recording<T>(mpsc::Receiver<T>);

impl<T> Recording<T> {
    pub(crate) async fn next(&mut self) -> T {
        let next = tokio::time::timeout(TIMEOUT, self.0.recv()).await;
        next.expect("it did not happen in time").expect("nothing is left that could tell")
    }

    pub(crate) async fn take(&mut self, count: usize) -> Vec<T> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            taken.push(self.next().await);
        }
        taken
    }

    /// What has happened so far and was not read.
    pub(crate) fn rest(&mut self) -> Vec<T> {
        std::iter::from_fn(|| self.0.try_recv().ok()).collect()
    }
}

type Boxed = BoxFuture<'static, HandlerResult>;

/// A handler that reports each execution and returns the given answer.
pub(crate) fn answering<F>(
    answer: F,
) -> (impl Fn(Execution) -> Boxed + Send + Sync + Clone + 'static, Recording<Execution>)
where
    F: Fn(&Execution) -> HandlerResult + Send + Sync + Clone + 'static,
{
    let (sender, seen) = mpsc::channel(MANY);
    let handler = move |event: Execution| -> Boxed {
        let answer = answer(&event);
        let _ = sender.try_send(event);
        Box::pin(async { answer })
    };
    (handler, Recording(seen))
}

/// A handler that reports what `work` returns for each execution, and completes.
pub(crate) fn reporting<T, W, R>(
    work: W,
) -> (impl Fn(Execution) -> Boxed + Send + Sync + Clone + 'static, Recording<T>)
where
    T: Send + 'static,
    W: Fn(Execution) -> R + Send + Sync + Clone + 'static,
    R: Future<Output = Result<T, HandlerError>> + Send + 'static,
{
    let (sender, seen) = mpsc::channel(MANY);
    let handler = move |event: Execution| -> Boxed {
        let (sender, work) = (sender.clone(), work(event));
        Box::pin(async move {
            let _ = sender.try_send(work.await?);
            Ok(())
        })
    };
    (handler, Recording(seen))
}

/// A handler that reports each execution and completes.
pub(crate) fn recording()
-> (impl Fn(Execution) -> Boxed + Send + Sync + Clone + 'static, Recording<Execution>) {
    answering(|_| Ok(()))
}

/// Executions wait behind it until the test lets them out.
pub(crate) struct Door {
    /// Executions that arrived.
    pub(crate) arrived: Recording<Execution>,
    /// Executions that ended: `true` if the door was opened for them, `false` if they were dropped.
    pub(crate) left: Recording<bool>,
    verdicts: mpsc::Sender<HandlerResult>,
    most: Arc<AtomicUsize>,
}

impl Door {
    pub(crate) fn new() -> (impl Fn(Execution) -> Boxed + Send + Sync + Clone + 'static, Self) {
        let (arrive, arrived) = mpsc::channel(MANY);
        let (leave, left) = mpsc::channel(MANY);
        let (verdicts, taken) = mpsc::channel::<HandlerResult>(MANY);
        let taken = Arc::new(tokio::sync::Mutex::new(taken));
        let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let door =
            Self { arrived: Recording(arrived), left: Recording(left), verdicts, most: Arc::clone(&most) };
        let handler = move |event: Execution| -> Boxed {
            let (arrive, taken) = (arrive.clone(), Arc::clone(&taken));
            let mut visit = Visit { inside: Arc::clone(&inside), leave: leave.clone(), let_out: false };
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            Box::pin(async move {
                let _ = arrive.try_send(event);
                let verdict = taken.lock().await.recv().await;
                visit.is_let_out();
                verdict.unwrap_or_else(|| Err(HandlerError::operational("the test has ended")))
            })
        };
        (handler, door)
    }

    /// Lets this many executions complete.
    pub(crate) fn open(&self, count: usize) {
        (0..count).for_each(|_| self.answer(Ok(())));
    }

    /// Lets one execution end like this.
    pub(crate) fn answer(&self, verdict: HandlerResult) {
        let _ = self.verdicts.try_send(verdict);
    }

    /// The most executions that were inside at the same time.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

struct Visit {
    inside: Arc<AtomicUsize>,
    leave: mpsc::Sender<bool>,
    let_out: bool,
}

impl Visit {
    fn is_let_out(&mut self) {
        self.let_out = true;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
        let _ = self.leave.try_send(self.let_out);
    }
}

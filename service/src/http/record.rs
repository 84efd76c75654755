//! Gathers audit log entries that belong to no change: refusals, sign-ins, listeners and reads of
//! values. Equal ones are counted, and all are written now and then, so that a caller in a loop
//! costs neither a statement nor a row per request, and no line of the process's log.

mod batch;
mod line;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use batch::{Added, Batch, STRANGER};
pub(super) use line::{Line, shown};
use wakeq::control::AuditOutcome;
use wakeq::internals::AuditLine;
use wakeq::{Admin, AdminError, CanvasId, StoreError};

/// How long refusals, sign-ins and listeners are gathered before they are written.
const SOON: Duration = Duration::from_secs(5);
/// How long reads are gathered.
const LATER: Duration = Duration::from_secs(300);
/// A credential that is used again within this time does not count as a new sign-in.
const SESSION: Duration = Duration::from_secs(3600);
/// Maximum number of sign-ins remembered; beyond it, some are recorded again.
const SESSIONS_MAX: usize = 10_000;

/// Marks an answer whose reading is recorded: it is for its caller alone.
#[derive(Clone, Copy)]
pub(super) struct Recorded;

/// Marks a request of a person for what was recorded a moment ago that the same person reads.
#[derive(Clone, Copy)]
pub(super) struct ReadBefore;

/// When the sign-in of each credential on each canvas was last recorded.
type Sessions = HashMap<(Arc<str>, Option<CanvasId>), Instant>;

/// Audit log entries that are not written yet. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AuditBuffer {
    soon: BatchWriter,
    later: BatchWriter,
    sessions: Arc<Mutex<Sessions>>,
}

impl AuditBuffer {
    /// Must be called inside a tokio runtime.
    pub(crate) fn start(admin: &Admin) -> Self {
        let writer = |period| BatchWriter::start(admin.clone(), period);
        Self { soon: writer(SOON), later: writer(LATER), sessions: Arc::default() }
    }

    /// Records that a request was refused. The process's log has the first of equal ones, and their
    /// number when they are written.
    pub(super) fn record_refusal(&self, line: Line, request: &str) {
        if self.soon.add(line.clone(), request) == Added::New {
            let (actor, client) = (line.actor.as_deref().unwrap_or(STRANGER), line.client.0);
            let (canvas, reason) =
                (line.canvas.unwrap_or_default(), line.reason.as_deref().unwrap_or_default());
            tracing::info!(%canvas, actor, %client, action = %line.action, reason, "refused");
        }
    }

    /// Records that a caller listens.
    pub(super) fn record_listening(&self, line: Line, request: &str) {
        self.soon.add(line, request);
    }

    /// Records that values were read.
    pub(super) fn record_read(&self, line: Line, request: &str) {
        self.later.add(line, request);
    }

    /// Records that a credential was accepted, unless that was recorded for the same canvas within
    /// the last hour.
    pub(super) fn record_sign_in(
        &self,
        credential: &Arc<str>,
        canvas: Option<CanvasId>,
        request: &str,
        line: impl FnOnce() -> Line,
    ) {
        if !self.is_new(credential, canvas) {
            return;
        }
        let line = line();
        let (actor, client) = (line.actor.as_deref().unwrap_or(STRANGER), line.client.0);
        tracing::info!(canvas = %line.canvas.unwrap_or_default(), actor, %client, "signed in");
        self.soon.add(line, request);
    }

    fn is_new(&self, credential: &Arc<str>, canvas: Option<CanvasId>) -> bool {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_known = |at: &Instant| now - *at < SESSION;
        let session = (Arc::clone(credential), canvas);
        if sessions.get(&session).is_some_and(is_known) {
            return false;
        }
        if sessions.len() >= SESSIONS_MAX {
            sessions.retain(|_, at| is_known(at));
            if sessions.len() >= SESSIONS_MAX {
                sessions.clear();
            }
        }
        sessions.insert(session, now);
        true
    }

    /// Writes what is gathered, and stops.
    pub(crate) async fn finish(&self) {
        self.soon.finish().await;
        self.later.finish().await;
    }
}

/// Gathers lines for a while, and writes them.
#[derive(Clone)]
struct BatchWriter {
    shared: Arc<Shared>,
    writing: Arc<Mutex<Option<AbortOnDropHandle<()>>>>,
    stop: CancellationToken,
}

struct Shared {
    period: Duration,
    batch: Mutex<Batch>,
    some: Notify,
}

impl BatchWriter {
    fn start(admin: Admin, period: Duration) -> Self {
        let shared = Arc::new(Shared { period, batch: Mutex::default(), some: Notify::new() });
        let stop = CancellationToken::new();
        let writing = tokio::spawn(write(Arc::clone(&shared), admin, stop.clone()));
        Self { shared, writing: Arc::new(Mutex::new(Some(AbortOnDropHandle::new(writing)))), stop }
    }

    fn add(&self, line: Line, request: &str) -> Added {
        let added = self.shared.batch.lock().unwrap_or_else(PoisonError::into_inner).add(line, request);
        self.shared.some.notify_one();
        added
    }

    async fn finish(&self) {
        self.stop.cancel();
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writing) = writing
            && let Err(defect) = writing.await
        {
            tracing::error!(error = &defect as &dyn std::error::Error, "the record could not be written");
        }
    }
}

/// Logs refusals and missing lines that were not logged call by call.
fn report(note: &AuditLine) {
    let (canvas, actor, times) = (note.canvas.unwrap_or_default(), note.actor.name(), note.times);
    if note.action == batch::NOT_RECORDED {
        tracing::warn!(%canvas, times, "the share of a canvas in the audit log is used up: calls are missing");
    } else if note.outcome == AuditOutcome::Refused && times > 1 {
        tracing::info!(%canvas, actor, action = note.action, times, "refused several times");
    }
}

/// The lines; or, if the audit log of the canvas is full, one that says how many there were.
async fn admitted(admin: &Admin, canvas: Option<CanvasId>, lines: Vec<AuditLine>) -> Vec<AuditLine> {
    let Some(known) = canvas else { return lines };
    let count = u64::try_from(lines.len()).unwrap_or(u64::MAX);
    match admin.admit_lines(known, count).await {
        Err(AdminError::Store(StoreError::Quota(_))) => vec![batch::instead_of(canvas, &lines)],
        // If the room can't be measured, the lines are written.
        Ok(()) | Err(_) => lines,
    }
}

async fn write(shared: Arc<Shared>, admin: Admin, stop: CancellationToken) {
    loop {
        let stopped = stop.run_until_cancelled(shared.some.notified()).await.is_none()
            || stop.run_until_cancelled(tokio::time::sleep(shared.period)).await.is_none();
        let batch = std::mem::take(&mut *shared.batch.lock().unwrap_or_else(PoisonError::into_inner));
        let mut notes = Vec::new();
        for (canvas, lines) in batch.into_lines() {
            notes.extend(admitted(&admin, canvas, lines).await);
        }
        notes.iter().for_each(report);
        if !notes.is_empty()
            && let Err(error) = admin.note(&notes).await
        {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, lines = notes.len(), "lines are missing from the record");
        }
        if stopped {
            return;
        }
    }
}

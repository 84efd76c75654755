//! Gathers audit log entries that belong to no change: refusals, sign-ins, listeners and reads of
//! values. Equal ones are counted, and all are written now and then, so that a caller in a loop
//! costs neither a statement nor a row per request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::client::Client;
use wakeq::control::AuditOutcome;
use wakeq::internals::AuditLine;
use wakeq::{Actor, Admin, CanvasId, HandlerScope};

/// How long refusals, sign-ins and listeners are gathered before they are written.
const SOON: Duration = Duration::from_secs(5);
/// How long reads are gathered.
const LATER: Duration = Duration::from_secs(300);
/// Maximum number of different lines gathered about identified callers; more are only logged.
const LINES_MAX: usize = 200;
/// Maximum number of them per caller, so that no caller crowds out the others.
const LINES_PER_CALLER_MAX: usize = 10;
/// Maximum number of lines about unidentified callers: they can neither crowd out the others nor
/// fill the audit log.
const STRANGER_LINES_MAX: usize = 50;
/// Maximum number of those per client address, and per canvas, so that the noise of one hides no
/// other.
const LINES_PER_ADDRESS_MAX: usize = 5;
const LINES_PER_CANVAS_MAX: usize = 10;
/// The logged name of an unidentified caller.
const STRANGER: &str = "unauthenticated";
/// A credential that is used again within this time does not count as a new sign-in.
const SESSION: Duration = Duration::from_secs(3600);
/// Maximum number of sign-ins remembered; beyond it, some are recorded again.
const SESSIONS_MAX: usize = 10_000;

/// When the sign-in of each credential on each canvas was last recorded.
type Sessions = HashMap<(Arc<str>, Option<CanvasId>), Instant>;

/// Audit log entries that are not written yet. Cheap to clone.
#[derive(Clone)]
pub(super) struct AuditBuffer {
    soon: BatchWriter,
    later: BatchWriter,
    sessions: Arc<Mutex<Sessions>>,
}

/// What happened, to whom, and why. Equal lines are counted as one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Line {
    pub(super) outcome: AuditOutcome,
    /// `None` means every canvas.
    pub(super) canvas: Option<CanvasId>,
    /// The caller's name, if it was identified.
    pub(super) actor: Option<String>,
    /// The public part of its credential, if it has one.
    pub(super) credential: Option<String>,
    pub(super) client: Client,
    /// The operation's name in the OpenAPI document, or `sign-in`.
    pub(super) action: Arc<str>,
    pub(super) scope: Option<HandlerScope>,
    /// Why it was refused.
    pub(super) reason: Option<String>,
}

impl AuditBuffer {
    /// Must be called inside a tokio runtime.
    pub(super) fn start(admin: &Admin) -> Self {
        let writer = |period| BatchWriter::start(admin.clone(), period);
        Self { soon: writer(SOON), later: writer(LATER), sessions: Arc::default() }
    }

    /// Records that a request was refused.
    pub(super) fn refused(&self, line: Line, request: &str) {
        let (actor, client) = (line.actor.as_deref().unwrap_or(STRANGER), line.client.0);
        let (canvas, reason) = (line.canvas.unwrap_or_default(), line.reason.as_deref().unwrap_or_default());
        tracing::info!(%canvas, actor, %client, action = %line.action, reason, "refused");
        self.soon.add(line, request);
    }

    /// Records that a caller listens.
    pub(super) fn listens(&self, line: Line, request: &str) {
        self.soon.add(line, request);
    }

    /// Records that values were read.
    pub(super) fn read(&self, line: Line, request: &str) {
        self.later.add(line, request);
    }

    /// Records that a credential was accepted, unless that was recorded for the same canvas within
    /// the last hour.
    pub(super) fn signed_in(
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
    pub(super) async fn finish(&self) {
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

#[derive(Default)]
struct Batch {
    rows: HashMap<Line, Row>,
}

struct Row {
    times: u32,
    /// The first of the requests.
    request: String,
}

impl Batch {
    /// Adds a line, unless a limit is reached; returns whether it was added.
    fn add(&mut self, line: Line, request: &str) -> bool {
        if let Some(row) = self.rows.get_mut(&line) {
            row.times = row.times.saturating_add(1);
            return true;
        }
        let count = |same: &dyn Fn(&Line) -> bool| {
            self.rows.keys().filter(|row| row.actor.is_some() == line.actor.is_some() && same(row)).count()
        };
        let network: IpAddr = line.client.network();
        let is_full = match line.actor {
            None => {
                count(&|_| true) >= STRANGER_LINES_MAX
                    || count(&|row| row.client.network() == network) >= LINES_PER_ADDRESS_MAX
                    || count(&|row| row.canvas == line.canvas) >= LINES_PER_CANVAS_MAX
            }
            Some(_) => {
                count(&|_| true) >= LINES_MAX || count(&|row| row.actor == line.actor) >= LINES_PER_CALLER_MAX
            }
        };
        if is_full {
            return false;
        }
        self.rows.insert(line, Row { times: 1, request: request.to_owned() });
        true
    }

    fn into_notes(self) -> Vec<AuditLine> {
        self.rows.into_iter().map(|(line, row)| audit_line(line, &row)).collect()
    }
}

fn audit_line(line: Line, row: &Row) -> AuditLine {
    let actor = Actor::user(line.actor.as_deref().unwrap_or(STRANGER)).request(&row.request);
    AuditLine {
        outcome: line.outcome,
        canvas: line.canvas,
        actor: actor.credential(&shown(line.credential.as_deref(), line.client)),
        action: line.action.to_string(),
        scope: line.scope,
        event: None,
        detail: line.reason,
        times: row.times,
    }
}

/// The beginning of an entry's detail: the credential and the client address.
pub(super) fn shown(credential: Option<&str>, client: Client) -> String {
    match credential {
        Some(credential) => format!("{credential} from {}", client.0),
        None => format!("from {}", client.0),
    }
}

impl BatchWriter {
    fn start(admin: Admin, period: Duration) -> Self {
        let shared = Arc::new(Shared { period, batch: Mutex::default(), some: Notify::new() });
        let stop = CancellationToken::new();
        let writing = tokio::spawn(write(Arc::clone(&shared), admin, stop.clone()));
        Self { shared, writing: Arc::new(Mutex::new(Some(AbortOnDropHandle::new(writing)))), stop }
    }

    fn add(&self, line: Line, request: &str) {
        let added = self.shared.batch.lock().unwrap_or_else(PoisonError::into_inner).add(line, request);
        if added {
            self.shared.some.notify_one();
        }
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

async fn write(shared: Arc<Shared>, admin: Admin, stop: CancellationToken) {
    loop {
        let stopped = stop.run_until_cancelled(shared.some.notified()).await.is_none()
            || stop.run_until_cancelled(tokio::time::sleep(shared.period)).await.is_none();
        let batch = std::mem::take(&mut *shared.batch.lock().unwrap_or_else(PoisonError::into_inner));
        let notes = batch.into_notes();
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

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn client(last: u8) -> Client {
        Client(IpAddr::from([203, 0, 113, last]))
    }

    fn refused(actor: Option<&str>, canvas: u128, from: u8, action: String) -> Line {
        let actor = actor.map(str::to_owned);
        let credential = actor.is_some().then(|| "with wakeq_0123456789ab".to_owned());
        Line {
            outcome: AuditOutcome::Refused,
            canvas: Some(CanvasId(Uuid::from_u128(canvas))),
            actor,
            credential,
            client: client(from),
            action: action.into(),
            scope: None,
            reason: Some("because".into()),
        }
    }

    #[test]
    fn equal_refusals_are_counted_and_the_rest_is_bounded() {
        let mut batch = Batch::default();
        for actor in 0..100 {
            let name = format!("key:{actor:02}");
            for index in 0..20 {
                batch.add(refused(Some(&name), 1, 1, format!("known-{index}")), "r");
            }
        }
        for request in ["first", "second", "third"] {
            assert!(batch.add(refused(Some("key:00"), 1, 1, "known-7".into()), request));
        }
        let notes = batch.into_notes();
        assert_eq!(notes.len(), LINES_MAX);
        let of = |name| notes.iter().filter(move |note| note.actor.name() == name);
        assert_eq!(
            (of("key:00").count(), of("key:19").count(), of("key:20").count()),
            (LINES_PER_CALLER_MAX, LINES_PER_CALLER_MAX, 0)
        );
        let seven = of("key:00").find(|note| note.action == "known-7").unwrap();
        assert_eq!((seven.times, seven.actor.request_id()), (4, Some("r")));
        assert_eq!(seven.actor.credential_id(), Some("with wakeq_0123456789ab from 203.0.113.1"));
    }

    /// One address tries a thousand keys on a canvas; other addresses and other canvases are still
    /// recorded.
    #[test]
    fn refusals_of_one_address_do_not_hide_others() {
        let mut batch = Batch::default();
        for index in 0..1000 {
            batch.add(refused(None, 1, 1, format!("noise-{index}")), "r");
        }
        assert_eq!(batch.rows.len(), LINES_PER_ADDRESS_MAX);
        assert!(batch.add(refused(None, 1, 2, "probe".into()), "r"), "from elsewhere");
        for address in 3..100 {
            batch.add(refused(None, 1, address, format!("noise-{address}")), "r");
        }
        assert_eq!(batch.rows.len(), LINES_PER_CANVAS_MAX);
        assert!(batch.add(refused(None, 2, 2, "probe".into()), "r"), "of another canvas");
        for canvas in 3..100 {
            batch.add(refused(None, canvas, canvas as u8, "noise".into()), "r");
        }
        assert_eq!(batch.rows.len(), STRANGER_LINES_MAX);
        assert!(batch.add(refused(Some("key:a"), 1, 1, "known".into()), "r"), "known callers have room");
    }
}

//! Refusals on their way into the record: gathered, counted, and written a few times a minute, so that whoever knocks
//! without end costs neither a statement nor a row a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::admin::Admin;
use crate::event::{Actor, CanvasId, HandlerScope};
use crate::store::Refusal;

/// How long refusals are gathered before they are written.
const GATHERED: Duration = Duration::from_secs(5);
/// Most different refusals that are gathered; more are only logged.
const DIFFERENT: usize = 50;
/// As many of them may be of callers whom nobody knows: they can't crowd out the others, nor fill the record.
const STRANGERS: usize = 5;
/// As many may be of one caller, so that nobody crowds out the others.
const ONE_CALLERS: usize = 10;
/// Who asks when nobody knows.
const STRANGER: &str = "unauthenticated";

/// Gathers refusals. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Refusals {
    shared: Arc<Shared>,
    writing: Arc<Mutex<Option<AbortOnDropHandle<()>>>>,
    stop: CancellationToken,
}

#[derive(Default)]
struct Shared {
    gathered: Mutex<Gathered>,
    some: Notify,
}

/// What was refused to whom, and why. Two of the same are one that happened twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Refused {
    pub(super) canvas: CanvasId,
    /// The name of who asked; none if that is not known.
    pub(super) actor: Option<String>,
    /// The public part of what they showed, if that has one.
    pub(super) credential: Option<String>,
    /// The operation's name in the document.
    pub(super) action: Arc<str>,
    pub(super) scope: Option<HandlerScope>,
    pub(super) reason: String,
}

#[derive(Default)]
struct Gathered {
    rows: HashMap<Refused, Row>,
    strangers: usize,
}

struct Row {
    times: u32,
    /// The first request of them.
    request: String,
}

impl Gathered {
    /// Whether there was room for it.
    fn add(&mut self, refused: Refused, request: &str) -> bool {
        if let Some(row) = self.rows.get_mut(&refused) {
            row.times = row.times.saturating_add(1);
            return true;
        }
        let stranger = refused.actor.is_none();
        let is_full = match stranger {
            true => self.strangers >= STRANGERS,
            false => {
                self.rows.len() - self.strangers >= DIFFERENT
                    || self.rows.keys().filter(|row| row.actor == refused.actor).count() >= ONE_CALLERS
            }
        };
        if is_full {
            return false;
        }
        self.strangers += usize::from(stranger);
        self.rows.insert(refused, Row { times: 1, request: request.to_owned() });
        true
    }

    fn into_refusals(self) -> Vec<Refusal> {
        self.rows.into_iter().map(|(refused, row)| refusal(refused, &row)).collect()
    }
}

fn refusal(refused: Refused, row: &Row) -> Refusal {
    let actor = Actor::user(refused.actor.as_deref().unwrap_or(STRANGER)).request(&row.request);
    Refusal {
        canvas: refused.canvas,
        actor: match &refused.credential {
            Some(shown) => actor.credential(shown),
            None => actor,
        },
        action: refused.action.to_string(),
        scope: refused.scope,
        event: None,
        detail: Some(refused.reason),
        times: row.times,
    }
}

impl Refusals {
    /// Must be called inside a tokio runtime.
    pub(super) fn start(admin: Admin) -> Self {
        let (shared, stop) = (Arc::<Shared>::default(), CancellationToken::new());
        let writing = tokio::spawn(write(Arc::clone(&shared), admin, stop.clone()));
        Self { shared, writing: Arc::new(Mutex::new(Some(AbortOnDropHandle::new(writing)))), stop }
    }

    /// Notes that a request was refused.
    pub(super) fn note(&self, refused: Refused, request: &str) {
        let actor = refused.actor.as_deref().unwrap_or(STRANGER);
        tracing::info!(canvas = %refused.canvas, actor, action = %refused.action, reason = refused.reason, "refused");
        let noted = self.shared.gathered.lock().unwrap_or_else(PoisonError::into_inner).add(refused, request);
        if noted {
            self.shared.some.notify_one();
        }
    }

    /// Writes what is gathered, and ends.
    pub(super) async fn finish(&self) {
        self.stop.cancel();
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writing) = writing
            && let Err(defect) = writing.await
        {
            tracing::error!(error = &defect as &dyn std::error::Error, "refusals could not be written");
        }
    }
}

async fn write(shared: Arc<Shared>, admin: Admin, stop: CancellationToken) {
    loop {
        let stopped = stop.run_until_cancelled(shared.some.notified()).await.is_none()
            || stop.run_until_cancelled(tokio::time::sleep(GATHERED)).await.is_none();
        let gathered = std::mem::take(&mut *shared.gathered.lock().unwrap_or_else(PoisonError::into_inner));
        let refusals = gathered.into_refusals();
        if !refusals.is_empty()
            && let Err(error) = admin.refused(&refusals).await
        {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, refusals = refusals.len(), "refusals are missing from the record");
        }
        if stopped {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(actor: Option<&str>, action: String) -> Refused {
        let (canvas, actor) = (CanvasId::DEFAULT, actor.map(str::to_owned));
        let credential = actor.is_some().then(|| "with wakeq_0123456789ab".to_owned());
        Refused { canvas, actor, credential, action: action.into(), scope: None, reason: "because".into() }
    }

    #[test]
    fn the_same_is_counted_and_the_rest_is_bounded() {
        let mut gathered = Gathered::default();
        for index in 0..1000 {
            gathered.add(refused(None, format!("stranger-{index}")), "r");
        }
        for (actor, index) in ["key:a", "key:b", "key:c", "key:d", "key:e", "key:f"]
            .into_iter()
            .flat_map(|actor| (0..100).map(move |index| (actor, index)))
        {
            gathered.add(refused(Some(actor), format!("known-{index}")), "r");
        }
        for request in ["first", "second", "third"] {
            assert!(gathered.add(refused(Some("key:a"), "known-7".into()), request));
        }
        let refusals = gathered.into_refusals();
        assert_eq!(refusals.len(), STRANGERS + DIFFERENT);
        let of = |name| refusals.iter().filter(move |refusal| refusal.actor.name() == name);
        assert_eq!(
            (of("key:a").count(), of("key:e").count(), of("key:f").count()),
            (ONE_CALLERS, ONE_CALLERS, 0)
        );
        let seven = of("key:a").find(|refusal| refusal.action == "known-7").unwrap();
        assert_eq!((seven.times, seven.actor.request_id()), (4, Some("r")));
        assert_eq!(of(STRANGER).count(), STRANGERS);
    }
}

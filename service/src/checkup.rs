//! Gathers facts about the database and has the doctor judge them: for `wakeq doctor`, and for
//! those who ask a process over HTTP.
//!
//! Changes nothing, and goes on if something can't be looked at.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::doctor::{self, Finding};
use crate::store::ServiceStore;
use crate::store::checkup::{Right, Server};
use wakeq::database::RoleKind;
use wakeq::{Store, StoreError, Timestamp, Timing};

/// How long transactions may be open by default before they are reported.
pub(crate) const OPEN_FOR: Duration = Duration::from_secs(600);
/// How old the findings of a process may be.
const FRESH: Duration = Duration::from_secs(60);
/// How long a process may gather them. Each statement has a limit of its own.
const WITHIN: Duration = Duration::from_secs(20);

/// A look at a database.
pub(crate) struct Examination<'s> {
    pub(crate) store: &'s ServiceStore,
    /// What only the settings of a command tell. Without them, the checks that need them are left
    /// out.
    pub(crate) settings: Option<CommandSettings>,
    /// Transactions open for at least this long are reported.
    pub(crate) open_for: Duration,
    /// An error in words.
    pub(crate) words: fn(&StoreError) -> String,
}

/// What a command is told about the database.
pub(crate) struct CommandSettings {
    /// Whether Postgres is the notifier.
    pub(crate) notifies: bool,
    /// Whether a pooler in transaction mode was announced.
    pub(crate) has_pooler: bool,
    /// Whether a server that may lose commits is allowed.
    pub(crate) allows_unsafe: bool,
    /// The durations that a process would have, if the deployment's are known.
    pub(crate) timing: Option<Timing>,
}

impl Examination<'_> {
    /// The findings, in the order in which to mend them.
    pub(crate) async fn findings(&self) -> Vec<Finding> {
        let before = Timestamp::from(SystemTime::now());
        let server = match self.store.server().await {
            Ok(server) => server,
            Err(error) => return vec![self.not_checked("database", &error)],
        };
        let after = Timestamp::from(SystemTime::now());
        let mut findings = doctor::server(&server);
        if let Some(settings) = &self.settings {
            findings.push(doctor::connections(&server, settings.notifies, settings.has_pooler));
        }
        findings.push(doctor::route(&self.store.route()));
        findings.push(doctor::clock(server.clock, before, after));
        if let Some(settings) = &self.settings {
            findings.push(self.pooler(&server, settings.has_pooler).await);
        }
        // A process that runs on a server that may lose commits was allowed to.
        let allows_unsafe = self.settings.as_ref().is_none_or(|settings| settings.allows_unsafe);
        match self.store.settings().await {
            Ok(settings) => findings.extend(doctor::settings(&settings, allows_unsafe)),
            Err(error) => findings.push(self.not_checked("durability", &error)),
        }
        findings.extend(self.of_schema(&server).await);
        findings.extend(self.of_work().await);
        findings.extend(self.of_sessions(&server).await);
        findings
    }

    /// Whether the schema, the rights on it and its secrets are as they should be.
    async fn of_schema(&self, server: &Server) -> Vec<Finding> {
        let store = self.store;
        let migrations = store.migration_differences().await;
        let standing = store.standing_timing().await;
        let ours = match &self.settings {
            Some(settings) => settings.timing.clone(),
            None => Some(store.timing().clone()),
        };
        let (powers, strangers) = (store.role_powers().await, store.strangers().await);
        let (secrets, own) = (store.secret_counts().await, store.own_deployment().await);
        vec![
            self.judged("migrations", migrations, |found| doctor::migrations(&found)),
            self.judged("durations", standing, |standing| {
                doctor::durations(standing.as_ref(), ours.as_ref())
            }),
            self.judged("rights", self.missing_rights().await, |missing| {
                doctor::rights(&missing, &server.role)
            }),
            self.judged("role", powers, |powers| doctor::role(powers, &server.role)),
            self.judged("other roles", strangers, |strangers| doctor::strangers(&strangers)),
            self.judged("signing secrets", secrets, |counts| doctor::secrets(store.secret_keys(), &counts)),
            self.judged("own origins", own, |own| doctor::own_names(&own)),
        ]
    }

    /// Whether events are woken and run.
    async fn of_work(&self) -> Vec<Finding> {
        let store = self.store;
        let standing = store.standing_timing().await.ok().flatten();
        let period = standing.map_or(store.timing().probe_period, |standing| standing.probe_period);
        let mut findings = match store.chores(doctor::overdue_after(period)).await {
            Ok(chores) => doctor::chores(&chores, period),
            Err(error) => vec![self.not_checked("minute's pass", &error)],
        };
        let unknown = store.unknown_handlers(doctor::UNKNOWN_WITHIN).await;
        findings.push(self.judged("handlers", unknown, |unknown| doctor::unknown_handlers(&unknown)));
        let workers = store.release_workers(doctor::lost_after(period)).await;
        findings.push(self.judged("workers", workers, |workers| doctor::workers(&workers)));
        let switched = store.switched().await;
        findings.push(self.judged("switches", switched, |switched| doctor::switches(&switched)));
        let crowded = store.crowded_limits(doctor::CROWD).await;
        findings.push(self.judged("limits", crowded, |crowded| doctor::limits(&crowded)));
        findings
    }

    /// What tables and other sessions hold back.
    async fn of_sessions(&self, server: &Server) -> Vec<Finding> {
        let store = self.store;
        let (sizes, held) = (store.table_sizes().await, store.held_snapshots().await);
        let (locks, appenders) = (store.held_locks().await, store.log_appenders().await);
        let holders = store.log_holders().await;
        vec![
            self.judged("tables", sizes, |sizes| doctor::sizes(&sizes)),
            self.judged("old transactions", held, |held| {
                doctor::held_snapshots(&held, self.open_for, server.sees_others)
            }),
            self.judged("locks", locks, |held| doctor::held_locks(&held)),
            self.judged("readers of the log", appenders, |appenders| doctor::log_readers(&appenders)),
            self.judged("retention of the log", holders, |holders| doctor::log_holders(&holders)),
        ]
    }

    /// Whether a pooler stands before the server and, if one was announced, whether the role has
    /// the settings.
    async fn pooler(&self, server: &Server, is_announced: bool) -> Finding {
        let backends = self.store.backends().await;
        if !is_announced {
            return self.judged("pooler", backends, |both| doctor::pooler(both, server.settings_kept));
        }
        let lacking = self.store.settings_lacking().await;
        let facts = backends.and_then(|both| Ok((both, lacking?)));
        self.judged("pooler", facts, |(both, lacking)| doctor::announced_pooler(both, &lacking))
    }

    async fn missing_rights(&self) -> Result<Vec<(RoleKind, Vec<Right>)>, StoreError> {
        let mut missing = Vec::new();
        for kind in [RoleKind::Api, RoleKind::Worker] {
            missing.push((kind, self.store.missing_rights(kind).await?));
        }
        Ok(missing)
    }

    fn judged<T>(
        &self,
        what: &'static str,
        facts: Result<T, StoreError>,
        judge: impl FnOnce(T) -> Finding,
    ) -> Finding {
        facts.map_or_else(|error| self.not_checked(what, &error), judge)
    }

    fn not_checked(&self, what: &'static str, error: &StoreError) -> Finding {
        doctor::not_checked(what, error, &(self.words)(error))
    }
}

/// The latest findings of a process, of which those who ask share one look a minute.
pub(crate) struct Checkup {
    store: ServiceStore,
    last: LastLook,
}

/// Findings, and when they were gathered.
#[derive(Clone)]
pub(crate) struct Report {
    pub(crate) findings: Arc<[Finding]>,
    pub(crate) checked_at: Timestamp,
}

impl Checkup {
    pub(crate) fn new(store: Store) -> Self {
        Self { store: store.into(), last: LastLook::default() }
    }

    /// Findings that are at most a minute old. `None` if they could not be gathered in time.
    pub(crate) async fn report(&self) -> Option<Report> {
        let store = self.store.clone();
        let look = async move {
            // Without its causes, which may name hosts and statements.
            let words = |error: &StoreError| error.to_string();
            let examination = Examination { store: &store, settings: None, open_for: OPEN_FOR, words };
            examination.findings().await
        };
        self.last.or_look(look).await
    }

    /// What stays the same as long as nothing is written to the database. `None` if it can't be
    /// asked.
    pub(crate) async fn snapshot(&self) -> Option<String> {
        self.store.snapshot().await.ok()
    }
}

/// The last look of a process, if there was one.
#[derive(Default)]
struct LastLook(Arc<Mutex<Option<Looked>>>);

/// When a look began, and what it has come to: nothing, if it took too long.
type Looked = (Instant, Option<Report>);

impl LastLook {
    /// What the last look has come to, as long as it is fresh, or else another one. Those who ask
    /// at the same time wait for one, which goes on if whoever has begun it is gone.
    async fn or_look(&self, look: impl Future<Output = Vec<Finding>> + Send + 'static) -> Option<Report> {
        let mut last = Arc::clone(&self.0).lock_owned().await;
        if let Some((_, report)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return report.clone();
        }
        let looking = tokio::spawn(async move {
            let (at, checked_at) = (Instant::now(), Timestamp::from(SystemTime::now()));
            let findings = timeout(WITHIN, look).await.ok();
            let report = findings.map(|findings| Report { findings: findings.into(), checked_at });
            *last = Some((at, report.clone()));
            report
        });
        looking.await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Ten ask at a time for a look that takes this long; returns how many are told findings.
    async fn told(last: &LastLook, looks: &Arc<AtomicUsize>, takes: Duration) -> usize {
        let asked = (0..10).map(|_| {
            let looks = Arc::clone(looks);
            last.or_look(async move {
                looks.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(takes).await;
                Vec::new()
            })
        });
        futures_util::future::join_all(asked).await.iter().flatten().count()
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_share_one_look_whatever_it_comes_to() {
        let (last, looks) = (LastLook::default(), Arc::default());
        let (slow, quick) = (WITHIN * 2, Duration::from_secs(1));
        assert_eq!((told(&last, &looks, slow).await, looks.load(Ordering::SeqCst)), (0, 1));
        assert_eq!(
            (told(&last, &looks, quick).await, looks.load(Ordering::SeqCst)),
            (0, 1),
            "too slow lately"
        );
        tokio::time::advance(FRESH).await;
        assert_eq!((told(&last, &looks, quick).await, looks.load(Ordering::SeqCst)), (10, 2));
        assert_eq!((told(&last, &looks, slow).await, looks.load(Ordering::SeqCst)), (10, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_goes_on_without_those_who_asked() {
        let (last, looks) = (LastLook::default(), Arc::default());
        let takes = WITHIN / 2;
        assert!(timeout(takes / 2, told(&last, &looks, takes)).await.is_err(), "they are gone");
        assert_eq!((told(&last, &looks, takes).await, looks.load(Ordering::SeqCst)), (10, 1));
    }
}

//! `wakeq doctor`: gathers facts, has them judged, and prints the findings. Changes nothing, and
//! continues if something is unreachable.

use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Serialize;

use crate::cli::failure::{causes, words};
use crate::cli::{Context, show};
use crate::doctor::{self, Finding, Level};
use crate::store::ServiceStore;
use crate::store::checkup::{Right, Server};
use wakeq::database::RoleKind;
use wakeq::notify::{NotifyError, describe_topics, missing_permissions};
use wakeq::{StoreError, Timestamp};

#[derive(Args)]
pub(crate) struct Doctor {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
    /// Warn about transactions open for at least this long
    #[arg(long, value_parser = humantime::parse_duration, default_value = "10m")]
    open_for: Duration,
}

#[derive(Serialize)]
struct Report {
    findings: Vec<Finding>,
    failed: usize,
    warned: usize,
}

impl Doctor {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (mut findings, horizon) = self.database(context).await;
        findings.extend(pubsub(context, horizon).await);
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        let (failed, warned) = (count(Level::Fail), count(Level::Warn));
        if self.json {
            show::line(serde_json::to_string_pretty(&Report { findings, failed, warned })?)?;
        } else {
            findings.iter().try_for_each(show::line)?;
        }
        anyhow::ensure!(failed == 0, "{} failed", show::count(failed as u64, "check"));
        Ok(())
    }

    /// The findings, and the deployment's horizon, if it is known.
    async fn database(&self, context: &Context) -> (Vec<Finding>, Option<Duration>) {
        match context.database.unchecked_store(&context.timing) {
            Ok(store) => {
                let found = match store.foreign_engine().await {
                    Ok(None) => {
                        let findings = self.of_store(context, &store.clone().into()).await;
                        let standing = store.standing_timing().await;
                        (findings, standing.ok().flatten().map(|standing| standing.horizon))
                    }
                    // Other facts about such a server would mean something else, so they are not
                    // judged.
                    Ok(Some(engine)) => (vec![doctor::foreign_engine(&engine)], None),
                    Err(error) => (vec![failed_on_database("database", &error)], None),
                };
                store.close().await;
                found
            }
            Err(error) => {
                let found = Finding::fail("database", words(&error), "set it as the reason says");
                (vec![found], None)
            }
        }
    }

    /// The database's checks, in the order in which to fix their findings.
    async fn of_store(&self, context: &Context, store: &ServiceStore) -> Vec<Finding> {
        let before = Timestamp::from(SystemTime::now());
        let server = match store.server().await {
            Ok(server) => server,
            Err(error) => return vec![failed_on_database("database", &error)],
        };
        let after = Timestamp::from(SystemTime::now());
        let is_announced = context.database.has_transaction_pooler();
        let mut findings = doctor::server(&server);
        findings.push(doctor::connections(&server, context.notifier.is_postgres(), is_announced));
        findings.push(doctor::route(&store.route()));
        findings.push(doctor::clock(server.clock, before, after));
        findings.push(pooler(store, &server, is_announced).await);
        match store.settings().await {
            Ok(settings) => {
                findings.extend(doctor::settings(&settings, context.database.allows_unsafe_durability()));
            }
            Err(error) => findings.push(failed_on_database("durability", &error)),
        }
        let migrations = store.migration_differences().await;
        findings.push(judged("migrations", migrations, |found| doctor::migrations(&found)));
        let standing = store.standing_timing().await;
        let period = match &standing {
            Ok(Some(standing)) => standing.probe_period,
            Ok(None) | Err(_) => store.timing().probe_period,
        };
        findings.push(judged("durations", standing, |standing| {
            let ours = standing.as_ref().map(|standing| context.timing.over(standing));
            doctor::durations(standing.as_ref(), ours.as_ref())
        }));
        findings.push(judged("rights", missing_rights(store).await, |missing| {
            doctor::rights(&missing, &server.role)
        }));
        let powers = store.role_powers().await;
        findings.push(judged("role", powers, |powers| doctor::role(powers, &server.role)));
        let strangers = store.strangers().await;
        findings.push(judged("other roles", strangers, |strangers| doctor::strangers(&strangers)));
        let secrets = store.secret_counts().await;
        findings
            .push(judged("signing secrets", secrets, |counts| doctor::secrets(store.secret_keys(), &counts)));
        let own = store.own_deployment().await;
        findings.push(judged("own origins", own, |own| doctor::own_names(&own)));
        match store.chores(doctor::overdue_after(period)).await {
            Ok(chores) => findings.extend(doctor::chores(&chores, period)),
            Err(error) => findings.push(failed_on_database("minute's pass", &error)),
        }
        let unknown = store.unknown_handlers(doctor::UNKNOWN_WITHIN).await;
        findings.push(judged("handlers", unknown, |unknown| doctor::unknown_handlers(&unknown)));
        let workers = store.release_workers(doctor::lost_after(period)).await;
        findings.push(judged("workers", workers, |workers| doctor::workers(&workers)));
        findings.push(judged("switches", store.switched().await, |switched| doctor::switches(&switched)));
        let crowded = store.crowded_limits(doctor::CROWD).await;
        findings.push(judged("limits", crowded, |crowded| doctor::limits(&crowded)));
        let sizes = store.table_sizes().await;
        findings.push(judged("tables", sizes, |sizes| doctor::sizes(&sizes)));
        let held = store.held_snapshots().await;
        findings.push(judged("old transactions", held, |held| {
            doctor::held_snapshots(&held, self.open_for, server.sees_others)
        }));
        let locks = store.held_locks().await;
        findings.push(judged("locks", locks, |held| doctor::held_locks(&held)));
        let appenders = store.log_appenders().await;
        findings.push(judged("readers of the log", appenders, |appenders| doctor::log_readers(&appenders)));
        let holders = store.log_holders().await;
        findings.push(judged("retention of the log", holders, |holders| doctor::log_holders(&holders)));
        findings
    }
}

/// Whether a pooler stands before the server and, if one was announced, whether the role has the
/// settings.
async fn pooler(store: &ServiceStore, server: &Server, is_announced: bool) -> Finding {
    let backends = store.backends().await;
    if !is_announced {
        return judged("pooler", backends, |both| doctor::pooler(both, server.settings_kept));
    }
    let lacking = store.settings_lacking().await;
    let facts = backends.and_then(|both| Ok((both, lacking?)));
    judged("pooler", facts, |(both, lacking)| doctor::announced_pooler(both, &lacking))
}

async fn missing_rights(store: &ServiceStore) -> Result<Vec<(RoleKind, Vec<Right>)>, StoreError> {
    let mut missing = Vec::new();
    for kind in [RoleKind::Api, RoleKind::Worker] {
        missing.push((kind, store.missing_rights(kind).await?));
    }
    Ok(missing)
}

async fn pubsub(context: &Context, horizon: Option<Duration>) -> Vec<Finding> {
    if context.notifier.is_without_topics() {
        let has_pooler = context.database.has_transaction_pooler();
        return vec![doctor::without_topics(context.notifier.is_local(), has_pooler)];
    }
    let config = match context.notifier.pubsub().config() {
        Ok(config) => config,
        Err(missing) => return vec![Finding::fail("Pub/Sub", "not configured", missing.to_string())],
    };
    let report = match describe_topics(&config).await {
        Ok(report) => report,
        Err(error) => return vec![failed_on_pubsub("Pub/Sub", &error)],
    };
    let is_pushed = report.push_endpoint.is_some();
    let mut findings = doctor::topics(&report);
    findings.extend(horizon.filter(|_| is_pushed).map(doctor::push_horizon));
    findings.push(match missing_permissions(&config).await {
        Ok(rights) => doctor::pubsub_rights(&rights, is_pushed),
        Err(error) => failed_on_pubsub("Pub/Sub rights", &error),
    });
    findings
}

fn judged<T>(what: &'static str, facts: Result<T, StoreError>, judge: impl FnOnce(T) -> Finding) -> Finding {
    facts.map_or_else(|error| failed_on_database(what, &error), judge)
}

/// A check that failed because of the database.
fn failed_on_database(what: &'static str, error: &StoreError) -> Finding {
    let found = format!("not checked: {}", causes(error));
    match error {
        StoreError::NotMigrated(_) => Finding::fail(what, "the schema does not exist", "run `wakeq migrate`"),
        StoreError::Unavailable(_) => Finding::fail(
            what,
            causes(error),
            "mend what it says; else check the network between here and there",
        ),
        StoreError::TimedOut { .. } => Finding::fail(what, found, "see what keeps the server busy"),
        StoreError::Refused { .. }
        | StoreError::Migration(_)
        | StoreError::PartlyMigrated(_)
        | StoreError::UnsafeDurability { .. }
        | StoreError::RoleSettings { .. }
        | StoreError::PoolSettings { .. }
        | StoreError::ForeignEngine(_)
        | StoreError::Timing(_)
        | StoreError::OtherTiming { .. }
        | StoreError::Overloaded
        | StoreError::Quota(_)
        | StoreError::WaitingMax(_)
        | StoreError::NoBatch(_)
        | StoreError::Config(_)
        | StoreError::Defect
        | _ => Finding::fail(what, found, "see the reason: usually a privilege that the role lacks"),
    }
}

/// A check that failed because of Pub/Sub.
fn failed_on_pubsub(what: &'static str, error: &NotifyError) -> Finding {
    Finding::fail(what, causes(error), "check the project, the credentials and the network")
}

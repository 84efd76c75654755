//! `wakeq doctor`: has the database and Pub/Sub looked at, and prints the findings. Changes
//! nothing, and continues if something is unreachable.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::checkup::{CommandSettings, Examination};
use crate::cli::failure::{causes, words};
use crate::cli::{Context, show};
use crate::doctor::{self, Finding, Level};
use crate::store::ServiceStore;
use wakeq::StoreError;
use wakeq::notify::{NotifyError, describe_topics, missing_permissions};

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
                    Ok(None) => self.of_store(context, &store.clone().into()).await,
                    // Other facts about such a server would mean something else, so they are not
                    // judged.
                    Ok(Some(engine)) => (vec![doctor::foreign_engine(&engine)], None),
                    Err(error) => (vec![doctor::not_checked("database", &error, &causes(&error))], None),
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

    /// The database's checks.
    async fn of_store(&self, context: &Context, store: &ServiceStore) -> (Vec<Finding>, Option<Duration>) {
        let standing = store.standing_timing().await.ok().flatten();
        let settings = CommandSettings {
            notifies: context.notifier.is_postgres(),
            has_pooler: context.database.has_transaction_pooler(),
            allows_unsafe: context.database.allows_unsafe_durability(),
            timing: standing.as_ref().map(|standing| context.timing.over(standing)),
        };
        let words = |error: &StoreError| causes(error);
        let examination = Examination { store, settings: Some(settings), open_for: self.open_for, words };
        (examination.findings().await, standing.map(|standing| standing.horizon))
    }
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

/// A check that failed because of Pub/Sub.
fn failed_on_pubsub(what: &'static str, error: &NotifyError) -> Finding {
    Finding::fail(what, causes(error), "check the project, the credentials and the network")
}

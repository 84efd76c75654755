//! `wakeq audit list`: what callers did, and what was refused.

use clap::{Args, Subcommand};

use crate::cli::Context;
use crate::cli::arguments::TableArgs;
use crate::cli::client::Request;
use crate::cli::show::moment;
use crate::resources::audit::wire::AuditEntryJson;

#[derive(Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    verb: AuditVerb,
}

#[derive(Subcommand)]
enum AuditVerb {
    /// List the audit log, newest first
    List(TableArgs),
}

impl Audit {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let AuditVerb::List(list) = self.verb;
        let head = ["AT", "ACTOR", "ACTION", "OUTCOME", ">TIMES", "ABOUT", "DETAIL"];
        let request = Request::get(&["audit"]).admin();
        list.print(context, request, head, "nothing has been recorded yet", row).await
    }
}

fn row(entry: &AuditEntryJson) -> [String; 7] {
    let handler = entry.module.as_ref().zip(entry.name.as_ref());
    let handler = handler.map(|(module, name)| format!("{module}/{name}"));
    let about = entry.event_id.map(|id| id.to_string()).or(handler).unwrap_or_default();
    [
        moment(entry.at),
        entry.actor.clone(),
        entry.action.clone(),
        entry.outcome.clone(),
        entry.times.to_string(),
        about,
        entry.detail.clone().unwrap_or_default(),
    ]
}

//! `wakeq audit list`: what callers did, and what was refused.

use clap::{Args, Subcommand, ValueEnum};

use crate::access::KeyId;
use crate::cli::Context;
use crate::cli::arguments::{self, HandlerName, TableArgs};
use crate::cli::client::Request;
use crate::cli::show::moment;
use crate::resources::audit::wire::AuditEntryJson;
use wakeq::{EventId, Timestamp};

#[derive(Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    verb: AuditVerb,
}

#[derive(Subcommand)]
enum AuditVerb {
    /// List the audit log, newest first
    List(AuditList),
}

#[derive(Args)]
struct AuditList {
    #[command(flatten)]
    filter: AuditFilterArgs,
    #[command(flatten)]
    table: TableArgs,
}

#[derive(Args)]
#[command(next_help_heading = "Only lines")]
struct AuditFilterArgs {
    /// Of this action, such as pause
    #[arg(long)]
    action: Option<String>,
    /// By this actor, such as key:billing
    // Not `--actor`: this says who acts.
    #[arg(long, value_name = "ACTOR")]
    by: Option<String>,
    /// About this API key, or by its means: its public part
    #[arg(long)]
    key: Option<KeyId>,
    /// About this handler: its name, or MODULE/name
    #[arg(long)]
    handler: Option<HandlerName>,
    /// About this event
    #[arg(long, value_name = "ID", value_parser = arguments::event_id)]
    event: Option<EventId>,
    /// About what was done, or what was refused
    #[arg(long)]
    outcome: Option<OutcomeArg>,
    /// Written at or after this time
    #[arg(long, value_name = "TIME", value_parser = arguments::timestamp)]
    since: Option<Timestamp>,
    /// Written before this time
    #[arg(long, value_name = "TIME", value_parser = arguments::timestamp)]
    before: Option<Timestamp>,
}

#[derive(Clone, Copy, ValueEnum)]
enum OutcomeArg {
    Done,
    Refused,
}

impl Audit {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let AuditVerb::List(AuditList { filter, table }) = self.verb;
        let head = ["AT", "ACTOR", "ACTION", "OUTCOME", ">TIMES", "ABOUT", "DETAIL"];
        let request = filter.add_to(Request::get(&["audit"]).admin());
        table.print(context, request, head, "no lines", row).await
    }
}

impl AuditFilterArgs {
    fn add_to(&self, request: Request) -> Request {
        let handler = self.handler.as_ref();
        let time = |time: Option<Timestamp>| time.map(|time| time.to_rfc3339());
        let outcome = self.outcome.map(|outcome| match outcome {
            OutcomeArg::Done => "done",
            OutcomeArg::Refused => "refused",
        });
        request
            .query("action", self.action.as_ref())
            .query("actor", self.by.as_ref())
            .query("key", self.key.as_ref())
            .query("module", handler.map(|handler| &handler.module))
            .query("name", handler.map(|handler| &handler.name))
            .query("event_id", self.event)
            .query("outcome", outcome)
            .query("since", time(self.since))
            .query("before", time(self.before))
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

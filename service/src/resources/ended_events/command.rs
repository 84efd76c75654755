//! `wakeq events ended`: list or count events that are kept after they have ended.

use clap::Args;

use crate::cli::Context;
use crate::cli::arguments::{self, HandlerName, TableArgs};
use crate::cli::client::Request;
use crate::cli::show::moment;
use crate::resources::ended_events::wire::EndedEventJson;
use crate::resources::events::command::count::{COUNT_MAX, count};
use crate::resources::events::command::filter::{EventFilterArgs, text};
use wakeq::Timestamp;
use wakeq::control::{SearchText, ValueCondition};
use wakeq::events::EndedOutcome;

#[derive(Args)]
pub(crate) struct ListEnded {
    /// Only events of this handler: its name, or MODULE/name
    #[arg(long)]
    handler: Option<HandlerName>,
    /// Only events that ended like this: completed, failed or cancelled
    #[arg(long, value_parser = outcome)]
    outcome: Option<EndedOutcome>,
    /// Only events that ended at or after this time
    #[arg(long, value_parser = arguments::timestamp)]
    since: Option<Timestamp>,
    /// Only events that ended before this time
    #[arg(long, value_parser = arguments::timestamp)]
    before: Option<Timestamp>,
    /// Count the events instead of listing them, up to a million
    #[arg(long, conflicts_with_all = ["limit", "cursor"])]
    count: bool,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    filter: EventFilterArgs,
    #[command(flatten)]
    result: ResultArgs,
}

/// What events returned when they ended.
#[derive(Args)]
#[command(next_help_heading = "Only events")]
struct ResultArgs {
    /// Whose result contains this text
    #[arg(long, value_name = "TEXT")]
    result_text: Option<SearchText>,
    /// Whose result has it: '$.receipt = 9'
    #[arg(long, value_name = "PATH=JSON")]
    result: Option<ValueCondition>,
}

fn outcome(text: &str) -> Result<EndedOutcome, &'static str> {
    EndedOutcome::parse(text).ok_or("an outcome is completed, failed or cancelled")
}

impl ListEnded {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        if self.count {
            let request = self.asked(&["ended-events", "count"]);
            return count(&context.client().await?, request, COUNT_MAX, self.table.json).await;
        }
        let request = self.asked(&["ended-events"]);
        let head = ["EVENT", "OUTCOME", "ENDED", "TOOK", ">CLAIMS", "HANDLER"];
        self.table.print(context, request, head, "no ended events are kept", row).await
    }

    fn asked(&self, path: &[&str]) -> Request {
        let handler = self.handler.as_ref();
        let request = Request::get(path)
            .query("module", handler.map(|handler| &handler.module))
            .query("name", handler.map(|handler| &handler.name))
            .query("outcome", self.outcome)
            .query("since", text(self.since))
            .query("before", text(self.before))
            .query("result_text", self.result.result_text.as_ref())
            .query("result", self.result.result.as_ref());
        self.filter.add_to(request)
    }
}

fn row(event: &EndedEventJson) -> [String; 6] {
    let EndedEventJson { id, outcome, ended_at, took_s, claims, module, name, modifier, .. } = event;
    let took = took_s.map_or_else(|| "-".to_owned(), |took| format!("{took:.3} s"));
    let handler = format!("{module}/{name}/{modifier}");
    [id.to_string(), outcome.clone(), moment(*ended_at), took, claims.to_string(), handler]
}

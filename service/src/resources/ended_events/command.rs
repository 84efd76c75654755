//! `wakeq events ended`: list events that are kept after they have ended.

use clap::Args;

use crate::cli::Context;
use crate::cli::arguments::{HandlerName, TableArgs};
use crate::cli::client::Request;
use crate::cli::show::moment;
use crate::resources::ended_events::wire::EndedEventJson;
use wakeq::events::EndedOutcome;

#[derive(Args)]
pub(crate) struct ListEnded {
    /// Only events of this handler: its name, or MODULE/name
    #[arg(long)]
    handler: Option<HandlerName>,
    /// Only events that ended like this: completed, failed or cancelled
    #[arg(long, value_parser = outcome)]
    outcome: Option<EndedOutcome>,
    #[command(flatten)]
    table: TableArgs,
}

fn outcome(text: &str) -> Result<EndedOutcome, &'static str> {
    EndedOutcome::parse(text).ok_or("an outcome is completed, failed or cancelled")
}

impl ListEnded {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let handler = self.handler.as_ref();
        let request = Request::get(&["ended-events"])
            .query("module", handler.map(|handler| &handler.module))
            .query("name", handler.map(|handler| &handler.name))
            .query("outcome", self.outcome);
        let head = ["EVENT", "OUTCOME", "ENDED", "TOOK", ">CLAIMS", "HANDLER"];
        self.table.print(context, request, head, "no ended events are kept", row).await
    }
}

fn row(event: &EndedEventJson) -> [String; 6] {
    let EndedEventJson { id, outcome, ended_at, took_s, claims, module, name, modifier, .. } = event;
    let took = took_s.map_or_else(|| "-".to_owned(), |took| format!("{took:.3} s"));
    let handler = format!("{module}/{name}/{modifier}");
    [id.to_string(), outcome.clone(), moment(*ended_at), took, claims.to_string(), handler]
}

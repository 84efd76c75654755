//! `wakeq handlers attempts`: the last attempts at the events of a handler.

use clap::Args;

use crate::cli::Context;
use crate::cli::arguments::HandlerAddressArg;
use crate::cli::client::Request;
use crate::cli::show::{JsonArg, moment, note, or_dash};
use crate::cli::table::Table;
use crate::resources::attempts::wire::{HandlerAttemptJson, LastAttemptsJson};

#[derive(Args)]
pub(crate) struct LastAttempts {
    /// The handler: its name, MODULE/name when the module is not WORKER, or MODULE/name/modifier
    handler: HandlerAddressArg,
    /// Maximum number of attempts
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
    #[command(flatten)]
    json: JsonArg,
}

impl LastAttempts {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let Self { handler, limit, json } = self;
        let request = Request::get(&["attempts"])
            .query("module", Some(&handler.handler.module))
            .query("name", Some(&handler.handler.name))
            .query("modifier", handler.modifier.as_ref())
            .query("limit", Some(limit));
        json.print(&context.call(request).await?, |last: &LastAttemptsJson| {
            let head = ["STARTED", ">TOOK", "OUTCOME", "STATUS", "EVENT", ">NUMBER", "ERROR"];
            Table::of(head, last.attempts.iter().map(row)).print("no attempts are noted")?;
            if last.more {
                note("there may be more: `wakeq events show` has those at an event");
            }
            Ok(())
        })
    }
}

fn row(attempt: &HandlerAttemptJson) -> [String; 7] {
    [
        moment(attempt.started_at),
        format!("{:.3} s", attempt.took_s),
        attempt.outcome.clone(),
        or_dash(attempt.status),
        attempt.event.to_string(),
        attempt.number.to_string(),
        attempt.error.clone().unwrap_or_default(),
    ]
}

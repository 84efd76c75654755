//! `wakeq audit list`: what callers did, and what was refused.

use clap::{Args, Subcommand};

use crate::cli::Context;
use crate::cli::arguments::{ListArgs, Page};
use crate::cli::client::{Client, Request};
use crate::cli::show::{JsonArg, moment};
use crate::cli::table::Table;
use crate::resources::audit::wire::AuditEntry;
use crate::resources::wire::List;

#[derive(Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the record, newest first
    List {
        #[command(flatten)]
        list: ListArgs,
        #[command(flatten)]
        json: JsonArg,
    },
}

impl Audit {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let Verb::List { list, json } = self.verb;
        let client = context.client().await?;
        let list = list.gather(async |page| client.audit(page).await).await?;
        json.print_list(&list, |entries| {
            let mut table = Table::new(["AT", "ACTOR", "ACTION", "OUTCOME", ">TIMES", "ABOUT", "DETAIL"]);
            entries.iter().for_each(|entry| table.row(row(entry)));
            table.print("nothing has been recorded yet")
        })
    }
}

fn row(entry: &AuditEntry) -> [String; 7] {
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

impl Client {
    pub(crate) async fn audit(&self, page: Page) -> anyhow::Result<List<AuditEntry>> {
        self.call(Request::get(&["audit"]).admin().page(page)).await
    }
}

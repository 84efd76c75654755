//! `wakeq switches`: what stops the whole canvas, or everything.

use clap::Args;

use crate::cli::Context;
use crate::cli::arguments::TableArgs;
use crate::cli::client::Request;
use crate::cli::show::{self, moment};
use crate::resources::handlers::wire::RuleJson;

#[derive(Args)]
pub(crate) struct Switches {
    #[command(flatten)]
    table: TableArgs,
}

impl Switches {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let head = ["RULE", "STOPS", "BY", "SINCE", "UNTIL", "REASON"];
        let request = Request::get(&["switches"]);
        self.table.print(context, request, head, "nothing stops the whole canvas", row).await
    }
}

fn row(rule: &RuleJson) -> [String; 6] {
    [
        show::rule_word(rule.kind).to_owned(),
        show::rule_reach(rule.stops).to_owned(),
        rule.created_by.clone(),
        moment(rule.created_at),
        show::or_dash(rule.until.map(moment)),
        show::or_dash(rule.reason.as_ref()),
    ]
}

//! `wakeq depth`: how much there is to do now.

use clap::Args;

use super::Context;
use super::arguments::HandlerName;
use super::show::{self, JsonArg};
use crate::api::Depth;

#[derive(Args)]
pub(crate) struct DepthOf {
    /// Only this handler: its name, or MODULE/name
    handler: Option<HandlerName>,
    #[command(flatten)]
    json: JsonArg,
}

impl DepthOf {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let depth = context.backend().await?.depth(self.handler.as_ref()).await?;
        self.json.print(&depth, |depth| show::line(words(depth)))
    }
}

fn words(depth: &Depth) -> String {
    let events = show::count(depth.depth, "event");
    let events = if depth.capped { format!("{events} or more") } else { events };
    let age = depth.oldest_age_s.map(|age| format!(", the oldest for {}s", age.floor())).unwrap_or_default();
    format!("{events} due and free to run{age}")
}

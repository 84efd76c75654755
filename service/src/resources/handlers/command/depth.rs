//! `wakeq depth`: how much there is to do now.

use clap::Args;

use crate::cli::Context;
use crate::cli::arguments::HandlerName;
use crate::cli::client::Request;
use crate::cli::show::{self, JsonArg};
use crate::resources::handlers::wire::DepthJson;
use crate::resources::queues::wire::QueueDepthJson;
use wakeq::Name;

#[derive(Args)]
pub(crate) struct DepthOf {
    /// Only this handler: its name, or MODULE/name
    handler: Option<HandlerName>,
    /// Only this registered queue, over all canvases
    #[arg(long, conflicts_with = "handler")]
    queue: Option<Name>,
    /// Over all canvases
    #[arg(long, conflicts_with = "queue")]
    all_canvases: bool,
    #[command(flatten)]
    json: JsonArg,
}

impl DepthOf {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        if let Some(queue) = &self.queue {
            let depth = context.call(Request::get(&["queues", queue.as_str(), "depth"]).everywhere()).await?;
            return self.json.print(&depth, |depth| show::line(words_of_queue(depth)));
        }
        let handler = self.handler.as_ref();
        let request = Request::get(&["depth"]);
        let request = if self.all_canvases { request.everywhere() } else { request }
            .query("module", handler.map(|handler| &handler.module))
            .query("name", handler.map(|handler| &handler.name));
        self.json.print(&context.call(request).await?, |depth| show::line(words(depth)))
    }
}

fn words_of_queue(depth: &QueueDepthJson) -> String {
    let more = if depth.capped { " or more" } else { "" };
    let (events, canvases) = (show::count(depth.depth, "event"), depth.canvases);
    let noun = if canvases == 1 { "canvas" } else { "canvases" };
    format!("{events}{more} due and free to run, {canvases} {noun} in the rotation")
}

fn words(depth: &DepthJson) -> String {
    let events = show::count(depth.depth, "event");
    let events = if depth.capped { format!("{events} or more") } else { events };
    let age = depth.oldest_age_s.map(|age| format!(", the oldest for {}s", age.floor())).unwrap_or_default();
    format!("{events} due and free to run{age}")
}

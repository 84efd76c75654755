//! `wakeq events count`.

use clap::Args;

use crate::cli::Context;
use crate::cli::arguments::{self, HandlerName};
use crate::cli::client::{Client, Request};
use crate::cli::show::{self, JsonArg};
use crate::resources::events::command::filter::{DueArgs, EventFilterArgs, text};
use crate::resources::events::wire::EventCountJson;
use wakeq::Timestamp;
use wakeq::control::{ErrorGroupId, EventState};

/// Maximum number of requests, each of which examines 10,000 events at most.
const REQUESTS: u32 = 1000;
/// How many events are counted by default.
pub(crate) const COUNT_MAX: u64 = 1_000_000;

#[derive(Args)]
pub(crate) struct CountEvents {
    /// Only events of this handler: its name, or MODULE/name
    #[arg(long)]
    handler: Option<HandlerName>,
    /// Only events in this state: ready, behind, halted, held, delayed, running, paused, blocked
    /// or limited; repeatable, for any of them. `dead` alone counts dead events
    #[arg(long = "state", value_name = "STATE")]
    states: Vec<EventState>,
    /// Only dead events that died at or after this time
    #[arg(long, value_name = "TIME", value_parser = arguments::timestamp)]
    died_since: Option<Timestamp>,
    /// Only dead events that died before this time
    #[arg(long, value_name = "TIME", value_parser = arguments::timestamp)]
    died_before: Option<Timestamp>,
    /// Only dead events of this error group, as `wakeq dead groups` lists them
    #[arg(long, value_name = "GROUP")]
    error_group: Option<ErrorGroupId>,
    /// Stop when this many events were counted
    #[arg(long, value_name = "NUMBER", default_value_t = COUNT_MAX)]
    up_to: u64,
    #[command(flatten)]
    json: JsonArg,
    #[command(flatten)]
    filter: EventFilterArgs,
    #[command(flatten)]
    due: DueArgs,
}

impl CountEvents {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let client = context.client().await?;
        let handler = self.handler.as_ref();
        let request = Request::get(&["events", "count"])
            .query("module", handler.map(|handler| &handler.module))
            .query("name", handler.map(|handler| &handler.name))
            .query("state", joined(&self.states))
            .query("died_since", text(self.died_since))
            .query("died_before", text(self.died_before))
            .query("error_group", self.error_group);
        let request = self.due.add_to(self.filter.add_to(request));
        count(&client, request, self.up_to, self.json).await
    }
}

/// Counts page by page until all events were examined or enough were counted, and prints that.
pub(crate) async fn count(
    client: &Client,
    request: Request,
    up_to: u64,
    json: JsonArg,
) -> anyhow::Result<()> {
    let mut all = EventCountJson { count: 0, looked_at: 0, next_cursor: None };
    for _ in 0..REQUESTS {
        let page = request.clone().query("cursor", all.next_cursor.take());
        let counted: EventCountJson = client.call(page).await?;
        all.count += counted.count;
        all.looked_at += counted.looked_at;
        all.next_cursor = counted.next_cursor;
        if all.next_cursor.is_none() || all.count >= up_to {
            break;
        }
    }
    json.print(&all, |all| {
        let words = if all.next_cursor.is_some() { "at least " } else { "" };
        let events = show::count(all.count, "event");
        show::line(format_args!("{words}{events} of {} examined", all.looked_at))
    })
}

/// Several states as a parameter.
pub(crate) fn joined(states: &[EventState]) -> Option<String> {
    let words: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
    (!words.is_empty()).then(|| words.join(","))
}

//! `wakeq dead groups`, `dead know` and `dead forget`: what dead events died of, and what is known
//! of it.

use clap::{Args, ValueEnum};

use crate::cli::Context;
use crate::cli::arguments::HandlerName;
use crate::cli::client::{Page, Request};
use crate::cli::show::{self, JsonArg, moment, note_of_more};
use crate::cli::table::Table;
use crate::resources::dead_events::wire::group::{
    ErrorGroupJson, ErrorGroupsJson, KnowError, KnownErrorJson,
};
use wakeq::control::ErrorGroupId;

#[derive(Args)]
pub(super) struct ListGroups {
    /// Only groups of this handler: its name, or MODULE/name
    #[arg(long)]
    handler: Option<HandlerName>,
    /// Only groups that are marked as known
    #[arg(long, conflicts_with = "unknown")]
    known: bool,
    /// Only groups that are not marked as known
    #[arg(long)]
    unknown: bool,
    /// Which come first
    #[arg(long, default_value = "count")]
    order: Order,
    /// Maximum number of groups
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Continue at the cursor that an earlier list printed
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Clone, Copy, ValueEnum)]
enum Order {
    /// Those with the most events
    Count,
    /// Those of which an event died last
    LastDied,
}

#[derive(Args)]
pub(super) struct Know {
    /// The group's id, as `wakeq dead groups` prints it
    group: ErrorGroupId,
    /// What is known: a ticket, the cause, or what to do
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
pub(super) struct Forget {
    /// The group's id, as `wakeq dead groups` prints it
    group: ErrorGroupId,
    #[command(flatten)]
    json: JsonArg,
}

impl ListGroups {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let order = match self.order {
            Order::Count => "count",
            Order::LastDied => "last_died",
        };
        let known = (self.known || self.unknown).then_some(self.known);
        let request = Request::get(&["dead-events", "groups"])
            .query("module", self.handler.as_ref().map(|handler| &handler.module))
            .query("name", self.handler.as_ref().map(|handler| &handler.name))
            .query("known", known)
            .query("order", Some(order))
            .page(Page { limit: self.limit, cursor: self.cursor });
        let groups: ErrorGroupsJson = context.call(request).await?;
        self.json.print(&groups, print)
    }
}

fn print(groups: &ErrorGroupsJson) -> anyhow::Result<()> {
    let head = [">COUNT", "LAST DIED", "GROUP", "HANDLER", "CAUSE", "KNOWN", "ERROR"];
    Table::of(head, groups.items.iter().map(row)).print("no dead events")?;
    if groups.more {
        let looked_at = groups.looked_at;
        show::note(format_args!("older ones than the last {looked_at} dead events are not counted"));
    }
    note_of_more(groups.next_cursor.as_deref());
    Ok(())
}

fn row(group: &ErrorGroupJson) -> [String; 7] {
    let known = group.known.as_ref().map(|known| known.note.clone().unwrap_or_else(|| known.by.clone()));
    [
        group.count.to_string(),
        moment(group.last_died_at),
        group.id.to_string(),
        format!("{}/{}", group.module, group.name),
        group.cause.clone(),
        show::or_dash(known),
        group.fingerprint.clone(),
    ]
}

impl Know {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let request = Request::put(&["dead-events", "groups", &self.group.to_string(), "known"]).silent();
        let known: KnownErrorJson = context.call(request.body(&KnowError { note: self.note })?).await?;
        self.json.print(&known, |_| show::line(format_args!("error group {} is known", self.group)))
    }
}

impl Forget {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let id = self.group.to_string();
        context.send(Request::delete(&["dead-events", "groups", &id, "known"]).silent()).await?;
        self.json.print(&serde_json::json!({ "id": id }), |_| {
            show::line(format_args!("error group {} is not known any more", self.group))
        })
    }
}

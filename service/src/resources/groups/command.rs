//! `wakeq groups`: consumer groups with their owners of sources and positions. They concern every
//! canvas.

use clap::{Args, Subcommand};

use crate::cli::Context;
use crate::cli::arguments::TableArgs;
use crate::cli::bulk;
use crate::cli::client::Request;
use crate::cli::show::{self, JsonArg, field, moment};
use crate::cli::table::Table;
use crate::cli::text;
use crate::resources::groups::wire::{
    FailingEventJson, GroupDeadJson, GroupJson, GroupNodeJson, GroupNodesJson, GroupSourceJson,
    GroupSubscriber, GroupSummary, RedriveGroup, RedrivenGroup, RemoveGroupJson, ResetGroupJson,
    ResetRequest,
};
use crate::resources::wire::List;
use wakeq::Name;
use wakeq::log::EventSource;

#[derive(Args)]
pub(crate) struct Groups {
    #[command(subcommand)]
    verb: GroupVerb,
}

#[derive(Subcommand)]
enum GroupVerb {
    /// List the consumer groups with their lag
    List(TableArgs),
    /// Show a group: its subscribers, and the owner, position and lag of each source
    Show(OneGroup),
    /// Reset a group's position in the log
    Reset(Reset),
    /// List a group's dead events, latest first
    Dead(Dead),
    /// Redrive a group's dead events
    Redrive(RedriveDead),
    /// Retry a group's unhealthy members and waiting sources
    Recover {
        /// The group's name
        name: Name,
    },
    /// Remove a group without subscribers, so that it no longer retains the log
    Remove(Remove),
    /// List the nodes with subscribers, and the coordinator
    Nodes(TableArgs),
}

#[derive(Args)]
struct OneGroup {
    /// The group's name
    name: Name,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Reset {
    /// The group's name
    name: Name,
    /// The new position: start, end, or the number of the event to resume after
    #[arg(long, value_name = "start|end|SEQ")]
    to: String,
    /// Only this source, such as category/companies/3-of-f
    #[arg(long)]
    source: Option<String>,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Dead {
    /// The group's name
    name: Name,
    #[command(flatten)]
    table: TableArgs,
}

#[derive(Args)]
struct RedriveDead {
    /// The group's name
    name: Name,
    /// Only the event with this log number
    #[arg(long, required_unless_present = "all", conflicts_with = "all")]
    seq: Option<i64>,
    /// All dead events of the group
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Remove {
    /// The group's name
    name: Name,
    /// Only its position in this source, such as category/companies/3-of-f
    #[arg(long)]
    source: Option<EventSource>,
    #[command(flatten)]
    json: JsonArg,
}

impl Groups {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            GroupVerb::List(table) => {
                let head = ["GROUP", ">SUBSCRIBERS", ">UNHEALTHY", ">SOURCES", ">IDLE", ">LAG"];
                let request = Request::get(&["groups"]).everywhere();
                table.print(context, request, head, "no groups", row).await
            }
            GroupVerb::Show(OneGroup { name, json }) => {
                json.print(&context.call(at(Request::get, &name, &[])).await?, print)
            }
            GroupVerb::Reset(command) => command.run(context).await,
            GroupVerb::Dead(Dead { name, table }) => {
                let head = [">SEQ", "CANVAS", "STREAM", "EVENT", ">ATTEMPTS", "DIED", "ERROR"];
                let request = at(Request::get, &name, &["dead"]);
                table.print(context, request, head, "nothing was given up", dead_row).await
            }
            GroupVerb::Redrive(command) => command.run(context).await,
            GroupVerb::Recover { name } => {
                context.send(at(Request::post, &name, &["recover"]).silent()).await?;
                show::line(format_args!("the members of group {name} will retry with their next heartbeat"))
            }
            GroupVerb::Remove(command) => command.run(context).await,
            GroupVerb::Nodes(table) => nodes(context, table).await,
        }
    }
}

async fn nodes(context: &Context, table: TableArgs) -> anyhow::Result<()> {
    let client = context.client().await?;
    let (mut coordinator, mut term) = (None, None);
    let page = async |page| {
        let request = Request::get(&["nodes"]).everywhere().page(page);
        let nodes: GroupNodesJson = client.call(request).await?;
        (coordinator, term) = (nodes.coordinator, nodes.term);
        Ok(List { items: nodes.items, next_cursor: nodes.next_cursor, looked_at: None })
    };
    let List { items, next_cursor, .. } = table.list.gather(page).await?;
    let nodes = GroupNodesJson { items, next_cursor, coordinator, term };
    table.json.print(&nodes, |nodes| {
        let rows = nodes.items.iter().map(|node| node_row(node, nodes));
        Table::of(["NODE", "HEARTBEAT", "COORDINATES"], rows).print("no nodes")?;
        show::note_of_more(nodes.next_cursor.as_deref());
        Ok(())
    })
}

/// The request about a group.
fn at(verb: fn(&[&str]) -> Request, name: &Name, part: &[&str]) -> Request {
    verb(&[&["groups", name.as_str()][..], part].concat()).everywhere()
}

fn row(group: &GroupSummary) -> [String; 6] {
    [
        group.name.clone(),
        if group.alone { "alone".to_owned() } else { group.subscribers.to_string() },
        group.unhealthy.to_string(),
        group.sources.to_string(),
        group.idle.to_string(),
        group.lag.to_string(),
    ]
}

fn node_row(node: &GroupNodeJson, all: &GroupNodesJson) -> [String; 3] {
    let term = all.term.filter(|_| all.coordinator == Some(node.id));
    let coordinates = show::or_dash(term.map(|term| format!("in term {term}")));
    [node.id.to_string(), moment(node.heartbeat_at), coordinates]
}

fn print(group: &GroupJson) -> anyhow::Result<()> {
    field("group", &group.name)?;
    for subscriber in &group.subscribers {
        field("subscriber", words(subscriber))?;
    }
    if let Some(process) = group.alone {
        field("alone", format_args!("process {process} owns all of its sources"))?;
    }
    if let Some(pin) = group.pin {
        field("pin", format_args!("the log keeps everything after {pin} for this entity type"))?;
    }
    let rows = group.sources.iter().map(|source| source_row(source, group.alone.is_some()));
    Table::of(["SOURCE", "SUBSCRIBER", ">POSITION", ">LAG", "SINCE"], rows).print("no sources")?;
    for source in &group.sources {
        if let Some(failing) = &source.failing {
            let FailingEventJson { seq, attempts, .. } = failing;
            let (since, error) = (moment(failing.since), text::clean(&failing.error));
            show::line(format_args!(
                "{} waits for event {seq}, which has failed {attempts} times since {since}: \
                 {error}",
                text::clean(&source.source)
            ))?;
        }
    }
    Ok(())
}

fn words(subscriber: &GroupSubscriber) -> String {
    let GroupSubscriber { id, node, .. } = subscriber;
    let how = match &subscriber.unhealthy {
        Some(why) => format!("unhealthy: {}", text::clean(why)),
        None if subscriber.lapsed => format!("no heartbeat since {}", moment(subscriber.heartbeat_at)),
        None => "healthy".to_owned(),
    };
    format!("{id} on node {node}, {how}")
}

fn source_row(source: &GroupSourceJson, is_alone: bool) -> [String; 5] {
    let nobody = if is_alone { "alone" } else { "-" };
    let owner = source.subscriber.map_or_else(|| nobody.to_owned(), |owner| owner.to_string());
    let releasing = if source.releasing { " (ending)" } else { "" };
    [
        text::clean(&source.source),
        format!("{owner}{releasing}"),
        source.position.to_string(),
        source.lag.to_string(),
        show::or_dash(source.moved_at.map(moment)),
    ]
}

impl Reset {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let request = ResetRequest { to: self.to, source: self.source };
        let request = at(Request::post, &self.name, &["reset"]).silent().body(&request)?;
        self.json.print(&context.call(request).await?, |reset: &ResetGroupJson| {
            let sources = show::count(reset.sources, "source");
            show::line(format_args!("group {} resumes after {} in {sources}", self.name, reset.position))
        })
    }
}

impl Remove {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let request = at(Request::delete, &self.name, &[]).silent().query("source", self.source);
        self.json.print(&context.call(request).await?, |removed: &RemoveGroupJson| {
            let (positions, pins) =
                (show::count(removed.positions, "position"), show::count(removed.pins, "pin"));
            show::line(format_args!("removed {positions} and {pins} of group {}", self.name))
        })
    }
}

fn dead_row(dead: &GroupDeadJson) -> [String; 7] {
    let redriven = if dead.redriven { " (will be retried)" } else { "" };
    [
        dead.seq.to_string(),
        dead.canvas.to_string(),
        text::clean(&format!("{}/{}", dead.category, dead.stream)),
        text::clean(&dead.name),
        dead.attempts.to_string(),
        moment(dead.died_at),
        format!("{}{redriven}", text::clean(&dead.error)),
    ]
}

impl RedriveDead {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let client = context.client().await?;
        let all = bulk::all(("event", "marked"), async |before| {
            let request = RedriveGroup { seq: self.seq, before };
            let redrive = at(Request::post, &self.name, &["dead", "redrive"]).silent().body(&request)?;
            let RedrivenGroup { redriven: count, more, before } = client.call(redrive).await?;
            // A full page may have been the last one.
            Ok(bulk::Step { count, more: more && count > 0, before })
        });
        let bulk::Step { count, more, before } = all.await?;
        self.json.print(&RedrivenGroup { redriven: count, more, before }, |redriven| {
            show::line(format_args!("{} will be retried", show::count(redriven.redriven, "event")))
        })
    }
}

//! `wakeq groups`: consumer groups with their owners of sources and positions. They concern every
//! canvas.

use clap::{Args, Subcommand};

use crate::cli::Context;
use crate::cli::arguments::{ListArgs, Page};
use crate::cli::bulk;
use crate::cli::client::{Client, Request};
use crate::cli::show::{self, JsonArg, field, moment};
use crate::cli::table::Table;
use crate::cli::text;
use crate::resources::groups::wire::{
    FailingEvent, Group, GroupDead, GroupNode, GroupNodes, GroupSource, GroupSubscriber, GroupSummary,
    RedriveGroup, RedrivenGroup, RemoveGroup, ResetGroup, ResetRequest,
};
use crate::resources::wire::List;
use wakeq::Name;
use wakeq::log::EventSource;

#[derive(Args)]
pub(crate) struct Groups {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the consumer groups with their lag
    List(ListOf),
    /// Show a group: its subscribers, and the owner, position and lag of each source
    Show(One),
    /// Reset a group's position in the log
    Reset(Reset),
    /// List a group's dead events, latest first
    Dead(Dead),
    /// Redrive a group's dead events
    Redrive(RedriveDead),
    /// Retry a group's unhealthy members and waiting sources
    Recover(Recover),
    /// Remove a group without subscribers, so that it no longer retains the log
    Remove(Remove),
    /// List the nodes with subscribers, and the coordinator
    Nodes(ListOf),
}

#[derive(Args)]
struct ListOf {
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct One {
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
    list: ListArgs,
    #[command(flatten)]
    json: JsonArg,
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
struct Recover {
    /// The group's name
    name: Name,
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
            Verb::List(command) => command.groups(context).await,
            Verb::Show(command) => command.run(context).await,
            Verb::Reset(command) => command.run(context).await,
            Verb::Dead(command) => command.run(context).await,
            Verb::Redrive(command) => command.run(context).await,
            Verb::Recover(command) => command.run(context).await,
            Verb::Remove(command) => command.run(context).await,
            Verb::Nodes(command) => command.nodes(context).await,
        }
    }
}

impl ListOf {
    async fn groups(self, context: &Context) -> anyhow::Result<()> {
        let list = context.client().await?.groups().await?;
        self.json.print_list(&list, |groups| {
            let mut table = Table::new(["GROUP", ">SUBSCRIBERS", ">UNHEALTHY", ">SOURCES", ">IDLE", ">LAG"]);
            groups.iter().for_each(|group| table.row(row(group)));
            table.print("no groups")
        })
    }

    async fn nodes(self, context: &Context) -> anyhow::Result<()> {
        let nodes = context.client().await?.group_nodes().await?;
        self.json.print(&nodes, |nodes| {
            let mut table = Table::new(["NODE", "HEARTBEAT", "COORDINATES"]);
            nodes.items.iter().for_each(|node| table.row(node_row(node, nodes)));
            table.print("no nodes")
        })
    }
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

fn node_row(node: &GroupNode, all: &GroupNodes) -> [String; 3] {
    let term = all.term.filter(|_| all.coordinator == Some(node.id));
    let coordinates = term.map_or_else(|| "-".to_owned(), |term| format!("in term {term}"));
    [node.id.to_string(), moment(node.heartbeat_at), coordinates]
}

impl One {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let group = context.client().await?.group(&self.name).await?;
        self.json.print(&group, print)
    }
}

fn print(group: &Group) -> anyhow::Result<()> {
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
    let mut table = Table::new(["SOURCE", "SUBSCRIBER", ">POSITION", ">LAG", "SINCE"]);
    group.sources.iter().for_each(|source| table.row(source_row(source, group.alone.is_some())));
    table.print("no sources")?;
    for source in &group.sources {
        if let Some(failing) = &source.failing {
            let FailingEvent { seq, attempts, .. } = failing;
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

fn source_row(source: &GroupSource, is_alone: bool) -> [String; 5] {
    let nobody = if is_alone { "alone" } else { "-" };
    let owner = source.subscriber.map_or_else(|| nobody.to_owned(), |owner| owner.to_string());
    let releasing = if source.releasing { " (ending)" } else { "" };
    [
        text::clean(&source.source),
        format!("{owner}{releasing}"),
        source.position.to_string(),
        source.lag.to_string(),
        source.moved_at.map_or_else(|| "-".to_owned(), moment),
    ]
}

impl Reset {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let request = ResetRequest { to: self.to, source: self.source };
        let reset = context.client().await?.reset_group(&self.name, request).await?;
        self.json.print(&reset, |reset| {
            let sources = show::count(reset.sources, "source");
            show::line(format_args!("group {} resumes after {} in {sources}", self.name, reset.position))
        })
    }
}

impl Recover {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        context.client().await?.recover_group(&self.name).await?;
        show::line(format_args!("the members of group {} will retry with their next heartbeat", self.name))
    }
}

impl Remove {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let removed = context.client().await?.remove_group(&self.name, self.source.as_ref()).await?;
        self.json.print(&removed, |removed| {
            let (positions, pins) =
                (show::count(removed.positions, "position"), show::count(removed.pins, "pin"));
            show::line(format_args!("removed {positions} and {pins} of group {}", self.name))
        })
    }
}

impl Dead {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (client, name) = (context.client().await?, self.name);
        let list = self.list.gather(async |page| client.group_dead(&name, page).await).await?;
        self.json.print_list(&list, |dead| {
            let mut table = Table::new([">SEQ", "CANVAS", "STREAM", "EVENT", ">ATTEMPTS", "DIED", "ERROR"]);
            dead.iter().for_each(|dead| table.row(dead_row(dead)));
            table.print("nothing was given up")
        })
    }
}

fn dead_row(dead: &GroupDead) -> [String; 7] {
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
            let RedrivenGroup { redriven: count, more, before } =
                client.redrive_group(&self.name, request).await?;
            // A full page may have been the last one.
            Ok(bulk::Step { count, more: more && count > 0, before })
        });
        let bulk::Step { count, more, before } = all.await?;
        self.json.print(&RedrivenGroup { redriven: count, more, before }, |redriven| {
            show::line(format_args!("{} will be retried", show::count(redriven.redriven, "event")))
        })
    }
}

impl Client {
    pub(crate) async fn group_nodes(&self) -> anyhow::Result<GroupNodes> {
        self.call(Request::get(&["nodes"]).everywhere()).await
    }

    pub(crate) async fn groups(&self) -> anyhow::Result<List<GroupSummary>> {
        self.call(Request::get(&["groups"]).everywhere()).await
    }

    pub(crate) async fn group(&self, name: &Name) -> anyhow::Result<Group> {
        self.call(Request::get(&["groups", name.as_str()]).everywhere()).await
    }

    pub(crate) async fn reset_group(&self, name: &Name, request: ResetRequest) -> anyhow::Result<ResetGroup> {
        let reset = Request::post(&["groups", name.as_str(), "reset"]);
        self.call(reset.everywhere().silent().body(&request)?).await
    }

    pub(crate) async fn group_dead(&self, name: &Name, page: Page) -> anyhow::Result<List<GroupDead>> {
        self.call(Request::get(&["groups", name.as_str(), "dead"]).everywhere().page(page)).await
    }

    pub(crate) async fn redrive_group(
        &self,
        name: &Name,
        request: RedriveGroup,
    ) -> anyhow::Result<RedrivenGroup> {
        let redrive = Request::post(&["groups", name.as_str(), "dead", "redrive"]);
        self.call(redrive.everywhere().silent().body(&request)?).await
    }

    pub(crate) async fn recover_group(&self, name: &Name) -> anyhow::Result<()> {
        self.send(Request::post(&["groups", name.as_str(), "recover"]).everywhere().silent()).await.map(drop)
    }

    pub(crate) async fn remove_group(
        &self,
        name: &Name,
        source: Option<&EventSource>,
    ) -> anyhow::Result<RemoveGroup> {
        let source = source.map(EventSource::to_string);
        let remove = Request::delete(&["groups", name.as_str()]).everywhere().silent();
        self.call(remove.query("source", source)).await
    }
}

//! `wakeq dead`: list, group, redrive or delete dead events.

mod groups;

use clap::{Args, Subcommand};

use crate::cli::Context;
use crate::cli::arguments::{self, HandlerName, TableArgs};
use crate::cli::client::{Client, Request};
use crate::cli::failure::Failure;
use crate::cli::show::{self, JsonArg, exact, moment};
use crate::resources::dead_events::wire::{DeadEventJson, Deleted, Redriven};
use crate::resources::events::command::{filter as events, in_queue};
use crate::resources::events::wire::EventState;
use crate::resources::operations::command::Ended;
use crate::resources::operations::wire::{NewOperationJson, OperationFilter, OperationKindJson};
use groups::{Forget, Know, ListGroups};
use wakeq::control::ErrorGroupId;
use wakeq::{EventId, Timestamp};

#[derive(Args)]
pub(crate) struct Dead {
    #[command(subcommand)]
    verb: DeadVerb,
}

#[derive(Subcommand)]
enum DeadVerb {
    /// List dead events, latest first
    List(ListDead),
    /// List what dead events died of, with how many died of each
    Groups(ListGroups),
    /// Mark an error group as known
    Know(Know),
    /// Remove the mark of an error group
    Forget(Forget),
    /// Redrive dead events, with their retry counts reset
    Redrive(Redrive),
    /// Delete dead events permanently
    Delete(DeleteDead),
}

#[derive(Args)]
struct ListDead {
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    found: events::EventFilterArgs,
}

#[derive(Args)]
struct Redrive {
    /// Only this event
    #[arg(long, value_parser = arguments::event_id, conflicts_with_all = ["handler", "error_group", "since", "before", "all"])]
    id: Option<EventId>,
    #[command(flatten)]
    filter: FilterArgs,
    /// All dead events of the canvas
    #[arg(long, conflicts_with_all = ["handler", "error_group", "since", "before"])]
    all: bool,
    /// Count the events that would be redriven (up to 1,000,000), without changing anything
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct DeleteDead {
    #[command(flatten)]
    filter: FilterArgs,
    /// All dead events of the canvas
    #[arg(long, conflicts_with_all = ["handler", "error_group", "since", "before"])]
    all: bool,
    /// Count the events that would be deleted (up to 1,000,000), without deleting them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct FilterArgs {
    /// Only events of this handler: its name, or MODULE/name
    #[arg(long)]
    handler: Option<HandlerName>,
    /// Only events of this error group, as `wakeq dead groups` lists them
    #[arg(long, value_name = "GROUP")]
    error_group: Option<ErrorGroupId>,
    /// Only events that died at or after this time
    #[arg(long, value_parser = arguments::timestamp)]
    since: Option<Timestamp>,
    /// Only events that died before this time
    #[arg(long, value_parser = arguments::timestamp)]
    before: Option<Timestamp>,
}

impl FilterArgs {
    /// For commands that change many events: all of them have to be requested explicitly.
    fn checked(&self, kind: OperationKindJson, all: bool, or: &str) -> Result<NewOperationJson, Failure> {
        let named = self.handler.is_some() || self.error_group.is_some();
        if !all && !named && self.since.is_none() && self.before.is_none() {
            let words = format!(
                "say which: {or}--handler HANDLER, --error-group GROUP, --since or --before MOMENT, or --all of \
                 the canvas"
            );
            return Err(Failure::Usage(words));
        }
        let handler = self.handler.as_ref();
        let filter = OperationFilter {
            module: handler.map(|handler| handler.module.to_string()),
            name: handler.map(|handler| handler.name.to_string()),
            died_since: self.since,
            error_group: self.error_group.map(|group| group.0),
            ..OperationFilter::default()
        };
        Ok(NewOperationJson { all, before: self.before, ..NewOperationJson::new(kind, filter) })
    }
}

impl Dead {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            DeadVerb::List(command) => command.run(context).await,
            DeadVerb::Groups(command) => command.run(context).await,
            DeadVerb::Know(command) => command.run(context).await,
            DeadVerb::Forget(command) => command.run(context).await,
            DeadVerb::Redrive(command) => command.run(context).await,
            DeadVerb::Delete(command) => command.run(context).await,
        }
    }
}

impl ListDead {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let FilterArgs { handler, error_group, since, before } = self.filter;
        let request = Request::get(&["dead-events"])
            .query("module", handler.as_ref().map(|handler| &handler.module))
            .query("name", handler.as_ref().map(|handler| &handler.name))
            .query("since", since.map(|moment| moment.to_rfc3339()))
            .query("before", before.map(|moment| moment.to_rfc3339()))
            .query("error_group", error_group);
        let request = self.found.add_to(request);
        let head = ["DIED", "EVENT", "HANDLER", "CAUSE", "ERROR"];
        self.table.print(context, request, head, "no dead events", row).await
    }
}

fn row(event: &DeadEventJson) -> [String; 5] {
    let DeadEventJson { module, name, modifier, .. } = event;
    let error = event.last_error.as_deref().unwrap_or_default();
    [
        moment(event.died_at),
        event.id.to_string(),
        format!("{module}/{name}/{modifier}{}", in_queue(event.copy_of.as_ref())),
        event.cause.clone(),
        error.lines().next().unwrap_or_default().to_owned(),
    ]
}

impl Redrive {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let Some(id) = self.id else {
            let redrive = self.filter.checked(OperationKindJson::Redrive, self.all, "--id EVENT, ")?;
            let ended = context.client().await?.operate(&redrive, self.dry_run).await?;
            let Ended { count: redriven, more, before } = ended;
            let all = Redriven { redriven, more, before: Some(before) };
            self.json.print(&all, |_| ended.say(self.dry_run, "brought back"))?;
            return ended.outcome(self.dry_run);
        };
        let redriven = redrive_one(&context.client().await?, id, self.dry_run).await?;
        self.json.print(&redriven, |_| {
            let would = if self.dry_run { "would be " } else { "" };
            show::line(format_args!("1 dead event {would}brought back"))
        })
    }
}

async fn redrive_one(client: &Client, id: EventId, dry_run: bool) -> anyhow::Result<Redriven> {
    if !dry_run {
        let redriven = client.call(Request::post(&["dead-events", &id.to_string(), "redrive"])).await?;
        client.same(redriven, id)?;
    } else if client.event(id, false).await?.state != EventState::Dead {
        return Err(Failure::NotFound(format!("event {id} is not dead")).into());
    }
    Ok(Redriven { redriven: 1, more: false, before: None })
}

impl Ended {
    /// Says what was done to the dead events, or would be.
    fn say(&self, dry_run: bool, done: &str) -> anyhow::Result<()> {
        let events = show::at_least(self.count, self.more && dry_run, "dead event");
        if dry_run {
            show::line(format_args!("{events} would be {done} (--before {})", exact(self.before)))
        } else {
            show::line(format_args!("{events} {done}"))
        }
    }
}

impl DeleteDead {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let delete = self.filter.checked(OperationKindJson::DeleteDead, self.all, "")?;
        let ended = context.client().await?.operate(&delete, self.dry_run).await?;
        let all = Deleted { deleted: ended.count, more: ended.more, before: Some(ended.before) };
        self.json.print(&all, |_| ended.say(self.dry_run, "deleted"))?;
        ended.outcome(self.dry_run)
    }
}

//! `wakeq dead`: list, redrive or delete dead events.

use clap::{Args, Subcommand};

use crate::cli::Context;
use crate::cli::arguments::{self, HandlerName, TableArgs};
use crate::cli::bulk;
use crate::cli::client::{Client, Request};
use crate::cli::failure::Failure;
use crate::cli::show::{self, JsonArg, moment};
use crate::resources::dead_events::wire::{BulkRequest, DeadEventJson, Deleted, Redriven};
use crate::resources::events::command::{filter as events, in_queue};
use crate::resources::events::wire::EventState;
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
    #[arg(long, value_parser = arguments::event_id, conflicts_with_all = ["handler", "since", "before", "all"])]
    id: Option<EventId>,
    #[command(flatten)]
    filter: FilterArgs,
    /// All dead events of the canvas
    #[arg(long, conflicts_with_all = ["handler", "since", "before"])]
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
    #[arg(long, conflicts_with_all = ["handler", "since", "before"])]
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
    /// Only events that died at or after this time
    #[arg(long, value_parser = arguments::timestamp)]
    since: Option<Timestamp>,
    /// Only events that died before this time
    #[arg(long, value_parser = arguments::timestamp)]
    before: Option<Timestamp>,
}

impl FilterArgs {
    fn which(&self) -> BulkRequest {
        let handler = self.handler.as_ref();
        BulkRequest {
            module: handler.map(|handler| handler.module.to_string()),
            name: handler.map(|handler| handler.name.to_string()),
            since: self.since,
            before: self.before,
            ..BulkRequest::default()
        }
    }

    /// For commands that change many events: all of them have to be requested explicitly.
    fn checked(&self, all: bool, dry_run: bool, or: &str) -> Result<BulkRequest, Failure> {
        if !all && self.handler.is_none() && self.since.is_none() && self.before.is_none() {
            let words = format!(
                "say which: {or}--handler HANDLER, --since or --before MOMENT, or --all of the canvas"
            );
            return Err(Failure::Usage(words));
        }
        Ok(BulkRequest { all, dry_run, ..self.which() })
    }
}

impl Dead {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            DeadVerb::List(command) => command.run(context).await,
            DeadVerb::Redrive(command) => command.run(context).await,
            DeadVerb::Delete(command) => command.run(context).await,
        }
    }
}

impl ListDead {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let BulkRequest { module, name, since, before, .. } = self.filter.which();
        let request = Request::get(&["dead-events"])
            .query("module", module)
            .query("name", name)
            .query("since", since.map(|moment| moment.to_rfc3339()))
            .query("before", before.map(|moment| moment.to_rfc3339()));
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
        let redriven = match self.id {
            Some(id) => redrive_one(&context.client().await?, id, self.dry_run).await?,
            None => {
                let which = self.filter.checked(self.all, self.dry_run, "--id EVENT, ")?;
                redrive(&context.client().await?, which).await?
            }
        };
        self.json.print(&redriven, |redriven| {
            let events = counted(self.dry_run, redriven.redriven, redriven.more);
            show::line(format_args!("{events} {}", done(self.dry_run, "brought back", redriven.before)))
        })?;
        bulk::ended(redriven.more && !self.dry_run, redriven.before)
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

/// Redrives all of them in bounded requests; leaves events that die again meanwhile.
async fn redrive(client: &Client, which: BulkRequest) -> anyhow::Result<Redriven> {
    let request = async |before, count_up_to| {
        let which = BulkRequest { count_up_to, ..until(&which, before) };
        let redrive = Request::post(&["dead-events", "redrive"]).body(&which)?;
        let redrive = if which.dry_run { redrive.silent() } else { redrive };
        let Redriven { redriven: count, more, before } = client.call(redrive).await?;
        Ok(bulk::Step { count, more, before })
    };
    let words = ("dead event", "brought back");
    let bulk::Step { count, more, before } = bulk::all_or_count(which.dry_run, words, request).await?;
    Ok(Redriven { redriven: count, more, before })
}

/// The number of events: only a dry run's may be incomplete.
fn counted(dry_run: bool, number: u64, more: bool) -> String {
    show::at_least(number, more && dry_run, "dead event")
}

/// The words for what was done to them, or would be.
fn done(dry_run: bool, done: &str, before: Option<Timestamp>) -> String {
    if dry_run { format!("would be {done}{}", bulk::counted(before)) } else { done.to_owned() }
}

/// The first request, or a following one.
fn until(which: &BulkRequest, before: Option<Timestamp>) -> BulkRequest {
    match before {
        Some(_) => BulkRequest { before, all: false, ..which.clone() },
        None => which.clone(),
    }
}

impl DeleteDead {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let which = self.filter.checked(self.all, self.dry_run, "")?;
        let client = context.client().await?;
        let request = async |before, count_up_to| {
            let which = BulkRequest { count_up_to, ..until(&which, before) };
            let delete = Request::post(&["dead-events", "delete"]).silent().body(&which)?;
            let Deleted { deleted: count, more, before } = client.call(delete).await?;
            Ok(bulk::Step { count, more, before })
        };
        let words = ("dead event", "deleted");
        let bulk::Step { count, more, before } = bulk::all_or_count(self.dry_run, words, request).await?;
        let all = Deleted { deleted: count, more, before };
        self.json.print(&all, |all| {
            let events = counted(self.dry_run, all.deleted, all.more);
            show::line(format_args!("{events} {}", done(self.dry_run, "deleted", all.before)))
        })?;
        bulk::ended(all.more && !self.dry_run, all.before)
    }
}

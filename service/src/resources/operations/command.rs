//! `wakeq operations`: begin, list, show and cancel what is done to all events that match a filter,
//! or that are named. Other commands on many events begin operations, too, and follow them to their
//! end here.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use uuid::Uuid;

use crate::cli::Context;
use crate::cli::arguments::{self, HandlerName, TableArgs};
use crate::cli::client::{Client, Request};
use crate::cli::failure::Failure;
use crate::cli::progress::Progress;
use crate::cli::show::{self, JsonArg, exact, field, moment};
use crate::resources::events::command::filter::{DueArgs, EventFilterArgs};
use crate::resources::operations::wire::{
    NewOperationJson, OperationFilter, OperationJson, OperationKindJson, OperationPreviewJson,
    OperationStateJson, SelectedState,
};
use wakeq::control::{ErrorGroupId, EventState, InvalidFilter};
use wakeq::{EventId, Name, Timestamp};

/// The first pause before an operation is looked at again; it doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How many events a dry run looks at, which is as many as a preview may.
const LOOKED_AT_MAX: u64 = 1_000_000;

#[derive(Args)]
pub(crate) struct Operations {
    #[command(subcommand)]
    verb: OperationVerb,
}

#[derive(Subcommand)]
enum OperationVerb {
    /// Begin an operation, and follow it to its end
    Begin(Box<Begin>),
    /// List the operations of the canvas, latest first; ended ones are kept for 14 days
    List(TableArgs),
    /// Show an operation, and how far it has come
    Show(OneOperation),
    /// Cancel an operation; what it has done stays
    Cancel(OneOperation),
}

#[derive(Args)]
struct OneOperation {
    /// The operation's id
    id: Uuid,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Begin {
    /// What is done to each event
    kind: Kind,
    #[command(flatten)]
    filter: FilterArgs,
    /// Only this event, by its id; repeatable, up to 1,000 times, in place of other conditions
    #[arg(long = "id", value_name = "ID", value_parser = arguments::event_id, conflicts_with = "all")]
    ids: Vec<EventId>,
    /// All events of the canvas
    #[arg(long)]
    all: bool,
    /// Only events that were emitted or, of dead ones, died before this time [default: now]
    #[arg(long, value_parser = arguments::timestamp)]
    before: Option<Timestamp>,
    /// For retag: add this tag; may be repeated
    #[arg(long, value_name = "TAG")]
    add_tag: Vec<String>,
    /// For retag: remove this tag; may be repeated
    #[arg(long, value_name = "TAG")]
    remove_tag: Vec<String>,
    /// Count the events that would be changed (among up to 1,000,000), without changing anything
    #[arg(long)]
    dry_run: bool,
    /// Do not wait for the end
    #[arg(long, conflicts_with = "dry_run")]
    detach: bool,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Delete events that wait, and have the handlers of running ones told to stop
    Cancel,
    /// Make events that wait due at once
    RunNow,
    /// Delete events that wait, and leave running ones alone
    Delete,
    /// Bring dead events back
    Redrive,
    /// Delete dead events
    DeleteDead,
    /// Change tags
    Retag,
}

#[derive(Args)]
struct FilterArgs {
    /// Only events of this handler: its name, or MODULE/name
    #[arg(long)]
    handler: Option<HandlerName>,
    /// Only events in this state; repeatable, for any of them
    #[arg(long = "state", value_parser = state)]
    states: Vec<SelectedState>,
    /// Only events that this worker has claimed
    #[arg(long, value_name = "NAME")]
    worker: Option<Name>,
    /// Only dead events that died at or after this time
    #[arg(long, value_name = "TIME", value_parser = arguments::timestamp)]
    died_since: Option<Timestamp>,
    /// Only dead events of this group: `wakeq dead groups`
    #[arg(long, value_name = "GROUP")]
    error_group: Option<ErrorGroupId>,
    #[command(flatten)]
    events: EventFilterArgs,
    #[command(flatten)]
    due: DueArgs,
}

fn state(text: &str) -> Result<SelectedState, String> {
    let state: EventState = text.parse().map_err(|error: InvalidFilter| error.to_string())?;
    Ok(state.into())
}

impl FilterArgs {
    fn filter(self) -> OperationFilter {
        let handler = self.handler.as_ref();
        OperationFilter {
            module: handler.map(|handler| handler.module.to_string()),
            name: handler.map(|handler| handler.name.to_string()),
            states: self.states,
            worker: self.worker.as_ref().map(ToString::to_string),
            died_since: self.died_since,
            error_group: self.error_group.map(|group| group.0),
            ..self.events.of_operation(&self.due)
        }
    }
}

impl From<Kind> for OperationKindJson {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Cancel => Self::Cancel,
            Kind::RunNow => Self::RunNow,
            Kind::Delete => Self::Delete,
            Kind::Redrive => Self::Redrive,
            Kind::DeleteDead => Self::DeleteDead,
            Kind::Retag => Self::Retag,
        }
    }
}

impl Operations {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            OperationVerb::Begin(command) => command.run(context).await,
            OperationVerb::List(table) => {
                let head = ["OPERATION", "KIND", "STATE", ">CHANGED", ">SKIPPED", "BEGUN", "BY"];
                table.print(context, Request::get(&["operations"]), head, "no operations", row).await
            }
            OperationVerb::Show(OneOperation { id, json }) => {
                json.print(&context.client().await?.operation(id).await?, print)
            }
            OperationVerb::Cancel(OneOperation { id, json }) => {
                let request = Request::delete(&["operations", &id.to_string()]).silent();
                json.print(&context.call(request).await?, print)
            }
        }
    }
}

impl Begin {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let filter = self.filter.filter();
        let is_filtered = filter != OperationFilter::default();
        if !self.ids.is_empty() && is_filtered {
            return Err(Failure::Usage("select events either by --id or by conditions".to_owned()).into());
        }
        if self.ids.is_empty() && !is_filtered && self.before.is_none() && !self.all {
            let words =
                "say which: by --handler, --state, --tag, --id or another condition, or --all of the canvas";
            return Err(Failure::Usage(words.to_owned()).into());
        }
        let new = NewOperationJson {
            kind: self.kind.into(),
            filter,
            ids: (!self.ids.is_empty()).then(|| self.ids.iter().map(|id| id.0).collect()),
            all: self.all,
            before: self.before,
            add_tags: self.add_tag,
            remove_tags: self.remove_tag,
            look_up_to: None,
        };
        let client = context.client().await?;
        if self.dry_run {
            return self.json.print(&client.preview_operation(&new).await?, |preview| {
                let events = show::at_least(preview.count, preview.more, "event");
                show::line(format_args!("{events} would be changed (--before {})", exact(preview.before)))
            });
        }
        let begun = client.begin_operation(&new).await?;
        let shown = if self.detach { begun } else { client.follow(begun).await? };
        self.json.print(&shown, print)?;
        done(&shown)
    }
}

/// Fails if the operation was cancelled or has failed.
fn done(operation: &OperationJson) -> anyhow::Result<()> {
    let OperationJson { id, changed, error, .. } = operation;
    match operation.state {
        OperationStateJson::Done | OperationStateJson::Open => Ok(()),
        OperationStateJson::Cancelled => {
            let words = format!("somebody has cancelled the operation {id}: {changed} changed");
            Err(Failure::Conflict(words).into())
        }
        OperationStateJson::Failed => Err(Failure::Failed(error.clone().unwrap_or_default()).into()),
    }
}

fn row(operation: &OperationJson) -> [String; 7] {
    [
        operation.id.to_string(),
        kind_word(operation.kind).to_owned(),
        state_word(operation.state).to_owned(),
        operation.changed.to_string(),
        operation.skipped.to_string(),
        moment(operation.started_at),
        operation.author.clone(),
    ]
}

fn print(operation: &OperationJson) -> anyhow::Result<()> {
    field("operation", operation.id)?;
    field("kind", kind_word(operation.kind))?;
    match operation.named {
        Some(named) => field("named", show::count(named, "event"))?,
        None => field("filter", serde_json::to_string(&operation.filter)?)?,
    }
    for (word, tags) in [("adds", &operation.add_tags), ("removes", &operation.remove_tags)] {
        if !tags.is_empty() {
            field(word, tags.join(", "))?;
        }
    }
    field("before", exact(operation.before))?;
    field("state", state_word(operation.state))?;
    field("preview", show::at_least(operation.preview_count, operation.preview_more, "event"))?;
    field("looked at", show::count(operation.looked_at, "event"))?;
    field("changed", show::count(operation.changed, "event"))?;
    field("skipped", show::count(operation.skipped, "event"))?;
    field("begun", format_args!("{} by {}", moment(operation.started_at), operation.author))?;
    if let Some(ended) = operation.ended_at {
        field("ended", moment(ended))?;
    }
    operation.error.as_ref().map_or(Ok(()), |error| field("error", error))
}

fn kind_word(kind: OperationKindJson) -> &'static str {
    match kind {
        OperationKindJson::Cancel => "cancel",
        OperationKindJson::RunNow => "run-now",
        OperationKindJson::Delete => "delete",
        OperationKindJson::Redrive => "redrive",
        OperationKindJson::DeleteDead => "delete-dead",
        OperationKindJson::Retag => "retag",
    }
}

fn state_word(state: OperationStateJson) -> &'static str {
    match state {
        OperationStateJson::Open => "open",
        OperationStateJson::Done => "done",
        OperationStateJson::Cancelled => "cancelled",
        OperationStateJson::Failed => "failed",
    }
}

/// What an operation has done, or as a dry run would do: for commands with words of their own.
pub(crate) struct Ended {
    pub(crate) count: u64,
    /// Of a dry run, whether there may be more; else whether events were left that others hold.
    pub(crate) more: bool,
    pub(crate) before: Timestamp,
}

impl Ended {
    /// The outcome of a command after its report: an error if others hold some of its events.
    pub(crate) fn outcome(&self, dry_run: bool) -> anyhow::Result<()> {
        if dry_run || !self.more {
            return Ok(());
        }
        let words = format!(
            "the rest is locked by other transactions: repeat the command later (--before {})",
            exact(self.before)
        );
        Err(Failure::Conflict(words).into())
    }
}

impl Client {
    /// What an operation would change, among as many events as may be looked at.
    pub(crate) async fn preview_operation(
        &self,
        new: &NewOperationJson,
    ) -> anyhow::Result<OperationPreviewJson> {
        let new = NewOperationJson { look_up_to: Some(LOOKED_AT_MAX), ..new.clone() };
        self.call(Request::post(&["operations", "preview"]).silent().body(&new)?).await
    }

    pub(crate) async fn begin_operation(&self, new: &NewOperationJson) -> anyhow::Result<OperationJson> {
        let request = Request::post(&["operations"]).body(new)?.repeatable();
        let request = match new.kind {
            // Workers are notified, or signalled.
            OperationKindJson::Cancel | OperationKindJson::RunNow | OperationKindJson::Redrive => request,
            OperationKindJson::Delete | OperationKindJson::DeleteDead | OperationKindJson::Retag => {
                request.silent()
            }
        };
        self.call(request).await
    }

    async fn operation(&self, id: Uuid) -> anyhow::Result<OperationJson> {
        self.call(Request::get(&["operations", &id.to_string()])).await
    }

    /// Waits until an operation has ended, and reports at a terminal how far it has come.
    async fn follow(&self, begun: OperationJson) -> anyhow::Result<OperationJson> {
        let (mut progress, mut latest, mut pause) = (Progress::on_stderr(), begun, PAUSE);
        while latest.state == OperationStateJson::Open {
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
            let before = latest.changed;
            latest = self.operation(latest.id).await?;
            if pause == PAUSE_MAX && latest.changed != before {
                let (changed, id) = (show::count(latest.changed, "event"), latest.id);
                progress
                    .say(format_args!("{changed} changed so far (`wakeq operations cancel {id}` stops it)"));
            }
        }
        Ok(latest)
    }

    /// Does what an operation does, to its end, or with `dry_run` only counts.
    pub(crate) async fn operate(&self, new: &NewOperationJson, dry_run: bool) -> anyhow::Result<Ended> {
        if dry_run {
            let preview = self.preview_operation(new).await?;
            return Ok(Ended { count: preview.count, more: preview.more, before: preview.before });
        }
        let begun = self.begin_operation(new).await?;
        let ended = self.follow(begun).await?;
        done(&ended)?;
        Ok(Ended { count: ended.changed, more: ended.skipped > 0, before: ended.before })
    }
}

//! `wakeq events`: list, cancel and hurry events. Emitting, showing, counting and tagging are in
//! files of their own.

pub(crate) mod count;
mod due;
pub(crate) mod event;
pub(crate) mod filter;
mod tag;

use clap::{Args, Subcommand};

use crate::cli::Context;
use crate::cli::arguments::{self, HandlerName, ListArgs};
use crate::cli::client::{Client, Request};
use crate::cli::show::{self, JsonArg, moment};
use crate::cli::table::Table;
use crate::resources::emit::command::Emit;
use crate::resources::ended_events::command::ListEnded;
use crate::resources::events::command::count::{CountEvents, joined};
use crate::resources::events::command::due::Reschedule;
use crate::resources::events::command::event::{Explain, ShowEvent, state_word};
use crate::resources::events::command::filter::{DueArgs, EventFilterArgs};
use crate::resources::events::command::tag::TagEvent;
use crate::resources::events::wire::{CancelledEvent, EventDetail, EventState, EventSummaryJson, TheEvent};
use crate::resources::queues::wire::Copied;
use crate::resources::wire::List;
use wakeq::control::EventState as FilteredState;
use wakeq::{EventId, Name};

#[derive(Args)]
pub(crate) struct Events {
    #[command(subcommand)]
    verb: EventVerb,
}

#[derive(Subcommand)]
enum EventVerb {
    /// Emit an event, and print its id
    Emit(Box<Emit>),
    /// List events that have not ended, by handler and by when they are due
    List(ListEvents),
    /// List or count events that have ended and are kept, latest first
    Ended(ListEnded),
    /// Count events by a filter
    Count(CountEvents),
    /// Show an event: why it is not running, and its value
    Show(ShowEvent),
    /// Explain why an event is not running, and what happens next
    Explain(Explain),
    /// Delete a waiting event, or with --running also one that runs
    Cancel(Cancel),
    /// Make a waiting event due at once; a rule on its handler still holds it
    RunNow(RunNow),
    /// Change when a waiting event is due, earlier or later
    Reschedule(Reschedule),
    /// Replace the tags of an event
    Tag(TagEvent),
}

#[derive(Args)]
struct ListEvents {
    /// Only events of this handler: its name, or MODULE/name
    #[arg(long)]
    handler: Option<HandlerName>,
    /// Only events in this state: ready, behind, halted, held, delayed, running, paused, blocked
    /// or limited; repeatable, for any of them
    #[arg(long = "state", value_name = "STATE", value_parser = state)]
    states: Vec<FilteredState>,
    /// Only events that this worker has claimed
    #[arg(long, value_name = "NAME")]
    worker: Option<Name>,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    json: JsonArg,
    #[command(flatten)]
    filter: EventFilterArgs,
    #[command(flatten)]
    due: DueArgs,
}

#[derive(Args)]
pub(crate) struct Cancel {
    /// The event's id, or the id chosen for it when it was emitted
    #[arg(value_parser = arguments::event_id)]
    id: EventId,
    /// Also if it is running: its handler is told to stop, and cut off after a grace
    #[arg(long)]
    running: bool,
    /// Show what would be deleted, without deleting it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
pub(crate) struct RunNow {
    /// The event's id, or the id chosen for it when it was emitted
    #[arg(value_parser = arguments::event_id)]
    id: EventId,
    #[command(flatten)]
    json: JsonArg,
}

fn state(text: &str) -> Result<FilteredState, &'static str> {
    let state = text.parse::<FilteredState>().ok().filter(|state| *state != FilteredState::Dead);
    state.ok_or("a state is ready, behind, halted, held, delayed, running, paused, blocked or limited")
}

impl Events {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            EventVerb::Emit(command) => command.run(context).await,
            EventVerb::List(command) => command.run(context).await,
            EventVerb::Ended(command) => command.run(context).await,
            EventVerb::Count(command) => command.run(context).await,
            EventVerb::Show(command) => command.run(context).await,
            EventVerb::Explain(command) => command.run(context).await,
            EventVerb::Cancel(command) => command.run(context).await,
            EventVerb::RunNow(command) => command.run(context).await,
            EventVerb::Reschedule(command) => command.run(context).await,
            EventVerb::Tag(command) => command.run(context).await,
        }
    }
}

impl ListEvents {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let client = context.client().await?;
        let handler = self.handler.as_ref();
        let request = Request::get(&["events"])
            .query("module", handler.map(|handler| &handler.module))
            .query("name", handler.map(|handler| &handler.name))
            .query("state", joined(&self.states))
            .query("worker", self.worker.as_ref());
        let request = self.due.add_to(self.filter.add_to(request));
        let page = async |page| client.call(request.clone().page(page)).await;
        let list: List<EventSummaryJson> = self.list.gather(page).await?;
        self.json.print_list(&list, |events| {
            let mut table = Table::new(["EVENT", "STATE", "DUE", ">RETRIES", ">LOSSES", "HANDLER"]);
            events.iter().for_each(|event| table.row(row(event)));
            table.print("no events")
        })
    }
}

fn row(event: &EventSummaryJson) -> [String; 6] {
    let EventSummaryJson { module, name, modifier, .. } = event;
    [
        event.id.to_string(),
        state_word(event.state).to_owned(),
        moment(event.delay_until),
        event.retries.to_string(),
        event.losses.to_string(),
        format!("{module}/{name}/{modifier}{}", in_queue(event.copy_of.as_ref())),
    ]
}

/// The queue that a copy is in, to be shown after its handler.
pub(crate) fn in_queue(copy: Option<&Copied>) -> String {
    copy.map(|copy| format!(" in {}", copy.queue)).unwrap_or_default()
}

impl Cancel {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (client, id) = (context.client().await?, self.id);
        if self.dry_run {
            let event = client.event(id, false).await?;
            return self.json.print(&event, |event| {
                let state = state_word(event.state);
                let deleted = if event.is_waiting() {
                    "would be deleted"
                } else if self.running && event.state == EventState::Running {
                    "would be deleted once its handler has stopped"
                } else {
                    "would stay as it is"
                };
                show::line(format_args!("{id} is {state}: it {deleted}"))
            });
        }
        let next = client.cancel(id, self.running).await?;
        self.json.print(&CancelledEvent { id: id.0, next }, |cancelled| match &cancelled.next {
            None => show::line(format_args!("{id} cancelled")),
            Some(next) => show::line(format_args!("{id} is running: {next}")),
        })
    }
}

impl RunNow {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let id = self.id;
        context.client().await?.run_now(id).await?;
        self.json.print(&TheEvent { id: id.0 }, |_| show::line(format_args!("{id} is due now")))
    }
}

impl Client {
    /// The description of an event, with its value only if requested.
    pub(crate) async fn event(&self, id: EventId, value: bool) -> anyhow::Result<EventDetail> {
        let view = value.then_some("full");
        self.call(Request::get(&["events", &id.to_string()]).query("view", view)).await
    }

    /// With `running` also an event that runs; then what happens next.
    pub(crate) async fn cancel(&self, id: EventId, running: bool) -> anyhow::Result<Option<String>> {
        let request = Request::post(&["events", &id.to_string(), "cancel"]);
        // Workers are signalled, and otherwise nothing is published.
        let request = if running { request.query("running", Some(true)) } else { request.silent() };
        let CancelledEvent { id: done, next } = self.call(request).await?;
        self.same(TheEvent { id: done }, id)?;
        Ok(next)
    }

    pub(crate) async fn run_now(&self, id: EventId) -> anyhow::Result<()> {
        let done: TheEvent = self.call(Request::post(&["events", &id.to_string(), "run-now"])).await?;
        self.same(done, id)
    }
}

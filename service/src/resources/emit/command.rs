//! `wakeq events emit`.

mod options;
mod unique;

use std::time::Duration;

use clap::Args;
use serde_json::value::RawValue;

use crate::cli::Context;
use crate::cli::arguments::{self, HandlerAddressArg};
use crate::cli::client::{Client, Request};
use crate::cli::failure::Failure;
use crate::cli::given::json;
use crate::cli::show::{self, JsonArg, moment};
use crate::resources::emit::wire::{EmittedBatch, EmittedJson, NewChange, NewEvent, UniqueOutcomeJson};
use crate::resources::log::wire::{Logged, StreamName};
use options::OptionArgs;
use unique::UniqueArgs;
use wakeq::events::BatchName;
use wakeq::log::StreamId;
use wakeq::order::ObjectKey;
use wakeq::{CanvasId, EventId, Name, Timestamp};

#[derive(Args)]
pub(crate) struct Emit {
    /// The handler: name, MODULE/name or MODULE/name/modifier
    ///
    /// Without a module it is one of WORKER.
    handler: HandlerAddressArg,
    /// The value, as JSON, @FILE, or - for standard input
    #[arg(default_value = "null", value_parser = json)]
    value: String,
    /// The handler's modifier [default: _]
    #[arg(long)]
    modifier: Option<Name>,
    /// Run after this delay (30s, 5m, 2days)
    #[arg(long, value_parser = humantime::parse_duration, conflicts_with = "at")]
    after: Option<Duration>,
    /// Run at this time (2030-01-31T08:00:00Z)
    #[arg(long, value_parser = arguments::timestamp)]
    at: Option<Timestamp>,
    /// An id of your choice: repeating it adds nothing
    ///
    /// It is unique on the canvas, and remembered for 7 days.
    #[arg(long, value_parser = arguments::event_id)]
    id: Option<EventId>,
    /// The object that it is on, and in order with
    ///
    /// It runs after all earlier events on the object for the same handler.
    #[arg(long, value_name = "OBJECT")]
    on: Option<ObjectKey>,
    /// The object's new state, as JSON
    ///
    /// It is set in the same transaction.
    #[arg(long, value_parser = json, requires = "on")]
    state: Option<String>,
    /// Another event on the object; repeatable
    ///
    /// It follows this one, in the same transaction.
    #[arg(long, value_name = "HANDLER[=VALUE]", value_parser = subevent, requires = "on")]
    and: Vec<Subevent>,
    /// Only for registered queues, not for the handler
    #[arg(long)]
    only_to_queues: bool,
    /// Also append it to the log (CATEGORY/STREAM)
    ///
    /// By default this is the stream of its address. It is done in the same transaction.
    #[arg(long, value_name = "STREAM", num_args = 0..=1, default_missing_value = "", require_equals = true, value_parser = logged)]
    logged: Option<Logged>,
    /// The batch that it becomes a member of
    ///
    /// It has to be open (`wakeq batches open`).
    #[arg(long, value_name = "BATCH")]
    batch: Option<BatchName>,
    #[command(flatten)]
    json: JsonArg,
    #[command(flatten)]
    unique: UniqueArgs,
    #[command(flatten)]
    options: OptionArgs,
}

/// An event that accompanies the main one.
#[derive(Clone)]
struct Subevent {
    target: HandlerAddressArg,
    /// As JSON.
    value: String,
}

fn subevent(text: &str) -> Result<Subevent, String> {
    let (target, value) = text.split_once('=').unwrap_or((text, "null"));
    let target = target.parse().map_err(|error| format!("{error}"))?;
    Ok(Subevent { target, value: json(value)? })
}

/// An event for a handler, due now.
fn event_for(target: HandlerAddressArg, value: &str) -> anyhow::Result<NewEvent> {
    let HandlerAddressArg { handler, modifier } = target;
    Ok(NewEvent {
        module: Some(handler.module.to_string()),
        name: handler.name.to_string(),
        modifier: modifier.map(|modifier| modifier.to_string()),
        value: Some(raw(value)?),
        ..NewEvent::default()
    })
}

/// Empty, or a stream.
fn logged(text: &str) -> Result<Logged, String> {
    if text.is_empty() {
        return Ok(Logged::ByAddress(true));
    }
    let (category, stream) = text.split_once('/').ok_or("a stream is written as CATEGORY/STREAM")?;
    StreamId::new(CanvasId::DEFAULT, category, stream).map_err(|error| error.to_string())?;
    Ok(Logged::In(StreamName { category: category.to_owned(), stream: stream.to_owned() }))
}

fn raw(json: &str) -> anyhow::Result<Box<RawValue>> {
    Ok(RawValue::from_string(json.trim().to_owned())?)
}

impl Emit {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let HandlerAddressArg { handler, modifier } = self.handler;
        if modifier.is_some() && self.modifier.is_some() {
            return Err(
                Failure::Usage("give the modifier once: MODULE/name/modifier, or --modifier".into()).into()
            );
        }
        let event = NewEvent {
            id: self.id.map(|id| id.0),
            delay_until: self.at,
            delay_s: self.after.map(|delay| delay.as_secs_f64()),
            object: self.on.as_ref().map(ObjectKey::to_string),
            only_queues: self.only_to_queues,
            logged: self.logged,
            unique: self.unique.json(),
            options: self.options.json(),
            batch: self.batch.map(String::from),
            ..event_for(HandlerAddressArg { handler, modifier: modifier.or(self.modifier) }, &self.value)?
        };
        let client = context.client().await?;
        match self.on {
            Some(object) if self.state.is_some() || !self.and.is_empty() => {
                let subevents = self.and.into_iter().map(|event| event_for(event.target, &event.value));
                let subevents = subevents.collect::<anyhow::Result<_>>()?;
                let state = self.state.as_deref().map(raw).transpose()?;
                let emitted = client.change(&object, NewChange { main: event, subevents, state }).await?;
                self.json.print(&emitted, |emitted| emitted.events.iter().try_for_each(print))
            }
            Some(_) | None => self.json.print(&client.emit(event).await?, print),
        }
    }
}

fn print(emitted: &EmittedJson) -> anyhow::Result<()> {
    let note = if emitted.duplicate { "  (emitted before: nothing added)" } else { "" };
    let link = emitted.link.map(|link| format!("  (link {} after {})", link.id, link.prev));
    let copies = match emitted.copies {
        0 => String::new(),
        copies => format!("  (copied into {})", show::count(copies.into(), "queue")),
    };
    let unique = emitted.outcome.map(|outcome| unique_note(outcome, emitted.due)).unwrap_or_default();
    show::line(format_args!("{}{note}{}{copies}{unique}", emitted.id, link.unwrap_or_default()))
}

/// What became of the event that has the unique key, if that was taken.
fn unique_note(outcome: UniqueOutcomeJson, due: Option<Timestamp>) -> String {
    match (outcome, due) {
        (UniqueOutcomeJson::Inserted, _) => String::new(),
        (UniqueOutcomeJson::Kept, _) => "  (has the key: nothing added)".to_owned(),
        (UniqueOutcomeJson::Replaced, _) => "  (replaced)".to_owned(),
        (UniqueOutcomeJson::Postponed, Some(due)) => format!("  (postponed until {})", moment(due)),
        (UniqueOutcomeJson::Postponed, None) => "  (postponed)".to_owned(),
    }
}

impl Client {
    /// Can be repeated if the answer is lost.
    pub(crate) async fn emit(&self, new: NewEvent) -> anyhow::Result<EmittedJson> {
        self.call(Request::post(&["events"]).body(&new)?.repeatable()).await
    }

    /// Emits events on an object, and sets its state if one is given. Can be repeated like
    /// [`Self::emit`].
    pub(crate) async fn change(&self, object: &ObjectKey, change: NewChange) -> anyhow::Result<EmittedBatch> {
        let request = Request::post(&["objects", object.as_str(), "events"]).body(&change)?;
        self.call(request.repeatable()).await
    }
}

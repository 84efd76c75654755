//! `wakeq events emit`.

use std::time::Duration;

use clap::Args;
use serde_json::value::RawValue;

use super::Context;
use super::arguments::{self, Target};
use super::failure::Failure;
use super::show::{self, JsonArg};
use crate::api::NewEvent;
use crate::event::{Event, EventId, Name, ObjectKey, Timestamp};

#[derive(Args)]
pub(crate) struct Emit {
    /// The handler: its name, MODULE/name when the module is not WORKER, or MODULE/name/modifier
    handler: Target,
    /// The value, as JSON
    #[arg(default_value = "null", value_parser = json)]
    value: String,
    /// The handler's modifier [default: _]
    #[arg(long)]
    modifier: Option<Name>,
    /// Run this long from now (30s, 5m, 2days)
    #[arg(long, value_parser = humantime::parse_duration, conflicts_with = "at")]
    after: Option<Duration>,
    /// Run at this moment (2030-01-31T08:00:00Z)
    #[arg(long, value_parser = arguments::timestamp)]
    at: Option<Timestamp>,
    /// An id of your choice: emitting it again within 7 days adds nothing
    #[arg(long, value_parser = arguments::event_id)]
    id: Option<EventId>,
    /// The object it is about: it runs after every earlier event on it for the same handler
    #[arg(long, value_name = "OBJECT")]
    on: Option<ObjectKey>,
    /// For the registered queues that want it only: no handler of its own gets it
    #[arg(long)]
    only_to_queues: bool,
    #[command(flatten)]
    json: JsonArg,
}

/// Checks a value: what the shell left of it is often no JSON any more.
pub(super) fn json(text: &str) -> Result<String, String> {
    match Event::from_json("any", text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => {
            let detail =
                std::error::Error::source(&error).map(|cause| format!(" ({cause})")).unwrap_or_default();
            Err(format!("{error}{detail}; examples: '\"text\"' or '{{\"a\":1}}'"))
        }
    }
}

impl Emit {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let Target { handler, modifier } = self.handler;
        if modifier.is_some() && self.modifier.is_some() {
            return Err(
                Failure::Usage("give the modifier once: MODULE/name/modifier, or --modifier".into()).into()
            );
        }
        let event = NewEvent {
            module: Some(handler.module.to_string()),
            name: handler.name.to_string(),
            modifier: modifier.or(self.modifier).map(|modifier| modifier.to_string()),
            value: Some(RawValue::from_string(self.value.trim().to_owned())?),
            id: self.id.map(|id| id.0),
            delay_until: self.at,
            delay_s: self.after.map(|delay| delay.as_secs_f64()),
            object: self.on.map(|object| object.to_string()),
            only_queues: self.only_to_queues,
        };
        let emitted = context.backend().await?.emit(event).await?;
        self.json.print(&emitted, |emitted| {
            let note = if emitted.duplicate { "  (emitted before: nothing added)" } else { "" };
            let link = emitted.link.map(|link| format!("  (link {} after {})", link.id, link.prev));
            let copies = match emitted.copies {
                0 => String::new(),
                copies => format!("  (copied into {})", show::count(copies.into(), "queue")),
            };
            show::line(format_args!("{}{note}{}{copies}", emitted.id, link.unwrap_or_default()))
        })
    }
}

//! `wakeq emit`.

use std::time::Duration;

use clap::Args;

use super::{Context, show};
use crate::emit::{Queue, QueueConfig};
use crate::event::{Event, EventId, Timestamp};

#[derive(Args)]
pub(crate) struct Emit {
    /// The handler: its name, or MODULE/name when the module is not WORKER
    handler: show::HandlerName,
    /// The value, as JSON
    #[arg(default_value = "null", value_parser = json)]
    value: String,
    /// The handler's modifier
    #[arg(long, default_value = "_")]
    modifier: String,
    /// Run this long from now (30s, 5m, 2days)
    #[arg(long, value_parser = humantime::parse_duration, conflicts_with = "at")]
    after: Option<Duration>,
    /// Run at this moment (2030-01-31T08:00:00Z)
    #[arg(long, value_parser = show::timestamp)]
    at: Option<Timestamp>,
    /// An id of your choice: emitting it again within 7 days adds nothing
    #[arg(long, value_parser = show::event_id)]
    id: Option<EventId>,
}

/// Checks a value: what the shell left of it is often no JSON any more.
fn json(text: &str) -> Result<String, String> {
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
        let scope = self.handler.scope(context.canvas.canvas);
        let mut event = Event::from_json(scope.name.as_str(), self.value)?
            .module(scope.module.as_str())?
            .modifier(&self.modifier)?
            .canvas(scope.canvas);
        if let Some(delay) = self.after {
            event = event.after(delay)?;
        }
        if let Some(moment) = self.at {
            event = event.at(moment)?;
        }
        if let Some(id) = self.id {
            event = event.id(id);
        }
        let store = context.store().await?;
        let queue = Queue::new(store, context.pubsub.connect().await?, QueueConfig::default());
        let emitted = queue.emit(event).await?;
        let note = if emitted.duplicate { "  (emitted before: nothing added)" } else { "" };
        show::line(format_args!("{}{note}", emitted.id))
    }
}

//! `wakeq log`: append to the log, and read it.

use clap::{Args, Subcommand};
use serde_json::value::RawValue;

use crate::cli::Context;
use crate::cli::arguments;
use crate::cli::client::Request;
use crate::cli::given::json;
use crate::cli::show::{self, JsonArg, moment};
use crate::cli::table::Table;
use crate::resources::log::wire::{
    Append, AppendTo, AppendedAll, Expect, LogEventJson, LogPageJson, NewLogEvent,
};
use wakeq::log::{AppendCondition, Category, StreamName};
use wakeq::{EventId, Name};

#[derive(Args)]
pub(crate) struct Log {
    #[command(subcommand)]
    verb: LogVerb,
}

#[derive(Subcommand)]
enum LogVerb {
    /// Append an event to a stream
    Append(AppendOne),
    /// Read the log, a category or a stream, in its order
    Read(Read),
}

#[derive(Args)]
struct AppendOne {
    /// The category (accounts)
    category: Category,
    /// The stream in it (account-7)
    stream: StreamName,
    /// The event's name (opened)
    name: Name,
    /// Its payload, as JSON; @FILE takes it from a file, and - from standard input
    #[arg(default_value = "null", value_parser = json)]
    payload: String,
    /// Metadata, as a JSON object
    #[arg(long, value_parser = json)]
    metadata: Option<String>,
    /// Append only if the stream is empty, or its last event has this position
    #[arg(long, value_name = "empty|POSITION")]
    expect: Option<AppendCondition>,
    /// An id that you choose
    #[arg(long, value_parser = arguments::event_id)]
    id: Option<EventId>,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Read {
    /// Only this category
    category: Option<Category>,
    /// Only this stream of the category
    stream: Option<StreamName>,
    /// Start after this log number
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    after: i64,
    /// Maximum number of events
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    #[command(flatten)]
    json: JsonArg,
}

impl Log {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            LogVerb::Append(command) => command.run(context).await,
            LogVerb::Read(command) => command.run(context).await,
        }
    }
}

impl AppendOne {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let raw = |text: String| RawValue::from_string(text.trim().to_owned());
        let event = NewLogEvent {
            name: self.name.to_string(),
            payload: Some(raw(self.payload)?),
            metadata: self.metadata.map(raw).transpose()?,
            id: self.id.map(|id| id.0),
        };
        let append = AppendTo {
            category: self.category.to_string(),
            stream: self.stream.to_string(),
            expect: self.expect.map(Expect::from),
            events: vec![event],
        };
        // Not repeated if its answer is lost, since it may have been executed.
        let request = Request::post(&["log"]).body(&Append { appends: vec![append] })?;
        self.json.print(&context.call(request).await?, |appended: &AppendedAll| {
            appended.events.iter().try_for_each(|event| {
                show::line(format_args!("{}  (position {}, seq {})", event.id, event.position, event.seq))
            })
        })
    }
}

impl Read {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let request = Request::get(&["log"])
            .query("category", self.category)
            .query("stream", self.stream)
            .query("after", Some(self.after))
            .query("limit", Some(self.limit));
        self.json.print(&context.call(request).await?, |page: &LogPageJson| {
            let head = [">SEQ", "APPENDED", "STREAM", ">POSITION", "NAME", "PAYLOAD"];
            Table::of(head, page.items.iter().map(row)).print("no events")?;
            if page.more {
                show::note(format_args!("there may be more: --after {}", page.through));
            }
            if page.held {
                show::note("more is held back by an open transaction: `wakeq doctor` shows which");
            }
            show::note_of_hidden(page.hidden.as_deref());
            Ok(())
        })
    }
}

fn row(event: &LogEventJson) -> [String; 6] {
    [
        event.seq.to_string(),
        moment(event.appended_at),
        format!("{}/{}", event.category, event.stream),
        event.position.to_string(),
        event.name.clone(),
        event.payload.as_deref().map_or("", RawValue::get).to_owned(),
    ]
}

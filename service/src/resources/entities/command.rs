//! `wakeq entities`: list, show, send to and erase entities, and show the progress of events sent
//! to them.

use clap::{Args, Subcommand};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::cli::Context;
use crate::cli::arguments::{self, TableArgs};
use crate::cli::client::{Page, Request};
use crate::cli::given::json;
use crate::cli::show::{self, JsonArg, field, moment};
use crate::cli::table::Table;
use crate::resources::entities::wire::{
    EntityEventJson, EntityJson, EntityProgressJson, EntitySummaryJson, EntityTypeJson, NewEntityEvent,
    ReplyTo, SentToEntityJson,
};
use wakeq::{CanvasId, EventId, Name};
use wakeq_streams::{EntityId, EntityType};

#[derive(Args)]
pub(crate) struct Entities {
    #[command(subcommand)]
    verb: EntityVerb,
}

#[derive(Subcommand)]
enum EntityVerb {
    /// List the types of which there are entities
    Types(TableArgs),
    /// List the entities of a type, without their states
    List(ListOf),
    /// Show an entity: its version and its state
    Show(ShowEntity),
    /// Send an event to an entity
    Send(Send),
    /// Erase an entity permanently: everything stored about it up to now
    Erase(Erase),
    /// Show the outcome of an event, or of all events with a correlation id
    Status(Status),
}

#[derive(Args)]
struct ListOf {
    /// The type (account)
    #[arg(value_name = "TYPE")]
    entity_type: EntityType,
    #[command(flatten)]
    table: TableArgs,
}

#[derive(Args)]
struct ShowEntity {
    /// The entity (account/ada)
    #[arg(value_parser = entity)]
    entity: EntityId,
    /// Show the whole state
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Send {
    /// The entity (account/ada); it need not exist yet
    #[arg(value_parser = entity)]
    entity: EntityId,
    /// The event's name (deposit)
    name: Name,
    /// The event's payload, as JSON; @FILE takes it from a file, and - from standard input
    #[arg(default_value = "null", value_parser = json)]
    payload: String,
    /// An id that you choose: sending it again does not apply it twice, until 7 days after its
    /// outcome
    #[arg(long, value_parser = arguments::event_id)]
    id: Option<EventId>,
    /// The correlation id [default: the event's own id]
    #[arg(long)]
    correlation_id: Option<Uuid>,
    /// The handler in module ANSWER that receives the outcome
    #[arg(long, value_name = "NAME")]
    reply_to: Option<Name>,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Erase {
    /// The entity (account/ada); it need not exist
    #[arg(value_parser = entity)]
    entity: EntityId,
    /// An id that you choose: repeating the erasure with it within 7 days erases nothing sent since
    #[arg(long, value_parser = arguments::event_id)]
    id: Option<EventId>,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Status {
    /// The id of an event, or a correlation id
    #[arg(value_parser = arguments::event_id)]
    id: EventId,
    /// Maximum number of events
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
    /// Continue at the cursor that an earlier list printed
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    json: JsonArg,
}

/// Parses `account/ada`; the canvas is that of the command.
fn entity(text: &str) -> Result<EntityId, String> {
    let Some((entity_type, id)) = text.split_once('/') else {
        return Err("an entity is TYPE/ID, such as account/ada".to_owned());
    };
    EntityId::new(CanvasId::DEFAULT, entity_type, id).map_err(|error| error.to_string())
}

impl Entities {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            EntityVerb::Types(table) => {
                let row = |item: &EntityTypeJson| [item.entity_type.clone()];
                table.print(context, Request::get(&["entities"]), ["TYPE"], "no entities", row).await
            }
            EntityVerb::List(command) => command.run(context).await,
            EntityVerb::Show(command) => command.run(context).await,
            EntityVerb::Send(command) => command.run(context).await,
            EntityVerb::Erase(command) => command.run(context).await,
            EntityVerb::Status(command) => command.run(context).await,
        }
    }
}

impl ListOf {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let request = Request::get(&["entities", self.entity_type.as_str()]);
        let head = [">VERSION", ">STATE OF", ">BYTES", "CHANGED", "ENTITY"];
        self.table.print(context, request, head, "there is no entity of this type", summary).await
    }
}

fn summary(entity: &EntitySummaryJson) -> [String; 5] {
    let bytes = entity.state_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
    let (version, state) = (entity.version.to_string(), entity.state_version.to_string());
    let id = format!("{}/{}", entity.entity_type, entity.id);
    [version, state, bytes, moment(entity.updated_at), id]
}

impl ShowEntity {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let entity: EntityJson = context.call(at(Request::get, &self.entity, &[])).await?;
        self.json.print(&entity, |entity| {
            field("entity", format_args!("{}/{}", entity.entity_type, entity.id))?;
            field("version", entity.version)?;
            field("changed", moment(entity.updated_at))?;
            if entity.state_version != entity.version {
                field("state of", format_args!("version {}", entity.state_version))?;
            }
            show::value_field("state", entity.state.as_deref(), entity.hidden.as_deref(), self.full)
        })
    }
}

impl Send {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let reply_to = self.reply_to.map(|name| ReplyTo { name: name.to_string() });
        let event = NewEntityEvent {
            name: self.name.to_string(),
            payload: Some(RawValue::from_string(self.payload.trim().to_owned())?),
            id: self.id.map(|id| id.0),
            correlation_id: self.correlation_id,
            reply_to,
        };
        let request = at(Request::post, &self.entity, &["events"]).body(&event)?;
        self.json.print(&context.call(request).await?, printed)
    }
}

fn printed(sent: &SentToEntityJson) -> anyhow::Result<()> {
    let note = if sent.again { "  (sent before)" } else { "" };
    let link = format_args!("(link {} after {})", sent.link.id, sent.link.prev).to_string();
    show::line(format_args!("{}  {link}{note}", sent.id))
}

impl Erase {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let request = at(Request::delete, &self.entity, &[]).query("id", self.id);
        self.json.print(&context.call(request).await?, printed)
    }
}

impl Status {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let request = Request::get(&["entities", "status", &self.id.to_string()]);
        let request = request.page(Page { limit: self.limit, cursor: self.cursor });
        self.json.print(&context.call(request).await?, |progress: &EntityProgressJson| {
            field("status", progress.status.as_str())?;
            let head = ["SENT", "ENTITY", "EVENT", "STATUS", ">VERSION", "ABOUT"];
            Table::of(head, progress.events.iter().map(row)).print("there is no event")?;
            show::note_of_hidden(progress.hidden.as_deref());
            show::note_of_more(progress.next_cursor.as_deref());
            Ok(())
        })
    }
}

fn row(event: &EntityEventJson) -> [String; 6] {
    let result = event.result.as_deref().map(|result| result.get().to_owned());
    [
        moment(event.sent_at),
        format!("{}/{}", event.entity_type, event.entity),
        event.name.clone(),
        event.status.as_str().to_owned(),
        event.version.map(|version| version.to_string()).unwrap_or_default(),
        event.error.clone().or(result).unwrap_or_default(),
    ]
}

/// The request about an entity on the command's canvas, whatever canvas it names.
fn at(verb: fn(&[&str]) -> Request, entity: &EntityId, part: &[&str]) -> Request {
    verb(&[&["entities", entity.entity_type.as_str(), entity.id.as_str()][..], part].concat())
}

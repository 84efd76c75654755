//! `wakeq entities`: list, show, send to and erase entities, and show the progress of events sent
//! to them.

use clap::{Args, Subcommand};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::cli::Context;
use crate::cli::arguments;
use crate::cli::arguments::{ListArgs, Page};
use crate::cli::client::{Client, Request};
use crate::cli::show::{self, JsonArg, field, moment};
use crate::cli::table::Table;
use crate::cli::value;
use crate::resources::emit::command as emit;
use crate::resources::entities::wire::{
    Entity, EntityEvent, EntityProgress, EntitySummary, NewEntityEvent, ReplyTo, SentToEntity,
};
use crate::resources::wire::List;
use wakeq::{CanvasId, EventId, Name};
use wakeq_streams::{EntityId, EntityType};

#[derive(Args)]
pub(crate) struct Entities {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the entities of a type, without their states
    List(ListOf),
    /// Show an entity: its version and its state
    Show(Show),
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
    list: ListArgs,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Show {
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
    /// The event's payload, as JSON
    #[arg(default_value = "null", value_parser = emit::json)]
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
            Verb::List(command) => command.run(context).await,
            Verb::Show(command) => command.run(context).await,
            Verb::Send(command) => command.run(context).await,
            Verb::Erase(command) => command.run(context).await,
            Verb::Status(command) => command.run(context).await,
        }
    }
}

impl ListOf {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let client = context.client().await?;
        let page = async |page| client.list_entities(&self.entity_type, page).await;
        let entities = self.list.gather(page).await?;
        self.json.print_list(&entities, |entities| {
            let mut table = Table::new([">VERSION", ">STATE OF", ">BYTES", "CHANGED", "ENTITY"]);
            for entity in entities {
                let bytes = entity.state_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
                let (version, state) = (entity.version.to_string(), entity.state_version.to_string());
                let id = format!("{}/{}", entity.entity_type, entity.id);
                table.row([version, state, bytes, moment(entity.updated_at), id]);
            }
            table.print("there is no entity of this type")
        })
    }
}

impl Show {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let entity = context.client().await?.entity(&self.entity).await?;
        self.json.print(&entity, |entity| {
            field("entity", format_args!("{}/{}", entity.entity_type, entity.id))?;
            field("version", entity.version)?;
            field("changed", moment(entity.updated_at))?;
            if entity.state_version != entity.version {
                field("state of", format_args!("version {}", entity.state_version))?;
            }
            match &entity.state {
                Some(state) => field("state", value::pretty(state.get(), self.full)),
                None => Ok(()),
            }
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
        let sent = context.client().await?.send_to_entity(&self.entity, event).await?;
        self.json.print(&sent, printed)
    }
}

fn printed(sent: &SentToEntity) -> anyhow::Result<()> {
    let note = if sent.again { "  (sent before)" } else { "" };
    let link = format_args!("(link {} after {})", sent.link.id, sent.link.prev).to_string();
    show::line(format_args!("{}  {link}{note}", sent.id))
}

impl Erase {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let sent = context.client().await?.erase_entity(&self.entity, self.id).await?;
        self.json.print(&sent, printed)
    }
}

impl Status {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let progress = context.client().await?.entity_status(self.id).await?;
        self.json.print(&progress, |progress| {
            field("status", progress.status.as_str())?;
            let mut table = Table::new(["SENT", "ENTITY", "EVENT", "STATUS", ">VERSION", "ABOUT"]);
            progress.events.iter().for_each(|event| table.row(row(event)));
            table.print("there is no event")
        })
    }
}

fn row(event: &EntityEvent) -> [String; 6] {
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

impl Client {
    /// The entities of a type on the command's canvas.
    pub(crate) async fn list_entities(
        &self,
        entity_type: &EntityType,
        page: Page,
    ) -> anyhow::Result<List<EntitySummary>> {
        self.call(Request::get(&["entities", entity_type.as_str()]).page(page)).await
    }

    /// An entity on the command's canvas, whatever canvas it names.
    pub(crate) async fn entity(&self, entity: &EntityId) -> anyhow::Result<Entity> {
        let (entity_type, id) = (entity.entity_type.as_str(), entity.id.as_str());
        self.call(Request::get(&["entities", entity_type, id])).await
    }

    /// Sends an event to such an entity.
    pub(crate) async fn send_to_entity(
        &self,
        entity: &EntityId,
        event: NewEntityEvent,
    ) -> anyhow::Result<SentToEntity> {
        let (entity_type, id) = (entity.entity_type.as_str(), entity.id.as_str());
        self.call(Request::post(&["entities", entity_type, id, "events"]).body(&event)?).await
    }

    /// Requests the erasure of such an entity.
    pub(crate) async fn erase_entity(
        &self,
        entity: &EntityId,
        id: Option<EventId>,
    ) -> anyhow::Result<SentToEntity> {
        let (entity_type, name) = (entity.entity_type.as_str(), entity.id.as_str());
        self.call(Request::delete(&["entities", entity_type, name]).query("id", id)).await
    }

    /// The progress of an entity's event, or of all events with a correlation id.
    pub(crate) async fn entity_status(&self, id: EventId) -> anyhow::Result<EntityProgress> {
        self.call(Request::get(&["entities", "status", &id.to_string()])).await
    }
}

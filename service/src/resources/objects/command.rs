//! `wakeq objects`: show an object, list halted objects and missing links, and skip a dead event.

use clap::{Args, Subcommand};

use crate::cli::Context;
use crate::cli::arguments::{HandlerName, TableArgs};
use crate::cli::client::Request;
use crate::cli::show::{self, JsonArg, field, moment};
use crate::resources::objects::wire::{
    HaltedLaneJson, InHandJson, Object, SkipRequest, Skipped, TombstoneJson,
};
use wakeq::Name;
use wakeq::order::ObjectKey;

#[derive(Args)]
pub(crate) struct Objects {
    #[command(subcommand)]
    verb: ObjectVerb,
}

#[derive(Subcommand)]
enum ObjectVerb {
    /// Show an object: the end of its chain, its state, the workers with its events, where it is
    /// halted
    Show(ShowObject),
    /// List the objects that are halted by a dead event
    Halted(Halted),
    /// Resume an object without its dead event (to run that event again: `wakeq dead redrive --id`)
    Skip(Skip),
    /// List the links of an object's chain that will never arrive: their events were cancelled or
    /// purged, or died and were skipped
    Tombstones(Tombstones),
}

#[derive(Args)]
struct Halted {
    /// Only this object (work:1), by each handler for which it is halted
    #[arg(long)]
    object: Option<ObjectKey>,
    #[command(flatten)]
    table: TableArgs,
}

#[derive(Args)]
struct ShowObject {
    /// The object (work:1)
    object: ObjectKey,
    /// Show the whole state
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Skip {
    /// The object (work:1)
    object: ObjectKey,
    /// The handler that is halted: its name, or MODULE/name
    handler: HandlerName,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Tombstones {
    /// The object (work:1)
    object: ObjectKey,
    /// Only links after this one, the last that was consumed
    #[arg(long, value_name = "LINK", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    after: i64,
    /// As seen by consumers of this registered queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<Name>,
    #[command(flatten)]
    table: TableArgs,
}

impl Objects {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            ObjectVerb::Show(command) => command.run(context).await,
            ObjectVerb::Halted(Halted { object, table }) => {
                let request = Request::get(&["halted-objects"]).query("object", object);
                let head = ["SINCE", "OBJECT", "HANDLER", ">LINK", "DEAD EVENT"];
                table.print(context, request, head, "no halted objects", row).await
            }
            ObjectVerb::Skip(command) => command.run(context).await,
            ObjectVerb::Tombstones(command) => command.run(context).await,
        }
    }
}

impl ShowObject {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let object: Object = context.call(Request::get(&["objects", self.object.as_str()])).await?;
        self.json.print(&object, |object| {
            field("object", &object.object)?;
            field("last", object.last_id)?;
            for InHandJson { module, name, event, event_link, worker, queue } in &object.in_hand {
                let worker = worker.as_deref().unwrap_or("a lease over HTTP");
                let queue = queue.as_ref().map(|queue| format!(" in {queue}")).unwrap_or_default();
                field(
                    "in hand",
                    format_args!("{event} (link {event_link}) for {module}/{name}{queue}, held by {worker}"),
                )?;
            }
            for halted in &object.halted {
                let HaltedLaneJson { module, name, event, event_link, halted_at, .. } = halted;
                let since = moment(*halted_at);
                field(
                    "halted",
                    format_args!("for {module}/{name} since {since}, by {event} (link {event_link})"),
                )?;
            }
            if object.more_in_hand {
                field("in hand", "more events than these")?;
            }
            if object.more_halted {
                field("halted", "for more handlers: `wakeq objects halted --object` lists all")?;
            }
            if let Some(at) = object.state_at {
                field("set", moment(at))?;
            }
            show::value_field("state", object.state.as_deref(), object.hidden.as_deref(), self.full)
        })
    }
}

fn row(halted: &HaltedLaneJson) -> [String; 5] {
    let HaltedLaneJson { object, module, name, event, event_link, halted_at } = halted;
    [
        moment(*halted_at),
        object.clone(),
        format!("{module}/{name}"),
        event_link.to_string(),
        event.to_string(),
    ]
}

impl Skip {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let HandlerName { module, name } = &self.handler;
        let request = SkipRequest { module: Some(module.to_string()), name: name.to_string() };
        let request = Request::post(&["objects", self.object.as_str(), "skip"]).body(&request)?;
        self.json.print(&context.call(request).await?, |answer: &Skipped| {
            let words = if answer.skipped { "resumes" } else { "was not halted" };
            show::line(format_args!("{} {words} for {}", self.object, self.handler))
        })
    }
}

impl Tombstones {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let request = Request::get(&["objects", self.object.as_str(), "tombstones"])
            .query("after", Some(self.after))
            .query("queue", self.queue);
        let head = ["AT", ">LINK", ">AFTER", "CAUSE"];
        self.table.print(context, request, head, "no link is missing", tombstone_row).await
    }
}

fn tombstone_row(gone: &TombstoneJson) -> [String; 4] {
    [moment(gone.left_at), gone.id.to_string(), gone.prev.to_string(), gone.cause.clone()]
}

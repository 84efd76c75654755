//! `wakeq objects`: show an object, list halted objects and missing links, and skip a dead event.

use clap::{Args, Subcommand};

use crate::cli::Context;
use crate::cli::arguments::HandlerName;
use crate::cli::client::{Client, Request};
use crate::cli::show::{self, JsonArg, field, moment};
use crate::cli::table::Table;
use crate::cli::value;
use crate::resources::objects::wire::{HaltedLane, InHand, Object, SkipRequest, Skipped, Tombstone};
use crate::resources::wire::List;
use wakeq::Name;
use wakeq::order::ObjectKey;

#[derive(Args)]
pub(crate) struct Objects {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show an object: the end of its chain, its state, the workers with its events, where it is
    /// halted
    Show(Show),
    /// List the objects that are halted by a dead event
    Halted(Halted),
    /// Resume an object without its dead event (to run that event again: `wakeq dead redrive --id`)
    Skip(Skip),
    /// List the links of an object's chain that will never arrive: their events were cancelled or
    /// purged, or died and were skipped
    Tombstones(Tombstones),
}

#[derive(Args)]
struct Show {
    /// The object (work:1)
    object: ObjectKey,
    /// Show the whole state
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Halted {
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
    json: JsonArg,
}

impl Objects {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            Verb::Show(command) => command.run(context).await,
            Verb::Halted(command) => command.run(context).await,
            Verb::Skip(command) => command.run(context).await,
            Verb::Tombstones(command) => command.run(context).await,
        }
    }
}

impl Show {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let object = context.client().await?.object(&self.object).await?;
        self.json.print(&object, |object| {
            field("object", &object.object)?;
            field("last", object.last_id)?;
            for InHand { module, name, event, event_link, worker, queue } in &object.in_hand {
                let worker = worker.as_deref().unwrap_or("a lease over HTTP");
                let queue = queue.as_ref().map(|queue| format!(" in {queue}")).unwrap_or_default();
                field(
                    "in hand",
                    format_args!("{event} (link {event_link}) for {module}/{name}{queue}, held by {worker}"),
                )?;
            }
            for halted in &object.halted {
                let HaltedLane { module, name, event, event_link, halted_at, .. } = halted;
                let since = moment(*halted_at);
                field(
                    "halted",
                    format_args!("for {module}/{name} since {since}, by {event} (link {event_link})"),
                )?;
            }
            if let Some(at) = object.state_at {
                field("set", moment(at))?;
            }
            match &object.state {
                Some(state) => field("state", value::pretty(state.get(), self.full)),
                None => Ok(()),
            }
        })
    }
}

impl Halted {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let halted = context.client().await?.halted().await?;
        self.json.print(&halted, |halted| {
            let mut table = Table::new(["SINCE", "OBJECT", "HANDLER", ">LINK", "DEAD EVENT"]);
            halted.items.iter().for_each(|halted| table.row(row(halted)));
            table.print("no halted objects")
        })
    }
}

fn row(halted: &HaltedLane) -> [String; 5] {
    let HaltedLane { object, module, name, event, event_link, halted_at } = halted;
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
        let skipped = context.client().await?.skip(&self.object, &self.handler).await?;
        self.json.print(&skipped, |answer| {
            let words = if answer.skipped { "resumes" } else { "was not halted" };
            show::line(format_args!("{} {words} for {}", self.object, self.handler))
        })
    }
}

impl Tombstones {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let client = context.client().await?;
        let gone = client.tombstones(&self.object, self.queue.as_ref(), self.after).await?;
        self.json.print(&gone, |gone| {
            let mut table = Table::new(["AT", ">LINK", ">AFTER", "CAUSE"]);
            gone.items.iter().for_each(|gone| {
                table.row([
                    moment(gone.left_at),
                    gone.id.to_string(),
                    gone.prev.to_string(),
                    gone.cause.clone(),
                ]);
            });
            table.print("no link is missing")
        })
    }
}

impl Client {
    /// The halted lanes of objects.
    pub(crate) async fn halted(&self) -> anyhow::Result<List<HaltedLane>> {
        self.call(Request::get(&["halted-objects"])).await
    }

    pub(crate) async fn object(&self, key: &ObjectKey) -> anyhow::Result<Object> {
        self.call(Request::get(&["objects", key.as_str()])).await
    }

    /// The missing links of an object after this one.
    pub(crate) async fn tombstones(
        &self,
        key: &ObjectKey,
        queue: Option<&Name>,
        after: i64,
    ) -> anyhow::Result<List<Tombstone>> {
        let request = Request::get(&["objects", key.as_str(), "tombstones"]);
        self.call(request.query("after", Some(after)).query("queue", queue)).await
    }

    pub(crate) async fn skip(&self, key: &ObjectKey, handler: &HandlerName) -> anyhow::Result<Skipped> {
        let request =
            SkipRequest { module: Some(handler.module.to_string()), name: handler.name.to_string() };
        self.call(Request::post(&["objects", key.as_str(), "skip"]).body(&request)?).await
    }
}

//! `wakeq batches`: open, close, list, show and give up batches.

use clap::{Args, Subcommand};
use serde_json::value::RawValue;

use crate::cli::Context;
use crate::cli::arguments::{HandlerAddressArg, TableArgs};
use crate::cli::client::Request;
use crate::cli::given::json;
use crate::cli::show::{self, JsonArg, field, moment};
use crate::resources::batches::wire::{BatchCountsJson, BatchEndJson, BatchJson, NewBatchEnd, OpenBatch};
use wakeq::Name;
use wakeq::events::BatchName;

#[derive(Args)]
pub(crate) struct Batches {
    #[command(subcommand)]
    verb: BatchVerb,
}

#[derive(Subcommand)]
enum BatchVerb {
    /// Open a batch, with the event to emit when its last member has ended
    Open(OpenArgs),
    /// Close a batch: no more members come, except from its members
    Close(OneBatch),
    /// List the batches of the canvas; those that are over are listed for 7 days
    List(TableArgs),
    /// Show a batch: how its members have ended, and how many are left
    Show(OneBatch),
    /// Give a batch up: its event is never emitted, and its members stay as they are
    Cancel(OneBatch),
}

#[derive(Args)]
struct OpenArgs {
    /// The batch's name, which its members are emitted with (`wakeq events emit --batch`)
    batch: BatchName,
    /// The handler of the event at the end: its name, MODULE/name when the module is not WORKER, or
    /// MODULE/name/modifier
    handler: HandlerAddressArg,
    /// A value for that event, as JSON, which it gets beside the counts; @FILE takes it from a
    /// file, and - from standard input
    #[arg(default_value = "null", value_parser = json)]
    value: String,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct OneBatch {
    /// The batch's name
    batch: BatchName,
    #[command(flatten)]
    json: JsonArg,
}

impl Batches {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            BatchVerb::Open(command) => command.run(context).await,
            BatchVerb::Close(OneBatch { batch, json }) => {
                let request = Request::post(&["batches", batch.as_str(), "close"]);
                let closed: BatchJson = context.call(request).await?;
                json.print(&closed, print)
            }
            BatchVerb::List(list) => {
                let head = ["NAME", "STATE", "AT THE END", "OPENED", ">ENDED", ">DEAD"];
                list.print(context, Request::get(&["batches"]), head, "no batches", row).await
            }
            BatchVerb::Show(OneBatch { batch, json }) => {
                let shown: BatchJson = context.call(Request::get(&["batches", batch.as_str()])).await?;
                json.print(&shown, print)
            }
            BatchVerb::Cancel(OneBatch { batch, json }) => {
                context.send(Request::delete(&["batches", batch.as_str()]).silent()).await?;
                json.print(&serde_json::json!({ "name": batch.as_str() }), |_| {
                    show::line(format_args!("batch {batch} is given up"))
                })
            }
        }
    }
}

impl OpenArgs {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let HandlerAddressArg { handler, modifier } = self.handler;
        let on_end = NewBatchEnd {
            module: handler.module.to_string(),
            name: handler.name.to_string(),
            modifier: modifier.unwrap_or_else(Name::no_modifier).to_string(),
            value: Some(RawValue::from_string(self.value.trim().to_owned())?),
        };
        let request = Request::post(&["batches", self.batch.as_str()]).body(&OpenBatch { on_end })?;
        let opened: BatchJson = context.call(request).await?;
        self.json.print(&opened, |batch| {
            show::line(format_args!("batch {} is open, and emits to {}", batch.name, address(&batch.on_end)))
        })
    }
}

fn row(batch: &BatchJson) -> [String; 6] {
    let BatchJson { name, state, on_end, opened_at, counts, .. } = batch;
    let ended = show::or_dash(counts.map(|counts| counts.total));
    let dead = show::or_dash(counts.map(|counts| counts.dead));
    [name.clone(), state.as_str().to_owned(), address(on_end), moment(*opened_at), ended, dead]
}

fn print(batch: &BatchJson) -> anyhow::Result<()> {
    field("batch", &batch.name)?;
    field("state", batch.state.as_str())?;
    field("at the end", format_args!("{}, event {}", address(&batch.on_end), batch.on_end.id))?;
    field("opened", moment(batch.opened_at))?;
    if let Some(closed_at) = batch.closed_at {
        field("closed", moment(closed_at))?;
    }
    if let Some(over_at) = batch.over_at {
        field("over", moment(over_at))?;
    }
    if let Some(BatchCountsJson { completed, dead, cancelled, total }) = batch.counts {
        let ended = format!("{total}: {completed} completed, {dead} dead, {cancelled} cancelled");
        field("ended", ended)?;
    }
    batch.left.map_or(Ok(()), |left| field("left", left))
}

fn address(on_end: &BatchEndJson) -> String {
    let BatchEndJson { module, name, modifier, .. } = on_end;
    format!("{module}/{name}/{modifier}")
}

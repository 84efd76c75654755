//! `wakeq workers`: the worker processes, and what each of them runs. They work for every canvas.
//! Programs that lease events are of one.

use clap::{Args, Subcommand};
use uuid::Uuid;

use crate::cli::Context;
use crate::cli::arguments::TableArgs;
use crate::cli::client::Request;
use crate::cli::show::{self, JsonArg, field, moment};
use crate::cli::table::Table;
use crate::resources::workers::wire::{ProgramJson, WorkerJson, WorkerRunJson, WorkerSummaryJson};
use wakeq::Name;

#[derive(Args)]
pub(crate) struct Workers {
    #[command(subcommand)]
    verb: WorkerVerb,
}

#[derive(Subcommand)]
enum WorkerVerb {
    /// List the worker processes; those that were killed are listed for a day
    List(TableArgs),
    /// Show a worker: its handlers, and what it runs
    Show(OneWorker),
    /// List the programs of a canvas that lease events over HTTP, of the last five minutes
    Programs(TableArgs),
}

#[derive(Args)]
struct OneWorker {
    /// The worker's name
    name: Name,
    /// This instance of it [default: the one that was seen last]
    #[arg(long, value_name = "UUID")]
    instance: Option<Uuid>,
    #[command(flatten)]
    json: JsonArg,
}

impl Workers {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            WorkerVerb::List(table) => {
                let head = ["WORKER", "RELEASE", "STATE", ">RUNNING", ">CAPACITY", "SEEN", "HOST"];
                let request = Request::get(&["workers"]).everywhere();
                table.print(context, request, head, "no workers", row).await
            }
            WorkerVerb::Programs(table) => {
                let head = ["PROGRAM", "HANDLER", "SINCE", "SEEN"];
                let request = Request::get(&["programs"]);
                table.print(context, request, head, "no programs", program_row).await
            }
            WorkerVerb::Show(OneWorker { name, instance, json }) => {
                let request = Request::get(&["workers", name.as_str()]).everywhere();
                json.print(&context.call(request.query("instance", instance)).await?, print)
            }
        }
    }
}

fn row(worker: &WorkerSummaryJson) -> [String; 7] {
    [
        worker.name.clone(),
        release(worker),
        show::worker_state(worker.state).to_owned(),
        worker.running.to_string(),
        worker.capacity.to_string(),
        moment(worker.seen_at),
        show::or_dash(worker.host.as_ref()),
    ]
}

fn program_row(program: &ProgramJson) -> [String; 4] {
    let ProgramJson { worker, module, name, since, seen_at } = program;
    [worker.clone(), format!("{module}/{name}"), moment(*since), moment(*seen_at)]
}

fn print(shown: &WorkerJson) -> anyhow::Result<()> {
    let WorkerJson { worker, handlers, targets, runs } = shown;
    field("worker", &worker.name)?;
    field("instance", worker.instance)?;
    let state = show::worker_state(worker.state);
    field("state", format_args!("{state}, last seen {}", moment(worker.seen_at)))?;
    field("started", moment(worker.started_at))?;
    let process = worker.pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
    field("host", format_args!("{}{process}", show::or_dash(worker.host.as_ref())))?;
    field("release", release(worker))?;
    field("running", format_args!("{} of {}", worker.running, worker.capacity))?;
    handlers.iter().try_for_each(|handler| field("handler", handler))?;
    let more = (worker.handlers as usize).saturating_sub(handlers.len());
    if more > 0 {
        field("handler", format_args!("and {more} more"))?;
    }
    if *targets {
        field("targets", "it also calls HTTP targets")?;
    }
    Table::of(["EVENT", "SINCE", "CANVAS", "HANDLER"], runs.iter().map(run_row)).print("it runs nothing")
}

fn run_row(run: &WorkerRunJson) -> [String; 4] {
    [run.event.to_string(), moment(run.since), run.canvas.to_string(), run.handler.clone()]
}

/// The release of wakeq, and the build of the program if it is known.
fn release(worker: &WorkerSummaryJson) -> String {
    let build = worker.build.as_ref().map(|build| format!(" ({build})")).unwrap_or_default();
    format!("{}{build}", worker.release)
}

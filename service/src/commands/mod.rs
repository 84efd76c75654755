//! The command line as a library: a program that calls [`run`] has all commands of `wakeq`, with
//! its own handlers in `work` and `all`. The commands on resources are in `resources`; a file per
//! other command is here.

mod completions;
mod descriptors;
mod doctor;
mod health;
mod help;
mod manual;
mod mcp;
mod migrate;
mod process;
mod secrets;
mod settings;
mod tail;
mod topics;
mod wake;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::cli::failure::{self, Exit};
use crate::cli::parts::MakeHandlers;
use crate::cli::telemetry::{Telemetry, TelemetryArgs};
use crate::cli::{BoxError, Context, Parts, logging, show};
use crate::resources::accounts::command as accounts;
use crate::resources::audit::command as audit;
use crate::resources::batches::command as batches;
use crate::resources::crons::command as cron;
use crate::resources::dead_events::command as dead;
use crate::resources::emit::command as emit;
use crate::resources::entities::command as entities;
use crate::resources::events::command as events;
use crate::resources::events::command::event;
use crate::resources::groups::command as groups;
use crate::resources::handlers::command as handlers;
use crate::resources::handlers::command::depth;
use crate::resources::handlers::command::stats;
use crate::resources::hooks::command as hooks;
use crate::resources::keys::command as keys;
use crate::resources::limits::command as limits;
use crate::resources::log::command as log;
use crate::resources::objects::command as objects;
use crate::resources::operations::command as operations;
use crate::resources::queues::command as queues;
use crate::resources::quotas::command as quotas;
use crate::resources::switches::command as switches;
use crate::resources::workers::command as workers;
use wakeq::Handlers;

/// How long code that blocks its thread may delay the end of the process.
const LEFTOVERS_WAIT: Duration = Duration::from_millis(100);

/// Runs the `wakeq` command with these handlers: parses arguments and environment, logs to standard
/// error, creates a runtime, and returns the exit code. This is all that a worker's `main` needs:
///
/// ```no_run
/// use std::process::ExitCode;
/// use wakeq::{Execution, HandlerResult, Handlers};
///
/// async fn greet(event: Execution) -> HandlerResult {
///     println!("hello, {}", event.value::<String>()?);
///     Ok(())
/// }
///
/// fn main() -> ExitCode {
///     wakeq_service::run(Handlers::new().on("greet", greet))
/// }
/// ```
///
/// The program has to be told what to do: `my-worker work` runs the handlers, `my-worker all`
/// serves the API as well, `my-worker --help` lists the other commands. The exit code is 0 if the
/// command succeeded, or SIGTERM shut a worker down in an orderly way; `--help` lists the others.
pub fn run(handlers: impl Into<Handlers>) -> ExitCode {
    run_with(async |_| Ok(handlers))
}

/// Like [`run`], for handlers with dependencies: `handlers` is called inside the runtime, and only
/// by commands that run handlers, so that `--help` connects to nothing. It receives what the
/// process has, and may add to what it runs, for example consumers with a
/// [broker](Parts::run_broker).
///
/// ```no_run
/// use std::process::ExitCode;
/// use sqlx::PgPool;
/// use wakeq::{Execution, HandlerResult, Handlers};
///
/// async fn ship(orders: PgPool, order: i64, _event: Execution) -> HandlerResult {
///     sqlx::query("update orders set shipped = true where id = $1").bind(order).execute(&orders).await?;
///     Ok(())
/// }
///
/// fn main() -> ExitCode {
///     wakeq_service::run_with(async |_| {
///         let orders = PgPool::connect(&std::env::var("ORDERS_URL")?).await?;
///         Ok(Handlers::new().state(orders).on_value("ship-order", ship))
///     })
/// }
/// ```
pub fn run_with<F, H>(handlers: F) -> ExitCode
where
    F: AsyncFnOnce(Parts) -> Result<H, BoxError>,
    H: Into<Handlers>,
{
    run_from(std::env::args_os(), handlers)
}

/// Like [`run_with`], with these arguments instead of the program's own. The first is the program's
/// name.
///
/// ```no_run
/// # use wakeq::Handlers;
/// let done = wakeq_service::run_from(["my-worker", "work", "--capacity", "10"], async |_| Ok(Handlers::new()));
/// ```
pub fn run_from<A, F, H>(arguments: A, handlers: F) -> ExitCode
where
    A: IntoIterator<Item: Into<OsString> + Clone>,
    F: AsyncFnOnce(Parts) -> Result<H, BoxError>,
    H: Into<Handlers>,
{
    let cli = match Cli::from_arguments(arguments) {
        Ok(cli) => cli,
        Err(answer) => {
            // A closed pipe is not worth a message.
            let _ = answer.print();
            return ExitCode::from(u8::try_from(answer.exit_code()).unwrap_or(2));
        }
    };
    let is_long_running = cli.command.is_long_running();
    let ended = match tokio::runtime::Runtime::new() {
        Ok(runtime) => {
            let handlers =
                async |parts: Parts| -> Result<Handlers, BoxError> { Ok(handlers(parts).await?.into()) };
            let ended = runtime.block_on(cli.run_observed(handlers));
            runtime.shutdown_timeout(LEFTOVERS_WAIT);
            ended
        }
        Err(error) => {
            logging::start(cli.logging, is_long_running, None);
            Err(error.into())
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        // The reader that closed the pipe has read enough.
        Err(error) if error.is::<show::StdoutClosed>() => ExitCode::SUCCESS,
        Err(error) => {
            tracing::debug!(?error, "failed");
            complain(&error, is_long_running);
            ExitCode::from(Exit::of(&error) as u8)
        }
    }
}

/// For a person, or as the last line of a process's log.
fn complain(error: &anyhow::Error, is_long_running: bool) {
    let words = failure::words(error);
    if is_long_running {
        tracing::error!("the process exits: {words}");
    } else {
        show::note(format_args!("wakeq: {words}"));
    }
}

/// The text of `--help` below the options.
const AFTER_HELP: &str = "\
Where: commands use the database (DATABASE_URL), or a server (WAKEQ_SERVER or --server, with the key in WAKEQ_KEY). \
`migrate`, `topics`, `settings`, `secrets rotate`, `accounts`, `wake`, `doctor`, `serve`, `work` and \
`all` need the database or Pub/Sub.

Options of every command, and rarer ones: --help-all.

Exit codes: 0 done, 1 failed, 2 invalid arguments, 3 not found (event, target, cron, hook, batch, limit, queue, group, worker, account or key), \
4 not permitted, 5 conflict (the event is running, two keys are live, a quota is used up, a condition does not hold), \
6 the database or the server is unavailable, or limits requests for now (429, 408).";

/// A durable event queue: Postgres holds every event; Google Cloud Pub/Sub, or Postgres itself,
/// only wakes the workers.
#[derive(Parser)]
#[command(name = "wakeq", version, max_term_width = 110, after_help = AFTER_HELP, disable_help_flag = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Print help
    #[arg(short, long, action = ArgAction::HelpShort, global = true)]
    help: Option<bool>,
    /// Print help with the options that every command has, and rarer ones
    #[arg(long, action = ArgAction::HelpLong, global = true)]
    help_all: Option<bool>,
    #[command(flatten)]
    context: Context,
    #[command(flatten)]
    logging: logging::LogArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the HTTP API, and in push mode run what Pub/Sub pushes, until SIGTERM
    Serve(process::Serve),
    /// Run the handlers of this program, until SIGTERM
    Work(process::Work),
    /// Serve the API and run the handlers in one process, until SIGTERM
    All(process::All),
    /// Check that the process in this container is alive
    Health(health::Health),
    /// Check the database, what wakes workers, and permissions, and suggest fixes
    Doctor(doctor::Doctor),
    /// Migrate the schema `wakeq` of the database
    Migrate(migrate::Migrate),
    /// Show or change the durations that all processes share
    Settings(settings::Settings),
    /// Create the key that encrypts signing secrets, or rotate it
    Secrets(secrets::Secrets),
    /// Create the topic and the subscription, or check them
    Topics(topics::Topics),
    /// Publish overdue events now, instead of within a minute
    Wake(wake::Wake),
    /// Emit, list, explain, cancel and expedite events
    Events(events::Events),
    /// Show, pause and block handlers, and purge waiting events
    Handlers(handlers::Handlers),
    /// Create, list, pause and delete crons
    Cron(cron::Crons),
    /// Create, list and delete hooks, which receive webhooks
    Hooks(hooks::Hooks),
    /// Open, close and show batches: many events, and one when all have ended
    Batches(batches::Batches),
    /// Register queues, and set each canvas's weight and limit
    Queues(queues::Queues),
    /// Set and show limits: how many events run at a time, and start in a period
    Limits(limits::Limits),
    /// Show and set the quotas of a canvas
    Quotas(quotas::Quotas),
    /// Show consumer groups and their positions; reset positions
    Groups(groups::Groups),
    /// List, group, redrive and delete dead events
    Dead(dead::Dead),
    /// Cancel, hurry, redrive, delete or re-tag all events that match a filter
    Operations(operations::Operations),
    /// Show objects and resume halted ones
    Objects(objects::Objects),
    /// List, show and erase entities, send events to them, show the outcomes
    Entities(entities::Entities),
    /// Append to the log and read it
    Log(log::Log),
    /// Create, list and revoke keys for the API
    Keys(keys::Keys),
    /// Allow Google service accounts to use the API
    Accounts(accounts::Accounts),
    /// Show the audit log of changes and refusals
    Audit(audit::Audit),
    /// List and show the worker processes, and what they run
    Workers(workers::Workers),
    /// Show what stops the whole canvas, or everything
    Switches(switches::Switches),
    /// Count the events that are due and free to run
    Depth(depth::DepthOf),
    /// Print events as they are emitted, until Ctrl-C
    Tail(tail::Tail),
    /// Speak the Model Context Protocol on standard input and output, for agents
    Mcp(mcp::Mcp),
    /// Print a shell completion script
    Completions(completions::Completions),
    /// Write manual pages
    Man(manual::Manual),
    /// Short for `handlers list`
    Stats(stats::Stats),
    /// Short for `events emit`
    Emit(emit::Emit),
    /// Short for `events explain`
    Explain(event::Explain),
    /// Short for `events cancel`
    Cancel(events::Cancel),
    /// Short for `events run-now`
    RunNow(events::RunNow),
    /// Short for `handlers pause`
    Pause(handlers::Pause),
    /// Short for `handlers unpause`
    Unpause(handlers::Unpause),
    /// Short for `handlers block`
    Block(handlers::Block),
    /// Short for `handlers unblock`
    Unblock(handlers::Unblock),
    /// Short for `handlers purge`
    Purge(handlers::Purge),
}

impl Command {
    /// Whether it runs until it is told to stop.
    fn is_long_running(&self) -> bool {
        matches!(self, Self::Serve(_) | Self::Work(_) | Self::All(_))
    }

    /// Where its metrics and traces go, if it has any.
    fn telemetry(&self) -> Option<&TelemetryArgs> {
        if let Self::Serve(process::Serve { telemetry, .. })
        | Self::Work(process::Work { telemetry, .. })
        | Self::All(process::All { serve: process::Serve { telemetry, .. }, .. }) = self
        {
            Some(telemetry)
        } else {
            None
        }
    }
}

impl Cli {
    /// The arguments, as [`help`] has them.
    fn from_arguments<A>(arguments: A) -> Result<Self, clap::Error>
    where
        A: IntoIterator<Item: Into<OsString> + Clone>,
    {
        let mut command = help::command(Self::command());
        let matches = command.try_get_matches_from_mut(arguments);
        let parsed = matches.and_then(|mut matches| Self::from_arg_matches_mut(&mut matches));
        parsed.map_err(|error| help::naming_variable(error, &command))
    }

    /// Runs the command with its log, metrics and traces.
    async fn run_observed(self, handlers: impl MakeHandlers) -> anyhow::Result<()> {
        let started = Telemetry::start(self.command.telemetry());
        let traces = started.as_ref().ok().and_then(Telemetry::traces);
        logging::start(self.logging, self.command.is_long_running(), traces);
        let telemetry = started?;
        let scraping = telemetry.serve(&self.context.observed).await?;
        let (notifier, ending) = (self.context.notifier.clone(), self.context.ending.clone());
        let ended = self.run(handlers).await;
        let last = async {
            notifier.close_broadcasts().await;
            drop(scraping);
            telemetry.end().await;
        };
        ending.within(last).await;
        ended
    }

    /// Runs the command.
    async fn run(self, handlers: impl MakeHandlers) -> anyhow::Result<()> {
        let context = self.context;
        match self.command {
            Command::Serve(command) => command.run(&context, handlers).await,
            Command::Work(command) => command.run(&context, handlers).await,
            Command::All(command) => command.run(&context, handlers).await,
            Command::Health(command) => command.run(),
            Command::Doctor(command) => command.run(&context).await,
            Command::Migrate(command) => command.run(&context).await,
            Command::Settings(command) => command.run(&context).await,
            Command::Secrets(command) => command.run(&context).await,
            Command::Topics(command) => command.run(&context).await,
            Command::Wake(command) => command.run(&context).await,
            Command::Events(command) => command.run(&context).await,
            Command::Handlers(command) => command.run(&context).await,
            Command::Cron(command) => command.run(&context).await,
            Command::Hooks(command) => command.run(&context).await,
            Command::Batches(command) => command.run(&context).await,
            Command::Queues(command) => command.run(&context).await,
            Command::Limits(command) => command.run(&context).await,
            Command::Quotas(command) => command.run(&context).await,
            Command::Groups(command) => command.run(&context).await,
            Command::Dead(command) => command.run(&context).await,
            Command::Operations(command) => command.run(&context).await,
            Command::Objects(command) => command.run(&context).await,
            Command::Entities(command) => command.run(&context).await,
            Command::Log(command) => command.run(&context).await,
            Command::Keys(command) => command.run(&context).await,
            Command::Accounts(command) => command.run(&context).await,
            Command::Audit(command) => command.run(&context).await,
            Command::Workers(command) => command.run(&context).await,
            Command::Switches(command) => command.run(&context).await,
            Command::Depth(command) => command.run(&context).await,
            Command::Tail(command) => command.run(&context).await,
            Command::Mcp(command) => command.run(&context).await,
            Command::Completions(command) => command.run(Cli::command()),
            Command::Man(command) => command.run(Cli::command()),
            Command::Stats(command) => command.run(&context).await,
            Command::Emit(command) => command.run(&context).await,
            Command::Explain(command) => command.run(&context).await,
            Command::Cancel(command) => command.run(&context).await,
            Command::RunNow(command) => command.run(&context).await,
            Command::Pause(command) => command.run(&context).await,
            Command::Unpause(command) => command.run(&context).await,
            Command::Block(command) => command.run(&context).await,
            Command::Unblock(command) => command.run(&context).await,
            Command::Purge(command) => command.run(&context).await,
        }
    }
}

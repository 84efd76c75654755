//! The command line, as a library: a program of yours that calls [`run`] has every command of `wakeq`, and its own
//! handlers in `work` and `all`. One file per group of commands.
//!
//! What an operator does is done straight on the database, or by a server: `backend` knows the difference.

mod accounts;
mod arguments;
mod audit;
mod backend;
mod bulk;
mod completions;
mod cron;
mod dead;
mod depth;
mod descriptors;
mod doctor;
mod emit;
mod entities;
mod event;
mod events;
mod failure;
mod groups;
mod handlers;
mod health;
mod keys;
mod log;
mod logging;
mod migrate;
mod objects;
mod parts;
mod process;
mod pulls;
mod queues;
mod quotas;
mod secrets;
mod settings;
mod show;
mod stats;
mod table;
mod tail;
mod targets;
mod telemetry;
mod text;
mod topics;
mod value;
mod wake;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::api::RuleKind;
use crate::config::{CanvasArgs, DatabaseArgs, NotifierArgs, TimingArgs};
use crate::event::Actor;
use crate::store::Store;
use crate::worker::Handlers;
use backend::{Asked, Backend, Client, Database, Server, ServerArgs};
use failure::{Exit, Failure};
pub use telemetry::Metrics;
use telemetry::Telemetry;

pub use parts::Parts;

/// What may go wrong while a program makes its handlers.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How long code that blocks its thread may hold up the end of the process.
const LEFTOVERS_WAIT: Duration = Duration::from_millis(100);

/// The whole command `wakeq`, with these handlers: reads arguments and environment, logs to standard error, makes a
/// runtime of its own, and says how it went. It is all that a worker's `main` needs:
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
///     wakeq::cli::run(Handlers::new().on("greet", greet))
/// }
/// ```
///
/// The program has to be told what to do: `my-worker work` runs the handlers, `my-worker all` serves the API beside
/// them, `my-worker --help` lists the rest. The exit code is 0 when the command did what it was asked, also when SIGTERM
/// ended a worker in good order; what else it may be, `--help` says.
pub fn run(handlers: Handlers) -> ExitCode {
    run_with(async |_| Ok(handlers))
}

/// As [`run`], for handlers that need something first: it is made within the runtime, and only by the commands that run
/// handlers, so that `--help` connects to nothing. The program is given what the process has, and may have it run more:
/// consumers, say, with a [broker](Parts::run_broker).
///
/// ```no_run
/// use std::process::ExitCode;
/// use wakeq::Handlers;
///
/// fn main() -> ExitCode {
///     wakeq::cli::run_with(async |_| {
///         let orders = sqlx::PgPool::connect(&std::env::var("ORDERS_URL")?).await?;
///         Ok(Handlers::new().on("ship-order", move |event| {
///             let orders = orders.clone();
///             async move {
///                 let order: i64 = event.value()?;
///                 sqlx::query("update orders set shipped = true where id = $1").bind(order).execute(&orders).await?;
///                 Ok(())
///             }
///         }))
///     })
/// }
/// ```
pub fn run_with<F>(handlers: F) -> ExitCode
where
    F: AsyncFnOnce(Parts) -> Result<Handlers, BoxError>,
{
    run_from(std::env::args_os(), handlers)
}

/// As [`run_with`], for these arguments instead of the program's own. The first is the program's name.
///
/// ```no_run
/// # use wakeq::Handlers;
/// let done = wakeq::cli::run_from(["my-worker", "work", "--capacity", "10"], async |_| Ok(Handlers::new()));
/// ```
pub fn run_from<A, F>(arguments: A, handlers: F) -> ExitCode
where
    A: IntoIterator<Item: Into<OsString> + Clone>,
    F: AsyncFnOnce(Parts) -> Result<Handlers, BoxError>,
{
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(answer) => {
            // A closed pipe is no reason to complain.
            let _ = answer.print();
            return ExitCode::from(u8::try_from(answer.exit_code()).unwrap_or(2));
        }
    };
    let stays = cli.command.stays();
    let ended = match tokio::runtime::Runtime::new() {
        Ok(runtime) => {
            let ended = runtime.block_on(cli.run_observed(handlers));
            runtime.shutdown_timeout(LEFTOVERS_WAIT);
            ended
        }
        Err(error) => {
            logging::start(cli.logging, stays, None);
            Err(error.into())
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        // Who closed the pipe has read enough.
        Err(error) if error.is::<show::Closed>() => ExitCode::SUCCESS,
        Err(error) => {
            tracing::debug!(?error, "failed");
            complain(&error, stays);
            ExitCode::from(Exit::of(&error) as u8)
        }
    }
}

/// For a person, or as the last line of a process's log.
fn complain(error: &anyhow::Error, stays: bool) {
    let words = failure::words(error);
    if stays {
        tracing::error!("the process ends: {words}");
    } else {
        show::note(format_args!("wakeq: {words}"));
    }
}

/// What `--help` says below the options.
const AFTER_HELP: &str = "\
Where: commands work on the database (DATABASE_URL), or ask a server (WAKEQ_SERVER or --server, with the key in \
WAKEQ_KEY). `migrate`, `topics`, `settings`, `secrets`, `accounts`, `wake`, `doctor`, `work` and `all` need the database or \
Pub/Sub themselves.

Exit codes: 0 done, 1 failed, 2 the arguments make no sense, 3 there is no such event, target, cron, queue or key, 4 refused for want of \
rights, 5 in conflict with what is there (the event runs now, two live keys), 6 the database or the server is away.";

/// A durable event queue: Postgres holds every event, Google Cloud Pub/Sub only wakes the workers.
#[derive(Parser)]
#[command(name = "wakeq", version, max_term_width = 110, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    context: Context,
    #[command(flatten)]
    logging: logging::LogArgs,
}

/// What every command may need.
#[derive(clap::Args, Clone)]
pub(crate) struct Context {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    timing: TimingArgs,
    #[command(flatten)]
    notifier: NotifierArgs,
    #[command(flatten)]
    canvas: CanvasArgs,
    /// Who does it, for the record; for a server, its key says that
    #[arg(long, env = "USER", default_value = "cli", hide_default_value = true, global = true)]
    actor: String,
    #[arg(skip)]
    observed: telemetry::Observed,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the HTTP API, and in push mode run what Pub/Sub pushes, until SIGTERM
    Serve(process::Serve),
    /// Run the handlers of this program, until SIGTERM
    Work(process::Work),
    /// Serve the API and run the handlers in one process, until SIGTERM
    All(process::All),
    /// Ask the process of this container whether it lives
    Health(health::Health),
    /// Check the database, Pub/Sub and the rights, and say how to mend what is wrong
    Doctor(doctor::Doctor),
    /// Bring the schema `wakeq` of the database up to date
    Migrate(migrate::Migrate),
    /// Show or change the durations that all processes share
    Settings(settings::Settings),
    /// Make a key that signing secrets are encrypted with, or put a new one in the place of the old
    Secrets(secrets::Secrets),
    /// Create the topic and the subscription, or check them
    Topics(topics::Topics),
    /// Publish what is overdue now, instead of within the minute
    Wake(wake::Wake),
    /// Emit, list, explain, cancel and hurry events
    Events(events::Events),
    /// Look at handlers, pause and block them, purge what waits
    Handlers(handlers::Handlers),
    /// Make, list, pause and delete crons
    Cron(cron::Crons),
    /// Register queues, and say what each canvas gets of them
    Queues(queues::Queues),
    /// Show what a canvas may keep, and how much it does; set that
    Quotas(quotas::Quotas),
    /// See who reads which part of the log, how far they have come, and let them go on elsewhere
    Groups(groups::Groups),
    /// List dead events, bring them back, or delete them
    Dead(dead::Dead),
    /// Show objects, and let those go on that stand still
    Objects(objects::Objects),
    /// List, show and erase entities, send events to them, say what became of those
    Entities(entities::Entities),
    /// Append to the log, and read it
    Log(log::Log),
    /// Make, list and revoke keys for the API
    Keys(keys::Keys),
    /// Let Google service accounts use the API
    Accounts(accounts::Accounts),
    /// Read who did what, and what was refused
    Audit(audit::Audit),
    /// Count what is due and free to run
    Depth(depth::DepthOf),
    /// Print events as they are emitted, until Ctrl-C
    Tail(tail::Tail),
    /// Print a script that completes commands in a shell
    Completions(completions::Completions),
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
    Pause(handlers::Stop),
    /// Short for `handlers unpause`
    Unpause(handlers::Lift),
    /// Short for `handlers block`
    Block(handlers::Stop),
    /// Short for `handlers unblock`
    Unblock(handlers::Lift),
    /// Short for `handlers purge`
    Purge(handlers::Purge),
}

impl Command {
    /// Whether it runs until it is told to stop.
    fn stays(&self) -> bool {
        matches!(self, Self::Serve(_) | Self::Work(_) | Self::All(_))
    }

    /// Where its metrics and traces go, if it has any.
    fn telemetry(&self) -> Option<&telemetry::TelemetryArgs> {
        if let Self::Serve(command) = self {
            Some(&command.telemetry)
        } else if let Self::Work(command) = self {
            Some(&command.telemetry)
        } else if let Self::All(command) = self {
            Some(&command.telemetry)
        } else {
            None
        }
    }
}

impl Cli {
    /// Carries the command out, with its log, metrics and traces around it.
    async fn run_observed<F>(self, handlers: F) -> anyhow::Result<()>
    where
        F: AsyncFnOnce(Parts) -> Result<Handlers, BoxError>,
    {
        let started = Telemetry::start(self.command.telemetry());
        let traces = started.as_ref().ok().and_then(Telemetry::traces);
        logging::start(self.logging, self.command.stays(), traces);
        let telemetry = started?;
        let scraping = telemetry.serve(&self.context.observed).await?;
        let notifier = self.context.notifier.clone();
        let ended = self.run(handlers).await;
        notifier.close_broadcasts().await;
        drop(scraping);
        telemetry.end().await;
        ended
    }

    /// Carries the command out.
    async fn run<F>(self, handlers: F) -> anyhow::Result<()>
    where
        F: AsyncFnOnce(Parts) -> Result<Handlers, BoxError>,
    {
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
            Command::Queues(command) => command.run(&context).await,
            Command::Quotas(command) => command.run(&context).await,
            Command::Groups(command) => command.run(&context).await,
            Command::Dead(command) => command.run(&context).await,
            Command::Objects(command) => command.run(&context).await,
            Command::Entities(command) => command.run(&context).await,
            Command::Log(command) => command.run(&context).await,
            Command::Keys(command) => command.run(&context).await,
            Command::Accounts(command) => command.run(&context).await,
            Command::Audit(command) => command.run(&context).await,
            Command::Depth(command) => command.run(&context).await,
            Command::Tail(command) => command.run(&context).await,
            Command::Completions(command) => command.run(),
            Command::Stats(command) => command.run(&context).await,
            Command::Emit(command) => command.run(&context).await,
            Command::Explain(command) => command.run(&context).await,
            Command::Cancel(command) => command.run(&context).await,
            Command::RunNow(command) => command.run(&context).await,
            Command::Pause(command) => command.run(&context, RuleKind::Pause).await,
            Command::Unpause(command) => command.run(&context, RuleKind::Pause).await,
            Command::Block(command) => command.run(&context, RuleKind::Block).await,
            Command::Unblock(command) => command.run(&context, RuleKind::Block).await,
            Command::Purge(command) => command.run(&context).await,
        }
    }
}

impl Context {
    /// Who does it, as the record has them.
    fn actor(&self) -> Actor {
        Actor::admin(&format!("cli:{}", self.actor))
    }

    /// Where a command is carried out: by a server if one was named, else on the database.
    async fn backend(&self) -> anyhow::Result<Backend> {
        match self.server.asked() {
            Asked::Flag(url) | Asked::Environment(url) => {
                let client = Client::new(&url, &self.server, self.canvas.canvas)?;
                Ok(Backend::Server(Box::new(Server { client })))
            }
            Asked::Nobody => {
                let store = self.database.connect(&self.timing).await?;
                let (canvas, actor, notifier) = (self.canvas.canvas, self.actor(), self.notifier.clone());
                Ok(Backend::Database(Box::new(Database { store, canvas, actor, notifier })))
            }
        }
    }

    /// For what a server can't do.
    async fn store(&self) -> anyhow::Result<Store> {
        self.without_server()?;
        self.database.connect(&self.timing).await
    }

    /// Refuses what a server is asked for and can't do. The variable alone asks for nothing while a database is named.
    fn without_server(&self) -> Result<(), Failure> {
        match self.server.asked() {
            Asked::Environment(_) if self.database.is_given() => Ok(()),
            Asked::Flag(_) | Asked::Environment(_) => {
                let words = "a server can't do this: set DATABASE_URL, and leave --server out";
                Err(Failure::Usage(words.to_owned()))
            }
            Asked::Nobody => Ok(()),
        }
    }
}

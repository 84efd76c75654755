//! The command line, as a library: a program of yours that calls [`run`] has every command of `wakeq`, and its own
//! handlers in `work` and `all`. One file per subcommand.
//!
//! It talks to the database directly: who may connect to it is an admin.

mod accounts;
mod dead;
mod descriptors;
mod doctor;
mod emit;
mod events;
mod explain;
mod health;
mod keys;
mod logging;
mod migrate;
mod process;
mod reach;
mod rules;
mod settings;
mod show;
mod stats;
mod topics;
mod wake;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::admin::Admin;
use crate::config::{CanvasArgs, DatabaseArgs, PubSubArgs, TimingArgs};
use crate::notify::MemoryNotifier;
use crate::store::Store;
use crate::worker::Handlers;

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
/// ended a worker in good order; 1 when not; 2 for arguments that make no sense.
pub fn run(handlers: Handlers) -> ExitCode {
    run_with(async || Ok(handlers))
}

/// As [`run`], for handlers that need something first: it is made within the runtime, and only by the commands that run
/// handlers, so that `--help` connects to nothing.
///
/// ```no_run
/// use std::process::ExitCode;
/// use wakeq::Handlers;
///
/// fn main() -> ExitCode {
///     wakeq::cli::run_with(async || {
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
    F: AsyncFnOnce() -> Result<Handlers, BoxError>,
{
    run_from(std::env::args_os(), handlers)
}

/// As [`run_with`], for these arguments instead of the program's own. The first is the program's name.
///
/// ```no_run
/// # use wakeq::Handlers;
/// let done = wakeq::cli::run_from(["my-worker", "work", "--capacity", "10"], async || Ok(Handlers::new()));
/// ```
pub fn run_from<A, F>(arguments: A, handlers: F) -> ExitCode
where
    A: IntoIterator<Item: Into<OsString> + Clone>,
    F: AsyncFnOnce() -> Result<Handlers, BoxError>,
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
    logging::start(cli.logging, stays);
    let ended = match tokio::runtime::Runtime::new() {
        Ok(runtime) => {
            let ended = runtime.block_on(cli.run(handlers));
            runtime.shutdown_timeout(LEFTOVERS_WAIT);
            ended
        }
        Err(error) => Err(error.into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::debug!(?error, "failed");
            complain(&error, stays);
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes, without what a cause only repeats: for a person, or as the last line of a process's log.
#[expect(clippy::print_stderr, reason = "the command's own words to its user")]
fn complain(error: &anyhow::Error, stays: bool) {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if !words.contains(&cause) {
            words = if words.is_empty() { cause } else { format!("{words}: {cause}") };
        }
    }
    if stays {
        tracing::error!("the process ends: {words}");
    } else {
        eprintln!("wakeq: {words}");
    }
}

/// A durable event queue: Postgres holds every event, Google Cloud Pub/Sub only wakes the workers.
#[derive(Parser)]
#[command(name = "wakeq", version, max_term_width = 110)]
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
    database: DatabaseArgs,
    #[command(flatten)]
    timing: TimingArgs,
    #[command(flatten)]
    pubsub: PubSubArgs,
    #[command(flatten)]
    canvas: CanvasArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the HTTP API, until SIGTERM
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
    /// Create the topic and the subscription, or check them
    Topics(topics::Topics),
    /// Emit an event
    Emit(emit::Emit),
    /// Stop a handler, as its user
    Pause(rules::Stop),
    /// Lift a pause and wake what waited
    Unpause(rules::Lift),
    /// Stop a handler, as an admin
    Block(rules::Stop),
    /// Lift a block and wake what waited
    Unblock(rules::Lift),
    /// Show the handlers that have events: counts and rules
    Stats(stats::Stats),
    /// Say why an event is not running, and what happens next
    Explain(explain::Explain),
    /// Delete a waiting event
    Cancel(events::One),
    /// Make a waiting event due at once
    RunNow(events::One),
    /// Delete all events of a handler that nobody runs
    Purge(events::Purge),
    /// List dead events, or bring them back
    Dead(dead::Dead),
    /// Make, list and revoke keys for the API
    Keys(keys::Keys),
    /// Let Google service accounts use the API
    Accounts(accounts::Accounts),
    /// Publish what is overdue now, instead of within the minute
    Wake(wake::Wake),
}

impl Command {
    /// Whether it runs until it is told to stop.
    fn stays(&self) -> bool {
        matches!(self, Self::Serve(_) | Self::Work(_) | Self::All(_))
    }
}

impl Cli {
    /// Carries the command out.
    async fn run<F>(self, handlers: F) -> anyhow::Result<()>
    where
        F: AsyncFnOnce() -> Result<Handlers, BoxError>,
    {
        let context = self.context;
        match self.command {
            Command::Serve(command) => command.run(&context).await,
            Command::Work(command) => command.run(&context, handlers).await,
            Command::All(command) => command.run(&context, handlers).await,
            Command::Health(command) => command.run(),
            Command::Doctor(command) => command.run(&context).await,
            Command::Migrate(command) => command.run(&context).await,
            Command::Settings(command) => command.run(&context).await,
            Command::Topics(command) => command.run(&context).await,
            Command::Emit(command) => command.run(&context).await,
            Command::Pause(command) => command.pause(&context).await,
            Command::Unpause(command) => command.unpause(&context).await,
            Command::Block(command) => command.block(&context).await,
            Command::Unblock(command) => command.unblock(&context).await,
            Command::Stats(command) => command.run(&context).await,
            Command::Explain(command) => command.run(&context).await,
            Command::Cancel(command) => command.cancel(&context).await,
            Command::RunNow(command) => command.run_now(&context).await,
            Command::Purge(command) => command.run(&context).await,
            Command::Dead(command) => command.run(&context).await,
            Command::Keys(command) => command.run(&context).await,
            Command::Accounts(command) => command.run(&context).await,
            Command::Wake(command) => command.run(&context).await,
        }
    }
}

impl Context {
    async fn store(&self) -> anyhow::Result<Store> {
        self.database.connect(&self.timing).await
    }

    /// For what publishes nothing, so that Pub/Sub need not be configured.
    async fn reader(&self) -> anyhow::Result<Admin> {
        let store = self.store().await?;
        Ok(Admin::new(store, Arc::new(MemoryNotifier::new())))
    }

    /// For what wakes events.
    async fn admin(&self) -> anyhow::Result<Admin> {
        let store = self.store().await?;
        Ok(Admin::new(store, self.pubsub.connect().await?))
    }
}

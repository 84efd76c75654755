//! The command line: one file per subcommand. It talks to the database directly: who may connect to it is an admin.

mod accounts;
mod dead;
mod emit;
mod events;
mod explain;
mod keys;
mod migrate;
mod reach;
mod rules;
mod show;
mod stats;
mod topics;
mod wake;

use std::sync::Arc;

use clap::{Parser, Subcommand};

use crate::admin::Admin;
use crate::config::{CanvasArgs, DatabaseArgs, PubSubArgs, TimingArgs};
use crate::notify::MemoryNotifier;

/// A durable event queue: Postgres holds every event, Google Cloud Pub/Sub only wakes the workers.
#[derive(Parser)]
#[command(name = "wakeq", version, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    context: Context,
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
    /// Bring the schema `wakeq` of the database up to date
    Migrate(migrate::Migrate),
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

impl Cli {
    /// Carries the command out.
    pub async fn run(self) -> anyhow::Result<()> {
        let context = self.context;
        match self.command {
            Command::Migrate(command) => command.run(&context).await,
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
    /// For what publishes nothing, so that Pub/Sub need not be configured.
    async fn reader(&self) -> anyhow::Result<Admin> {
        let store = self.database.connect(&self.timing).await?;
        Ok(Admin::new(store, Arc::new(MemoryNotifier::new())))
    }

    /// For what wakes events.
    async fn admin(&self) -> anyhow::Result<Admin> {
        let store = self.database.connect(&self.timing).await?;
        Ok(Admin::new(store, self.pubsub.connect().await?))
    }
}

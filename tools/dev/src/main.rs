//! `cargo dev`: the whole queue on this machine. It finds or starts a Postgres and an emulator,
//! runs the API and a worker with sample handlers, emits a trickle of events, and prints a line for
//! everything that happens.

mod accounts;
mod demo;
mod endpoint;
mod kept;
mod others;
mod samples;
mod screen;
mod service;
mod store;
mod story;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use tracing_subscriber::EnvFilter;
use wakeq::Store;
use wakeq::notify::{DEVELOPMENT_PROJECT, Notifier, PubSub, PubSubConfig, create_topics};
use wakeq_testbed::{
    Choice, ChosenService, ClusterOptions, Folder, Postgres, PubSub as Emulator, Requested, UnknownChoice,
};

use kept::{DevFolder, OtherProcess};
use others::OtherWorkers;
use worker::SampleWorker;

/// Run Postgres, a Pub/Sub emulator, the API, a worker and sample events, and report what happens.
/// Stop with Ctrl-C.
///
/// Postgres is the one at DATABASE_URL, else an installed one (data in .dev/postgres), else one
/// that is downloaded on first use (data in .dev/downloaded). The emulator is the one at
/// PUBSUB_EMULATOR_HOST, else one in this process.
#[derive(Parser)]
#[command(name = "cargo dev", max_term_width = 110)]
struct Arguments {
    /// Which Postgres: env (DATABASE_URL), installed, or downloaded
    #[arg(long, value_name = "WHICH", value_parser = ["env", "installed", "downloaded"])]
    postgres: Option<String>,
    /// Which Pub/Sub emulator: env (PUBSUB_EMULATOR_HOST), google, or own
    #[arg(long, value_name = "WHICH", value_parser = ["env", "google", "own"])]
    emulator: Option<String>,
    /// Delete the data in .dev first
    #[arg(long)]
    fresh: bool,
    /// Emit no sample events
    #[arg(long)]
    no_trickle: bool,
    /// Open a shop, whose events come in place of the sample events: six handlers and more, errors
    /// of several kinds, dead events, a pause, limits, crons, a queue, a batch, a branch on another
    /// canvas, and a second worker. What is set up at first is kept with the data
    #[arg(long, conflicts_with = "no_worker")]
    demo: bool,
    /// Also run an example: accounts (docs/entities.md)
    #[arg(long, value_name = "NAME", value_parser = ["accounts"])]
    example: Option<String>,
    /// Start only Postgres, Pub/Sub and the API; emit nothing
    #[arg(long)]
    no_worker: bool,
    /// Use a server that may lose commits (fsync or synchronous_commit off)
    #[arg(long, env = "WAKEQ_ALLOW_UNSAFE_DURABILITY", num_args = 0..=1, default_missing_value = "1",
          default_value = "0", value_parser = clap::builder::BoolishValueParser::new(), hide_default_value = true,
          hide_possible_values = true)]
    allow_unsafe_durability: bool,
    /// Port of the API; if it is taken, a free port is used
    #[arg(long, env = "PORT", default_value_t = 8080)]
    port: u16,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            screen::line(&format!("cargo dev: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    // Registered before anything starts, so that Ctrl-C during the start also shuts down cleanly.
    let stop = wakeq::shutdown_signal()?;
    tokio::pin!(stop);
    let dev_folder = DevFolder::open()?;
    if arguments.fresh {
        screen::cleared(&dev_folder.clear().await?);
    }
    let _servers_lock = dev_folder.lock_servers()?;
    let services = tokio::select! {
        services = Services::start(&arguments, &dev_folder) => services?,
        _ = &mut stop => return Ok(()),
    };
    let worked = work(&services, &arguments, &dev_folder, stop).await;
    let stopped = services.stop().await;
    if worked.is_ok() {
        screen::line(&stopped);
    }
    worked
}

/// The services that the queue needs.
struct Services {
    postgres: ChosenService<Postgres>,
    emulator: ChosenService<Emulator>,
}

impl Services {
    async fn start(arguments: &Arguments, dev_folder: &DevFolder) -> anyhow::Result<Self> {
        let postgres = requested("--postgres", arguments.postgres.as_deref())?;
        let emulator = requested("--emulator", arguments.emulator.as_deref())?;
        let options =
            ClusterOptions { folder: Folder::Persistent(dev_folder.postgres()), ..ClusterOptions::default() };
        let (postgres, emulator) =
            tokio::join!(Postgres::choose(options, postgres), Emulator::choose(emulator));
        let postgres = match dev_folder.other() {
            None => postgres?,
            Some(other) => postgres.with_context(|| {
                let OtherProcess { pid, database_url } = other;
                format!("another cargo dev (process {pid}) runs here; DATABASE_URL={database_url} joins it")
            })?,
        };
        Ok(Self { postgres, emulator: emulator? })
    }

    /// Stops what was started here; returns the last line to print.
    async fn stop(self) -> String {
        let where_it_waits =
            if self.postgres.service.stays() { "in the database of DATABASE_URL" } else { "in .dev" };
        if let Err(error) = self.postgres.service.stop().await {
            return format!(
                "stopped, but Postgres did not shut down cleanly; it recovers when it starts next: {error}"
            );
        }
        format!("stopped; waiting events are kept {where_it_waits}")
    }
}

fn requested<C: Choice>(option: &str, word: Option<&str>) -> Result<Option<Requested<C>>, UnknownChoice> {
    word.map(|word| Requested::by_option(option, word)).transpose()
}

async fn work(
    services: &Services,
    arguments: &Arguments,
    dev_folder: &DevFolder,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let url = services.postgres.service.maintenance_url();
    let host = services.emulator.service.host();
    dev_folder.announce(&url)?;
    let migrations = Store::migrate(&url, false).await?;
    let defaults = PubSubConfig::new(DEVELOPMENT_PROJECT);
    let pubsub = PubSubConfig {
        broadcast_topic: Some(PubSubConfig::broadcast_topic_of(&defaults.topic)),
        emulator_host: Some(host.clone()),
        create_missing: true,
        ..defaults
    };
    create_topics(&pubsub).await?;
    let subscription = format!("projects/{}/subscriptions/{}", pubsub.project, pubsub.subscription);
    let mut metrics = service::metrics().await?;
    let secret_keys = service::secret_keys(&dev_folder.secret_key())?;
    let (is_ours, may_forget) = (!services.postgres.service.stays(), arguments.allow_unsafe_durability);
    let store = store::connect(&url, is_ours, may_forget, &secret_keys).await?;
    metrics.watch(&store);
    let notifier: Arc<dyn Notifier> = Arc::new(PubSub::connect(pubsub).await?);
    let server = service::bind(store.clone(), Arc::clone(&notifier), arguments.port).await?;
    if server.local_address().port() != arguments.port {
        screen::line(&format!("Port {} is in use: the API listens on another one", arguments.port));
    }
    service::key(store.clone(), &dev_folder.key()).await?;
    let page = service::page(store.clone()).await?;
    screen::introduction(
        services,
        dev_folder,
        migrations.len(),
        &screen::Access { url, host, address: server.local_address(), page, metrics: metrics.address() },
    );
    let (serving, served) = (server.stop_token(), tokio::spawn(server.run()));
    let worked = if arguments.no_worker {
        stop.await;
        Ok(())
    } else {
        let others = OtherWorkers::new(&services.emulator.service, &subscription);
        SampleWorker { store, notifier, arguments }.run(&others, stop).await
    };
    serving.cancel();
    served.await?;
    worked
}

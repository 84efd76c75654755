//! What commands are built on: the options that every command may have, the client of the API,
//! output, and how a process logs, is measured and ends.
//!
//! Operators' commands act directly on the database or through a server: `client` hides the
//! difference. Must not know which commands there are.

pub(crate) mod arguments;
pub(crate) mod bulk;
pub(crate) mod client;
pub(crate) mod ending;
pub(crate) mod failure;
pub(crate) mod given;
pub(crate) mod logging;
mod output;
pub(crate) mod parts;
pub(crate) mod progress;
pub(crate) mod show;
pub(crate) mod table;
pub(crate) mod telemetry;
pub(crate) mod text;
pub(crate) mod value;

use serde::de::DeserializeOwned;

use crate::config::{CanvasArgs, DatabaseArgs, DeliveryArgs, NotifierArgs, TimingArgs};
use client::{Client, Local, Request, Server, ServerArgs, ServerChoice, Transport};
use failure::Failure;
pub use telemetry::Metrics;
use wakeq::{Actor, Store};

pub use parts::Parts;

/// An error of a program that creates its handlers.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What every command may need.
#[derive(clap::Args, Clone)]
pub(crate) struct Context {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) database: DatabaseArgs,
    #[command(flatten)]
    pub(crate) timing: TimingArgs,
    #[command(flatten)]
    pub(crate) notifier: NotifierArgs,
    #[command(flatten)]
    pub(crate) canvas: CanvasArgs,
    /// Actor in the audit log; a server names the holder of the key instead
    #[arg(long, env = "USER", default_value = "cli", hide_default_value = true, global = true)]
    actor: String,
    #[arg(skip)]
    pub(crate) observed: telemetry::SharedObserver,
    #[arg(skip)]
    pub(crate) ending: ending::Ending,
}

impl Context {
    /// The actor in the audit log.
    pub(crate) fn actor(&self) -> Actor {
        Actor::admin(&format!("cli:{}", self.actor))
    }

    /// The client of the command: of a server if one is given, otherwise on the database.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let transport = match self.server.choice() {
            ServerChoice::Flag(url) | ServerChoice::Environment(url) => {
                Transport::Server(Box::new(Server::new(&url, &self.server)?))
            }
            ServerChoice::Unset => {
                let store = self.database.connect(&self.timing).await?;
                let (actor, notifier) = (self.actor(), self.notifier.clone());
                Transport::Local(Box::new(Local { store, actor, notifier, delivery: None }))
            }
        };
        Ok(Client { canvas: self.canvas.canvas, transport })
    }

    /// Sends a request, and parses its answer.
    pub(crate) async fn call<T: DeserializeOwned>(&self, request: Request) -> anyhow::Result<T> {
        self.client().await?.call(request).await
    }

    /// The same, for an answer without a body or one that is not used.
    pub(crate) async fn send(&self, request: Request) -> anyhow::Result<()> {
        self.client().await?.send(request).await.map(drop)
    }

    /// The client to register targets. `delivery` says what is allowed, unless a server decides
    /// that.
    pub(crate) async fn client_to_targets(&self, delivery: &DeliveryArgs) -> anyhow::Result<Client> {
        let mut client = self.client().await?;
        if let Transport::Local(local) = &mut client.transport {
            local.delivery = Some(delivery.config()?);
        }
        Ok(client)
    }

    /// For commands that a server can't run.
    pub(crate) async fn store(&self) -> anyhow::Result<Store> {
        self.without_server()?;
        self.database.connect(&self.timing).await
    }

    /// Refuses to use a server for what it can't do. `WAKEQ_SERVER` is ignored if a database is
    /// given.
    pub(crate) fn without_server(&self) -> Result<(), Failure> {
        match self.server.choice() {
            ServerChoice::Environment(_) if self.database.is_given() => Ok(()),
            ServerChoice::Flag(_) | ServerChoice::Environment(_) => {
                let words = "a server can't do this: set DATABASE_URL, and omit --server";
                Err(Failure::Usage(words.to_owned()))
            }
            ServerChoice::Unset => Ok(()),
        }
    }
}

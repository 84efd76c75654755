//! One engine: a Postgres that lives in this process, with one session, on a thread of its own.
//!
//! It must never know of clients: it takes whole groups of messages and returns the engine's
//! answers.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use pglite_oxide::{ExecProtocolOptions, Pglite};
use tokio::sync::oneshot;

use crate::frame::{Frame, frames};
use crate::settings::pair;

/// The parameters that a client receives at its start.
const STARTUP_PARAMETERS: &str = "
    select name, setting from pg_catalog.pg_settings
     where name in ('DateStyle', 'IntervalStyle', 'TimeZone', 'client_encoding', 'default_transaction_read_only',
                    'in_hot_standby', 'integer_datetimes', 'server_encoding', 'server_version',
                    'standard_conforming_strings')";

/// Why there is no answer. The engine has ended then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    #[error("the thread of the engine")]
    Thread(#[from] std::io::Error),
    #[error("the engine failed: {0}")]
    Failed(String),
    #[error("the engine has ended")]
    Ended,
}

enum Order {
    Exchange(Vec<u8>, oneshot::Sender<Result<Vec<u8>, EngineError>>),
    Close(oneshot::Sender<Result<(), EngineError>>),
}

/// The handle to the engine's thread. Without [`close`](Self::close), the next start on the same
/// folder has to recover.
#[derive(Debug)]
pub(crate) struct Engine {
    orders: mpsc::Sender<Order>,
    parameters: Vec<(String, String)>,
}

impl Engine {
    /// Opens the folder; a missing one becomes a new database.
    pub(crate) async fn open(folder: PathBuf) -> Result<Self, EngineError> {
        let (orders, inbox) = mpsc::channel();
        let (ready, opened) = oneshot::channel();
        thread::Builder::new().name("engine".to_owned()).spawn(move || work(&folder, ready, &inbox))?;
        opened.await.unwrap_or(Err(EngineError::Ended))?;
        let mut engine = Self { orders, parameters: Vec::new() };
        let answer = engine.exchange(Frame::query(STARTUP_PARAMETERS).bytes()).await?;
        engine.parameters = frames(&answer).iter().filter_map(pair).collect();
        Ok(engine)
    }

    /// The settings that clients receive at their start.
    pub(crate) fn parameters(&self) -> &[(String, String)] {
        &self.parameters
    }

    /// Sends messages that end a group, and waits for the whole answer.
    pub(crate) async fn exchange(&self, messages: Vec<u8>) -> Result<Vec<u8>, EngineError> {
        let (reply, answer) = oneshot::channel();
        self.orders.send(Order::Exchange(messages, reply)).map_err(|_| EngineError::Ended)?;
        answer.await.unwrap_or(Err(EngineError::Ended))
    }

    /// Shuts it down gracefully: with a checkpoint, and with its folder free for others.
    pub(crate) async fn close(self) -> Result<(), EngineError> {
        let (reply, answer) = oneshot::channel();
        self.orders.send(Order::Close(reply)).map_err(|_| EngineError::Ended)?;
        answer.await.unwrap_or(Err(EngineError::Ended))
    }
}

fn work(folder: &Path, ready: oneshot::Sender<Result<(), EngineError>>, inbox: &mpsc::Receiver<Order>) {
    let mut postgres = match open(folder) {
        Ok(postgres) => postgres,
        Err(error) => return drop(ready.send(Err(error))),
    };
    let _ = ready.send(Ok(()));
    // The loop ends when the handle is dropped.
    while let Ok(order) = inbox.recv() {
        match order {
            Order::Exchange(messages, reply) => {
                let answer = postgres.exec_protocol_raw(&messages, ExecProtocolOptions::default());
                let failed = answer.is_err();
                let _ = reply.send(answer.map_err(|error| EngineError::Failed(format!("{error:#}"))));
                if failed {
                    return;
                }
            }
            Order::Close(reply) => {
                let closed = postgres.close().map_err(|error| EngineError::Failed(format!("{error:#}")));
                drop(postgres);
                return drop(reply.send(closed));
            }
        }
    }
}

/// `fsync` stays off, the engine's default: it cannot sync a folder, as every checkpoint would have
/// to.
fn open(folder: &Path) -> Result<Pglite, EngineError> {
    Pglite::builder()
        .path(folder)
        .database("postgres")
        .postgres_config("search_path", "\"$user\", public")
        .postgres_config("shared_buffers", "32MB")
        .open()
        .map_err(|error| EngineError::Failed(format!("{error:#}")))
}

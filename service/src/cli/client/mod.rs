//! The client of the HTTP API, for one canvas. What it asks for is the same on a database and on a
//! server, and so is the answer: only the transport differs.
//!
//! Prints nothing, and knows no commands.

mod calls;
mod hearing;
mod local;
mod request;
mod server;

use serde::de::DeserializeOwned;

use super::arguments::HandlerName;
use request::Request;
use wakeq::{CanvasId, CheckResult, Name};

pub(super) use hearing::EventFeed;
pub(super) use local::Local;
pub(super) use server::{Server, ServerArgs, ServerChoice};

/// A client for one canvas.
pub(super) struct Client {
    pub(super) canvas: CanvasId,
    pub(super) transport: Transport,
}

/// What carries requests to the API.
pub(super) enum Transport {
    Local(Box<Local>),
    Server(Box<Server>),
}

/// The events to list.
pub(super) struct WhichEvents {
    pub(super) handler: Option<HandlerName>,
    pub(super) state: Option<CheckResult>,
    pub(super) worker: Option<Name>,
}

impl Client {
    /// Sends a request, and parses its answer.
    async fn call<T: DeserializeOwned>(&self, request: Request) -> anyhow::Result<T> {
        let body = self.send(request).await?;
        serde_json::from_slice(&body).map_err(|error| match &self.transport {
            Transport::Local(_) => error.into(),
            Transport::Server(server) => server.unreadable(&error).into(),
        })
    }

    /// The same, for an answer without a body or one that is not used.
    async fn send(&self, request: Request) -> anyhow::Result<Vec<u8>> {
        match &self.transport {
            Transport::Local(local) => local.send(&request, self.canvas).await,
            Transport::Server(server) => Ok(server.send(&request, self.canvas).await?),
        }
    }
}

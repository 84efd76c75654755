//! The client of the HTTP API, for one canvas. Its requests and their answers are the same on a
//! database and on a server. Only the transport differs.
//!
//! The methods for each resource are beside its commands. Each is a single request, with its JSON
//! as arguments and answer. Prints nothing, and knows no commands.

mod hearing;
mod local;
mod request;
mod server;

use serde::de::DeserializeOwned;

use crate::resources::events::wire::TheEvent;
use wakeq::{CanvasId, EventId};

pub(crate) use hearing::EventFeed;
pub(crate) use local::Local;
pub(crate) use request::{Page, Request};
pub(crate) use server::{Server, ServerArgs, ServerChoice};

/// A client for one canvas.
pub(crate) struct Client {
    pub(crate) canvas: CanvasId,
    pub(crate) transport: Transport,
}

/// The transport of requests to the API.
pub(crate) enum Transport {
    Local(Box<Local>),
    Server(Box<Server>),
}

impl Client {
    /// Sends a request, and parses its answer.
    pub(crate) async fn call<T: DeserializeOwned>(&self, request: Request) -> anyhow::Result<T> {
        let body = self.send(request).await?;
        match &self.transport {
            Transport::Local(_) => Ok(serde_json::from_slice(&body)?),
            Transport::Server(server) => Ok(server.parse(&body)?),
        }
    }

    /// The same, for an answer without a body or one that is not used.
    pub(crate) async fn send(&self, request: Request) -> anyhow::Result<Vec<u8>> {
        match &self.transport {
            Transport::Local(local) => local.send(&request, self.canvas).await,
            Transport::Server(server) => Ok(server.send(&request, self.canvas).await?),
        }
    }

    /// Checks that the answer is about the requested event, given by its id or by its chosen id.
    pub(crate) fn same(&self, answered: TheEvent, asked: EventId) -> anyhow::Result<()> {
        let is_meant = [asked, EventId::chosen(self.canvas, asked)].contains(&EventId(answered.id));
        anyhow::ensure!(is_meant, "the server answered about another event, {}", answered.id);
        Ok(())
    }
}

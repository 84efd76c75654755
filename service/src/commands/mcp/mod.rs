//! `wakeq mcp`: the Model Context Protocol on standard input and output, for agents. Each tool asks
//! the API, in the name of whoever started the command.
//!
//! Must never print anything else to standard output, nor have a tool that deletes dead events,
//! keys or queues.

mod answer;
mod arguments;
mod catalog;
mod ended;
mod filter;
mod previews;
mod server;

use std::pin::pin;

use anyhow::Context as _;
use clap::Args;
use rmcp::service::{QuitReason, ServerInitializeError, serve_server_with_ct};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::stdio;
use tokio_util::sync::CancellationToken;

use crate::cli::Context;
use server::McpServer;
use wakeq::shutdown_signal;

/// Maximum bytes of a message from the client. Longer ones are dropped, and logged.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

#[derive(Args)]
pub(crate) struct Mcp {
    /// Also offer tools that pause, cancel and bring back; the key has to allow it as well
    #[arg(long)]
    allow_changes: bool,
}

impl Mcp {
    /// Ends when standard input is closed, and on SIGTERM or Ctrl-C.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let signal = shutdown_signal().context("listen for SIGTERM")?;
        let server = McpServer::new(context.client().await?, self.allow_changes)?;
        let stop = CancellationToken::new();
        let mut serving = pin!(serve(server, stop.clone()));
        tokio::select! {
            ended = &mut serving => return ended,
            () = signal => stop.cancel(),
        }
        serving.await
    }
}

async fn serve(server: McpServer, stop: CancellationToken) -> anyhow::Result<()> {
    let (input, output) = stdio();
    let transport = AsyncRwTransport::new_server(input, output).with_max_line_length(MESSAGE_BYTES_MAX);
    match serve_server_with_ct(server, transport, stop).await {
        Ok(running) => match running.waiting().await? {
            QuitReason::JoinError(error) => Err(error.into()),
            QuitReason::Closed | QuitReason::Cancelled | _ => Ok(()),
        },
        // The client has ended before it began.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

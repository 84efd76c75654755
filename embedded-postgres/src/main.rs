//! A Postgres that comes from crates.io alone: PGlite, an engine with one session, behind a server
//! that shares it.
//!
//! This file only reads the command line and decides when to end. It must never end without
//! shutting down the engines.

mod client;
mod database;
mod databases;
mod engine;
mod frame;
mod server;
mod settings;
mod sql;
mod startup;
mod statements;

use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::databases::Databases;
use crate::server::Server;

/// The database that always exists.
const FIRST: &str = "postgres";

/// Serves a Postgres of its own on 127.0.0.1, for development and tests.
///
/// When it accepts connections it prints one line, `ready PORT`. SIGTERM, SIGINT and SIGQUIT end it
/// in good order.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The folder of the data; it is made, if it is not there
    #[arg(long)]
    data: PathBuf,
    /// The port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Longest wait for another connection's transaction, in seconds, where statement_timeout sets
    /// no other limit
    #[arg(long, default_value_t = 60)]
    longest_wait_seconds: u64,
    /// End when the standard input ends, as it does with the process that holds it
    #[arg(long)]
    end_with_input: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let end = CancellationToken::new();
    tokio::spawn(watch(arguments.end_with_input, end.clone()));

    std::fs::create_dir_all(&arguments.data).with_context(|| format!("make {}", arguments.data.display()))?;
    let databases = Arc::new(Databases::new(arguments.data, end.child_token()));
    databases.ensure(FIRST).await?;
    // Unpacks the engine, and fails early if it does not start.
    let (first, guard) = databases.enter(FIRST).await?;
    first.turn().await?.end();
    drop(guard);

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, arguments.port))
        .await
        .with_context(|| format!("listen on port {}", arguments.port))?;
    let port = listener.local_addr().context("the port")?.port();
    writeln!(std::io::stdout(), "ready {port}").context("say that it is ready")?;

    let server = Server::new(Arc::clone(&databases), Duration::from_secs(arguments.longest_wait_seconds));
    server.run(listener, &end).await;
    databases.close().await.context("end the engines")?;
    Ok(())
}

/// Ends the server on a signal or at the end of its input.
async fn watch(end_with_input: bool, end: CancellationToken) {
    let input = end.clone();
    if end_with_input {
        // A thread, because a blocking read cannot be cancelled and must not delay the end of the
        // process.
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            input.cancel();
        });
    }
    let [first, second, third] =
        [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit()].map(|kind| async move {
            match signal(kind) {
                Ok(mut signal) => drop(signal.recv().await),
                Err(_) => std::future::pending().await,
            }
        });
    tokio::select! {
        () = end.cancelled() => {}
        () = first => {}
        () = second => {}
        () = third => {}
    }
    end.cancel();
}

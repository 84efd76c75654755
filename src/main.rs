//! The `wakeq` command.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .init();
    match wakeq::cli::Cli::parse().run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::debug!(?error, "failed");
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes, for a person: without what a cause only repeats.
#[expect(clippy::print_stderr, reason = "the command's own words to its user")]
fn complain(error: &anyhow::Error) {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if !words.contains(&cause) {
            words = if words.is_empty() { cause } else { format!("{words}: {cause}") };
        }
    }
    eprintln!("wakeq: {words}");
}

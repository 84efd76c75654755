//! The `wakeq` command, without handlers. For a binary with handlers of your own see
//! [`wakeq::cli::run`].

use std::process::ExitCode;

fn main() -> ExitCode {
    wakeq::cli::run(wakeq::Handlers::new())
}

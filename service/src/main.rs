//! The `wakeq` command, without handlers. For a binary with handlers of your own see
//! [`wakeq_service::run`].

use std::process::ExitCode;

fn main() -> ExitCode {
    wakeq_service::run(wakeq::Handlers::new())
}

//! Errors of emulators, and what to do about them.
//!
//! Each must say which emulator it is about.

use std::io;

use super::locate::NotInstalled;
use crate::choice::UnknownChoice;
use crate::containers::ContainerError;
use crate::process::ProcessError;

/// Why no Pub/Sub emulator could be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulatorError {
    /// The requested choice does not exist.
    #[error(transparent)]
    Choice(#[from] UnknownChoice),
    /// The emulator of the environment was requested, but `PUBSUB_EMULATOR_HOST` is not set.
    #[error("{by} requires the emulator at PUBSUB_EMULATOR_HOST, which is not set: set it to host:port")]
    NoHost {
        /// What requested it.
        by: String,
    },
    /// Ours could not start.
    #[error("our own Pub/Sub emulator could not start")]
    Own(#[source] io::Error),
    /// Google's was requested, but is not installed.
    #[error("{by}: {missing}")]
    Missing {
        /// What requested it.
        by: String,
        /// What is missing.
        missing: NotInstalled,
    },
    /// Google's is not installed.
    #[error(transparent)]
    NotInstalled(#[from] NotInstalled),
    /// It was started elsewhere, or runs in a container, and cannot be killed here.
    #[error("this emulator may not be killed: request one that may, with `PubSub::to_be_killed`")]
    NotToBeKilled,
    /// Its container could not be started.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// It did not answer `GET /`.
    #[error("the tests' Pub/Sub emulator does not identify itself on `GET /`")]
    FirstPage(#[source] io::Error),
    /// Its process could not be started or ended.
    #[error("Google's Pub/Sub emulator")]
    Process(#[from] ProcessError),
    /// No port is free.
    #[error("no free port on 127.0.0.1 for Google's Pub/Sub emulator")]
    Port(#[source] io::Error),
    /// It ended, or found its port taken, before it answered; its last lines of output.
    #[error("Google's Pub/Sub emulator could not start; its last output:\n{0}")]
    Failed(String),
    /// It runs but does not answer; its last lines of output.
    #[error("Google's Pub/Sub emulator does not answer; its last output:\n{0}")]
    Silent(String),
}

//! What can go wrong with an emulator, and what to do about it.
//!
//! It must never be silent about which emulator it was.

use std::io;

use super::locate::NotInstalled;
use crate::choice::UnknownChoice;
use crate::containers::ContainerError;
use crate::process::ProcessError;

/// Why there is no Pub/Sub emulator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulatorError {
    /// A word that is no choice.
    #[error(transparent)]
    Choice(#[from] UnknownChoice),
    /// The emulator of the environment is asked for, and the environment names none.
    #[error("{by} asks for the emulator of PUBSUB_EMULATOR_HOST, which is not set: set it to its host:port")]
    NoHost {
        /// What asked for it.
        by: String,
    },
    /// Ours could not start.
    #[error("our own Pub/Sub emulator could not start")]
    Own(#[source] io::Error),
    /// Google's is asked for, and isn't there.
    #[error("{by}: {missing}")]
    Missing {
        /// What asked for it.
        by: String,
        /// What is missing.
        missing: NotInstalled,
    },
    /// Google's isn't there.
    #[error(transparent)]
    NotInstalled(#[from] NotInstalled),
    /// Whoever brought it ends it.
    #[error("this emulator is not ours to kill: ask for one that is, with `PubSub::to_be_killed`")]
    NotToBeKilled,
    /// No container.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// It answers, but not to that.
    #[error("the Pub/Sub emulator of the tests does not say what it is on `GET /`")]
    FirstPage(#[source] io::Error),
    /// Its process could not be started or ended.
    #[error("Google's Pub/Sub emulator")]
    Process(#[from] ProcessError),
    /// No port.
    #[error("no free port on 127.0.0.1 for Google's Pub/Sub emulator")]
    Port(#[source] io::Error),
    /// It ended, or found its port taken, before it answered.
    #[error("Google's Pub/Sub emulator could not start; its last words:\n{0}")]
    Failed(String),
    /// It runs but does not answer.
    #[error("Google's Pub/Sub emulator does not answer; its last words:\n{0}")]
    Silent(String),
}

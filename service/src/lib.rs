//! The service of [`wakeq`]: the HTTP API, the command line, and handlers that are HTTP targets.
//!
//! A program with handlers of its own is one line more than the list of its handlers:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use wakeq::Handlers;
//!
//! fn main() -> ExitCode {
//!     wakeq_service::run(Handlers::new().on("greet", |_event| async { Ok(()) }))
//! }
//! ```

pub mod access;
mod checkup;
pub mod cli;
mod commands;
mod config;
pub mod delivery;
mod doctor;
mod http;
mod observe;
mod page;
mod pages;
mod resources;
mod routes;
pub mod server;
mod store;
mod telemetry;

pub use commands::{run, run_from, run_with};
pub use observe::Observer;

/// Compiles the code in the repository's README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// Compiles the code in the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct PackageReadme;

/// Compiles the code in the guide.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide.md")]
struct GuideDocument;

/// Compiles the code in the page about queues.
#[cfg(doctest)]
#[doc = include_str!("../../docs/queues.md")]
struct QueuesDocument;

/// Compiles the code in the page about consumer groups.
#[cfg(doctest)]
#[doc = include_str!("../../docs/groups.md")]
struct GroupsDocument;

/// Compiles the code in the page about metrics and traces.
#[cfg(doctest)]
#[doc = include_str!("../../docs/telemetry.md")]
struct TelemetryDocument;

/// Compiles the code in the page about embedding.
#[cfg(doctest)]
#[doc = include_str!("../../docs/embedding.md")]
struct EmbeddingDocument;

/// Compiles the code in the page about the container.
#[cfg(doctest)]
#[doc = include_str!("../../docs/container.md")]
struct ContainerDocument;

//! Postgres and Pub/Sub emulators from container images, on request.
//!
//! The code that talks to an engine is only compiled with the feature `containers`; without it, a
//! request is an error that says so. This module must never start a container without a request,
//! nor leave one behind: each is removed with this process, even if that is killed, and the next
//! run removes what a run still left.

#[cfg(feature = "containers")]
mod engine;
#[cfg(feature = "containers")]
mod owner;
#[cfg_attr(not(feature = "containers"), expect(dead_code, reason = "only an engine carries a plan out"))]
mod plan;
#[cfg(feature = "containers")]
mod remover;
#[cfg(feature = "containers")]
mod sweep;
#[cfg(feature = "containers")]
mod thread;

use std::fmt;
use std::io;

use crate::choice::env_value;
use plan::Plan;

/// Selects the image of Postgres.
const POSTGRES_IMAGE_VARIABLE: &str = "TEST_PG_IMAGE";
const POSTGRES_IMAGE: &str = "docker.io/library/postgres:17-alpine";
/// Selects the image of the Pub/Sub emulator.
const PUBSUB_IMAGE_VARIABLE: &str = "TEST_PUBSUB_IMAGE";
const PUBSUB_IMAGE: &str = "gcr.io/google.com/cloudsdktool/google-cloud-cli:emulators";
/// The network that containers join instead of the engine's default: `host`, if the engine has no
/// bridge.
const NETWORK_VARIABLE: &str = "TEST_DOCKER_NETWORK";

/// Why a container could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// The feature `containers` is off.
    #[error(
        "support for containers is not compiled in: add `--features wakeq-testbed/containers` to the cargo command"
    )]
    NotBuilt,
    /// The `docker` client is not installed; without it a container could be left behind.
    #[error(
        "containers were requested, but `docker` is not on PATH: install Docker, or ask for another \
         TEST_POSTGRES and TEST_EMULATOR"
    )]
    NoClient,
    /// No engine answers.
    #[error(
        "containers were requested, but no engine answers: start Docker (`docker version` has to name a server), and set \
         DOCKER_HOST if its socket is elsewhere; or ask for another TEST_POSTGRES and TEST_EMULATOR: {0}"
    )]
    NoEngine(String),
    /// The thread for the engine's client could not be started.
    #[error("the thread for the container engine could not be started")]
    Thread(#[source] io::Error),
    /// The engine could not start the container.
    #[error(
        "no container of {image}: is the image here, and if not, does `docker pull {image}` fetch it? {why}"
    )]
    Engine {
        /// The image.
        image: String,
        /// What the engine reported.
        why: String,
    },
    /// The process in the container ended or does not answer.
    #[error("the container of {image} does not answer; its last output:\n{words}")]
    Silent {
        /// The image.
        image: String,
        /// The end of its log.
        words: String,
    },
    /// No port is free.
    #[error("no free port on 127.0.0.1 for a container of {image}")]
    Port {
        /// The image.
        image: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The shell that removes the container could not be started.
    #[error("`sh`, which removes a container when this process ends, could not be started")]
    Remover(#[source] io::Error),
}

/// A server in a container, ready for connections. The container is removed when this value is
/// dropped and when this process ends.
#[derive(Debug)]
pub struct Container {
    image: String,
    host: String,
    port: u16,
    password: Option<String>,
    #[cfg(feature = "containers")]
    _guard: engine::ContainerGuard,
}

impl Container {
    /// Starts a Postgres from the image in `TEST_PG_IMAGE`; by default `postgres:17-alpine`.
    pub(crate) async fn postgres() -> Result<Self, ContainerError> {
        let image = env_value(POSTGRES_IMAGE_VARIABLE).unwrap_or_else(|| POSTGRES_IMAGE.to_owned());
        Self::start(Plan::postgres(image, env_value(NETWORK_VARIABLE))).await
    }

    /// Starts a Pub/Sub emulator from the image in `TEST_PUBSUB_IMAGE`; by default Google's.
    pub(crate) async fn pubsub() -> Result<Self, ContainerError> {
        let image = env_value(PUBSUB_IMAGE_VARIABLE).unwrap_or_else(|| PUBSUB_IMAGE.to_owned());
        Self::start(Plan::pubsub(image, env_value(NETWORK_VARIABLE))).await
    }

    #[cfg(feature = "containers")]
    async fn start(plan: Plan) -> Result<Self, ContainerError> {
        engine::start(plan).await
    }

    #[cfg(not(feature = "containers"))]
    async fn start(plan: Plan) -> Result<Self, ContainerError> {
        drop(plan);
        Err(ContainerError::NotBuilt)
    }

    /// The address of the server, as `host:port`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub(crate) fn postgres_url(&self, database: &str) -> String {
        let password = self.password.as_deref().unwrap_or_default();
        format!("postgres://postgres:{password}@{}/{database}", self.address())
    }
}

/// Leaves the password out.
impl fmt::Display for Container {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a container of {} on {}", self.image, self.address())
    }
}

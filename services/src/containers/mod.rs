//! Postgres and Pub/Sub emulators from container images, where that is asked for.
//!
//! Only the feature `containers` compiles what talks to an engine; without it, asking is an error that says so. This module
//! must never take a container without having been asked, and never leaves one behind: each is removed with this process,
//! also when that is killed.

#[cfg(feature = "containers")]
mod engine;
#[cfg_attr(not(feature = "containers"), expect(dead_code, reason = "only an engine carries a plan out"))]
mod plan;
#[cfg(feature = "containers")]
mod remover;

use std::fmt;
use std::io;

use crate::choice::set;
use crate::process::ProcessError;
use plan::Plan;

/// The image of Postgres.
const POSTGRES_IMAGE_VARIABLE: &str = "TEST_PG_IMAGE";
const POSTGRES_IMAGE: &str = "docker.io/library/postgres:17-alpine";
/// The image of the Pub/Sub emulator.
const PUBSUB_IMAGE_VARIABLE: &str = "TEST_PUBSUB_IMAGE";
const PUBSUB_IMAGE: &str = "gcr.io/google.com/cloudsdktool/google-cloud-cli:emulators";
/// The network that containers join, if it is not the engine's own: `host`, where the engine has no bridge.
const NETWORK_VARIABLE: &str = "TEST_DOCKER_NETWORK";

/// Why there is no container.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// The feature is off.
    #[error(
        "containers were not compiled in: add `--features wakeq-services/containers` to the command of cargo"
    )]
    NotBuilt,
    /// Without its client a container could be left behind.
    #[error("containers are removed by the program `docker`, which is not on PATH: install Docker")]
    NoClient,
    /// No container could be made.
    #[error(
        "no container of {image}: is there an engine (`docker version`; DOCKER_HOST, if its socket is elsewhere), and the \
         image (`docker pull {image}`)? {why}"
    )]
    Engine {
        /// The image.
        image: String,
        /// What the engine said.
        why: String,
    },
    /// The process in the container ended or does not answer.
    #[error("the container of {image} does not answer; its last words:\n{words}")]
    Silent {
        /// The image.
        image: String,
        /// The end of its log.
        words: String,
    },
    /// No port.
    #[error("no free port on 127.0.0.1 for a container of {image}")]
    Port {
        /// The image.
        image: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What removes it could not be started.
    #[error("what removes a container at its end")]
    Process(#[from] ProcessError),
}

/// A server in a container that answers. It is removed when this value is dropped, and when this process ends.
#[derive(Debug)]
pub struct Container {
    image: String,
    host: String,
    port: u16,
    password: Option<String>,
    #[cfg(feature = "containers")]
    held: Box<engine::Held>,
}

impl Container {
    /// A Postgres, of the image that `TEST_PG_IMAGE` names.
    pub(crate) async fn postgres() -> Result<Self, ContainerError> {
        let image = set(POSTGRES_IMAGE_VARIABLE).unwrap_or_else(|| POSTGRES_IMAGE.to_owned());
        Self::start(Plan::postgres(image, set(NETWORK_VARIABLE))).await
    }

    /// A Pub/Sub emulator, of the image that `TEST_PUBSUB_IMAGE` names.
    pub(crate) async fn pubsub() -> Result<Self, ContainerError> {
        let image = set(PUBSUB_IMAGE_VARIABLE).unwrap_or_else(|| PUBSUB_IMAGE.to_owned());
        Self::start(Plan::pubsub(image, set(NETWORK_VARIABLE))).await
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

    /// Where it answers: `host:port`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub(crate) fn postgres_url(&self, database: &str) -> String {
        let password = self.password.as_deref().unwrap_or_default();
        format!("postgres://postgres:{password}@{}/{database}", self.address())
    }
}

/// Says no password.
impl fmt::Display for Container {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a container of {} on {}", self.image, self.address())
    }
}

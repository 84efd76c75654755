//! Has the engine start a container, and waits until what is in it answers.
//!
//! It must never publish a port on another interface than the loopback, unless the engine runs on another machine.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection};
use testcontainers::bollard::models::{HostConfig, PortBinding};
use testcontainers::core::ContainerPort;
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, ContainerRequest, GenericImage, ImageExt, TestcontainersError};
use tokio::time::sleep;

use super::plan::{Kind, Plan};
use super::remover::Remover;
use super::{Container, ContainerError};
use crate::choice::set;
use crate::process::free_port;
use crate::pubsub::first_answer;

/// An image that isn't here is fetched within it, too.
const STARTED_WITHIN: Duration = Duration::from_secs(600);
const ANSWERS_WITHIN: Duration = Duration::from_secs(120);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);
/// What parallel queries of Postgres share; an engine gives 64 MB unless it is told otherwise.
const SHARED_MEMORY_BYTES: u64 = 256 * 1024 * 1024;
const WORDS_SHOWN_BYTES: usize = 2_000;
const ENGINE_VARIABLE: &str = "DOCKER_HOST";

/// What keeps a container, and removes it.
pub(super) struct Held {
    container: ContainerAsync<GenericImage>,
    _remover: Remover,
}

impl fmt::Debug for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Held").field(&self.container.id()).finish()
    }
}

pub(super) async fn start(plan: Plan) -> Result<Container, ContainerError> {
    let name = format!("wakeq-test-{:016x}", RandomState::new().hash_one(std::process::id()));
    let remover = Remover::of(&name).await?;
    let port = match plan.is_on_host() {
        true => free_port().map_err(|source| plan.on_this_machine(source))?,
        false => plan.usual_port(),
    };
    let began = request(&plan, &name, port).start().await;
    let container = began.map_err(|error| plan.refused(&error))?;
    let held = Held { container, _remover: remover };
    let (host, port) = held.place(&plan, port).await.map_err(|error| plan.refused(&error))?;
    let Plan { kind, image, password, .. } = plan;
    let container = Container { image, host, port, password, held: Box::new(held) };
    container.await_answer(kind).await?;
    Ok(container)
}

fn request(plan: &Plan, name: &str, port: u16) -> ContainerRequest<GenericImage> {
    let (image, tag) = plan.name_and_tag();
    let mut request = GenericImage::new(image, tag)
        .with_exposed_port(ContainerPort::Tcp(port))
        .with_container_name(name)
        .with_startup_timeout(STARTED_WITHIN)
        .with_shm_size(SHARED_MEMORY_BYTES)
        .with_cmd(plan.arguments(port));
    for (variable, value) in plan.variables() {
        request = request.with_env_var(variable, value);
    }
    if let Some(network) = &plan.network {
        request = request.with_network(network);
    }
    let publishes = !plan.is_on_host() && is_engine_here();
    request.with_host_config_modifier(move |config| {
        if publishes {
            publish_on_loopback(config, port);
        }
    })
}

/// An engine that is reached through a socket of this machine.
fn is_engine_here() -> bool {
    set(ENGINE_VARIABLE).is_none_or(|address| address.starts_with("unix:"))
}

fn publish_on_loopback(config: &mut HostConfig, port: u16) {
    let binding = PortBinding { host_ip: Some("127.0.0.1".to_owned()), host_port: None };
    config.publish_all_ports = Some(false);
    config.port_bindings = Some(HashMap::from([(format!("{port}/tcp"), Some(vec![binding]))]));
}

impl Held {
    async fn place(&self, plan: &Plan, port: u16) -> Result<(String, u16), TestcontainersError> {
        if plan.is_on_host() {
            return Ok(("127.0.0.1".to_owned(), port));
        }
        let host = if is_engine_here() {
            "127.0.0.1".to_owned()
        } else {
            self.container.get_host().await?.to_string()
        };
        Ok((host, self.container.get_host_port_ipv4(port).await?))
    }

    async fn is_running(&self) -> bool {
        self.container.is_running().await.unwrap_or(false)
    }

    async fn last_words(&self) -> String {
        let mut words = self.container.stdout_to_vec().await.unwrap_or_default();
        words.extend(self.container.stderr_to_vec().await.unwrap_or_default());
        String::from_utf8_lossy(&words[words.len().saturating_sub(WORDS_SHOWN_BYTES)..]).into_owned()
    }
}

impl Container {
    async fn await_answer(&self, kind: Kind) -> Result<(), ContainerError> {
        let deadline = Instant::now() + ANSWERS_WITHIN;
        while Instant::now() < deadline && self.held.is_running().await {
            let answers = match kind {
                Kind::Postgres => self.accepts_a_connection().await,
                Kind::PubSub => first_answer(&self.address()).await.is_ok(),
            };
            if answers {
                return Ok(());
            }
            sleep(BETWEEN_ATTEMPTS).await;
        }
        Err(ContainerError::Silent { image: self.image.clone(), words: self.held.last_words().await })
    }

    async fn accepts_a_connection(&self) -> bool {
        match PgConnection::connect(&self.postgres_url("postgres")).await {
            Ok(connection) => connection.close().await.is_ok(),
            Err(_) => false,
        }
    }
}

impl Plan {
    fn refused(&self, error: &TestcontainersError) -> ContainerError {
        ContainerError::Engine { image: self.image.clone(), why: error.to_string() }
    }

    fn on_this_machine(&self, source: std::io::Error) -> ContainerError {
        ContainerError::Port { image: self.image.clone(), source }
    }
}

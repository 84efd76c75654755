//! Starts a container on the engine and waits until the server in it answers.
//!
//! It must never publish a port on an interface other than loopback, unless the engine runs on
//! another machine.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use testcontainers::bollard::models::{HostConfig, PortBinding};
use testcontainers::core::ContainerPort;
use testcontainers::runners::AsyncRunner;
use testcontainers::{ContainerAsync, ContainerRequest, GenericImage, ImageExt, TestcontainersError};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::owner::labels;
use super::plan::{Kind, Plan};
use super::remover::Remover;
use super::sweep::sweep;
use super::thread::EngineThread;
use super::{Container, ContainerError};
use crate::choice::env_value;
use crate::process::free_port;
use crate::pubsub::first_answer;

/// Includes pulling an image that is not here yet.
const STARTED_WITHIN: Duration = Duration::from_secs(600);
const ANSWERS_WITHIN: Duration = Duration::from_secs(120);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);
/// Parallel queries of Postgres share it; an engine's default is 64 MB.
const SHARED_MEMORY_BYTES: u64 = 256 * 1024 * 1024;
const WORDS_SHOWN_BYTES: usize = 2_000;
const ENGINE_VARIABLE: &str = "DOCKER_HOST";

type EngineContainer = ContainerAsync<GenericImage>;

/// Keeps a container alive. Dropping it removes the container twice over: from the engine's thread,
/// and by the remover, which also works when that thread has ended.
#[derive(Debug)]
pub(super) struct ContainerGuard {
    _in_use: oneshot::Sender<()>,
    _remover: Remover,
}

pub(super) async fn start(plan: Plan) -> Result<Container, ContainerError> {
    let thread = EngineThread::shared().await.map_err(ContainerError::Thread)?;
    thread.run(start_on(thread, plan)).await
}

async fn start_on(thread: EngineThread, plan: Plan) -> Result<Container, ContainerError> {
    let name = format!("wakeq-test-{:016x}", RandomState::new().hash_one(std::process::id()));
    let remover = Remover::of(&name)?;
    sweep().await.map_err(|error| ContainerError::NoEngine(error.to_string()))?;
    let port = match plan.is_on_host() {
        true => free_port().map_err(|source| plan.on_this_machine(source))?,
        false => plan.usual_port(),
    };
    let running = request(&plan, &name, port).start().await.map_err(|error| plan.refused(&error))?;
    let (host, port) = server_address(&running, &plan, port).await.map_err(|error| plan.refused(&error))?;
    let (in_use, dropped) = oneshot::channel();
    let guard = ContainerGuard { _in_use: in_use, _remover: remover };
    let Plan { kind, image, password, .. } = plan;
    let container = Container { image, host, port, password, _guard: guard };
    container.await_answer(kind, &running).await?;
    thread.leave(async {
        let _ = dropped.await;
        // The remover tries the same; whichever comes second fails.
        let _ = running.rm().await;
    });
    Ok(container)
}

fn request(plan: &Plan, name: &str, port: u16) -> ContainerRequest<GenericImage> {
    let (image, tag) = plan.name_and_tag();
    let mut request = GenericImage::new(image, tag)
        .with_exposed_port(ContainerPort::Tcp(port))
        .with_container_name(name)
        .with_labels(labels())
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

/// Whether the engine is reached through a socket of this machine.
fn is_engine_here() -> bool {
    env_value(ENGINE_VARIABLE).is_none_or(|address| address.starts_with("unix:"))
}

fn publish_on_loopback(config: &mut HostConfig, port: u16) {
    let binding = PortBinding { host_ip: Some("127.0.0.1".to_owned()), host_port: None };
    config.publish_all_ports = Some(false);
    config.port_bindings = Some(HashMap::from([(format!("{port}/tcp"), Some(vec![binding]))]));
}

async fn server_address(
    running: &EngineContainer,
    plan: &Plan,
    port: u16,
) -> Result<(String, u16), TestcontainersError> {
    if plan.is_on_host() {
        return Ok(("127.0.0.1".to_owned(), port));
    }
    let host = if is_engine_here() { "127.0.0.1".to_owned() } else { running.get_host().await?.to_string() };
    Ok((host, running.get_host_port_ipv4(port).await?))
}

async fn last_words(running: &EngineContainer) -> String {
    let mut words = running.stdout_to_vec().await.unwrap_or_default();
    words.extend(running.stderr_to_vec().await.unwrap_or_default());
    String::from_utf8_lossy(&words[words.len().saturating_sub(WORDS_SHOWN_BYTES)..]).into_owned()
}

impl Container {
    async fn await_answer(&self, kind: Kind, running: &EngineContainer) -> Result<(), ContainerError> {
        let answered = async {
            while running.is_running().await.unwrap_or(false) {
                let answers = match kind {
                    Kind::Postgres => self.accepts_a_connection().await,
                    Kind::PubSub => first_answer(&self.address()).await.is_ok(),
                };
                if answers {
                    return true;
                }
                sleep(BETWEEN_ATTEMPTS).await;
            }
            false
        };
        match timeout(ANSWERS_WITHIN, answered).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => {
                Err(ContainerError::Silent { image: self.image.clone(), words: last_words(running).await })
            }
        }
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

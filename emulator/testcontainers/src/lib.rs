//! The emulator's image as a module for `testcontainers`. It must never depend on the emulator's
//! own packages: its users compile nothing of them.
//!
#![doc = include_str!("../README.md")]

use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::LazyLock;

pub use testcontainers;

#[cfg(feature = "blocking")]
use testcontainers::Container;
use testcontainers::core::{ContainerPort, WaitFor};
use testcontainers::{ContainerAsync, CopyToContainer, Image, TestcontainersError};

/// The port that the emulator listens on in its container, unless
/// [`with_listen_address`](PubsubEmulator::with_listen_address) says otherwise.
///
/// ```
/// use wakeq_emulator_testcontainers::testcontainers::{Image, core::IntoContainerPort};
/// use wakeq_emulator_testcontainers::{PUBSUB_PORT, PubsubEmulator};
///
/// assert_eq!(PubsubEmulator::default().expose_ports(), [PUBSUB_PORT.tcp()]);
/// ```
pub const PUBSUB_PORT: u16 = 8085;

/// The release that this package is part of: its image and module know each other's arguments.
const TAG: &str = concat!("v", env!("CARGO_PKG_VERSION"));
const CONFIG_FILE: &str = "/emulator.toml";
const FAULTS_FILE: &str = "/faults.toml";
/// The beginning of the line that the emulator prints once it accepts connections.
const READY: &str = "pubsub-emulator: listening on ";

/// Where the releases of this package's repository are published.
static NAME: LazyLock<String> = LazyLock::new(|| image_of(env!("CARGO_PKG_REPOSITORY")));

/// The emulator in a container: the image of the same version as this package, without topics, on
/// port 8085.
///
/// It is an [`Image`] of `testcontainers`, whose `ImageExt` sets everything else of the container:
/// `with_name` and `with_tag` take another image, `with_container_name`, `with_network`, …
///
/// ```no_run
/// use wakeq_emulator_testcontainers::PubsubEmulator;
/// use wakeq_emulator_testcontainers::testcontainers::{ImageExt, runners::AsyncRunner};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let image = PubsubEmulator::default().with_project("demo,orders:worker").with_name("registry.example/emulator");
/// let emulator = image.start().await?;
/// println!("PUBSUB_EMULATOR_HOST={}", PubsubEmulator::host(&emulator).await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PubsubEmulator {
    listens_on: SocketAddr,
    port: [ContainerPort; 1],
    projects: Vec<String>,
    config: Option<CopyToContainer>,
    faults: Option<CopyToContainer>,
}

impl Default for PubsubEmulator {
    fn default() -> Self {
        Self {
            listens_on: (Ipv4Addr::UNSPECIFIED, PUBSUB_PORT).into(),
            port: [ContainerPort::Tcp(PUBSUB_PORT)],
            projects: Vec::new(),
            config: None,
            faults: None,
        }
    }
}

impl PubsubEmulator {
    /// Adds topics of a project with their subscriptions: `PROJECT,TOPIC:SUBSCRIPTION:…,TOPIC,…`.
    ///
    /// ```
    /// use wakeq_emulator_testcontainers::PubsubEmulator;
    ///
    /// let two_tenants = PubsubEmulator::default()
    ///     .with_project("demo,orders:worker:audit,bills")
    ///     .with_project("other,orders:worker");
    /// ```
    #[must_use]
    pub fn with_project(mut self, project: impl Into<String>) -> Self {
        self.projects.push(project.into());
        self
    }

    /// Sets the [configuration file][file] by its text: schemas, topics and subscriptions with all
    /// their fields, and faults.
    ///
    /// ```
    /// use wakeq_emulator_testcontainers::PubsubEmulator;
    ///
    /// let emulator = PubsubEmulator::default().with_config(r#"
    ///     project = "demo"
    ///     [[topics]]
    ///     name = "orders"
    ///     [[subscriptions]]
    ///     name = "worker"
    ///     topic = "orders"
    ///     enableMessageOrdering = true
    /// "#);
    /// ```
    ///
    /// [file]: https://crates.io/crates/wakeq-emulator#run-it
    #[must_use]
    pub fn with_config(mut self, toml: impl Into<String>) -> Self {
        self.config = Some(file(toml.into(), CONFIG_FILE));
        self
    }

    /// Sets the [faults][faults] to begin with, instead of those in the configuration.
    ///
    /// ```
    /// use wakeq_emulator_testcontainers::PubsubEmulator;
    ///
    /// let unreliable = PubsubEmulator::default()
    ///     .with_project("demo,orders:worker")
    ///     .with_faults("seed = 7\nduplicate = 0.1\nunavailable = 0.05");
    /// ```
    ///
    /// [faults]: https://crates.io/crates/wakeq-emulator#inject-faults
    #[must_use]
    pub fn with_faults(mut self, toml: impl Into<String>) -> Self {
        self.faults = Some(file(toml.into(), FAULTS_FILE));
        self
    }

    /// Sets the address in the container; by default `0.0.0.0:8085`.
    ///
    /// On the network of the engine's machine, where no port is mapped, take a free port of
    /// loopback: [`host`](Self::host) then returns this address.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use wakeq_emulator_testcontainers::PubsubEmulator;
    /// use wakeq_emulator_testcontainers::testcontainers::ImageExt;
    ///
    /// let unmapped = PubsubEmulator::default()
    ///     .with_listen_address((Ipv4Addr::LOCALHOST, 18085))
    ///     .with_network("host");
    /// ```
    #[must_use]
    pub fn with_listen_address(mut self, address: impl Into<SocketAddr>) -> Self {
        self.listens_on = address.into();
        self.port = [ContainerPort::Tcp(self.listens_on.port())];
        self
    }

    /// The `host:port` of a running emulator, as clients take it in `PUBSUB_EMULATOR_HOST`.
    ///
    /// ```no_run
    /// use wakeq_emulator_testcontainers::PubsubEmulator;
    /// use wakeq_emulator_testcontainers::testcontainers::runners::AsyncRunner;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let emulator = PubsubEmulator::default().start().await?;
    /// let endpoint = format!("http://{}", PubsubEmulator::host(&emulator).await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If the engine does not answer, or has mapped no port of this container.
    pub async fn host(container: &ContainerAsync<Self>) -> Result<String, TestcontainersError> {
        let Self { listens_on, .. } = container.image();
        if listens_on.ip().is_loopback() {
            return Ok(listens_on.to_string());
        }
        let port = container.get_host_port_ipv4(listens_on.port()).await?;
        Ok(format!("{}:{port}", container.get_host().await?))
    }

    /// [`host`](Self::host) for tests without a runtime, with the feature `blocking`.
    ///
    /// ```no_run
    /// use wakeq_emulator_testcontainers::PubsubEmulator;
    /// use wakeq_emulator_testcontainers::testcontainers::runners::SyncRunner;
    ///
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let emulator = PubsubEmulator::default().start()?;
    /// let endpoint = format!("http://{}", PubsubEmulator::host_blocking(&emulator)?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`host`](Self::host).
    #[cfg(feature = "blocking")]
    pub fn host_blocking(container: &Container<Self>) -> Result<String, TestcontainersError> {
        let Self { listens_on, .. } = container.image();
        if listens_on.ip().is_loopback() {
            return Ok(listens_on.to_string());
        }
        let port = container.get_host_port_ipv4(listens_on.port())?;
        Ok(format!("{}:{port}", container.get_host()?))
    }
}

impl Image for PubsubEmulator {
    fn name(&self) -> &str {
        &NAME
    }

    fn tag(&self) -> &str {
        TAG
    }

    /// On both outputs, so that the error of an emulator that ended has what it said on stderr.
    fn ready_conditions(&self) -> Vec<WaitFor> {
        vec![WaitFor::message_on_either_std(READY)]
    }

    fn cmd(&self) -> impl IntoIterator<Item = impl Into<Cow<'_, str>>> {
        let address =
            [format!("--host={}", self.listens_on.ip()), format!("--port={}", self.listens_on.port())];
        let projects = self.projects.iter().map(|project| format!("--project={project}"));
        let config = self.config.iter().map(|_| format!("--config={CONFIG_FILE}"));
        let faults = self.faults.iter().map(|_| format!("--faults={FAULTS_FILE}"));
        address.into_iter().chain(projects).chain(config).chain(faults)
    }

    fn copy_to_sources(&self) -> impl IntoIterator<Item = &CopyToContainer> {
        self.config.iter().chain(&self.faults)
    }

    fn expose_ports(&self) -> &[ContainerPort] {
        &self.port
    }
}

/// Names of images are in lower case; those of accounts need not be.
fn image_of(repository: &str) -> String {
    let owner = repository.split('/').nth(3).unwrap_or_default();
    format!("ghcr.io/{}/wakeq-emulator", owner.to_lowercase())
}

fn file(text: String, path: &'static str) -> CopyToContainer {
    CopyToContainer::new(text.into_bytes(), path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(emulator: &PubsubEmulator) -> Vec<String> {
        emulator.cmd().into_iter().map(|argument| Into::<Cow<'_, str>>::into(argument).into_owned()).collect()
    }

    #[test]
    fn the_image_is_the_one_of_this_release() {
        assert_eq!(image_of("https://github.com/Ada/wakeq"), "ghcr.io/ada/wakeq-emulator");
        let emulator = PubsubEmulator::default();
        assert_eq!(emulator.name(), image_of(env!("CARGO_PKG_REPOSITORY")));
        assert_eq!(emulator.tag(), format!("v{}", env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn by_default_it_can_be_reached_from_outside_its_container_and_is_empty() {
        let emulator = PubsubEmulator::default();
        assert_eq!(arguments(&emulator), ["--host=0.0.0.0", "--port=8085"]);
        assert_eq!(emulator.expose_ports(), [ContainerPort::Tcp(8085)]);
        assert_eq!(emulator.copy_to_sources().into_iter().count(), 0);
    }

    #[test]
    fn settings_become_arguments_and_files_of_the_container() {
        let emulator = PubsubEmulator::default()
            .with_listen_address((Ipv4Addr::LOCALHOST, 9))
            .with_project("demo,orders:worker")
            .with_project("other,orders:worker")
            .with_config("nonsense")
            .with_config("project = \"demo\"")
            .with_faults("seed = 7");
        let expected = [
            "--host=127.0.0.1",
            "--port=9",
            "--project=demo,orders:worker",
            "--project=other,orders:worker",
            "--config=/emulator.toml",
            "--faults=/faults.toml",
        ];
        assert_eq!(arguments(&emulator), expected);
        assert_eq!(emulator.expose_ports(), [ContainerPort::Tcp(9)]);
        assert_eq!(emulator.copy_to_sources().into_iter().count(), 2);
    }
}

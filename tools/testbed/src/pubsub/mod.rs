//! Chooses the Pub/Sub emulator: the requested one, else the one that the environment names, else
//! ours.
//!
//! It must never choose silently: one line tells what was chosen and why.

mod error;
mod google;
mod locate;
mod own;

use std::fmt;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::choice::{ChosenService, PubSubChoice, Requested, env_value, say};
use crate::containers::Container;

pub use error::EmulatorError;
pub use google::GoogleEmulator;
pub use locate::{Installation, NotInstalled, find};
pub use own::OwnEmulator;

const HOST_VARIABLE: &str = "PUBSUB_EMULATOR_HOST";
/// Selects the emulator for tests.
const CHOICE_VARIABLE: &str = "TEST_EMULATOR";
/// Google's whole answer to `GET /`, from the end of its head on.
const GOOGLES_PAGE: &[u8] = b"\r\n\r\nOk\n";
const LONGEST_PAGE_BYTES: usize = 1024 * 1024;
const SAYS_WHAT_IT_IS_WITHIN: Duration = Duration::from_secs(15);

/// A Pub/Sub emulator that is ready.
///
/// ```no_run
/// # async fn example() -> Result<(), wakeq_testbed::EmulatorError> {
/// use wakeq_testbed::{Requested, PubSub};
///
/// let requested = Requested::by_option("--emulator", "google")?;
/// let chosen = PubSub::choose(Some(requested)).await?;
/// println!("{chosen}"); // Pub/Sub: Google's emulator 0.8.20 on 127.0.0.1:21234 (--emulator google)
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub enum PubSub {
    /// The one that `PUBSUB_EMULATOR_HOST` names; it is not ours to stop.
    Environment(String),
    /// Google's emulator as our child process.
    Google(GoogleEmulator),
    /// Our own, in this process.
    Own(OwnEmulator),
    /// One in a container; it ends with this value and with this process.
    Container(Container),
}

impl PubSub {
    /// Starts the requested emulator; without a request, uses the one of `PUBSUB_EMULATOR_HOST`,
    /// else starts ours.
    pub async fn choose(
        requested: Option<Requested<PubSubChoice>>,
    ) -> Result<ChosenService<Self>, EmulatorError> {
        let Some(Requested { choice, by }) = requested else { return Self::by_default().await };
        let service = match choice {
            PubSubChoice::Environment => match env_value(HOST_VARIABLE) {
                Some(host) => Self::Environment(host),
                None => return Err(EmulatorError::NoHost { by }),
            },
            PubSubChoice::Google => match GoogleEmulator::start(None).await {
                Err(EmulatorError::NotInstalled(missing)) => {
                    return Err(EmulatorError::Missing { by, missing });
                }
                started => Self::Google(started?),
            },
            PubSubChoice::Own => Self::Own(OwnEmulator::start().await?),
            PubSubChoice::Container => Self::Container(Container::pubsub().await?),
        };
        Ok(ChosenService { service, reason: by })
    }

    async fn by_default() -> Result<ChosenService<Self>, EmulatorError> {
        let (service, reason) = match env_value(HOST_VARIABLE) {
            Some(host) => (Self::Environment(host), format!("{HOST_VARIABLE} is set")),
            None => (Self::Own(OwnEmulator::start().await?), format!("{HOST_VARIABLE} is not set")),
        };
        Ok(ChosenService { service, reason })
    }

    /// The emulator that all tests of this process share. The first of them chooses it, by
    /// `TEST_EMULATOR` if that is set, and prints the choice.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), wakeq_testbed::EmulatorError> {
    /// let host = wakeq_testbed::PubSub::shared().await?.host();
    /// # Ok(()) }
    /// ```
    pub async fn shared() -> Result<&'static Self, EmulatorError> {
        static SHARED: OnceCell<ChosenService<PubSub>> = OnceCell::const_new();
        let chosen = SHARED.get_or_try_init(async || {
            let chosen = Self::choose(Requested::by_variable(CHOICE_VARIABLE)?).await?;
            say(&chosen.to_string());
            Ok::<_, EmulatorError>(chosen)
        });
        Ok(&chosen.await?.service)
    }

    /// The emulator that all tests of this process share, if it is Google's in a container: for
    /// tests about Google's.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), wakeq_testbed::EmulatorError> {
    /// let googles = wakeq_testbed::PubSub::googles_container().await?.map(wakeq_testbed::PubSub::host);
    /// # Ok(()) }
    /// ```
    pub async fn googles_container() -> Result<Option<&'static Self>, EmulatorError> {
        let Some(Requested { choice: PubSubChoice::Container, .. }) =
            Requested::by_variable(CHOICE_VARIABLE)?
        else {
            return Ok(None);
        };
        let shared = Self::shared().await?;
        let answered = timeout(SAYS_WHAT_IT_IS_WITHIN, is_googles(&shared.host())).await;
        let is_googles = answered.map_err(io::Error::from).flatten().map_err(EmulatorError::FirstPage)?;
        Ok(is_googles.then_some(shared))
    }

    /// An emulator that only the caller uses and may kill: of the tests' kind, if that can be
    /// killed, else ours.
    pub async fn to_be_killed() -> Result<ChosenService<Self>, EmulatorError> {
        let requested = Requested::by_variable(CHOICE_VARIABLE)?;
        let (choice, reason) = match requested {
            Some(Requested { choice: PubSubChoice::Google, by }) => (PubSubChoice::Google, by),
            _ => (PubSubChoice::Own, "to be killed".to_owned()),
        };
        let chosen = Self::choose(Some(Requested { choice, by: reason })).await?;
        say(&chosen.to_string());
        Ok(chosen)
    }

    /// Kills it; all its data is lost, and nothing answers at its address until
    /// [`restart`](Self::restart).
    pub async fn kill_9(&mut self) -> Result<(), EmulatorError> {
        match self {
            Self::Google(emulator) => emulator.kill_9().await,
            Self::Own(emulator) => {
                emulator.kill();
                Ok(())
            }
            Self::Environment(_) | Self::Container(_) => Err(EmulatorError::NotToBeKilled),
        }
    }

    /// Kills it, if it is running, and starts an empty one at the same address.
    pub async fn restart(&mut self) -> Result<(), EmulatorError> {
        match self {
            Self::Google(emulator) => emulator.restart().await,
            Self::Own(emulator) => emulator.restart().await,
            Self::Environment(_) | Self::Container(_) => Err(EmulatorError::NotToBeKilled),
        }
    }

    /// The client of each open streaming pull of a subscription; `None` if only the emulator knows,
    /// which is not ours.
    pub fn clients(&self, subscription: &str) -> Option<Vec<String>> {
        match self {
            Self::Own(emulator) => Some(emulator.clients(subscription)),
            Self::Environment(_) | Self::Google(_) | Self::Container(_) => None,
        }
    }

    /// The address: `127.0.0.1:PORT`, or the value from the environment.
    pub fn host(&self) -> String {
        match self {
            Self::Environment(host) => host.clone(),
            Self::Google(emulator) => emulator.host(),
            Self::Own(emulator) => emulator.host(),
            Self::Container(container) => container.address(),
        }
    }
}

impl fmt::Display for PubSub {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(host) => write!(formatter, "Pub/Sub: the emulator on {host}"),
            Self::Google(emulator) => {
                write!(formatter, "Pub/Sub: Google's emulator {} on {}", emulator.version(), emulator.host())
            }
            Self::Own(emulator) => {
                write!(formatter, "Pub/Sub: our own emulator, in this process, on {}", emulator.host())
            }
            Self::Container(container) => write!(formatter, "Pub/Sub: {container}"),
        }
    }
}

/// Lists the topics of an unused project. Google's emulator takes longer over its first request
/// than over all later ones.
pub(crate) async fn first_answer(host: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(host).await?;
    let request =
        format!("GET /v1/projects/ready/topics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    if &status == b"HTTP/1.1 200" { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Tells by the answer to `GET /`: Google's keeps the connection open after it, while ours says
/// more and closes it.
async fn is_googles(host: &str) -> io::Result<bool> {
    let mut stream = TcpStream::connect(host).await?;
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    while answer.len() < LONGEST_PAGE_BYTES && !answer.ends_with(GOOGLES_PAGE) {
        if stream.read_buf(&mut answer).await? == 0 {
            return Ok(false);
        }
    }
    Ok(answer.ends_with(GOOGLES_PAGE))
}

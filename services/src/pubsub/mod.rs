//! Chooses the Pub/Sub emulator to use: the one that the environment names, else Google's own as our child.
//!
//! It must never choose silently: whatever was chosen, or why nothing was, can be said in one line.

mod google;
mod locate;

use std::env;
use std::fmt;
use std::io::Write;

use tokio::sync::OnceCell;

pub use google::{EmulatorError, GoogleEmulator};
pub use locate::{Installation, NotInstalled, find};

const HOST_VARIABLE: &str = "PUBSUB_EMULATOR_HOST";
const REQUIRED_VARIABLE: &str = "REQUIRE_GOOGLE_EMULATOR";

/// A Pub/Sub emulator that answers, and where it came from.
///
/// ```no_run
/// # async fn example() -> Result<(), wakeq_services::EmulatorError> {
/// let source = wakeq_services::Source::choose().await?;
/// println!("{source}"); // Pub/Sub: Google's emulator 0.8.20 on 127.0.0.1:21234
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub enum Source {
    /// `PUBSUB_EMULATOR_HOST` names it; it is not ours to stop.
    Environment(String),
    /// Google's emulator, started by us.
    Google(GoogleEmulator),
}

impl Source {
    /// Takes the emulator of `PUBSUB_EMULATOR_HOST`, else starts Google's on a free port.
    pub async fn choose() -> Result<Self, EmulatorError> {
        match env::var(HOST_VARIABLE) {
            Ok(host) if !host.trim().is_empty() => Ok(Self::Environment(host.trim().to_owned())),
            _ => Ok(Self::Google(GoogleEmulator::start(None).await?)),
        }
    }

    /// The one that all tests of this process share, chosen by the first of them, which also prints the choice.
    /// `None`, with a loud line, where there is none and `REQUIRE_GOOGLE_EMULATOR` is not `1`.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), wakeq_services::EmulatorError> {
    /// let Some(source) = wakeq_services::Source::shared().await? else { return Ok(()) };
    /// let host = source.host();
    /// # Ok(()) }
    /// ```
    pub async fn shared() -> Result<Option<&'static Self>, EmulatorError> {
        static SHARED: OnceCell<Option<Source>> = OnceCell::const_new();
        let chosen = SHARED.get_or_try_init(async || match Self::choose().await {
            Ok(source) => {
                say(&source.to_string());
                Ok(Some(source))
            }
            Err(EmulatorError::NotInstalled(missing)) if !Self::is_required() => {
                say(&format!("SKIPPED: every test that needs Pub/Sub. {missing}"));
                Ok(None)
            }
            Err(error) => Err(error),
        });
        chosen.await.map(Option::as_ref)
    }

    /// Whether `REQUIRE_GOOGLE_EMULATOR=1` makes the absence of an emulator an error.
    pub fn is_required() -> bool {
        env::var(REQUIRED_VARIABLE).is_ok_and(|value| value == "1")
    }

    /// Where it answers: `127.0.0.1:PORT`, or whatever the environment says.
    pub fn host(&self) -> String {
        match self {
            Self::Environment(host) => host.clone(),
            Self::Google(emulator) => emulator.host(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(host) => {
                write!(formatter, "Pub/Sub: the emulator on {host}, from {HOST_VARIABLE}")
            }
            Self::Google(emulator) => {
                write!(formatter, "Pub/Sub: Google's emulator {} on {}", emulator.version(), emulator.host())
            }
        }
    }
}

/// Past the capturing of test output, which would hide it.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

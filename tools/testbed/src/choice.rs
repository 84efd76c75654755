//! Requests for a kind of service, and the reason for a choice.
//!
//! It must never start or look for anything: the services choose, based on this.

use std::env;
use std::fmt;
use std::io::Write;

/// A word that does not name a choice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{by} is not a valid choice: use {known}")]
pub struct UnknownChoice {
    by: String,
    /// For example `env, google, own or container`.
    known: String,
}

/// A kind of service that can be requested by a word.
pub trait Choice: Copy + 'static {
    /// The words and their meanings.
    const WORDS: &'static [(&'static str, Self)];
}

/// Where a Postgres comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostgresChoice {
    /// `env`: the one that `DATABASE_URL` names.
    Environment,
    /// `installed`: a cluster of the installed programs.
    Installed,
    /// `downloaded`: a cluster of programs that are downloaded once.
    Downloaded,
    /// `container`: one from an image.
    Container,
}

impl Choice for PostgresChoice {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("env", Self::Environment),
        ("installed", Self::Installed),
        ("downloaded", Self::Downloaded),
        ("container", Self::Container),
    ];
}

/// Where a Pub/Sub emulator comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PubSubChoice {
    /// `env`: the one that `PUBSUB_EMULATOR_HOST` names.
    Environment,
    /// `google`: Google's own, installed with the Cloud SDK.
    Google,
    /// `own`: ours, in this process.
    Own,
    /// `container`: one from an image.
    Container,
}

impl Choice for PubSubChoice {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("env", Self::Environment),
        ("google", Self::Google),
        ("own", Self::Own),
        ("container", Self::Container),
    ];
}

/// A requested choice and its origin: `TEST_EMULATOR=google`, or `--emulator google`.
///
/// ```
/// use wakeq_testbed::{Requested, PubSubChoice};
///
/// let requested: Requested<PubSubChoice> = Requested::by_option("--emulator", "google")?;
/// assert_eq!(requested.choice, PubSubChoice::Google);
/// let wrong = Requested::<PubSubChoice>::by_option("--emulator", "best").unwrap_err();
/// assert_eq!(wrong.to_string(), "--emulator best is not a valid choice: use env, google, own or container");
/// # Ok::<(), wakeq_testbed::UnknownChoice>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requested<C> {
    /// The requested kind.
    pub choice: C,
    /// What requested it, for messages.
    pub by: String,
}

impl<C: Choice> Requested<C> {
    /// From an option of a command.
    pub fn by_option(option: &str, word: &str) -> Result<Self, UnknownChoice> {
        Self::parse(word, format!("{option} {word}"))
    }

    /// From an environment variable; unset and empty request nothing.
    pub fn by_variable(variable: &str) -> Result<Option<Self>, UnknownChoice> {
        let word = env_value(variable);
        word.map(|word| Self::parse(&word, format!("{variable}={word}"))).transpose()
    }

    fn parse(word: &str, by: String) -> Result<Self, UnknownChoice> {
        match C::WORDS.iter().find(|(known, _)| *known == word) {
            Some((_, choice)) => Ok(Self { choice: *choice, by }),
            None => Err(UnknownChoice { by, known: word_list::<C>() }),
        }
    }
}

/// A service that is ready, and the reason for its choice.
#[derive(Debug)]
pub struct ChosenService<S> {
    /// The service.
    pub service: S,
    /// The reason: what requested it, or why nothing of higher precedence was used.
    pub reason: String,
}

/// One line, without a password.
impl<S: fmt::Display> fmt::Display for ChosenService<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.service, self.reason)
    }
}

/// Writes past the capture of test output, which would hide it.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The value of a variable, unless it is empty.
pub(crate) fn env_value(variable: &str) -> Option<String> {
    let value = env::var(variable).ok()?;
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

fn word_list<C: Choice>() -> String {
    let words: Vec<_> = C::WORDS.iter().map(|(word, _)| *word).collect();
    match words.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_selects_its_choice_and_unknown_words_are_rejected() {
        for (word, choice) in PostgresChoice::WORDS {
            let requested = Requested::<PostgresChoice>::by_option("--postgres", word).unwrap();
            assert_eq!((requested.choice, requested.by), (*choice, format!("--postgres {word}")));
        }
        let unknown = Requested::<PostgresChoice>::by_option("--postgres", "ENV").unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "--postgres ENV is not a valid choice: use env, installed, downloaded or container"
        );
    }

    #[test]
    fn a_choice_is_displayed_with_its_reason() {
        let chosen =
            ChosenService { service: "Postgres: here", reason: "DATABASE_URL is not set".to_owned() };
        assert_eq!(chosen.to_string(), "Postgres: here (DATABASE_URL is not set)");
    }
}

//! What somebody asked for, and why something was taken.
//!
//! It must never start or look for anything: the services choose, with what is said here.

use std::env;
use std::fmt;
use std::io::Write;

/// A word that names no choice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{by} is no choice: use {known}")]
pub struct UnknownChoice {
    by: String,
    /// `env, google, own or container`
    known: String,
}

/// A choice that can be asked for by its word.
pub trait Choice: Copy + 'static {
    /// The words, and what they mean.
    const WORDS: &'static [(&'static str, Self)];
}

/// Where a Postgres comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostgresChoice {
    /// `env`: `DATABASE_URL` names it.
    Environment,
    /// `installed`: a cluster of the programs that are installed.
    Installed,
    /// `embedded`: the one that needs nothing installed.
    Embedded,
    /// `container`: of an image.
    Container,
}

impl Choice for PostgresChoice {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("env", Self::Environment),
        ("installed", Self::Installed),
        ("embedded", Self::Embedded),
        ("container", Self::Container),
    ];
}

/// Where a Pub/Sub emulator comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PubSubChoice {
    /// `env`: `PUBSUB_EMULATOR_HOST` names it.
    Environment,
    /// `google`: Google's own, installed with the Cloud SDK.
    Google,
    /// `own`: ours, in this process.
    Own,
    /// `container`: of an image.
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

/// A choice that somebody made, and how: `TEST_EMULATOR=google`, or `--emulator google`.
///
/// ```
/// use wakeq_services::{Asked, PubSubChoice};
///
/// let asked: Asked<PubSubChoice> = Asked::by_option("--emulator", "google")?;
/// assert_eq!(asked.choice, PubSubChoice::Google);
/// let wrong = Asked::<PubSubChoice>::by_option("--emulator", "best").unwrap_err();
/// assert_eq!(wrong.to_string(), "--emulator best is no choice: use env, google, own or container");
/// # Ok::<(), wakeq_services::UnknownChoice>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked<C> {
    /// What is asked for.
    pub choice: C,
    /// By what words.
    pub by: String,
}

impl<C: Choice> Asked<C> {
    /// By an option of a command.
    pub fn by_option(option: &str, word: &str) -> Result<Self, UnknownChoice> {
        Self::parse(word, format!("{option} {word}"))
    }

    /// By a variable of the environment; unset and empty ask for nothing.
    pub fn by_variable(variable: &str) -> Result<Option<Self>, UnknownChoice> {
        let word = set(variable);
        word.map(|word| Self::parse(&word, format!("{variable}={word}"))).transpose()
    }

    fn parse(word: &str, by: String) -> Result<Self, UnknownChoice> {
        match C::WORDS.iter().find(|(known, _)| *known == word) {
            Some((_, choice)) => Ok(Self { choice: *choice, by }),
            None => Err(UnknownChoice { by, known: listed::<C>() }),
        }
    }
}

/// A service that answers, and why this one was taken.
#[derive(Debug)]
pub struct Chosen<S> {
    /// The service.
    pub service: S,
    /// Why: what asked for it, or what it goes before.
    pub reason: String,
}

/// One line, without a password.
impl<S: fmt::Display> fmt::Display for Chosen<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.service, self.reason)
    }
}

/// Past the capturing of test output, which would hide it.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The value of a variable that is set to something.
pub(crate) fn set(variable: &str) -> Option<String> {
    let value = env::var(variable).ok()?;
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

fn listed<C: Choice>() -> String {
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
    fn every_word_means_what_it_says_and_no_other_means_anything() {
        for (word, choice) in PostgresChoice::WORDS {
            let asked = Asked::<PostgresChoice>::by_option("--postgres", word).unwrap();
            assert_eq!((asked.choice, asked.by), (*choice, format!("--postgres {word}")));
        }
        let unknown = Asked::<PostgresChoice>::by_option("--postgres", "ENV").unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "--postgres ENV is no choice: use env, installed, embedded or container"
        );
    }

    #[test]
    fn what_is_chosen_is_one_line_with_its_reason() {
        let chosen = Chosen { service: "Postgres: here", reason: "DATABASE_URL is not set".to_owned() };
        assert_eq!(chosen.to_string(), "Postgres: here (DATABASE_URL is not set)");
    }
}

//! Configuration files: what an emulator starts with, and its faults.
//!
//! The format is TOML, or JSON or YAML if the file's name says so. Resources are written in the
//! API's JSON form, so that a file can create whatever the API can. This module only reads, and
//! creates nothing.

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::broker::Faults;
use crate::proto::pubsub::{DeadLetterPolicy, Schema, Subscription, Topic};
use crate::provision::Provision;

/// The content of a configuration file.
///
/// ```
/// use std::path::Path;
/// use wakeq_emulator::Config;
///
/// let config = Config::parse(Path::new("emulator.toml"), r#"
///     project = "demo"
///
///     [[topics]]
///     name = "orders"
///     messageRetentionDuration = "600s"
///
///     [[subscriptions]]
///     name = "worker"
///     topic = "orders"
///     ackDeadlineSeconds = 30
///
///     [faults]
///     duplicate = 0.1
/// "#).unwrap();
/// assert_eq!(config.faults.unwrap().duplicate, 0.1);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Schemas, topics and subscriptions.
    pub provision: Provision,
    /// The faults, if the file has any.
    pub faults: Option<Faults>,
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It does not exist, or is not readable.
    #[error("{}: can't be read", .0.display())]
    Unreadable(PathBuf, #[source] std::io::Error),
    /// It is not a valid configuration.
    #[error("{}: {words}", .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, and what is wrong with it.
        words: String,
    },
    /// A short name needs a project.
    #[error(
        "{origin}: `{name}` has no project: write its full name (projects/PROJECT/…), or project = \"…\" at the \
         top of the file"
    )]
    NoProject {
        /// The file and line.
        origin: String,
        /// The name.
        name: String,
    },
}

/// A file with resources of a type that may or may not record their position.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<D, T, S> {
    project: Option<String>,
    #[serde(default = "Vec::new")]
    schemas: Vec<D>,
    #[serde(default = "Vec::new")]
    topics: Vec<T>,
    #[serde(default = "Vec::new")]
    subscriptions: Vec<S>,
    faults: Option<Faults>,
}

/// The same, whatever the format, with the place of each resource.
#[derive(Default)]
struct Listed {
    project: Option<String>,
    schemas: Vec<(String, Schema)>,
    topics: Vec<(String, Topic)>,
    subscriptions: Vec<(String, Subscription)>,
    faults: Option<Faults>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Format {
    Toml,
    Json,
    Yaml,
}

type TomlFile = File<toml::Spanned<Schema>, toml::Spanned<Topic>, toml::Spanned<Subscription>>;
type JsonFile = File<Schema, Topic, Subscription>;
type YamlFile =
    File<serde_saphyr::Spanned<Schema>, serde_saphyr::Spanned<Topic>, serde_saphyr::Spanned<Subscription>>;

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If the file does not exist, or something in it is unknown; the message says where.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(path, &text(path)?)
    }

    /// Parses the text of such a file; `path` determines the format, and is named in errors.
    ///
    /// # Errors
    ///
    /// If something in it is unknown; the message says where.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let file = match Format::of(path) {
            Format::Toml => Listed::of_toml(path, text),
            Format::Json => Listed::of_json(path, text),
            Format::Yaml => Listed::of_yaml(path, text),
        }?;
        let project = file.project.as_deref();
        let mut provision = Provision::default();
        for (origin, schema) in file.schemas {
            provision = with_schema(provision, project, origin, schema)?;
        }
        for (origin, topic) in file.topics {
            provision = with_topic(provision, project, origin, topic)?;
        }
        for (origin, subscription) in file.subscriptions {
            provision = with_subscription(provision, project, origin, subscription)?;
        }
        Ok(Self { provision, faults: file.faults })
    }
}

impl Listed {
    fn of_toml(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let file: TomlFile = toml(path, text)?;
        let line = |start: usize| {
            let before = text.as_bytes().iter().take(start);
            place(path, 1 + before.filter(|byte| **byte == b'\n').count())
        };
        Ok(Self {
            project: file.project,
            schemas: listed(file.schemas, |_, each| (line(each.span().start), each.into_inner())),
            topics: listed(file.topics, |_, each| (line(each.span().start), each.into_inner())),
            subscriptions: listed(file.subscriptions, |_, each| (line(each.span().start), each.into_inner())),
            faults: file.faults,
        })
    }

    fn of_json(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let file: JsonFile = json(path, text)?;
        let origin = |kind: &str, number: usize| format!("{}, {kind} {number}", path.display());
        Ok(Self {
            project: file.project,
            schemas: listed(file.schemas, |number, each| (origin("schema", number), each)),
            topics: listed(file.topics, |number, each| (origin("topic", number), each)),
            subscriptions: listed(file.subscriptions, |number, each| (origin("subscription", number), each)),
            faults: file.faults,
        })
    }

    fn of_yaml(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let file: YamlFile = yaml(path, text)?;
        Ok(Self {
            project: file.project,
            schemas: listed(file.schemas, |_, each| (place(path, each.referenced.line()), each.value)),
            topics: listed(file.topics, |_, each| (place(path, each.referenced.line()), each.value)),
            subscriptions: listed(file.subscriptions, |_, each| {
                (place(path, each.referenced.line()), each.value)
            }),
            faults: file.faults,
        })
    }
}

/// Each resource with its place, which its number or its position says.
fn listed<T, R>(each: Vec<T>, placed: impl Fn(usize, T) -> (String, R)) -> Vec<(String, R)> {
    (1..).zip(each).map(|(number, each)| placed(number, each)).collect()
}

fn place(path: &Path, line: impl Display) -> String {
    format!("{}:{line}", path.display())
}

impl Faults {
    /// Reads a file with faults alone: TOML, or JSON or YAML if its name says so.
    ///
    /// # Errors
    ///
    /// If the file does not exist, or something in it is not a fault; the message says where.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(path, &text(path)?)
    }

    /// Parses the text of such a file; `path` determines the format, and is named in errors.
    ///
    /// ```
    /// use std::path::Path;
    /// use wakeq_emulator::Faults;
    ///
    /// let faults = Faults::parse(Path::new("faults.toml"), "seed = 7\nlose = 0.01").unwrap();
    /// assert_eq!((faults.seed, faults.lose), (7, 0.01));
    /// ```
    ///
    /// # Errors
    ///
    /// If something in it is not a fault; the message says where.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        match Format::of(path) {
            Format::Toml => toml(path, text),
            Format::Json => json(path, text),
            Format::Yaml => yaml(path, text),
        }
    }
}

fn text(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|error| ConfigError::Unreadable(path.to_owned(), error))
}

impl Format {
    fn of(path: &Path) -> Self {
        let extension = path.extension().unwrap_or_default();
        if extension.eq_ignore_ascii_case("json") {
            Self::Json
        } else if extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml") {
            Self::Yaml
        } else {
            Self::Toml
        }
    }
}

fn json<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    // Otherwise a list would be read as the fields in order.
    if !text.trim_start().starts_with('{') {
        let words = "an object is expected, as in {\"seed\": 7}".to_owned();
        return Err(ConfigError::Invalid { path: path.to_owned(), words });
    }
    serde_json::from_str(text).map_err(|error| invalid(path, &error))
}

fn toml<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| invalid(path, &error))
}

fn yaml<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ConfigError> {
    // The error would show the lines around it as well.
    serde_saphyr::from_str(text).map_err(|error| invalid(path, error.without_snippet()))
}

fn invalid(path: &Path, error: &dyn std::error::Error) -> ConfigError {
    ConfigError::Invalid { path: path.to_owned(), words: error.to_string().trim_end().to_owned() }
}

fn with_schema(
    provision: Provision,
    project: Option<&str>,
    origin: String,
    mut schema: Schema,
) -> Result<Provision, ConfigError> {
    complete(&mut schema.name, "schemas", project, &origin)?;
    Ok(provision.schema_from(origin, schema))
}

fn with_topic(
    provision: Provision,
    project: Option<&str>,
    origin: String,
    mut topic: Topic,
) -> Result<Provision, ConfigError> {
    complete(&mut topic.name, "topics", project, &origin)?;
    if let Some(settings) = &mut topic.schema_settings {
        complete(&mut settings.schema, "schemas", project, &origin)?;
    }
    Ok(provision.topic_from(origin, topic))
}

fn with_subscription(
    provision: Provision,
    project: Option<&str>,
    origin: String,
    mut subscription: Subscription,
) -> Result<Provision, ConfigError> {
    complete(&mut subscription.name, "subscriptions", project, &origin)?;
    complete(&mut subscription.topic, "topics", project, &origin)?;
    if let Some(DeadLetterPolicy { dead_letter_topic, .. }) = &mut subscription.dead_letter_policy {
        complete(dead_letter_topic, "topics", project, &origin)?;
    }
    Ok(provision.subscription_from(origin, subscription))
}

/// Turns an id into a full name in the file's project. Leaves an empty name: the broker reports
/// what it requires.
fn complete(
    name: &mut String,
    collection: &str,
    project: Option<&str>,
    origin: &str,
) -> Result<(), ConfigError> {
    if name.is_empty() || name.contains('/') {
        return Ok(());
    }
    let Some(project) = project else {
        return Err(ConfigError::NoProject { origin: origin.to_owned(), name: name.clone() });
    };
    *name = format!("projects/{project}/{collection}/{name}");
    Ok(())
}

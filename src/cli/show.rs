//! How the command line writes: plain, aligned lines to standard output, and words beside them to standard error.

use std::fmt::Display;
use std::io::Write;
use std::str::FromStr;

use clap::Args;

use crate::admin::Bulk;
use crate::event::{Actor, CanvasId, EventId, HandlerScope, InvalidName, Name, Timestamp};

/// Writes a line; a closed pipe ends the command quietly.
pub(super) fn line(text: impl Display) -> anyhow::Result<()> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Tells the person at the terminal something that is no part of the answer; if nobody can read it, that is fine.
pub(super) fn note(text: impl Display) {
    writeln!(std::io::stderr().lock(), "{text}").ok();
}

/// A moment, to the second.
pub(super) fn moment(moment: Timestamp) -> String {
    moment.format("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// A number of things, in words: `1 event`, `2 events`.
pub(super) fn count(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// What one call would do to many events: `more than 10,000` is not counted further.
pub(super) fn bulk(bulk: Bulk, thing: &str) -> String {
    let more = if bulk.more { "more than " } else { "" };
    format!("{more}{}", count(bulk.count, thing))
}

/// A text of several lines, in the column of values.
pub(super) fn indented(text: &str) -> String {
    text.replace('\n', "\n          ")
}

/// Reads an event's id.
pub(super) fn event_id(text: &str) -> Result<EventId, &'static str> {
    text.parse().map_err(|_| "an event's id is a uuid, as `wakeq emit` prints it")
}

/// Reads a moment.
pub(super) fn timestamp(text: &str) -> Result<Timestamp, &'static str> {
    text.parse().map_err(|_| "a moment looks like 2030-01-31T08:00:00Z")
}

/// A handler: `name`, or `MODULE/name`.
#[derive(Args, Clone)]
pub(super) struct HandlerArg {
    /// The handler: its name, or MODULE/name when the module is not WORKER
    handler: HandlerName,
}

impl HandlerArg {
    pub(super) fn scope(&self, canvas: CanvasId) -> HandlerScope {
        self.handler.scope(canvas)
    }
}

/// Who gives a command. Who may connect to the database is an admin, and says so where it matters.
#[derive(Args, Clone)]
pub(super) struct ActorArg {
    /// Who does it, for the record
    #[arg(long, env = "USER", default_value = "cli")]
    actor: String,
}

impl ActorArg {
    pub(super) fn user(&self) -> Actor {
        Actor::user(&self.actor)
    }

    pub(super) fn admin(&self) -> Actor {
        Actor::admin(&self.actor)
    }
}

/// A handler on a canvas yet to be named.
#[derive(Clone)]
pub(super) struct HandlerName {
    module: Name,
    name: Name,
}

impl HandlerName {
    pub(super) fn scope(&self, canvas: CanvasId) -> HandlerScope {
        HandlerScope { canvas, module: self.module.clone(), name: self.name.clone() }
    }
}

impl FromStr for HandlerName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let (module, name) = text.split_once('/').unwrap_or(("WORKER", text));
        Ok(Self { module: module.parse()?, name: name.parse()? })
    }
}

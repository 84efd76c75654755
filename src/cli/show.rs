//! How the command line writes: answers to standard output, as lines for people or JSON for machines, and words beside
//! them to standard error.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

use clap::Args;
use serde::Serialize;

use super::text;
use crate::api::{List, Rule, RuleKind};
use crate::event::Timestamp;

/// Nobody reads standard output any more.
#[derive(Debug, thiserror::Error)]
#[error("standard output was closed")]
pub(super) struct Closed;

/// Whether an answer is for a machine.
#[derive(Args, Clone, Copy)]
pub(super) struct JsonArg {
    /// Print JSON, as the HTTP API answers it
    #[arg(long)]
    json: bool,
}

impl JsonArg {
    /// Whether it is.
    pub(super) fn is_asked(self) -> bool {
        self.json
    }

    /// Prints an answer: as JSON, or as `people` says it.
    pub(super) fn print<T: Serialize>(
        self,
        answer: &T,
        people: impl FnOnce(&T) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        if self.json { json(answer) } else { people(answer) }
    }

    /// Prints a list, and for people where its next page begins.
    pub(super) fn print_list<T: Serialize>(
        self,
        list: &List<T>,
        people: impl FnOnce(&[T]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.print(list, |list| {
            people(&list.items)?;
            if let Some(cursor) = &list.next_cursor {
                note(format_args!("there are more: --cursor {}", text::clean(cursor)));
            }
            Ok(())
        })
    }
}

/// Writes a line.
pub(super) fn line(text: impl Display) -> anyhow::Result<()> {
    written(writeln!(std::io::stdout().lock(), "{text}"))
}

/// Writes all of a text, and no more.
pub(super) fn raw(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    written(out.write_all(bytes).and_then(|()| out.flush()))
}

fn written(outcome: std::io::Result<()>) -> anyhow::Result<()> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Closed.into()),
        outcome => Ok(outcome?),
    }
}

fn json(answer: &impl Serialize) -> anyhow::Result<()> {
    line(text::clean_json(&serde_json::to_string_pretty(answer)?))
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

/// As [`count`], of what was not counted to the end.
pub(super) fn at_least(number: u64, more: bool, thing: &str) -> String {
    let words = if more { "more than " } else { "" };
    format!("{words}{}", count(number, thing))
}

/// A line of what is known about one thing: its name, and a value that may have several lines.
pub(super) fn field(name: &str, value: impl Display) -> anyhow::Result<()> {
    let value = text::clean_lines(&value.to_string()).replace('\n', "\n          ");
    line(format_args!("{name:9} {value}"))
}

/// A rule, in words.
pub(super) fn rule(rule: &Rule) -> String {
    let until = rule.until.map(|until| format!(" until {}", moment(until))).unwrap_or_default();
    let reason = rule.reason.as_deref().unwrap_or("no reason given");
    format!("{} by {}{until}: {reason}", rule_word(rule.kind), rule.created_by)
}

/// A kind of rule, in one word.
pub(super) fn rule_word(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::Pause => "pause",
        RuleKind::Block => "block",
    }
}

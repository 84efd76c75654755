//! Output of commands: answers to standard output, as text for people or JSON for machines, and
//! additional messages to standard error.

use std::fmt::Display;
use std::io::Write;

use chrono::SecondsFormat;
use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;

pub(crate) use super::output::{StdoutClosed, line, raw};
use super::table::Table;
use super::{text, value};
use crate::resources::handlers::wire::{RuleJson, RuleKind, RuleReachJson};
use crate::resources::wire::List;
use crate::resources::workers::wire::WorkerStateJson;
use wakeq::Timestamp;

/// Whether an answer is for a machine.
#[derive(Args, Clone, Copy)]
pub(crate) struct JsonArg {
    /// Print JSON, as returned by the HTTP API
    #[arg(long)]
    json: bool,
}

impl JsonArg {
    /// Whether JSON is requested.
    pub(crate) fn is_set(self) -> bool {
        self.json
    }

    /// Prints an answer as JSON, or with `people`.
    pub(crate) fn print<T: Serialize>(
        self,
        answer: &T,
        people: impl FnOnce(&T) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        if self.json { json(answer) } else { people(answer) }
    }

    /// Prints a list and, for people, the cursor of its next page.
    pub(crate) fn print_list<T: Serialize>(
        self,
        list: &List<T>,
        people: impl FnOnce(&[T]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.print(list, |list| {
            people(&list.items)?;
            note_of_more(list.next_cursor.as_deref());
            Ok(())
        })
    }

    /// The same, for people as a table; without items, prints `nothing`.
    pub(crate) fn print_table<T: Serialize, const COLUMNS: usize>(
        self,
        list: &List<T>,
        head: [&'static str; COLUMNS],
        nothing: &str,
        row: impl FnMut(&T) -> [String; COLUMNS],
    ) -> anyhow::Result<()> {
        self.print_list(list, |items| Table::of(head, items.iter().map(row)).print(nothing))
    }
}

/// Says how to continue a list that has more items.
pub(crate) fn note_of_more(next: Option<&str>) {
    if let Some(cursor) = next {
        note(format_args!("there are more: --cursor {}", text::clean(cursor)));
    }
}

fn json(answer: &impl Serialize) -> anyhow::Result<()> {
    line(text::clean_json(&serde_json::to_string_pretty(answer)?))
}

/// Prints a message to the terminal that is not part of the answer; if no one can read it, that is
/// fine.
pub(crate) fn note(text: impl Display) {
    writeln!(std::io::stderr().lock(), "{text}").ok();
}

/// A time, to the second.
pub(crate) fn moment(moment: Timestamp) -> String {
    moment.format("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// A time in microseconds, the precision of the database.
pub(crate) fn exact(moment: Timestamp) -> String {
    moment.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// A number of things, in words: `1 event`, `2 events`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// Like [`count`], for a count that may be incomplete.
pub(crate) fn at_least(number: u64, more: bool, thing: &str) -> String {
    let words = if more { "more than " } else { "" };
    format!("{words}{}", count(number, thing))
}

/// A line about a property: its name, and a value that may have several lines.
pub(crate) fn field(name: &str, value: impl Display) -> anyhow::Result<()> {
    let value = text::clean_lines(&value.to_string()).replace('\n', "\n          ");
    line(format_args!("{name:9} {value}"))
}

/// A line about a JSON value, if there is one; shortened unless `full`.
pub(crate) fn json_field(name: &str, json: Option<&RawValue>, full: bool) -> anyhow::Result<()> {
    json.map_or(Ok(()), |json| field(name, value::pretty(json.get(), full)))
}

/// The same for a value that may be hidden from the caller, as these words say.
pub(crate) fn value_field(
    name: &str,
    json: Option<&RawValue>,
    hidden: Option<&str>,
    full: bool,
) -> anyhow::Result<()> {
    hidden.map_or_else(|| json_field(name, json, full), |words| field(name, words))
}

/// Says that the answer has no values, as these words do.
pub(crate) fn note_of_hidden(hidden: Option<&str>) {
    if let Some(words) = hidden {
        note(format_args!("values are {words}"));
    }
}

/// Stands for a missing value.
pub(crate) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A rule, in words.
pub(crate) fn rule(rule: &RuleJson) -> String {
    let until = rule.until.map(|until| format!(" until {}", moment(until))).unwrap_or_default();
    let reason = rule.reason.as_deref().unwrap_or("no reason given");
    let of = match rule.stops {
        RuleReachJson::Handler => String::new(),
        wider @ (RuleReachJson::Canvas | RuleReachJson::Everything) => format!(" of {}", rule_reach(wider)),
    };
    format!("{}{of} by {}{until}: {reason}", rule_word(rule.kind), rule.created_by)
}

/// What a rule stops, in words.
pub(crate) fn rule_reach(reach: RuleReachJson) -> &'static str {
    match reach {
        RuleReachJson::Handler => "the handler",
        RuleReachJson::Canvas => "the whole canvas",
        RuleReachJson::Everything => "everything",
    }
}

/// A kind of rule, as a word.
pub(crate) fn rule_word(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::Pause => "pause",
        RuleKind::Block => "block",
    }
}

/// What a handler is under a rule, as a word.
pub(crate) fn rule_state(kind: RuleKind) -> &'static str {
    match kind {
        RuleKind::Pause => "paused",
        RuleKind::Block => "blocked",
    }
}

/// The state of a worker, as a word.
pub(crate) fn worker_state(state: WorkerStateJson) -> &'static str {
    match state {
        WorkerStateJson::Working => "working",
        WorkerStateJson::Stopping => "stopping",
        WorkerStateJson::Asleep => "asleep",
        WorkerStateJson::Lost => "lost",
    }
}

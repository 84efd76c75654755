//! The tools, each with what an agent is told of it, and what it asks for.
//!
//! Every tool is one request to the API, but for the start of an operation, which is previewed
//! again. There are none for what can't be undone by bringing events back, and none for rights.

use rmcp::handler::server::tool::schema_for_input;
use rmcp::model::{self, JsonObject, ToolAnnotations};
use rmcp::schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::arguments::{
    CancelEvent, CountEvents, ExplainEvent, List, ListErrorGroups, ListEvents, ListLimitUses, OneErrorGroup,
    OneEvent, OneHandler, OneOperation, PauseHandler, PreviewOperation, StartOperation, Statistics, read,
};
use super::ended::ListEnded;
use crate::cli::client::Request;

/// A tool.
pub(super) struct Tool {
    pub(super) described: model::Tool,
    pub(super) kind: Kind,
    pub(super) call: Call,
}

/// What a tool does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Shows something.
    Reads,
    /// Counts what a change would do.
    Previews,
    /// Changes something, of which the opposite is possible.
    Changes,
    /// Ends events.
    Ends,
}

/// What a call of a tool asks for.
pub(super) enum Call {
    /// One request.
    Request(MakeRequest),
    Preview,
    Start,
}

/// Makes a request of the arguments.
type MakeRequest = Box<dyn Fn(JsonObject) -> anyhow::Result<Request> + Send + Sync>;

/// All tools, in their order.
pub(super) fn tools() -> anyhow::Result<Vec<Tool>> {
    about_handlers().into_iter().chain(about_events()).chain(changing()).collect()
}

fn about_handlers() -> [anyhow::Result<Tool>; 8] {
    [
        asks(
            "list_handlers",
            Kind::Reads,
            "List the handlers of the canvas, each with the number of its events by state, the rules that stop \
             it, and its HTTP targets. A good first call.",
            |list: List| list.of(Request::get(&["handlers"])),
        ),
        asks(
            "statistics",
            Kind::Reads,
            "Show what happened to the events of a handler, or of all: how many were emitted, completed, failed, \
             retried and died in each step of time, and how long they waited and ran. Arrays have an element for \
             each step, which begins at `at`.",
            Statistics::request,
        ),
        asks(
            "list_limits",
            Kind::Reads,
            "List the limits of the canvas: how many events run at a time, and start in a period.",
            |list: List| list.of(Request::get(&["limits"])),
        ),
        asks(
            "list_limit_uses",
            Kind::Reads,
            "List what is in use of a limit, of a family by key: how many events run, which of them hold its \
             places, how many wait, and when its rate lets the next one start.",
            ListLimitUses::request,
        ),
        asks(
            "list_crons",
            Kind::Reads,
            "List the crons of the canvas, which emit events on a schedule, each with its next tick.",
            |list: List| list.of(Request::get(&["cron"])),
        ),
        asks(
            "list_operations",
            Kind::Reads,
            "List what was done to many events at once, and how far it has come. The latest come first.",
            |list: List| list.of(Request::get(&["operations"])),
        ),
        asks(
            "show_operation",
            Kind::Reads,
            "Show one operation on many events, and how far it has come.",
            OneOperation::request,
        ),
        asks(
            "list_workers",
            Kind::Reads,
            "List the worker processes of all canvases, and whether they are at work. Takes a key for every \
             canvas.",
            |list: List| list.of(Request::get(&["workers"]).everywhere()),
        ),
    ]
}

fn about_events() -> [anyhow::Result<Tool>; 7] {
    [
        asks(
            "list_events",
            Kind::Reads,
            "List events that have not ended, by handler and by when they are due, without their values. With a \
             filter a page may be short, or empty, although `next_cursor` leads to more.",
            ListEvents::waiting,
        ),
        asks(
            "count_events",
            Kind::Reads,
            "Count the events that meet a filter, among 10,000 a call. While there is a `next_cursor`, `count` is \
             the least number: call again with it, and add the counts. The state `dead` alone counts dead events.",
            CountEvents::request,
        ),
        asks(
            "explain_event",
            Kind::Reads,
            "Explain one event: why it is not running, since when, what happens next, and how attempts at it \
             failed. Its value is left out unless `with_value` is true, which is recorded.",
            ExplainEvent::request,
        ),
        asks(
            "list_dead_events",
            Kind::Reads,
            "List dead events, which are not tried again, each with why it died and its last error. The latest \
             come first.",
            ListEvents::dead,
        ),
        asks(
            "list_ended_events",
            Kind::Reads,
            "List events that are kept after they have ended, without their values and results. The latest come \
             first. With a filter a page may be short, or empty, although `next_cursor` leads to more. That they \
             are listed is recorded.",
            ListEnded::request,
        ),
        asks(
            "list_error_groups",
            Kind::Reads,
            "List what dead events died of: groups of a handler's events whose errors say the same, each with its \
             count, an example, and what is known of it. The largest come first. To redrive one, give its id to \
             preview_operation as `error_group` of the filter.",
            ListErrorGroups::request,
        ),
        asks(
            "show_error_group",
            Kind::Reads,
            "Show one error group: how many dead events are of it, since when, the error, and what is known of it.",
            OneErrorGroup::request,
        ),
    ]
}

/// The tools that are only there if changes are allowed.
fn changing() -> [anyhow::Result<Tool>; 7] {
    [
        asks(
            "pause_handler",
            Kind::Changes,
            "Pause a handler: from the answer on, none of its events starts until it is unpaused. Events can \
             still be emitted, and wait. A name without events is paused as well, so look it up before.",
            PauseHandler::request,
        ),
        asks(
            "unpause_handler",
            Kind::Changes,
            "Lift the pause of a handler, and wake the events that waited.",
            OneHandler::unpause,
        ),
        Tool::new::<PreviewOperation>(
            "preview_operation",
            Kind::Previews,
            "Count the events that an operation would change, without changing anything. Call it before \
             start_operation, and show its `count` to the person who decides.",
            Call::Preview,
        ),
        Tool::new::<StartOperation>(
            "start_operation",
            Kind::Ends,
            "Start an operation that was previewed in this session. It is on the events that were there at the \
             preview, and is refused if their number has changed. The answer comes at once: show_operation says \
             how far it has come.",
            Call::Start,
        ),
        asks(
            "redrive_event",
            Kind::Changes,
            "Bring one dead event back, with its retries reset.",
            OneEvent::redrive,
        ),
        asks(
            "cancel_event",
            Kind::Ends,
            "Cancel one event that waits, which deletes it. With `running` also one that runs: its handler is \
             told to stop.",
            CancelEvent::request,
        ),
        asks(
            "run_event_now",
            Kind::Changes,
            "Make one event that waits due at once. A rule on its handler still holds it.",
            OneEvent::run_now,
        ),
    ]
}

/// A tool that is one request.
fn asks<A: DeserializeOwned + JsonSchema + 'static>(
    name: &'static str,
    kind: Kind,
    words: &'static str,
    request: impl Fn(A) -> anyhow::Result<Request> + Send + Sync + 'static,
) -> anyhow::Result<Tool> {
    let made = move |arguments: JsonObject| request(read(arguments)?);
    Tool::new::<A>(name, kind, words, Call::Request(Box::new(made)))
}

impl Tool {
    fn new<A: JsonSchema + 'static>(
        name: &'static str,
        kind: Kind,
        words: &'static str,
        call: Call,
    ) -> anyhow::Result<Self> {
        let schema = schema_for_input::<A>().map_err(anyhow::Error::msg)?;
        let described = model::Tool::new(name, words, schema).with_annotations(kind.hints());
        Ok(Self { described, kind, call })
    }

    /// Whether it is there although no changes are allowed.
    pub(super) fn only_reads(&self) -> bool {
        self.kind == Kind::Reads
    }
}

impl Kind {
    /// Nothing is asked of a place outside the deployment.
    fn hints(self) -> ToolAnnotations {
        let hints = ToolAnnotations::new().open_world(false);
        match self {
            Self::Reads | Self::Previews => hints.read_only(true),
            Self::Changes => hints.read_only(false).destructive(false).idempotent(true),
            Self::Ends => hints.read_only(false).destructive(true).idempotent(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_described_and_have_names_of_their_own() {
        let tools = tools().unwrap();
        let mut names: Vec<_> = tools.iter().map(|tool| tool.described.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), tools.len());
        for tool in &tools {
            let words = tool.described.description.as_deref().unwrap_or_default();
            assert!((20..400).contains(&words.len()), "{}: {words}", tool.described.name);
        }
    }
}

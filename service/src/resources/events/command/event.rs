//! `wakeq events show` and `explain`: the description of one event.

use clap::Args;

use crate::cli::Context;
use crate::cli::arguments;
use crate::cli::failure::Failure;
use crate::cli::show::{JsonArg, field, json_field, moment, or_dash, rule, worker_state};
use crate::resources::emit::wire::OptionsJson;
use crate::resources::events::wire::attempt::AttemptJson;
use crate::resources::events::wire::checkpoint::CheckpointJson;
use crate::resources::events::wire::{EventDetail, EventState};
use crate::resources::limits::wire::LimitWaitJson;
use crate::resources::objects::wire::PlaceJson;
use crate::resources::queues::wire::Copied;
use crate::resources::workers::wire::WorkerProcessJson;
use wakeq::EventId;

#[derive(Args)]
pub(crate) struct ShowEvent {
    /// The event's id, or the id chosen for it when it was emitted
    #[arg(value_parser = arguments::event_id)]
    id: EventId,
    /// Show the whole value
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
pub(crate) struct Explain {
    /// The event's id, or the id chosen for it when it was emitted
    #[arg(value_parser = arguments::event_id)]
    id: EventId,
    #[command(flatten)]
    json: JsonArg,
}

impl ShowEvent {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let client = context.client().await?;
        let (event, is_hidden) = match client.event(self.id, true).await {
            // Values have a scope of their own. What is not in them takes `read`.
            Err(error) if matches!(error.downcast_ref(), Some(Failure::Refused(_))) => {
                (client.event(self.id, false).await?, true)
            }
            shown => (shown?, false),
        };
        self.json.print(&event, |event| {
            print(event)?;
            if is_hidden {
                return field("value", "hidden: the credential does not have the scope `values`");
            }
            let left = event.checkpoint.as_ref().and_then(|checkpoint| checkpoint.value.as_deref());
            json_field("left", left, self.full)?;
            json_field("value", event.value.as_deref(), self.full)?;
            json_field("result", event.result.as_deref(), self.full)
        })
    }
}

impl Explain {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let event = context.client().await?.event(self.id, false).await?;
        self.json.print(&event, print)
    }
}

fn print(event: &EventDetail) -> anyhow::Result<()> {
    field("event", event.id)?;
    if let (Some(module), Some(name), Some(modifier)) = (&event.module, &event.name, &event.modifier) {
        field("handler", format_args!("{module}/{name}/{modifier}"))?;
    }
    if let Some(place) = &event.place {
        let PlaceJson { object, id, prev } = place;
        field("object", format_args!("{object}, link {id} after {prev}"))?;
    }
    if let Some(key) = &event.unique_key {
        field("key", key)?;
    }
    if let Some(batch) = &event.batch {
        field("batch", batch)?;
    }
    if let Some(options) = &event.options {
        field("asks", asked(options))?;
    }
    if let Some(Copied { queue, origin }) = &event.copy_of {
        field("copy", format_args!("in queue {queue}, of {origin}"))?;
    }
    field("emitted", moment(event.enqueued_at))?;
    field("state", state(event))?;
    if let Some(worker) = &event.worker {
        field("worker", worker)?;
    }
    if let Some(process) = &event.worker_process {
        field("process", worker_process(process))?;
    }
    if let Some(by) = &event.cancelled_by {
        let when = if event.state == EventState::Cancelled { "" } else { "while it ran, " };
        field("cancelled", format_args!("{when}by {by}"))?;
    }
    if let Some(until) = event.kept_until {
        field("kept", format_args!("until {}{}", moment(until), took(event.took_s)))?;
    }
    if let Some(until) = event.until {
        field("until", moment(until))?;
    }
    if let Some(standing) = &event.rule {
        field("rule", rule(standing))?;
    }
    event.limit.iter().try_for_each(|wait| field("limit", limit(wait)))?;
    if event.state != EventState::Gone {
        let failed = if event.state == EventState::Dead { "retries" } else { "failed" };
        field(
            "attempts",
            format_args!("{} {failed}, {} lost with their workers", event.retries, event.losses),
        )?;
    }
    if let Some(error) = &event.last_error {
        field("error", error)?;
    }
    for attempt in &event.attempts {
        field("attempt", attempt_line(attempt))?;
    }
    if let Some(since) = event.unknown_since {
        field("unknown", format_args!("a worker has had no handler for it since {}", moment(since)))?;
    }
    if let Some(target) = &event.target {
        field("target", target)?;
    }
    if let (Some(first), Some(link)) = (event.first, event.first_link) {
        field("first", format_args!("{first}, link {}", link.id))?;
    }
    if let Some(CheckpointJson { bytes, stored_at, value: _ }) = &event.checkpoint {
        field("progress", format_args!("a checkpoint of {bytes} bytes, stored at {}", moment(*stored_at)))?;
    }
    field("next", next(event))
}

/// How long the attempt took that ended the event, if one did.
fn took(took_s: Option<f64>) -> String {
    took_s.map(|took| format!(", after an attempt of {took} s")).unwrap_or_default()
}

/// An attempt at the event: its number, what came of it, when, where, and why.
fn attempt_line(attempt: &AttemptJson) -> String {
    let AttemptJson { number, outcome, worker, started_at, took_s, error } = attempt;
    let worker = worker.as_ref().map(|worker| format!(" on {worker}")).unwrap_or_default();
    let error = error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    format!("{number} {outcome} after {took_s} s, begun {}{worker}{error}", moment(*started_at))
}

/// What its emit asked for, as the options of `wakeq emit` have it.
fn asked(options: &OptionsJson) -> String {
    let OptionsJson { retries, delays_s, timeout_s, not_after, keep_s, tags, limits, urgent } = options;
    let delays = delays_s.as_ref().map(|delays| {
        let delays: Vec<String> = delays.iter().map(|delay| format!("{delay}s")).collect();
        format!("delays {}", delays.join(","))
    });
    let parts = [
        retries.map(|retries| format!("retries {retries}")),
        delays,
        timeout_s.map(|timeout| format!("timeout {timeout}s")),
        not_after.map(|at| format!("not after {}", moment(at))),
        keep_s.map(|keep| format!("keep {}", keep.written(|seconds| format!("{seconds}s")))),
        (!tags.is_empty()).then(|| format!("tags {}", tags.join(","))),
        (!limits.is_empty()).then(|| format!("limits {}", limits.join(","))),
        urgent.then(|| "urgent".to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The limit that it waits for, and the events that hold its places.
fn limit(wait: &LimitWaitJson) -> String {
    let LimitWaitJson { name, all_canvases, since, holders, next_start } = wait;
    let reach = if *all_canvases { ", over all canvases" } else { "" };
    let mut words = format!("{name}{reach}, waiting since {}", moment(*since));
    if let Some(start) = next_start {
        words.push_str(&format!(", its start {}", moment(*start)));
    }
    holders.iter().for_each(|holder| words.push_str(&format!("\nheld by {holder}")));
    words
}

/// Where the worker of a running event is, and whether it is still there.
fn worker_process(process: &WorkerProcessJson) -> String {
    let WorkerProcessJson { state, host, release, build, seen_at } = process;
    let build = build.as_ref().map(|build| format!(" ({build})")).unwrap_or_default();
    let (host, state) = (or_dash(host.as_ref()), worker_state(*state));
    format!("on {host}, release {release}{build}, {state}, last seen {}", moment(*seen_at))
}

/// The state as a word, since when, and the state machine's outcome.
fn state(event: &EventDetail) -> String {
    let since = event.since.map(|since| format!(" since {}", moment(since))).unwrap_or_default();
    let outcome = event.outcome.as_ref().or(event.cause.as_ref());
    let outcome = outcome.map(|outcome| format!("  ({outcome})")).unwrap_or_default();
    format!("{}{since}{outcome}", state_word(event.state))
}

fn next(event: &EventDetail) -> String {
    let again = match (event.state, event.notify_at) {
        (EventState::Dead, _) => format!(" (`wakeq dead redrive --id {}`)", event.id),
        (_, Some(at)) => format!("; woken again at {}", moment(at)),
        (_, None) => String::new(),
    };
    format!("{}{again}", event.next)
}

/// The API's word for a state.
pub(crate) fn state_word(state: EventState) -> &'static str {
    match state {
        EventState::Ready => "ready",
        EventState::Behind => "behind",
        EventState::Halted => "halted",
        EventState::Held => "held",
        EventState::Limited => "limited",
        EventState::Delayed => "delayed",
        EventState::Running => "running",
        EventState::Paused => "paused",
        EventState::Blocked => "blocked",
        EventState::Dead => "dead",
        EventState::Completed => "completed",
        EventState::Failed => "failed",
        EventState::Cancelled => "cancelled",
        EventState::Gone => "gone",
    }
}

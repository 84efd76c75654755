//! The story of an event, from its emit to what happens next.

use maud::{Markup, html};

use super::{event_link, object_link, queue_link, told, worker_link};
use crate::page::parts::{Tone, number};
use crate::page::time::{length, moment};
use crate::page::visit::Visit;
use crate::resources::events::wire::attempt::AttemptJson;
use crate::resources::events::wire::{EventDetail, EventState};
use crate::resources::handlers::wire::{RuleJson, RuleKind, RuleReachJson};
use crate::resources::limits::wire::LimitWaitJson;
use crate::resources::workers::wire::{WorkerProcessJson, WorkerStateJson};

/// What has happened to an event, in its order. `limit` is the one that it waits for, if it is
/// known.
pub(super) fn story(visit: &Visit, event: &EventDetail, limit: Option<&str>) -> Markup {
    // A retry has moved it.
    let first_due = event.delay_until.filter(|due| event.attempts.is_empty() && *due > event.enqueued_at);
    html! {
        h2 { "Story" }
        ol.story {
            li.calm {
                "Emitted " (moment(event.enqueued_at))
                @if let Some(copied) = &event.copy_of {
                    ", as a copy of " (event_link(visit, copied.origin)) " in the queue "
                    (queue_link(visit, &copied.queue))
                }
            }
            @if let Some(due) = first_due { li.waiting { "Due " (moment(due)) } }
            @for attempt in &event.attempts { (attempted(attempt)) }
            @if event.losses > 0 {
                li.alarm { "Workers were lost while they ran it: " (number(event.losses)) " times" }
            }
            @if let Some(by) = &event.cancelled_by { li.calm { "Cancelled by " (by) } }
            (present(visit, event, limit))
            (next(event))
        }
    }
}

/// An attempt that has not completed the event.
fn attempted(attempt: &AttemptJson) -> Markup {
    let (tone, words) = match attempt.outcome.as_str() {
        "retried" => (Tone::Alarm, "failed, and the event is tried again"),
        "postponed" => (Tone::Waiting, "was too early, and the event was put off"),
        "dead" => (Tone::Alarm, "failed, and the event died"),
        other => (Tone::Alarm, other),
    };
    html! {
        li class=(tone.class()) {
            "Attempt " (number(attempt.number)) " " (words) ": it started " (moment(attempt.started_at))
            @if let Some(worker) = &attempt.worker { " on " code { (worker) } }
            " and took " (length(attempt.took_s))
            @if let Some(error) = &attempt.error { pre tabindex="0" { (error) } }
        }
    }
}

/// Where it is now, and what it waits for.
fn present(visit: &Visit, event: &EventDetail, limit: Option<&str>) -> Markup {
    let (tone, word) = told(event.state);
    html! {
        li class=(tone.class()) {
            strong { (word) }
            @if let Some(since) = event.since { ", which began " (moment(since)) }
            @if let Some(until) = event.until { ", and ends " (moment(until)) }
            (waits(visit, event, limit))
            @if let Some(worker) = &event.worker {
                p { "On " (process(visit, worker, event.worker_process.as_ref())) }
            }
            @if let Some(started_at) = event.started_at {
                p {
                    "The last attempt started " (moment(started_at))
                    @if let Some(took_s) = event.took_s { " and took " (length(took_s)) }
                }
            }
            @if let Some(cause) = &event.cause { p { (died_of(cause)) } }
            @if let Some(since) = event.unknown_since {
                p { "No worker knows its handler. That was noticed " (moment(since)) "." }
            }
        }
    }
}

/// What an event waits for: a rule, a limit, its object or its queue.
fn waits(visit: &Visit, event: &EventDetail, limit: Option<&str>) -> Markup {
    let object = event.place.as_ref().map(|place| object_link(visit, &place.object));
    html! {
        @if let Some(rule) = &event.rule { p { (ruled(rule)) } }
        @if let Some(wait) = &event.limit { (limited(visit, wait, limit)) }
        @if let Some(first) = event.first {
            p { "Waits for " (event_link(visit, first)) ", the first event that is left"
                @if let Some(object) = &object { " of its object " (object) } }
        }
        @if event.state == EventState::Halted {
            @if let Some(object) = &object { p { "Its object " (object) " says which event has halted it." } }
        }
        @if event.state == EventState::Held {
            @if let Some(copied) = &event.copy_of {
                p { "Its queue is " (queue_link(visit, &copied.queue)) "." }
            }
        }
    }
}

fn ruled(rule: &RuleJson) -> Markup {
    let what = match rule.stops {
        RuleReachJson::Handler => "Its handler",
        RuleReachJson::Canvas => "Its whole canvas",
        RuleReachJson::Everything => "Everything",
    };
    let how = match rule.kind {
        RuleKind::Pause => "paused",
        RuleKind::Block => "blocked",
    };
    html! {
        (what) " was " (how) " by " (rule.created_by) " " (moment(rule.created_at))
        @if let Some(until) = rule.until { ", which ends " (moment(until)) }
        @if let Some(reason) = &rule.reason { ": " (reason) }
    }
}

fn limited(visit: &Visit, wait: &LimitWaitJson, limit: Option<&str>) -> Markup {
    html! {
        p {
            "Waits for the limit "
            @match limit {
                Some(limit) => a href=(visit.link(&["limits", limit])) { (wait.name) },
                None => (wait.name),
            }
            @if wait.all_canvases { " of all canvases" }
            ". It came to it " (moment(wait.since)) "."
            @if let Some(start) = wait.next_start {
                " Its rate lets this event start " (moment(start)) "."
            }
        }
        @if !wait.holders.is_empty() {
            p { "Its places are held by " @for holder in &wait.holders { (event_link(visit, *holder)) " " } }
        }
    }
}

/// The worker that runs it, and its process.
fn process(visit: &Visit, worker: &str, process: Option<&WorkerProcessJson>) -> Markup {
    let Some(process) = process else { return html! { code { (worker) } } };
    let state = match process.state {
        WorkerStateJson::Working => "is working",
        WorkerStateJson::Stopping => "is stopping",
        WorkerStateJson::Asleep => "sleeps",
        WorkerStateJson::Lost => "was lost",
    };
    html! {
        (worker_link(visit, worker)) ", which " (state)
        @if let Some(host) = &process.host { ", on the host " (host) }
        ", release " (process.release)
        @if let Some(build) = &process.build { " (" (build) ")" }
        ", seen " (moment(process.seen_at))
    }
}

fn died_of(cause: &str) -> String {
    match cause {
        "retries" => "It died because its handler failed too often.".to_owned(),
        "rejected" => "It died because its handler said that no retry can help.".to_owned(),
        "expired" => "It died because the moment had passed after which no attempt was to start.".to_owned(),
        "poison" => "It died because it has lost too many workers or leases.".to_owned(),
        other => format!("It died of {other}."),
    }
}

/// What comes next, as far as that is known.
fn next(event: &EventDetail) -> Markup {
    html! {
        li.waiting {
            "Next: " (event.next)
            @if let Some(notify_at) = event.notify_at {
                span.quiet { ". If nothing else happens, it is notified again " (moment(notify_at)) }
            }
            @if let Some(kept_until) = event.kept_until { ". It is deleted " (moment(kept_until)) }
        }
    }
}

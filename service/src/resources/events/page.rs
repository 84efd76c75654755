//! Events in the browser: the list with its filter, and one event with its story. Here is how every
//! page shows an event's state and tags, and what belongs to it.

mod acts;
mod filter;
mod list;
mod one;
mod story;

use maud::{Markup, html};
use uuid::Uuid;

use crate::access::Scope;
use crate::page::parts::{Tone, badge};
use crate::page::visit::Visit;
use crate::resources::events::wire::EventState;

pub(crate) use acts::{ask_cancel, cancel, redrive, run_now, set_due, set_tags, split};
pub(crate) use filter::{Filter, state_word};
pub(crate) use list::{box_of, list, selection};
pub(crate) use one::one;

/// The state of an event in a word.
pub(crate) fn state_badge(state: EventState) -> Markup {
    let (tone, word) = told(state);
    badge(tone, word)
}

/// How a state is marked, and its word.
fn told(state: EventState) -> (Tone, &'static str) {
    match state {
        EventState::Ready => (Tone::Waiting, "ready"),
        EventState::Behind => (Tone::Waiting, "behind another"),
        EventState::Halted => (Tone::Alarm, "halted"),
        EventState::Held => (Tone::Waiting, "held by its queue"),
        EventState::Delayed => (Tone::Waiting, "delayed"),
        EventState::Running => (Tone::Busy, "running"),
        EventState::Paused => (Tone::Waiting, "paused"),
        EventState::Blocked => (Tone::Alarm, "blocked"),
        EventState::Limited => (Tone::Waiting, "waits for a limit"),
        EventState::Dead => (Tone::Alarm, "dead"),
        EventState::Completed => (Tone::Calm, "completed"),
        EventState::Failed => (Tone::Alarm, "failed"),
        EventState::Cancelled => (Tone::Calm, "cancelled"),
        EventState::Gone => (Tone::Calm, "gone"),
    }
}

/// Tags, which lead to the events that have them.
pub(crate) fn tags(visit: &Visit, tags: &[String]) -> Markup {
    html! {
        @for tag in tags {
            // Those of all handlers have it.
            @if visit.may(Scope::Read) {
                a.tag href=(visit.link_with(&["events"], &[("tag", tag)])) { (tag) }
            } @else {
                span.tag { (tag) }
            }
        }
    }
}

/// An event by its id.
pub(crate) fn event_link(visit: &Visit, id: Uuid) -> Markup {
    let id = id.to_string();
    html! { a href=(visit.link(&["events", &id])) { code { (id) } } }
}

/// A handler, with a modifier if the event has one.
pub(crate) fn handler_link(visit: &Visit, module: &str, name: &str, modifier: Option<&str>) -> Markup {
    html! {
        a href=(visit.link(&["handlers", module, name])) { (module) "/" (name) }
        @if let Some(modifier) = modifier.filter(|modifier| *modifier != "_") { " / " (modifier) }
    }
}

/// A worker whose process is known. Its page is for those who may see every canvas.
fn worker_link(visit: &Visit, worker: &str) -> Markup {
    html! {
        @if visit.may_everywhere(Scope::Read) {
            a href=(visit.link(&["workers", worker])) { code { (worker) } }
        } @else {
            code { (worker) }
        }
    }
}

/// A queue, whose page is for those who may see every canvas.
fn queue_link(visit: &Visit, queue: &str) -> Markup {
    html! {
        @if visit.may_everywhere(Scope::Read) { a href=(visit.link(&["queues", queue])) { (queue) } }
        @else { (queue) }
    }
}

/// An object, by which events are ordered.
pub(crate) fn object_link(visit: &Visit, object: &str) -> Markup {
    html! {
        @if visit.may(Scope::Read) { a href=(visit.link(&["objects", object])) { (object) } }
        @else { (object) }
    }
}

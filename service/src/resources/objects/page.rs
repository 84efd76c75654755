//! Objects in the browser: those that are halted, and one object with its chain.

use std::collections::BTreeMap;

use axum::Form;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use uuid::Uuid;

use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::form;
use crate::page::parts::{Tone, badge, copied, empty, facts, hidden, json, pager, table};
use crate::page::time::moment;
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::objects::wire::{
    HaltedLaneJson, InHandJson, Object, SkipRequest, Skipped, TombstoneJson,
};
use crate::resources::wire::List;

/// Objects that are halted, and the way to any other.
pub(crate) async fn halted(visit: Visit) -> Result<Response, Problem> {
    let object = visit.parameter("object");
    if !object.is_empty() {
        return Ok(Redirect::to(&visit.link(&["objects", object.trim()])).into_response());
    }
    let ask = visit.ask(&["halted-objects"]).query("limit", 100).query("cursor", visit.parameter("cursor"));
    let halted: List<HaltedLaneJson> = ask.shared().await?;
    Ok(View::new("Objects").above(search()).live(listed(&visit, &halted)).into_response())
}

fn search() -> Markup {
    html! {
        p {
            "An object is a partition key: its events run one by one. A dead event halts it for a handler \
             that must not skip events."
        }
        form.filter method="get" role="search" {
            (form::text("object", "Show an object", "", "order:42"))
            button type="submit" { "Show" }
        }
    }
}

fn listed(visit: &Visit, halted: &List<HaltedLaneJson>) -> Markup {
    if halted.items.is_empty() && halted.next_cursor.is_none() {
        return empty("No object is halted.", html! { "To see an object that is not, give its name above." });
    }
    let may_skip = visit.may(Scope::Operate);
    let mut head = vec!["Object", "Handler", "Halted since", ">Link", "Dead event"];
    head.extend(may_skip.then_some("What to do"));
    html! {
        (table("Halted objects", &head, html! {
            @for lane in &halted.items {
                tr {
                    td { a href=(visit.link(&["objects", &lane.object])) { (lane.object) } }
                    td { (handler_link(visit, &lane.module, &lane.name)) }
                    td { (moment(lane.halted_at)) }
                    td.number { (lane.event_link) }
                    td { (event_link(visit, lane.event)) }
                    @if may_skip { td { (skip_link(visit, lane)) } }
                }
            }
        }))
        (pager(visit, halted.next_cursor.as_deref()))
    }
}

/// A handler, by which one gets to its page.
pub(crate) fn handler_link(visit: &Visit, module: &str, name: &str) -> Markup {
    html! { a href=(visit.link(&["handlers", module, name])) { (module) "/" (name) } }
}

/// An event of this canvas, by which one gets to its page.
pub(crate) fn event_link(visit: &Visit, event: Uuid) -> Markup {
    let id = event.to_string();
    html! { a href=(visit.link(&["events", &id])) { code { (id) } } }
}

fn skip_link(visit: &Visit, lane: &HaltedLaneJson) -> Markup {
    let query = [("module", lane.module.as_str()), ("name", lane.name.as_str())];
    html! { a href=(visit.link_with(&["objects", &lane.object, "skip"], &query)) { "Skip the event" } }
}

/// One object. Its state is a value, so who has looked is recorded, and nothing of it is live.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let name = path.get("object");
    let gone = visit.ask(&["objects", name, "tombstones"]).query("limit", 100);
    let gone = gone.query("cursor", visit.parameter("cursor"));
    let (object, gone) =
        tokio::join!(visit.ask(&["objects", name]).get::<Object>(), gone.get::<List<TombstoneJson>>());
    let (object, gone) = (object?, gone?);
    let contents = html! {
        (about(&object))
        (standing(&visit, &object))
        (listed_events(&visit, &object))
        (missing(&visit, &gone))
        (state(&object))
    };
    Ok(View::new(format!("Object {}", object.object)).below(contents))
}

fn about(object: &Object) -> Markup {
    let halts = object.halted.len();
    let state = match halts {
        0 => badge(Tone::Calm, "not halted"),
        1 => badge(Tone::Alarm, "halted for a handler"),
        _ if object.more_halted => badge(Tone::Alarm, &format!("halted for more than {halts} handlers")),
        _ => badge(Tone::Alarm, &format!("halted for {halts} handlers")),
    };
    html! {
        p { (state) }
        (facts(&[
            ("Object", Some(copied(&object.object))),
            ("End of its chain", Some(html! { "link " (object.last_id) })),
            ("State set", object.state_at.map(moment)),
        ]))
    }
}

/// Where each handler stands in the chain: what halts it, and what is being processed.
fn standing(visit: &Visit, object: &Object) -> Markup {
    let mut lanes = BTreeMap::<(&str, &str), Vec<(i64, Markup)>>::new();
    for lane in &object.halted {
        let handler = (lane.module.as_str(), lane.name.as_str());
        lanes.entry(handler).or_default().push((lane.event_link, halts(visit, lane)));
    }
    for hand in &object.in_hand {
        let handler = (hand.module.as_str(), hand.name.as_str());
        lanes.entry(handler).or_default().push((hand.event_link, runs(visit, hand)));
    }
    lanes.values_mut().for_each(|steps| steps.sort_by_key(|(link, _)| *link));
    html! {
        h2 { "The chain, by handler" }
        @if lanes.is_empty() { p { "No event of it is running, and none halts it." } }
        @for ((module, name), steps) in &lanes {
            h3 { (handler_link(visit, module, name)) }
            ol.story {
                @for (_, step) in steps { (step) }
                li.waiting {
                    "Behind it, up to link " (object.last_id) ": "
                    a href=(waiting_of(visit, object, module, name)) { "what waits for this handler" }
                }
            }
        }
    }
}

/// The ways to its events, one by one.
fn listed_events(visit: &Visit, object: &Object) -> Markup {
    let query = [("object", object.object.as_str())];
    html! {
        p {
            a href=(visit.link_with(&["events"], &query)) { "All its events that have not ended" }
            ", and "
            a href=(visit.link_with(&["dead-events", "list"], &query)) { "those that are dead" }
        }
    }
}

fn waiting_of(visit: &Visit, object: &Object, module: &str, name: &str) -> String {
    let state = ("state", "behind,halted,ready,delayed");
    let query = [("object", object.object.as_str()), ("module", module), ("name", name), state];
    visit.link_with(&["events"], &query)
}

fn halts(visit: &Visit, lane: &HaltedLaneJson) -> Markup {
    html! {
        li.alarm {
            "Link " (lane.event_link) ": the dead event " (event_link(visit, lane.event)) " has halted it "
            (moment(lane.halted_at)) ". Redrive the event to run it in its place"
            @if visit.may(Scope::Operate) { ", or go on without it: " (skip_link(visit, lane)) }
        }
    }
}

fn runs(visit: &Visit, hand: &InHandJson) -> Markup {
    html! {
        li.busy {
            "Link " (hand.event_link) ": the event " (event_link(visit, hand.event)) " is running"
            @if let Some(queue) = &hand.queue { " in the queue " (queue) }
            @match &hand.worker {
                Some(worker) => { " on " code { (worker) } },
                None => { ", leased over HTTP" },
            }
        }
    }
}

fn missing(visit: &Visit, gone: &List<TombstoneJson>) -> Markup {
    html! {
        h2 { "Tombstones" }
        @if gone.items.is_empty() { p { "No link of its chain is missing." } }
        @else {
            p { "Links that never arrive. Consumers that check the order pass over them." }
            (table("Tombstones", &[">Link", ">After link", "What became of its event", "When"], html! {
                @for link in &gone.items {
                    tr {
                        td.number { (link.id) }
                        td.number { (link.prev) }
                        td { (link.cause) }
                        td { (moment(link.left_at)) }
                    }
                }
            }))
        }
        (pager(visit, gone.next_cursor.as_deref()))
    }
}

fn state(object: &Object) -> Markup {
    html! {
        h2 { "State" }
        @match &object.state {
            Some(state) => (json(state.get())),
            None if object.hidden.is_some() => (hidden()),
            None => p { "No emit has set a state of it." },
        }
        @if object.hidden.is_none() { p.quiet { "The record says that you have looked at it." } }
    }
}

/// Asks before a dead event is skipped.
pub(crate) async fn ask_skip(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let object: Object = visit.ask(&["objects", path.get("object")]).get().await?;
    let (module, name) = (visit.parameter("module"), visit.parameter("name"));
    let lane = object.halted.iter().find(|lane| lane.module == module && lane.name == name);
    let lane = lane.ok_or_else(|| {
        let words = format!("{} is not halted for {module}/{name}: there is nothing to skip", object.object);
        Problem::new(Kind::Conflict, words)
    })?;
    let question = format!(
        "Skip 1 dead event, link {} of {}? The object's next event for {module}/{name} then runs.",
        lane.event_link, lane.object
    );
    let (action, back) =
        (visit.link(&["objects", &lane.object, "skip"]), visit.link(&["objects", &lane.object]));
    let fields = html! { (form::hidden("module", &module)) (form::hidden("name", &name)) };
    Ok(View::new(format!("Skip an event of {}", lane.object)).above(html! {
        p {
            "It is the event " (event_link(&visit, lane.event)) ". It stays among the dead events. When it \
             is redriven later, it runs at the end of the chain, and not in its place."
        }
        (form::confirm(&visit, &action, &question, "Skip the event", &back, fields))
    }))
}

/// The handler for which an event is skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct SkipForm {
    module: String,
    name: String,
}

/// Skips it.
pub(crate) async fn skip(
    visit: Visit,
    path: PathParts,
    Form(given): Form<SkipForm>,
) -> Result<Done, Problem> {
    let object = path.get("object");
    let handler = format!("{}/{}", given.module, given.name);
    let request = SkipRequest { module: Some(given.module), name: given.name };
    let Skipped { skipped } = visit.ask(&["objects", object, "skip"]).post(&request).await?;
    let said = match skipped {
        true => format!("{object} goes on for {handler} without its dead event."),
        false => format!("{object} was not halted for {handler}: nothing was changed."),
    };
    Ok(Done::new(visit.link(&["objects", object]), said))
}

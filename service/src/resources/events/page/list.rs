//! The list of events that have not ended: its filter, how many meet it, and what is done with
//! them.

use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use uuid::Uuid;

use super::filter::Filter;
use super::{event_link, handler_link, object_link, state_badge, tags};
use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::form;
use crate::page::parts::{empty, events, number, pager, table};
use crate::page::time::{moment, now_in_steps};
use crate::page::view::View;
use crate::page::visit::Visit;
use crate::resources::events::wire::{EventCountJson, EventSummaryJson};
use crate::resources::wire::List;

/// How many events a page of the list has.
const PAGE: usize = 100;

/// What an operation does with all events that match, and its words.
const KINDS: [(&str, &str); 3] = [("cancel", "Cancel…"), ("run-now", "Run now…"), ("retag", "Re-tag…")];

/// What an operation does with events that were selected.
const KINDS_OF_SELECTED: [(&str, &str); 4] = [
    ("delete", "delete those that wait"),
    ("cancel", "cancel, also those that run"),
    ("run-now", "run now"),
    ("retag", "re-tag"),
];

/// Events that have not ended; or one, if the address has its id.
pub(crate) async fn list(visit: Visit) -> Result<Response, Problem> {
    let id = visit.parameter("id");
    if !id.is_empty() {
        return Ok(Redirect::to(&visit.link(&["events", id.trim()])).into_response());
    }
    let filter = Filter::of(&visit);
    let choice = html! { (fields(&visit, &filter)) (form::saved()) };
    let view = View::new("Events").filter(choice).above(acting(&visit, &filter));
    let view = match found(&visit, &filter).await {
        // A search in values is recorded, and so is each person's own.
        Ok(found) if filter.searches_values() => view.below(found),
        Ok(found) => view.live(found),
        Err(problem) if problem.kind == Kind::BadRequest => view.refused(&problem),
        Err(problem) => return Err(problem),
    };
    Ok(view.into_response())
}

fn fields(visit: &Visit, filter: &Filter) -> Markup {
    let fields = html! {
        (filter.fields())
        (form::text("id", "Or an event's id", "", "018f…"))
    };
    form::filter(visit, fields)
}

/// What can be done with all that match, and with those that are selected.
fn acting(visit: &Visit, filter: &Filter) -> Markup {
    if !is_selectable(visit) {
        return html! {};
    }
    let selected_all = filter.link(visit, &["events"], &[("all", "selected")]);
    html! {
        p.actions {
            span { "All events that match:" }
            @for (kind, words) in KINDS {
                a.button href=(filter.link(visit, &["operations", "new"], &[("kind", kind)])) { (words) }
            }
        }
        (selection(visit, &filter.link(visit, &["events"], &[]), &selected_all, &KINDS_OF_SELECTED))
    }
}

/// Whether the person may begin an operation on what is selected.
fn is_selectable(visit: &Visit) -> bool {
    visit.may(Scope::Operate) && visit.may(Scope::Read)
}

/// The form of the events that are selected in a list, which leads to their operation. `from` is
/// the address of the list, and `selected_all` the same with all of the page selected.
pub(crate) fn selection(visit: &Visit, from: &str, selected_all: &str, kinds: &[(&str, &str)]) -> Markup {
    let from = from.split_once('?').map_or("", |(_, query)| query);
    html! {
        form #selection.actions method="get" action=(visit.link(&["operations", "new"])) {
            (form::hidden("selected", "ids"))
            (form::hidden("from", from))
            p.field.check.scripted {
                input id="all" type="checkbox" data-all="id";
                label for="all" { "Select all on this page" }
            }
            noscript { a href=(selected_all) { "Select all on this page" } }
            (form::select("kind", "With those selected", "", kinds))
            button type="submit" { "Go on…" }
        }
    }
}

/// The events of a page, and how many there are.
async fn found(visit: &Visit, filter: &Filter) -> Result<Markup, Problem> {
    let query = filter.query(now_in_steps())?;
    let list = visit.ask(&["events"]).queries(&query).query("cursor", visit.parameter("cursor"));
    let list = list.query("limit", PAGE);
    let count = visit.ask(&["events", "count"]).queries(&query);
    let is_own = filter.searches_values();
    let events: List<EventSummaryJson> = if is_own { list.get().await? } else { list.shared().await? };
    let is_first = visit.parameter("cursor").is_empty();
    let count = match counted_by(&events) {
        _ if !is_first || !filter.is_countable() => None,
        Some(count) => Some(count),
        None if is_own => Some(count.get::<EventCountJson>().await?),
        None => Some(count.shared().await?),
    };
    if events.items.is_empty() && events.next_cursor.is_none() {
        return Ok(none(visit, filter));
    }
    Ok(html! {
        @if is_first { (counted(count.as_ref())) }
        (listed(visit, &events))
    })
}

/// A first page that is not full has looked at as many events as a count does, and shows all that
/// match.
fn counted_by(events: &List<EventSummaryJson>) -> Option<EventCountJson> {
    let is_all = events.items.len() < PAGE;
    let (count, next_cursor) = (events.items.len() as u64, events.next_cursor.clone());
    is_all.then_some(EventCountJson { count, looked_at: events.looked_at.unwrap_or(count), next_cursor })
}

fn none(visit: &Visit, filter: &Filter) -> Markup {
    let died = filter.link_to_dead(visit);
    empty(
        "No event that has not ended is like that.",
        html! {
            @if visit.may(Scope::Read) {
                "There may be " a href=(died) { "dead events like that" }
                ". Completed ones are deleted, unless their handler or their emit "
                a href=(visit.link(&["ended-events"])) { "keeps them" } "."
            } @else {
                "Look among those of " a href=(visit.link(&[])) { "your handlers" } "."
            }
        },
    )
}

fn counted(count: Option<&EventCountJson>) -> Markup {
    html! {
        p {
            @match count {
                Some(count) if count.next_cursor.is_some() => {
                    strong { "At least " (events(count.count)) } " match, of the first "
                    (number(count.looked_at)) " that were looked at. A handler or a tag narrows the search."
                }
                Some(count) => { strong { (events(count.count)) } " in all." }
                None => { "The events of one worker are not counted." }
            }
        }
    }
}

fn listed(visit: &Visit, events: &List<EventSummaryJson>) -> Markup {
    let is_selectable = is_selectable(visit);
    let mut head = vec!["Event", "State", "Handler", "Due", "Emitted", ">Retries", "Object", "Tags"];
    if is_selectable {
        head.insert(0, "Select");
        head.push("Cancel");
    }
    let is_selected = visit.parameter("all") == "selected";
    let rows = html! {
        @for event in &events.items {
            tr {
                @if is_selectable { td { (box_of(event.id, is_selected)) } }
                (row(visit, event))
                @if is_selectable { td { (cancel_link(visit, event)) } }
            }
        }
    };
    html! {
        @if events.items.is_empty() { p { "None was found yet: go on with the next page." } }
        @else { (table("Events", &head, rows)) }
        @if let Some(looked_at) = events.looked_at {
            p.quiet { (number(looked_at)) " events were looked at for this page." }
        }
        (pager(visit, events.next_cursor.as_deref()))
    }
}

/// The box belongs to the form above the list, which stays as it is when the list changes.
pub(crate) fn box_of(event: Uuid, is_selected: bool) -> Markup {
    html! {
        input type="checkbox" name="id" value=(event) form="selection" checked[is_selected]
            aria-label=(format!("Select event {event}"));
    }
}

/// The way to the question whether to cancel it.
fn cancel_link(visit: &Visit, event: &EventSummaryJson) -> Markup {
    let id = event.id.to_string();
    let to = visit.link(&["events", &id, "cancel"]);
    html! { a href=(to) aria-label=(format!("Cancel event {id}")) { "Cancel" } }
}

fn row(visit: &Visit, event: &EventSummaryJson) -> Markup {
    html! {
        td {
            (event_link(visit, event.id))
            @if let Some(copied) = &event.copy_of { br; span.quiet { "a copy in " (copied.queue) } }
        }
        td {
            (state_badge(event.state))
            @if let Some(worker) = &event.worker { br; span.quiet { "on " (worker) } }
        }
        td { (handler_link(visit, &event.module, &event.name, Some(&event.modifier))) }
        td { (moment(event.delay_until)) }
        td { (moment(event.enqueued_at)) }
        td.number { (number(event.retries)) }
        td { @if let Some(place) = &event.place { (object_link(visit, &place.object)) } }
        td { (tags(visit, &event.tags)) }
    }
}

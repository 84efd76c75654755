//! Ended events in the browser: those that are kept.

mod filter;

use maud::{Markup, html};

use crate::http::problem::{Kind, Problem};
use crate::page::form;
use crate::page::parts::{Tone, badge, empty, number, pager, table};
use crate::page::time::{length, moment, now};
use crate::page::view::View;
use crate::page::visit::Visit;
use crate::resources::ended_events::wire::EndedEventJson;
use crate::resources::events::page::{event_link, handler_link, object_link};
use crate::resources::wire::List;

/// How many events a page of the list has.
const PAGE: usize = 100;

/// Ended events, the latest first. Each look at them is recorded, so it is not repeated by itself.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let filter = html! {
        p.quiet {
            "Events that have ended and are kept, because their emit, their handler or its target asks for "
            "it. That you look at them is recorded."
        }
        (filter::fields(&visit))
        (form::saved())
    };
    let view = View::new("Kept events").filter(filter);
    match found(&visit).await {
        Ok(events) => Ok(view.below(listed(&visit, &events))),
        Err(problem) if problem.kind == Kind::BadRequest => Ok(view.refused(&problem)),
        Err(problem) => Err(problem),
    }
}

async fn found(visit: &Visit) -> Result<List<EndedEventJson>, Problem> {
    let query = filter::query(&visit.parameters(), now())?;
    visit.ask(&["ended-events"]).queries(&query).query("limit", PAGE).get().await
}

fn listed(visit: &Visit, events: &List<EndedEventJson>) -> Markup {
    if events.items.is_empty() && events.next_cursor.is_none() {
        let next = html! {
            "Most events are deleted when they end. A route, a target or an emit keeps them with "
            code { "keep" } ". What has died is among the "
            a href=(visit.link(&["dead-events"])) { "dead events" } "."
        };
        return empty("No event like that is kept.", next);
    }
    let head = [
        "Event", "Outcome", "Handler", "Ended", "Emitted", ">Took", ">Started", ">Retries", "Worker",
        "Object", "Tags", "Kept",
    ];
    html! {
        @if events.items.is_empty() { p { "None was found yet: go on with the next page." } }
        @else { (table("Kept events", &head, html! { @for event in &events.items { (row(visit, event)) } })) }
        @if let Some(looked_at) = events.looked_at {
            p.quiet { (number(looked_at)) " kept events were looked at for this page." }
        }
        (pager(visit, events.next_cursor.as_deref()))
    }
}

fn row(visit: &Visit, event: &EndedEventJson) -> Markup {
    html! {
        tr {
            td { (event_link(visit, event.id)) }
            td.words {
                (outcome_badge(&event.outcome))
                @if let Some(by) = &event.cancelled_by { " by " (by) }
                @if let Some(error) = &event.error { br; (error) }
                @if event.has_result { br; span.quiet { "has a result" } }
            }
            td { (handler_link(visit, &event.module, &event.name, Some(&event.modifier))) }
            td { (moment(event.ended_at)) }
            td { (moment(event.enqueued_at)) }
            td.number { @if let Some(took_s) = event.took_s { (length(took_s)) } @else { "–" } }
            td.number { (number(event.claims)) }
            td.number { (number(event.retries)) }
            td { @if let Some(worker) = &event.worker { code { (worker) } } }
            td { @if let Some(place) = &event.place { (object_link(visit, &place.object)) } }
            td {
                @for tag in &event.tags {
                    a.tag href=(visit.link_with(&["ended-events"], &[("tag", tag)])) { (tag) }
                }
            }
            td { "until " (moment(event.kept_until)) }
        }
    }
}

fn outcome_badge(outcome: &str) -> Markup {
    let tone = match outcome {
        "failed" => Tone::Alarm,
        "cancelled" => Tone::Waiting,
        _ => Tone::Calm,
    };
    badge(tone, outcome)
}

//! What the field at the top of each page finds: an event by its id, or those with a tag that have
//! not ended or are dead. Both are looked up in an index, so they are found among millions.

use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use uuid::Uuid;

use crate::http::problem::{Kind, Problem};
use crate::page::parts::{Tone, badge, empty, table};
use crate::page::time::moment;
use crate::page::view::View;
use crate::page::visit::Visit;
use crate::resources::dead_events::wire::DeadEventJson;
use crate::resources::events::page::{event_link, handler_link, state_badge, tags};
use crate::resources::events::wire::EventSummaryJson;
use crate::resources::wire::List;

/// How many events are shown of those that have not ended, and of those that are dead.
const SHOWN: usize = 50;

/// Leads to the one event that is meant, or lists those that may be.
pub(crate) async fn find(visit: Visit) -> Result<Response, Problem> {
    let given = visit.parameter("q");
    let given = given.trim();
    if let Ok(id) = given.parse::<Uuid>() {
        return Ok(one(&visit, id));
    }
    let view = View::new("Find an event");
    if given.is_empty() {
        return Ok(view.below(nothing_given()).into_response());
    }
    match Found::with_tag(&visit, given).await {
        Ok(found) => Ok(match found.only() {
            Some(id) => one(&visit, id),
            None => view.below(found.shown(&visit, given)).into_response(),
        }),
        // What is no tag may be in a value.
        Err(problem) if problem.kind == Kind::BadRequest => {
            Ok(view.refused(&problem).below(in_values(&visit, given)).into_response())
        }
        Err(problem) => Err(problem),
    }
}

fn one(visit: &Visit, id: Uuid) -> Response {
    Redirect::to(&visit.link(&["events", &id.to_string()])).into_response()
}

/// The events with a tag.
struct Found {
    unended: List<EventSummaryJson>,
    dead: List<DeadEventJson>,
}

impl Found {
    /// Dead events are read by each person, since that is recorded.
    async fn with_tag(visit: &Visit, tag: &str) -> Result<Self, Problem> {
        let ask = |list: &str| visit.ask(&[list]).query("tag", tag).query("limit", SHOWN);
        let (unended, dead) = tokio::join!(
            ask("events").shared::<List<EventSummaryJson>>(),
            ask("dead-events").get::<List<DeadEventJson>>(),
        );
        Ok(Self { unended: unended?, dead: dead? })
    }

    fn is_whole(&self) -> bool {
        self.unended.next_cursor.is_none() && self.dead.next_cursor.is_none()
    }

    /// The event, if there is no other.
    fn only(&self) -> Option<Uuid> {
        let ids = self.unended.items.iter().map(|event| event.id);
        let ids: Vec<_> = ids.chain(self.dead.items.iter().map(|event| event.id)).collect();
        match ids.as_slice() {
            [id] if self.is_whole() => Some(*id),
            _ => None,
        }
    }

    fn shown(&self, visit: &Visit, tag: &str) -> Markup {
        if self.unended.items.is_empty() && self.dead.items.is_empty() && self.is_whole() {
            return html! {
                (empty(
                    "No event that waits, runs or is dead has this tag.",
                    html! {
                        "Completed events are deleted, unless their handler or their emit "
                        a href=(visit.link(&["ended-events"])) { "keeps them" } "."
                    },
                ))
                (in_values(visit, tag))
            };
        }
        let of_tag = |list: &[&str]| visit.link_with(list, &[("tag", tag)]);
        html! {
            p {
                "Events with the tag " strong { (tag) } ": "
                a href=(of_tag(&["events"])) { "those that have not ended" } ", "
                a href=(of_tag(&["dead-events", "list"])) { "those that are dead" } "."
            }
            (table("Events", &["Event", "State", "Handler", "Emitted", "Last error", "Tags"], html! {
                @for event in &self.dead.items { (dead_row(visit, event)) }
                @for event in &self.unended.items { (row(visit, event)) }
            }))
            @if !self.is_whole() { p.quiet { "There are more of them than these." } }
        }
    }
}

fn row(visit: &Visit, event: &EventSummaryJson) -> Markup {
    html! {
        tr {
            td { (event_link(visit, event.id)) }
            td {
                (state_badge(event.state))
                @if let Some(worker) = &event.worker { br; span.quiet { "on " (worker) } }
            }
            td { (handler_link(visit, &event.module, &event.name, Some(&event.modifier))) }
            td { (moment(event.enqueued_at)) }
            td { "–" }
            td { (tags(visit, &event.tags)) }
        }
    }
}

fn dead_row(visit: &Visit, event: &DeadEventJson) -> Markup {
    let error = event.last_error.as_deref().unwrap_or_default().trim_start().lines().next();
    html! {
        tr {
            td { (event_link(visit, event.id)) }
            td { (badge(Tone::Alarm, "dead")) }
            td { (handler_link(visit, &event.module, &event.name, Some(&event.modifier))) }
            td { (moment(event.enqueued_at)) }
            td.words { (error.unwrap_or("–")) }
            td {
                @for tag in &event.tags {
                    a.tag href=(visit.link_with(&["dead-events", "list"], &[("tag", tag)])) { (tag) }
                }
            }
        }
    }
}

fn nothing_given() -> Markup {
    empty(
        "Nothing was given to look for.",
        html! { "Write an event's id, or a whole tag such as " code { "customer:7" } "." },
    )
}

/// The same text in values, where it takes longer to look.
fn in_values(visit: &Visit, text: &str) -> Markup {
    let of_text = |list: &[&str]| visit.link_with(list, &[("value_text", text)]);
    html! {
        p {
            "This text may be in the value of an event that "
            a href=(of_text(&["events"])) { "has not ended" } ", or of one that "
            a href=(of_text(&["dead-events", "list"])) { "is dead" }
            ". Such a search is recorded with your name."
        }
    }
}

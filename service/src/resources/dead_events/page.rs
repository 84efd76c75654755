//! Dead events in the browser: one by one, with a filter; and the errors that they died of.

pub(crate) mod error_group;
pub(crate) mod error_groups;

use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::form;
use crate::page::parts::{Tone, badge, empty, number, pager, table};
use crate::page::time::{moment, now_in_steps};
use crate::page::view::View;
use crate::page::visit::Visit;
use crate::resources::dead_events::wire::DeadEventJson;
use crate::resources::dead_events::wire::group::KnownErrorJson;
use crate::resources::events::page::{Filter, box_of, event_link, handler_link, selection};
use crate::resources::wire::List;

/// How many events a page of the list has.
const PAGE: usize = 100;

/// The path of the list.
const LIST: [&str; 2] = ["dead-events", "list"];

/// What an operation does with all that match, and its words.
const KINDS: [(&str, &str); 2] = [("redrive", "Redrive all…"), ("delete-dead", "Delete all…")];

/// The same with those that were selected.
const KINDS_OF_SELECTED: [(&str, &str); 2] = [("redrive", "redrive"), ("delete-dead", "delete for good")];

/// The dead events that a filter selects. They are read by each person, since that is recorded.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let filter = Filter::of(&visit);
    let choice = html! {
        p {
            "Events that were given up, the latest first. "
            @if visit.may(Scope::Read) { a href=(visit.link(&["dead-events"])) { "What they died of" } }
        }
        (form::filter(&visit, filter.fields_of_dead()))
        (form::saved())
    };
    let above = html! {
        @if may_begin(&visit) {
            p.actions {
                span { "All dead events that match:" }
                @for (kind, words) in KINDS {
                    a.button href=(filter.link(&visit, &["operations", "new"], &[("kind", kind)])) { (words) }
                }
            }
            (selection(
                &visit,
                &filter.link(&visit, &LIST, &[]),
                &filter.link(&visit, &LIST, &[("all", "selected")]),
                &KINDS_OF_SELECTED,
            ))
        }
    };
    let view = View::new("Dead events one by one").filter(choice).above(above);
    match found(&visit, &filter).await {
        Ok(found) => Ok(view.below(found)),
        Err(problem) if problem.kind == Kind::BadRequest => Ok(view.refused(&problem)),
        Err(problem) => Err(problem),
    }
}

/// Whether the person may begin an operation: a filter may ask for what is in values, so reading is
/// part of it.
fn may_begin(visit: &Visit) -> bool {
    visit.may(Scope::Operate) && visit.may(Scope::Read)
}

async fn found(visit: &Visit, filter: &Filter) -> Result<Markup, Problem> {
    let query = filter.query_of_dead(now_in_steps())?;
    let ask = visit.ask(&["dead-events"]).queries(&query).query("limit", PAGE);
    let found: List<DeadEventJson> = ask.query("cursor", visit.parameter("cursor")).get().await?;
    if found.items.is_empty() && found.next_cursor.is_none() {
        let next = html! {
            "Those that still wait, or are tried again, are among the "
            @if visit.may(Scope::Read) { a href=(visit.link(&["events"])) { "events" } }
            @else { a href=(visit.link(&[])) { "events of your handlers" } }
            "."
        };
        return Ok(empty("No dead event is like that.", next));
    }
    Ok(html! {
        @if found.items.is_empty() { p { "None was found yet: go on with the next page." } }
        @else { (listed(visit, &found.items, may_begin(visit))) }
        @if let Some(looked_at) = found.looked_at {
            p.quiet { (number(looked_at)) " dead events were looked at for this page." }
        }
        (pager(visit, found.next_cursor.as_deref()))
    })
}

/// Dead events, one a line; with boxes for the form that does something with those selected.
fn listed(visit: &Visit, events: &[DeadEventJson], is_selectable: bool) -> Markup {
    let mut head = vec!["Event", "Died", "Handler", "Why", "Error", ">Retries", "Tags"];
    if is_selectable {
        head.insert(0, "Select");
    }
    if visit.may(Scope::Operate) {
        head.push("Again");
    }
    table("Dead events", &head, html! { @for event in events { (row(visit, event, is_selectable)) } })
}

fn row(visit: &Visit, event: &DeadEventJson, is_selectable: bool) -> Markup {
    let (id, group) = (event.id.to_string(), event.error_group.to_string());
    let error = event.last_error.as_deref().unwrap_or_default().trim_start().lines().next();
    let is_selected = visit.parameter("all") == "selected";
    html! {
        tr {
            @if is_selectable { td { (box_of(event.id, is_selected)) } }
            td {
                (event_link(visit, event.id))
                @if event.halts { " " (badge(Tone::Alarm, "halts its object")) }
            }
            td { (moment(event.died_at)) }
            td { (handler_link(visit, &event.module, &event.name, Some(&event.modifier))) }
            td { (cause_words(&event.cause)) }
            td.words {
                @if visit.may(Scope::Read) {
                    a href=(visit.link(&["dead-events", "groups", &group])) {
                        (error_words(error.unwrap_or_default()))
                    }
                } @else {
                    (error_words(error.unwrap_or_default()))
                }
            }
            td.number { (number(event.retries)) }
            td {
                @for tag in &event.tags {
                    @if visit.may(Scope::Read) {
                        a.tag href=(visit.link_with(&["dead-events", "list"], &[("tag", tag)])) { (tag) }
                    } @else {
                        span.tag { (tag) }
                    }
                }
            }
            @if visit.may(Scope::Operate) {
                td { (form::button(visit, &visit.link(&["events", &id, "redrive"]), "Redrive")) }
            }
        }
    }
}

/// Why events died, in words.
fn cause_words(cause: &str) -> &str {
    match cause {
        "retries" => "failed too often",
        "rejected" => "no retry can help",
        "expired" => "came too late",
        "poison" => "its workers died",
        other => other,
    }
}

/// An error's words, or what stands for one that is empty.
fn error_words(error: &str) -> &str {
    if error.is_empty() { "no error was written" } else { error }
}

/// Whether a group is known, and what is known.
fn known_words(known: Option<&KnownErrorJson>) -> Markup {
    html! {
        @match known {
            Some(known) => {
                (badge(Tone::Calm, "known"))
                @if let Some(note) = &known.note { " " (note) }
                " " span.quiet { (known.by) ", " (moment(known.at)) }
            },
            None => { (badge(Tone::Alarm, "new")) },
        }
    }
}

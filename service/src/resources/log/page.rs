//! The log in the browser: what was appended, of the canvas, of a category or of a stream.

pub(crate) mod names;

use maud::{Markup, html};
use serde_json::value::RawValue;

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::parts::{copied, empty, facts, hidden, json_of_many, pager, table};
use crate::page::time::moment;
use crate::page::view::View;
use crate::page::visit::Visit;
use crate::resources::log::wire::{LogEventJson, LogPageJson};

/// How many characters of a payload its row shows.
const SHOWN: usize = 60;

/// A page of the log, oldest first. It has payloads, so who has looked is recorded, and nothing of
/// it is live.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let (category, stream) = (visit.parameter("category"), visit.parameter("stream"));
    // Where the page before has ended, or else where the reader wants to begin.
    let after = Some(visit.parameter("cursor")).filter(|cursor| !cursor.is_empty());
    let after = after.unwrap_or_else(|| visit.parameter("after"));
    let ask = visit.ask(&["log"]).query("category", category.trim()).query("stream", stream.trim());
    let page: LogPageJson = ask.query("after", after.trim()).query("limit", 100).get().await?;
    let contents = html! { (listed(&visit, &page)) (further(&visit, &page)) };
    Ok(View::new("Log").filter(filter(&visit)).below(contents))
}

fn filter(visit: &Visit) -> Markup {
    let value = |name: &str| visit.parameter(name);
    html! {
        (form::filter(visit, html! {
            (form::text("category", "Category", &value("category"), "accounts"))
            (form::text("stream", "Stream of it", &value("stream"), "account-7"))
            (form::text("after", "After number", &value("after"), "0"))
        }))
        p.actions {
            a.button href=(visit.link(&["log", "categories"])) { "Categories" }
            @if !value("category").trim().is_empty() {
                a.button href=(visit.link_with(&["log", "streams"], &[("category", value("category").trim())])) {
                    "Streams of this category"
                }
            }
        }
        p.quiet {
            "From the oldest to the latest."
            @if visit.may(Scope::Values) { " The record says that you have looked at the payloads." }
        }
    }
}

fn listed(visit: &Visit, page: &LogPageJson) -> Markup {
    if page.items.is_empty() && !page.more {
        return empty(
            "Nothing was appended there, or nothing after this number.",
            html! {
                "Clear the filter to begin at the start of the log. Emits with " code { "log" }
                " append to it, and so do programs and entities."
            },
        );
    }
    let head = [">Number", "Appended", "Stream", ">Position", "Event", "Payload"];
    html! {
        @if page.hidden.is_some() { (hidden()) }
        (table("Log", &head, html! { @for event in &page.items { (row(visit, event, page.hidden.is_some())) } }))
    }
}

fn row(visit: &Visit, event: &LogEventJson, is_hidden: bool) -> Markup {
    let payload = event.payload.as_deref();
    let category = [("category", event.category.as_str())];
    let stream = [("category", event.category.as_str()), ("stream", event.stream.as_str())];
    html! {
        tr {
            td.number { (event.seq) }
            td { (moment(event.appended_at)) }
            td {
                a href=(visit.link_with(&["log"], &category)) { (event.category) } "/"
                a href=(visit.link_with(&["log"], &stream)) { (event.stream) }
            }
            td.number { (event.position) }
            td { (event.name) }
            td.words {
                details {
                    summary { @if is_hidden { "Hidden" } @else { code { (beginning(payload)) } } }
                    @if !is_hidden { (json_of_many(payload.map_or("null", RawValue::get))) }
                    (whole(visit, event))
                }
            }
        }
    }
}

fn beginning(payload: Option<&RawValue>) -> String {
    let text = payload.map_or("null", RawValue::get);
    let shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() { format!("{shown}…") } else { shown }
}

/// The metadata, and the object that it was emitted on.
fn whole(visit: &Visit, event: &LogEventJson) -> Markup {
    let object = event.place.as_ref().map(|place| {
        html! { a href=(visit.link(&["objects", &place.object])) { (place.object) } ", link " (place.id) }
    });
    let metadata = event.metadata.as_deref().map(RawValue::get).filter(|text| *text != "{}");
    html! {
        (facts(&[
            ("Id", Some(copied(&event.id.to_string()))),
            ("Object", object),
            ("Number before it in its stream", (event.prev > 0).then(|| html! { (event.prev) })),
            ("Metadata", metadata.map(json_of_many)),
        ]))
    }
}

/// The next page; or at the end, a way to what is appended later.
fn further(visit: &Visit, page: &LogPageJson) -> Markup {
    let through = page.through.to_string();
    let (category, stream) = (visit.parameter("category"), visit.parameter("stream"));
    let later = [("category", category.as_str()), ("stream", stream.as_str()), ("after", through.as_str())];
    html! {
        @if page.held {
            p {
                "More is held back by an open transaction that appends. " code { "wakeq doctor" }
                " shows which."
            }
        }
        (pager(visit, page.more.then_some(through.as_str())))
        @if !page.more {
            p {
                "This is the end for now. "
                a href=(visit.link_with(&["log"], &later)) { "What comes after it" }
            }
        }
    }
}

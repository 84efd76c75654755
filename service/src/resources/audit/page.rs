//! The record in the browser: what callers did, and what they were refused.

use maud::{Markup, html};

use crate::http::problem::Problem;
use crate::page::parts::{Tone, badge, empty, number, pager, table};
use crate::page::time::moment;
use crate::page::view::View;
use crate::page::visit::Visit;
use crate::resources::audit::wire::AuditEntryJson;
use crate::resources::wire::List;

/// The record of the canvas, newest first.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let ask = visit.ask_admin(&["audit"]).query("limit", 100).query("cursor", visit.parameter("cursor"));
    let entries: List<AuditEntryJson> = ask.get().await?;
    Ok(View::new("Record").above(introduction(&visit)).below(listed(&visit, &entries)))
}

fn introduction(visit: &Visit) -> Markup {
    html! {
        p.quiet {
            "Who did what here, newest first. Changes are written with what they change. Refusals and sign-ins follow \
             within seconds and reads of values within minutes, and equal ones are counted in one line."
        }
        @if !visit.parameter("cursor").is_empty() { p { a.button href="?" { "The newest" } } }
    }
}

fn listed(visit: &Visit, entries: &List<AuditEntryJson>) -> Markup {
    if entries.items.is_empty() {
        return empty(
            "Nothing has been recorded yet.",
            html! { "Pause a handler or make a key, and it is here with your name." },
        );
    }
    let head = ["When", "Who", "What", "Outcome", ">Times", "About", "Details"];
    html! {
        (table("Record", &head, html! { @for entry in &entries.items { (row(visit, entry)) } }))
        (pager(visit, entries.next_cursor.as_deref()))
    }
}

fn row(visit: &Visit, entry: &AuditEntryJson) -> Markup {
    html! {
        tr {
            td { (moment(entry.at)) }
            td { (entry.actor) }
            td { (entry.action) }
            td { (outcome(&entry.outcome)) }
            td.number { (number(entry.times)) }
            td { (about(visit, entry)) }
            td.words {
                (entry.detail.as_deref().unwrap_or("–"))
                @if let Some(request) = &entry.request_id { br; span.quiet { "request " code { (request) } } }
            }
        }
    }
}

fn outcome(outcome: &str) -> Markup {
    match outcome {
        "done" => badge(Tone::Calm, "done"),
        "refused" => badge(Tone::Alarm, "refused"),
        other => badge(Tone::Waiting, other),
    }
}

fn about(visit: &Visit, entry: &AuditEntryJson) -> Markup {
    let event = entry.event_id.map(|id| id.to_string());
    let handler = entry.module.as_deref().zip(entry.name.as_deref());
    html! {
        @if let Some(id) = &event { a href=(visit.link(&["events", id])) { code { (id) } } " " }
        @if let Some((module, name)) = handler {
            a href=(visit.link(&["handlers", module, name])) { (module) "/" (name) }
        }
        @if event.is_none() && handler.is_none() { "–" }
    }
}

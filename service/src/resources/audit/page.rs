//! The record in the browser: what callers did, and what they were refused.

use chrono::SecondsFormat;
use maud::{Markup, html};

use crate::http::problem::{Kind, Problem};
use crate::page::parts::{Tone, badge, empty, number, pager, table};
use crate::page::time::{moment, now};
use crate::page::view::View;
use crate::page::visit::Visit;
use crate::page::{form, given};
use crate::resources::audit::wire::AuditEntryJson;
use crate::resources::wire::List;

/// The conditions, as the API names them.
const CONDITIONS: [&str; 7] = ["action", "actor", "key", "module", "name", "event_id", "outcome"];
/// Those that are moments.
const MOMENTS: [&str; 2] = ["since", "before"];

/// The record of the canvas that the filter selects, newest first.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let view = View::new("Record").filter(introduction(&visit));
    match found(&visit).await {
        Ok(entries) => Ok(view.below(listed(&visit, &entries))),
        Err(problem) if problem.kind == Kind::BadRequest => Ok(view.refused(&problem)),
        Err(problem) => Err(problem),
    }
}

async fn found(visit: &Visit) -> Result<List<AuditEntryJson>, Problem> {
    let mut ask = visit.ask_admin(&["audit"]).query("limit", 100).query("cursor", visit.parameter("cursor"));
    for name in CONDITIONS {
        ask = ask.query(name, visit.parameter(name).trim());
    }
    for name in MOMENTS {
        let at = given::moment(name, &visit.parameter(name), now())?;
        ask = ask
            .query(name, at.map_or_else(String::new, |at| at.to_rfc3339_opts(SecondsFormat::Micros, true)));
    }
    ask.get().await
}

fn introduction(visit: &Visit) -> Markup {
    let given = |name| visit.parameter(name);
    let outcomes = [("", "either"), ("done", "done"), ("refused", "refused")];
    html! {
        p.quiet {
            "Who did what here, newest first. Changes are written with what they change. Refusals and sign-ins follow \
             within seconds and reads of values within minutes, and equal ones are counted in one line."
        }
        (form::filter(visit, html! {
            (form::text("action", "What", &given("action"), "pause"))
            (form::text("actor", "Who", &given("actor"), "key:billing"))
            (form::text("key", "By or about the key", &given("key"), "wakeq_0123456789ab"))
            (form::text("name", "Handler", &given("name"), "send-email"))
            (form::text("module", "Module", &given("module"), "WORKER"))
            (form::text("event_id", "Event, by its id", &given("event_id"), "0198c0de-…"))
            (form::select("outcome", "Outcome", &given("outcome"), &outcomes))
            (form::text("since", "Since", &given("since"), "1 d"))
            (form::text("before", "Before", &given("before"), "1 h, or 2030-01-31T08:00"))
        }))
    }
}

fn listed(visit: &Visit, entries: &List<AuditEntryJson>) -> Markup {
    let further = pager(visit, entries.next_cursor.as_deref());
    if entries.items.is_empty() {
        return match (&entries.next_cursor, is_filtered(visit)) {
            (Some(_), _) => html! {
                p.quiet { "None of the lines that were looked at is like that. There are older ones." }
                (further)
            },
            (None, true) => empty(
                "Nothing like that is recorded.",
                html! { "Ask for less, or " a href="?" { "look at everything" } "." },
            ),
            (None, false) => empty(
                "Nothing has been recorded yet.",
                html! { "Pause a handler or make a key, and it is here with your name." },
            ),
        };
    }
    let head = ["When", "Who", "What", "Outcome", ">Times", "About", "Details"];
    html! {
        (table("Record", &head, html! { @for entry in &entries.items { (row(visit, entry)) } }))
        (further)
    }
}

fn is_filtered(visit: &Visit) -> bool {
    let given = |name: &&str| !visit.parameter(name).is_empty();
    CONDITIONS.iter().chain(&MOMENTS).chain(&["cursor"]).any(given)
}

fn row(visit: &Visit, entry: &AuditEntryJson) -> Markup {
    html! {
        tr {
            td { (moment(entry.at)) }
            td { a href=(visit.link_with(&["record"], &[("actor", &entry.actor)])) { (entry.actor) } }
            td { a href=(visit.link_with(&["record"], &[("action", &entry.action)])) { (entry.action) } }
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

//! One error group: the error, what is known of it, its events, and what an operator does next.

use axum::Form;
use axum::http::Method;
use maud::{Markup, html};
use serde::Deserialize;

use super::{KINDS, cause_words, error_words, known_words, listed, may_begin};
use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::parts::{copied, events, facts, pager};
use crate::page::time::moment;
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::dead_events::wire::DeadEventJson;
use crate::resources::dead_events::wire::group::{ErrorGroupJson, KnowError};
use crate::resources::events::page::{event_link, handler_link};
use crate::resources::wire::List;

/// How many of its events stand on a page.
const EVENTS: u32 = 50;

/// The group, which is live, and its events. These are read by each person, since that is recorded,
/// and have forms.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let id = path.get("error_group");
    let group = visit.ask(&["dead-events", "groups", id]).shared::<ErrorGroupJson>();
    let (group, list) = tokio::join!(group, events_of(&visit, id));
    let (group, list) = (group?, list?);
    let below = html! {
        (next_steps(&visit, &group))
        (note(&visit, &group))
        @if let Some(list) = list {
            h2 { "Its events" }
            (listed(&visit, &list.items, false))
            (pager(&visit, list.next_cursor.as_deref()))
        }
    };
    Ok(View::new(error_words(&group.fingerprint)).live(about(&visit, &group)).below(below))
}

/// A page of its events, unless only what is live is shown.
async fn events_of(visit: &Visit, id: &str) -> Result<Option<List<DeadEventJson>>, Problem> {
    if visit.is_look() {
        return Ok(None);
    }
    let list = visit.ask(&["dead-events"]).query("error_group", id).query("limit", EVENTS);
    list.query("cursor", visit.parameter("cursor")).get().await.map(Some)
}

fn about(visit: &Visit, group: &ErrorGroupJson) -> Markup {
    let id = group.id.to_string();
    let begin = |kind: &str| visit.link_with(&["operations", "new"], &[("kind", kind), ("error_group", &id)]);
    html! {
        p { (known_words(group.known.as_ref())) }
        (facts(&[
            ("Handler", Some(handler_link(visit, &group.module, &group.name, None))),
            ("Why they died", Some(html! { (cause_words(&group.cause)) })),
            ("How many", Some(html! { (events(group.count)) })),
            ("First died", Some(moment(group.first_died_at))),
            ("Last died", Some(moment(group.last_died_at))),
            ("The last one", Some(event_link(visit, group.example_id))),
            ("Group", Some(copied(&id))),
        ]))
        @if let Some(error) = &group.error {
            h2 { "Its error" }
            pre tabindex="0" { (error) }
        }
        @if may_begin(visit) {
            p.actions { @for (kind, words) in KINDS { a.button href=(begin(kind)) { (words) } } }
        }
    }
}

/// From the error to the mended handler.
fn next_steps(visit: &Visit, group: &ErrorGroupJson) -> Markup {
    let (id, example) = (group.id.to_string(), group.example_id.to_string());
    html! {
        h2 { "What to do next" }
        ol {
            li {
                a href=(visit.link(&["events", &example])) { "Read the story of one event" }
                ": its attempts, and its value."
            }
            li {
                "If more events die meanwhile, pause the handler "
                (handler_link(visit, &group.module, &group.name, None))
                ". What is paused waits, and loses nothing."
            }
            li { "Mend the handler, and lift the pause." }
            li { "Redrive one event below, and see whether it completes. Then redrive all." }
            li { "If that has to wait, mark the error as known, with a note for whoever looks next." }
        }
        p { "On the command line: " (copied(&format!("wakeq dead redrive --error-group {id}"))) }
    }
}

/// What is known, and the form to change it.
fn note(visit: &Visit, group: &ErrorGroupJson) -> Markup {
    let id = group.id.to_string();
    let note = group.known.as_ref().and_then(|known| known.note.as_deref()).unwrap_or_default();
    html! {
        @if visit.may(Scope::Operate) {
            h2 { "What is known" }
            (form::change(visit, &visit.link(&["dead-events", "groups", &id, "known"]), html! {
                (form::area("note", "A ticket, the cause, or what to do (up to 1,000 characters)", note, 3))
                button.main type="submit" { "Mark as known" }
            }))
            @if group.known.is_some() {
                @let forget = visit.link(&["dead-events", "groups", &id, "forget"]);
                (form::button(visit, &forget, "Not known any more"))
            }
        }
    }
}

/// What an operator writes of a group.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct NoteForm {
    note: String,
}

/// Marks the group as known.
pub(crate) async fn know(visit: Visit, path: PathParts, Form(form): Form<NoteForm>) -> Result<Done, Problem> {
    let id = path.get("error_group");
    // Browsers send two characters for a line's end.
    let note = form.note.trim().replace("\r\n", "\n");
    let known = KnowError { note: (!note.is_empty()).then_some(note) };
    visit.ask(&["dead-events", "groups", id, "known"]).tell(Method::PUT, &known).await?;
    Ok(Done::new(visit.link(&["dead-events", "groups", id]), "The error is marked as known."))
}

/// Removes the mark.
pub(crate) async fn forget(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let id = path.get("error_group");
    visit.ask(&["dead-events", "groups", id, "known"]).delete().await?;
    Ok(Done::new(visit.link(&["dead-events", "groups", id]), "The error is not marked as known any more."))
}

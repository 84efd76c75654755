//! What is done with one event: it is made due, now or at another time, cancelled, redriven, or
//! gets other tags.

use axum::Form;
use axum::http::Method;
use maud::html;
use serde::Deserialize;

use super::one::state;
use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::page::{form, time};
use crate::resources::events::wire::due::{DueEvent, SetDue};
use crate::resources::events::wire::{CancelledEvent, EventDetail, EventState, SetTags, TheEvent};

/// Makes a delayed event due.
pub(crate) async fn run_now(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let id = path.get("id");
    visit.ask(&["events", id, "run-now"]).order(Method::POST).await?;
    Ok(Done::new(visit.link(&["events", id]), "The event is due now."))
}

#[derive(Deserialize)]
pub(crate) struct DueForm {
    #[serde(default)]
    due: String,
}

/// Gives it another due time.
pub(crate) async fn set_due(
    visit: Visit,
    path: PathParts,
    Form(form): Form<DueForm>,
) -> Result<Done, Problem> {
    let id = path.get("id");
    visit.needs(Scope::Operate)?;
    let now = time::now();
    let due = time::written(&form.due, now).filter(|due| *due > now).ok_or_else(|| {
        Problem::bad_request(
            "write a time that lies ahead, such as `in 2 h` or 2030-01-31 08:00 in UTC; to make the event due \
             at once, run it now",
        )
    })?;
    let due = SetDue { delay_until: Some(due), delay_s: None };
    let _: DueEvent = visit.ask(&["events", id, "due"]).put(&due).await?;
    Ok(Done::new(visit.link(&["events", id]), "The event is due at this time now."))
}

/// Brings a dead event back.
pub(crate) async fn redrive(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let id = path.get("id");
    visit.ask(&["dead-events", id, "redrive"]).order(Method::POST).await?;
    Ok(Done::new(visit.link(&["events", id]), "The event runs again, with its retries counted anew."))
}

/// Asks before an event is cancelled.
pub(crate) async fn ask_cancel(visit: Visit, path: PathParts) -> Result<View, Problem> {
    visit.needs(Scope::Operate)?;
    let id = path.get("id");
    let event: EventDetail = visit.ask(&["events", id]).get().await?;
    let (question, yes) = if event.state == EventState::Running {
        ("Cancel this event while it runs? Its handler is told to stop, and the event is deleted.", "Stop it")
    } else {
        ("Cancel this event? It is deleted, and nothing runs for it any more.", "Cancel the event")
    };
    let (action, back) = (visit.link(&["events", id, "cancel"]), visit.link(&["events", id]));
    let fields = form::check("running", "Also if it runs by then", event.state == EventState::Running);
    let above = html! { (state(&event)) (form::confirm(&visit, &action, question, yes, &back, fields)) };
    Ok(View::new(format!("Cancel event {}", event.id)).above(above))
}

#[derive(Deserialize)]
pub(crate) struct CancelForm {
    #[serde(default)]
    running: String,
}

/// Cancels it.
pub(crate) async fn cancel(
    visit: Visit,
    path: PathParts,
    Form(form): Form<CancelForm>,
) -> Result<Done, Problem> {
    let id = path.get("id");
    let ask = visit.ask(&["events", id, "cancel"]).query("running", &form.running);
    let cancelled: CancelledEvent = ask.post(&serde_json::json!({})).await?;
    Ok(match cancelled.next {
        Some(next) => {
            Done::new(visit.link(&["events", id]), format!("The event is being cancelled: {next}."))
        }
        None => Done::new(visit.link(&["events"]), format!("The event {} was cancelled.", cancelled.id)),
    })
}

#[derive(Deserialize)]
pub(crate) struct TagsForm {
    #[serde(default)]
    tags: String,
}

/// Replaces its tags.
pub(crate) async fn set_tags(
    visit: Visit,
    path: PathParts,
    Form(form): Form<TagsForm>,
) -> Result<Done, Problem> {
    let id = path.get("id");
    let tags = split(&form.tags);
    let said = if tags.is_empty() { "The event has no tags now." } else { "The event has these tags now." };
    let _: TheEvent = visit.ask(&["events", id, "tags"]).put(&SetTags { tags }).await?;
    Ok(Done::new(visit.link(&["events", id]), said))
}

/// What commas separate in a field.
pub(crate) fn split(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

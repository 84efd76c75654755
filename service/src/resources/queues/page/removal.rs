//! Deleting a queue: its waiting copies are processed before, or deleted as well.

use axum::Form;
use axum::http::Method;
use maud::html;
use serde::Deserialize;

use super::copies::counted;
use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::queues::wire::{DeletedQueueJson, FacetJson, QueueJson, Waiting};
use crate::resources::wire::List;

/// How many canvases are counted before a queue is deleted.
const COUNTED: usize = 1_000;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct RemovalForm {
    waiting: Waiting,
}

/// Asks before a queue is deleted.
pub(crate) async fn ask(visit: Visit, path: PathParts) -> Result<View, Problem> {
    visit.needs_everywhere(Scope::Operate)?;
    let name = path.get("queue");
    let queue = visit.ask_everywhere(&["queues", name]).query("limit", 1).get::<QueueJson>().await?;
    let facets = visit.ask_everywhere(&["queues", name, "facets"]).query("limit", COUNTED);
    let facets: List<FacetJson> = facets.get().await?;
    let is_capped = facets.next_cursor.is_some() || facets.items.iter().any(|facet| facet.capped);
    let count = facets.items.iter().map(|facet| facet.waiting).sum::<u64>();
    let noun = if count == 1 && !is_capped { "copy" } else { "copies" };
    let waiting = format!("{} waiting {noun}", counted(count, is_capped));
    let (action, back) = (visit.link(&["queues", name, "delete"]), visit.link(&["queues", name]));
    let drain = format!("Let it drain? It is gone once {waiting} and those that run have ended.");
    let drop = format!("Delete {waiting} with it? Nothing runs for them any more.");
    let above = html! {
        p {
            "The queue " strong { (queue.name) }
            " gets no more copies from then on. The events that were copied stay."
        }
        (form::confirm(&visit, &action, &drain, "Let the queue drain", &back, form::hidden("waiting", "drain")))
        (form::confirm(&visit, &action, &drop, "Delete the copies", &back, form::hidden("waiting", "drop")))
    };
    Ok(View::new(format!("Delete the queue {}", queue.name)).above(above))
}

/// Deletes it.
pub(crate) async fn delete(
    visit: Visit,
    path: PathParts,
    Form(form): Form<RemovalForm>,
) -> Result<Done, Problem> {
    let name = path.get("queue");
    let waiting = match form.waiting {
        Waiting::Drain => "drain",
        Waiting::Drop => "drop",
    };
    let ask = visit.ask_everywhere(&["queues", name]).query("waiting", waiting);
    let DeletedQueueJson { gone } = ask.answer_to(Method::DELETE).await?;
    let said = match gone {
        true => format!("The queue {name} was deleted."),
        false => format!("The queue {name} gets no more copies, and is gone once its last one has ended."),
    };
    Ok(Done::new(visit.link(&["queues"]), said))
}

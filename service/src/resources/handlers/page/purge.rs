//! Purging a handler in the browser: how many events there are, and their end.

use axum::Form;
use chrono::{DateTime, SecondsFormat, Utc};
use maud::html;
use serde::Deserialize;

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::parts::{empty, number};
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::handlers::wire::{PurgeRequest, Purged};
use crate::resources::operations::wire::{
    NewOperationJson, OperationFilter, OperationJson, OperationKindJson,
};

/// How many events are counted for the question.
const COUNTED_MAX: u64 = 50_000;

/// Until when events were emitted that are deleted: the time at which they were counted.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct PurgeForm {
    before: String,
}

/// Asks before the events of a handler are deleted.
pub(crate) async fn ask(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let (module, name) = (path.get("module"), path.get("name"));
    let count = PurgeRequest { dry_run: true, count_up_to: Some(COUNTED_MAX), ..PurgeRequest::default() };
    let found: Purged = visit.ask(&["handlers", module, name, "purge"]).look(&count).await?;
    let view = View::new(format!("Purge {module}/{name}"));
    let back = visit.link(&["handlers", module, name]);
    if found.purged == 0 {
        let next = html! { "Running events are left alone. " a.button href=(back) { "Back to the handler" } };
        return Ok(view.above(empty("There is nothing to delete: no event of this handler waits.", next)));
    }
    let events = events(found.purged, found.more);
    let question =
        format!("Delete {events} of {module}/{name}? They are gone for good, and nothing runs for them.");
    let before = found.before.unwrap_or_default().to_rfc3339_opts(SecondsFormat::Micros, true);
    let action = visit.link(&["handlers", module, name, "purge"]);
    let yes = format!("Delete {events}");
    Ok(view.above(html! {
        p {
            "These are all of its events that are not running, whatever their modifiers, and those that are \
             delayed or paused as well. Running and dead ones stay, and so does what is emitted from now on."
        }
        (form::confirm(&visit, &action, &question, &yes, &back, form::hidden("before", &before)))
    }))
}

/// Deletes them: the first 10,000 at once, and the rest by an operation.
pub(crate) async fn purge(
    visit: Visit,
    path: PathParts,
    Form(form): Form<PurgeForm>,
) -> Result<Done, Problem> {
    let (module, name) = (path.get("module"), path.get("name"));
    let counted = form.before.parse::<DateTime<Utc>>().map_err(|_| {
        Problem::bad_request("look first at how many events would be deleted: the page before says it")
    })?;
    let request = PurgeRequest { before: Some(counted), ..PurgeRequest::default() };
    let purged: Purged = visit.ask(&["handlers", module, name, "purge"]).post(&request).await?;
    let deleted = format!("Deleted {} of {module}/{name}.", events(purged.purged, false));
    if !purged.more {
        return Ok(Done::new(visit.link(&["handlers", module, name]), deleted));
    }
    let again = visit.link(&["handlers", module, name, "purge"]);
    if !(visit.may(Scope::Operate) && visit.may(Scope::Read)) {
        return Ok(Done::new(again, format!("{deleted} There are more: delete them as well.")));
    }
    let (module, name) = (Some(module.to_owned()), Some(name.to_owned()));
    let filter = OperationFilter { module, name, ..OperationFilter::default() };
    let rest = NewOperationJson {
        before: Some(counted),
        ..NewOperationJson::new(OperationKindJson::Delete, filter)
    };
    match visit.ask(&["operations"]).once().post::<OperationJson>(&rest).await {
        Ok(begun) => Ok(Done::new(
            visit.link(&["operations", &begun.id.to_string()]),
            format!("{deleted} This operation deletes the rest, whether or not somebody looks."),
        )),
        // What was deleted has to be said.
        Err(problem) => Ok(Done::new(again, format!("{deleted} There are more. {}", problem.detail()))),
    }
}

fn events(count: u64, more: bool) -> String {
    let (more_than, plural) =
        (if more { "more than " } else { "" }, if count == 1 && !more { "" } else { "s" });
    format!("{more_than}{} event{plural}", number(count))
}

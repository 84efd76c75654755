//! A new operation: which events, a preview with their number, and the question before it begins.

use axum::Form;
use maud::{Markup, html};
use serde::Deserialize;

use super::words::{CHOICES, conditions, kind, question};
use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::form;
use crate::page::parts::{empty, events, number};
use crate::page::time::now;
use crate::page::view::{Done, View};
use crate::page::visit::Visit;
use crate::resources::events::page::{Filter, split};
use crate::resources::operations::wire::{
    NewOperationJson, OperationJson, OperationKindJson, OperationPreviewJson,
};

/// How many events a preview looks at if it is asked to look further.
const FURTHER: u64 = 1_000_000;

/// The filter of a new operation and, once it is said what to do, the preview.
pub(crate) async fn show(visit: Visit) -> Result<View, Problem> {
    visit.needs(Scope::Operate)?;
    visit.needs(Scope::Read)?;
    let filter = Filter::of(&visit);
    let view = View::new("New operation").above(fields(&visit, &filter));
    let Some(kind) = kind(&visit.parameter("kind")) else { return Ok(view) };
    match previewed(&visit, kind, &filter).await {
        Ok(preview) => Ok(view.below(preview)),
        Err(problem) if problem.kind == Kind::BadRequest => Ok(view.refused(&problem)),
        Err(problem) => Err(problem),
    }
}

fn fields(visit: &Visit, filter: &Filter) -> Markup {
    html! {
        p.quiet { "First the events are counted. Nothing is changed before you have said yes." }
        form.filter method="get" role="search" {
            (form::select("kind", "What to do", &visit.parameter("kind"), &CHOICES))
            (filter.fields_of_all())
            (form::text("add_tags", "Tags to add, to re-tag", &visit.parameter("add_tags"), "late"))
            (form::text("remove_tags", "Tags to remove, to re-tag", &visit.parameter("remove_tags"), "trial"))
            button.main type="submit" { "Count them" }
        }
    }
}

/// The number of events, and the question.
async fn previewed(visit: &Visit, kind: OperationKindJson, filter: &Filter) -> Result<Markup, Problem> {
    let asked = NewOperationJson {
        add_tags: split(&visit.parameter("add_tags")),
        remove_tags: split(&visit.parameter("remove_tags")),
        look_up_to: (visit.parameter("look") == "further").then_some(FURTHER),
        ..NewOperationJson::new(kind, filter.selected(now())?)
    };
    let preview: OperationPreviewJson = visit.ask(&["operations", "preview"]).post(&asked).await?;
    // What comes after the preview was not counted, and is left alone.
    let begun = NewOperationJson { all: false, before: Some(preview.before), look_up_to: None, ..asked };
    let asking = if preview.count == 0 && !preview.more {
        empty("No event matches.", html! { "There is nothing to do. Change the conditions above." })
    } else {
        asking(visit, filter, &begun, &preview)?
    };
    Ok(html! {
        h2 { "Preview" }
        (conditions(&begun.filter))
        p.quiet { "Looked at " (events(preview.looked_at)) "." }
        @if preview.more { (more(visit, filter)) }
        (asking)
    })
}

fn asking(
    visit: &Visit,
    filter: &Filter,
    begun: &NewOperationJson,
    preview: &OperationPreviewJson,
) -> Result<Markup, Problem> {
    let some = match (preview.count, preview.more) {
        (1, false) => "this 1 event".to_owned(),
        (count, false) => format!("these {}", events(count)),
        (count, true) => format!("at least {}", events(count)),
    };
    let text = serde_json::to_string(begun).map_err(|error| Problem::internal().because(error))?;
    let (action, back) = (visit.link(&["operations"]), filter.link(visit, list_of(begun.kind), &[]));
    let fields = form::hidden("operation", &text);
    Ok(form::confirm(visit, &action, &question(begun.kind, &some), &format!("Yes, {some}"), &back, fields))
}

/// Where the events are listed, one by one.
fn list_of(kind: OperationKindJson) -> &'static [&'static str] {
    match kind {
        OperationKindJson::Redrive | OperationKindJson::DeleteDead => &["dead-events", "list"],
        OperationKindJson::Cancel
        | OperationKindJson::RunNow
        | OperationKindJson::Delete
        | OperationKindJson::Retag => &["events"],
    }
}

/// There are more events than were looked at.
fn more(visit: &Visit, filter: &Filter) -> Markup {
    let given = ["kind", "add_tags", "remove_tags"].map(|name| (name, visit.parameter(name)));
    let mut others: Vec<_> = given.iter().map(|(name, text)| (*name, text.as_str())).collect();
    others.push(("look", "further"));
    html! {
        p {
            "There are more, which were not counted. The operation goes through all of them. "
            @if visit.parameter("look") != "further" {
                a href=(filter.link(visit, &["operations", "new"], &others)) {
                    "Count among the first " (number(FURTHER))
                }
            }
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct BeginForm {
    operation: String,
}

/// Begins what was previewed.
pub(crate) async fn begin(visit: Visit, Form(form): Form<BeginForm>) -> Result<Done, Problem> {
    let new: NewOperationJson = serde_json::from_str(&form.operation).map_err(|error| {
        Problem::bad_request("this is not an operation: count the events once more").because(error)
    })?;
    let begun: OperationJson = visit.ask(&["operations"]).post(&new).await?;
    let to = visit.link(&["operations", &begun.id.to_string()]);
    Ok(Done::new(to, "The operation has begun. It goes on if you leave this page."))
}

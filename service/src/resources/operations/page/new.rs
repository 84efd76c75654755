//! A new operation: which events, by a filter or by their ids, a preview with their number, and the
//! question before it begins.

use axum::Form;
use maud::{Markup, html};
use serde::Deserialize;
use uuid::Uuid;

use super::words::{CHOICES, conditions, kind, question};
use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::form;
use crate::page::parts::{empty, events, number};
use crate::page::time::now;
use crate::page::view::{Done, View};
use crate::page::visit::Visit;
use crate::resources::events::page::{Filter, event_link, split};
use crate::resources::operations::wire::{
    NewOperationJson, OperationJson, OperationKindJson, OperationPreviewJson,
};

/// How many events a preview looks at if it is asked to look further.
const FURTHER: u64 = 1_000_000;

/// The events of a new operation.
struct Chosen {
    filter: Filter,
    /// Those that were selected in a list, in place of the filter.
    ids: Vec<Uuid>,
    /// The filter of that list, as in its address.
    from: String,
}

impl Chosen {
    fn of(visit: &Visit) -> Result<Self, Problem> {
        let parameters = visit.parameters();
        let ids = parameters.iter().filter(|(name, _)| name == "id").map(|(_, id)| id.trim().parse::<Uuid>());
        let ids: Result<Vec<Uuid>, _> = ids.collect();
        let ids =
            ids.map_err(|_| Problem::bad_request("an event's id is a uuid, as its emit returned it"))?;
        // Otherwise nothing would mean all.
        if ids.is_empty() && visit.parameter("selected") == "ids" {
            return Err(Problem::bad_request("no event is selected: go back, and tick some in the list"));
        }
        Ok(Self { filter: Filter::of(visit), ids, from: visit.parameter("from") })
    }

    /// What the operation is, on these events.
    fn operation(&self, kind: OperationKindJson) -> Result<NewOperationJson, Problem> {
        if self.ids.is_empty() {
            return Ok(NewOperationJson::new(kind, self.filter.selected(now())?));
        }
        Ok(NewOperationJson::of_ids(kind, self.ids.clone()))
    }

    /// Where they were listed.
    fn back(&self, visit: &Visit, kind: OperationKindJson) -> String {
        if self.ids.is_empty() {
            return self.filter.link(visit, list_of(kind), &[]);
        }
        let from: Vec<_> = url::form_urlencoded::parse(self.from.as_bytes()).into_owned().collect();
        let from: Vec<_> = from.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        visit.link_with(list_of(kind), &from)
    }
}

/// The filter of a new operation and, once it is said what to do, the preview.
pub(crate) async fn show(visit: Visit) -> Result<View, Problem> {
    visit.needs(Scope::Operate)?;
    visit.needs(Scope::Read)?;
    let chosen = Chosen::of(&visit)?;
    let view = View::new("New operation").above(fields(&visit, &chosen));
    let Some(kind) = kind(&visit.parameter("kind")) else { return Ok(view) };
    if kind == OperationKindJson::Retag
        && ["add_tags", "remove_tags"].map(|name| visit.parameter(name)) == ["", ""]
    {
        return Ok(view.below(html! { p { "Say which tags to add or to remove, and count the events." } }));
    }
    match previewed(&visit, kind, &chosen).await {
        Ok(preview) => Ok(view.below(preview)),
        Err(problem) if problem.kind == Kind::BadRequest => Ok(view.refused(&problem)),
        Err(problem) => Err(problem),
    }
}

fn fields(visit: &Visit, chosen: &Chosen) -> Markup {
    html! {
        p.quiet { "First the events are counted. Nothing is changed before you have said yes." }
        form.filter method="get" role="search" {
            (form::select("kind", "What to do", &visit.parameter("kind"), &CHOICES))
            @if chosen.ids.is_empty() { (chosen.filter.fields_of_all()) }
            @else {
                (form::hidden("selected", "ids"))
                (form::hidden("from", &chosen.from))
                @for id in &chosen.ids { (form::hidden("id", &id.to_string())) }
            }
            (form::text("add_tags", "Tags to add, to re-tag", &visit.parameter("add_tags"), "late"))
            (form::text("remove_tags", "Tags to remove, to re-tag", &visit.parameter("remove_tags"), "trial"))
            button.main type="submit" { "Count them" }
        }
    }
}

/// The number of events, and the question.
async fn previewed(visit: &Visit, kind: OperationKindJson, chosen: &Chosen) -> Result<Markup, Problem> {
    let asked = NewOperationJson {
        add_tags: split(&visit.parameter("add_tags")),
        remove_tags: split(&visit.parameter("remove_tags")),
        look_up_to: (visit.parameter("look") == "further").then_some(FURTHER),
        ..chosen.operation(kind)?
    };
    let preview: OperationPreviewJson = visit.ask(&["operations", "preview"]).look(&asked).await?;
    // What comes after the preview was not counted, and is left alone.
    let begun = NewOperationJson { all: false, before: Some(preview.before), look_up_to: None, ..asked };
    let asking = if preview.count == 0 && !preview.more {
        empty("No event matches.", html! { "There is nothing to do. Change the conditions above." })
    } else {
        asking(visit, chosen, &begun, &preview)?
    };
    Ok(html! {
        h2 { "Preview" }
        @if chosen.ids.is_empty() { (conditions(&begun.filter)) }
        @else { (selected(visit, chosen, &preview)) }
        p.quiet { "Looked at " (events(preview.looked_at)) "." }
        @if preview.more { (more(visit, chosen)) }
        (asking)
    })
}

/// The events that were selected, of which some may have ended by now.
fn selected(visit: &Visit, chosen: &Chosen, preview: &OperationPreviewJson) -> Markup {
    let others = preview.looked_at.saturating_sub(preview.count);
    html! {
        @if others > 0 {
            p { "Left alone, because they have ended, are running or are not for this: " (events(others)) "." }
        }
        details {
            summary { "Which events: " (events(chosen.ids.len() as u64)) }
            ul { @for id in &chosen.ids { li { (event_link(visit, *id)) } } }
        }
    }
}

fn asking(
    visit: &Visit,
    chosen: &Chosen,
    begun: &NewOperationJson,
    preview: &OperationPreviewJson,
) -> Result<Markup, Problem> {
    let some = match (preview.count, preview.more) {
        (1, false) => "this 1 event".to_owned(),
        (count, false) => format!("these {}", events(count)),
        (count, true) => format!("at least {}", events(count)),
    };
    let text = serde_json::to_string(begun).map_err(|error| Problem::internal().because(error))?;
    let (action, back) = (visit.link(&["operations"]), chosen.back(visit, begun.kind));
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
fn more(visit: &Visit, chosen: &Chosen) -> Markup {
    let given = ["kind", "add_tags", "remove_tags"].map(|name| (name, visit.parameter(name)));
    let mut others: Vec<_> = given.iter().map(|(name, text)| (*name, text.as_str())).collect();
    others.push(("look", "further"));
    html! {
        p {
            "There are more, which were not counted. The operation goes through all of them. "
            @if visit.parameter("look") != "further" {
                a href=(chosen.filter.link(visit, &["operations", "new"], &others)) {
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
    let begun: OperationJson = visit.ask(&["operations"]).once().post(&new).await?;
    let to = visit.link(&["operations", &begun.id.to_string()]);
    Ok(Done::new(to, "The operation has begun. It goes on if you leave this page."))
}

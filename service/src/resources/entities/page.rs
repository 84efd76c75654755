//! Entities in the browser: their types, those of a type, one with its state, and what became of an
//! event.

use axum::Form;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use uuid::Uuid;

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::parts::{
    Tone, badge, copied, empty, facts, hidden, json, json_of_many, number, pager, table,
};
use crate::page::time::{moment, moment_or};
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::entities::wire::{
    EntityEventJson, EntityJson, EntityProgressJson, EntityStatus, EntitySummaryJson, EntityTypeJson,
};
use crate::resources::objects::page::event_link;
use crate::resources::wire::List;

/// The entities of a type, and the ways to one of them and to the outcome of an event.
pub(crate) async fn list(visit: Visit) -> Result<Response, Problem> {
    let (entity_type, entity) = (visit.parameter("type"), visit.parameter("entity"));
    let (entity_type, event) = (entity_type.trim(), visit.parameter("event"));
    let view = View::new("Entities").above(choice(&visit));
    if !event.is_empty() {
        return Ok(Redirect::to(&visit.link(&["entities", "status", event.trim()])).into_response());
    }
    if entity_type.is_empty() {
        return Ok(view.live(types(&visit).await?).into_response());
    }
    if !entity.is_empty() {
        let to = visit.link(&["entities", entity_type, entity.trim()]);
        return Ok(Redirect::to(&to).into_response());
    }
    let ask = visit.ask(&["entities", entity_type]).query("limit", 100);
    let entities: List<EntitySummaryJson> = ask.query("cursor", visit.parameter("cursor")).shared().await?;
    Ok(view.live(listed(&visit, entity_type, &entities)).into_response())
}

/// The types that the canvas has, each with the way to its entities.
async fn types(visit: &Visit) -> Result<Markup, Problem> {
    let ask = visit.ask(&["entities"]).query("limit", 100).query("cursor", visit.parameter("cursor"));
    let types: List<EntityTypeJson> = ask.shared().await?;
    if types.items.is_empty() && visit.parameter("cursor").is_empty() {
        let next = html! {
            "An entity is there once its program has stored an event of it, and its type is then listed here."
        };
        return Ok(empty("There are no entities yet.", next));
    }
    Ok(html! {
        (table("Types", &["Type"], html! {
            @for EntityTypeJson { entity_type } in &types.items {
                tr { td { a href=(visit.link_with(&["entities"], &[("type", entity_type)])) { (entity_type) } } }
            }
        }))
        (pager(visit, types.next_cursor.as_deref()))
    })
}

fn choice(visit: &Visit) -> Markup {
    html! {
        form.filter method="get" role="search" {
            (form::text("type", "Type", &visit.parameter("type"), "account"))
            (form::text("entity", "One entity of it (all, if empty)", "", "ada"))
            (form::text("event", "Or the outcome of an event, by its id", "", "0198c0de-…"))
            button type="submit" { "Show" }
        }
    }
}

fn listed(visit: &Visit, entity_type: &str, entities: &List<EntitySummaryJson>) -> Markup {
    if entities.items.is_empty() && entities.next_cursor.is_none() {
        return empty(
            &format!("There is no entity of the type {entity_type}."),
            html! {
                "Is the type spelled like that in its program? An entity is there once an event of it is \
                 stored."
            },
        );
    }
    let head = ["Entity", ">Position", ">State of", ">Bytes", "Changed"];
    html! {
        (table("Entities", &head, html! {
            @for entity in &entities.items {
                tr {
                    td { a href=(visit.link(&["entities", entity_type, &entity.id])) { (entity.id) } }
                    td.number { (number(entity.version)) }
                    td.number { (number(entity.state_version)) }
                    td.number { @match entity.state_bytes { Some(bytes) => (number(bytes)), None => "–" } }
                    td { (moment(entity.updated_at)) }
                }
            }
        }))
        (pager(visit, entities.next_cursor.as_deref()))
    }
}

/// One entity. Its state is a value, so who has looked is recorded, and nothing of it is live.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let (entity_type, id) = (path.get("type"), path.get("entity"));
    let entity: EntityJson = visit.ask(&["entities", entity_type, id]).get().await?;
    let name = format!("{}/{}", entity.entity_type, entity.id);
    let is_behind = entity.state_version < entity.version;
    let contents = html! {
        (facts(&[
            ("Entity", Some(copied(&name))),
            ("Position", Some(html! { (number(entity.version)) " stored events" })),
            ("State of", is_behind.then(|| html! { "the first " (number(entity.state_version)) " of them" })),
            ("Changed", Some(moment(entity.updated_at))),
        ]))
        h2 { "State" }
        @match &entity.state {
            Some(state) => (json(state.get())),
            None if entity.hidden.is_some() => (hidden()),
            None => p { "It was not written yet: its processor writes states now and then." },
        }
        @if entity.hidden.is_none() { p.quiet { "The record says that you have looked at it." } }
    };
    Ok(View::new(format!("Entity {name}")).above(actions(&visit, &entity)).below(contents))
}

fn actions(visit: &Visit, entity: &EntityJson) -> Markup {
    let (of_type, erase) = (
        visit.link_with(&["entities"], &[("type", &entity.entity_type)]),
        visit.link(&["entities", &entity.entity_type, &entity.id, "erase"]),
    );
    html! {
        p.actions {
            a.button href=(of_type) { "All of this type" }
            @if visit.may(Scope::Admin) { a.button href=(erase) { "Erase the entity" } }
        }
    }
}

/// Asks before an entity is erased. The form has an id, so that sending it twice erases once.
pub(crate) async fn ask_erase(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let (entity_type, id) = (path.get("type"), path.get("entity"));
    let entity: EntityJson = visit.ask(&["entities", entity_type, id]).get().await?;
    let question = format!(
        "Erase {entity_type}/{id} for good? Its state and its {} stored events are deleted, and nothing \
         brings them back.",
        number(entity.version)
    );
    let action = visit.link(&["entities", entity_type, id, "erase"]);
    let back = visit.link(&["entities", entity_type, id]);
    let fields = form::hidden("id", &Uuid::now_v7().to_string());
    Ok(View::new(format!("Erase {entity_type}/{id}")).above(html! {
        p {
            "Events that are in its inbox already are processed before. Those that are sent afterwards begin \
             it anew."
        }
        (form::confirm(&visit, &action, &question, "Erase the entity", &back, fields))
    }))
}

/// The id of an erasure.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct EraseForm {
    id: String,
}

/// Erases it.
pub(crate) async fn erase(
    visit: Visit,
    path: PathParts,
    Form(given): Form<EraseForm>,
) -> Result<Done, Problem> {
    let (entity_type, entity) = (path.get("type"), path.get("entity"));
    let id = given.id.parse::<Uuid>();
    let id = id.map_err(|_| Problem::bad_request("the form has no id: load the page before again"))?;
    visit.ask(&["entities", entity_type, entity]).query("id", id).delete().await?;
    let said = format!(
        "The erasure of {entity_type}/{entity} is in its inbox, behind earlier events. It is done once it is \
         completed."
    );
    Ok(Done::new(visit.link(&["entities", "status", &id.to_string()]), said))
}

/// What became of an event that was sent to an entity, or of all with a correlation id. Results are
/// values, so who has looked is recorded.
pub(crate) async fn status(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let ask = visit.ask(&["entities", "status", path.get("id")]);
    let progress: EntityProgressJson = ask.query("cursor", visit.parameter("cursor")).get().await?;
    let head =
        ["Event", "Entity", "Outcome", ">Position", "Sent", "Decided", "Result or error", "Followed by"];
    Ok(View::new("Outcome of an event").below(html! {
        p { (status_badge(progress.status)) " " (words(progress.status)) }
        (table("Events", &head, html! { @for event in &progress.events { (row(&visit, event)) } }))
        (pager(&visit, progress.next_cursor.as_deref()))
        @if progress.hidden.is_some() { (hidden()) }
        p.actions { a.button href="" { "Look again" } }
    }))
}

fn row(visit: &Visit, event: &EntityEventJson) -> Markup {
    let entity = visit.link(&["entities", &event.entity_type, &event.entity]);
    html! {
        tr {
            td { (event.name) br; code { (event.id.to_string()) } }
            td { a href=(entity) { (event.entity_type) "/" (event.entity) } }
            td { (status_badge(event.status)) }
            td.number { @match event.version { Some(version) => (number(version)), None => "–" } }
            td { (moment(event.sent_at)) }
            td { (moment_or(event.ended_at, "not yet")) }
            td.words {
                @if let Some(error) = &event.error { (error) }
                @if let Some(result) = &event.result { (json_of_many(result.get())) }
            }
            td { @for id in &event.follow_ups { (event_link(visit, *id)) " " } }
        }
    }
}

fn status_badge(status: EntityStatus) -> Markup {
    let tone = match status {
        EntityStatus::Accepted => Tone::Waiting,
        EntityStatus::Processed => Tone::Busy,
        EntityStatus::Completed => Tone::Calm,
        EntityStatus::Failed => Tone::Alarm,
    };
    badge(tone, status.as_str())
}

fn words(status: EntityStatus) -> &'static str {
    match status {
        EntityStatus::Accepted => "It is in the inbox, and not processed yet.",
        EntityStatus::Processed => "It is in the state, and what follows outside has not ended.",
        EntityStatus::Completed => "It has ended, and so has what followed.",
        EntityStatus::Failed => "It was rejected, or it or what followed died.",
    }
}

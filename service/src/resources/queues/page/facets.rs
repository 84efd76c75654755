//! The canvases of a queue: how many copies of each wait, whose turn it is, and the weight and
//! limit of each.

use axum::Form;
use maud::{Markup, html};
use serde::Deserialize;
use uuid::Uuid;

use super::copies::{back, counted};
use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::parts::{Tone, badge, empty, facts, number, pager, table};
use crate::page::time::moment_or;
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::page::{form, given};
use crate::resources::queues::wire::{FacetJson, FacetSet, FacetSettingsJson, QueueJson, SetFacet};
use crate::resources::wire::List;

/// What is set for a canvas. What is empty is as the queue has it.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct FacetForm {
    /// The canvas, unless the address names it.
    facet: String,
    weight: String,
    in_flight_max: String,
}

/// All canvases with copies in a queue.
pub(crate) async fn list(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let name = path.get("queue");
    let queue = visit.ask_everywhere(&["queues", name]).query("limit", 1).shared::<QueueJson>().await?;
    let ask = visit.ask_everywhere(&["queues", name, "facets"]).query("limit", 100);
    let canvases: List<FacetJson> = ask.query("cursor", visit.parameter("cursor")).shared().await?;
    let live = html! {
        (listed(&visit, &queue, &canvases.items))
        (pager(&visit, canvases.next_cursor.as_deref()))
    };
    Ok(View::new(format!("Canvases in the queue {}", queue.name)).above(back(&visit, &queue.name)).live(live))
}

pub(super) fn listed(visit: &Visit, queue: &QueueJson, canvases: &[FacetJson]) -> Markup {
    if canvases.is_empty() {
        return empty(
            "No canvas has copies here.",
            html! { "Copies show up as soon as an event is emitted that matches a pattern of the queue." },
        );
    }
    let head =
        ["Canvas", "State", ">Waiting", ">Running", "Oldest due", ">Turn", ">Weight", ">In flight at most"];
    table(
        "Canvases with copies",
        &head,
        html! {
            @for facet in canvases {
                tr {
                    td { (link(visit, &queue.name, facet.canvas)) }
                    td { (state(facet.weight.unwrap_or(queue.weight))) }
                    td.number { (counted(facet.waiting, facet.capped)) }
                    td.number { (number(facet.running)) }
                    td { (moment_or(facet.oldest_due, "–")) }
                    td.number { @match facet.position { Some(turn) => (number(turn)), None => "–" } }
                    td.number { (own_or(facet.weight, Some(queue.weight))) }
                    td.number { (own_or(facet.in_flight_max, queue.in_flight_max)) }
                }
            }
        },
    )
}

fn state(weight: u32) -> Markup {
    match weight {
        0 => badge(Tone::Waiting, "paused here"),
        _ => badge(Tone::Calm, "takes turns"),
    }
}

/// A setting: the canvas's own, or that of the queue.
fn own_or(own: Option<u32>, of_queue: Option<u32>) -> Markup {
    html! {
        @match (own, of_queue) {
            (Some(own), _) => { strong { (number(own)) } }
            (None, Some(of_queue)) => { (number(of_queue)) }
            (None, None) => { "–" }
        }
    }
}

fn link(visit: &Visit, queue: &str, canvas: Uuid) -> Markup {
    let canvas = canvas.to_string();
    html! { a href=(visit.link(&["queues", queue, "facets", &canvas])) { code { (canvas) } } }
}

/// The canvases that have settings of their own, whether they have copies or not.
pub(super) fn own_settings(visit: &Visit, queue: &QueueJson) -> Markup {
    let settings = queue.settings.as_deref().unwrap_or_default();
    html! {
        @if !settings.is_empty() {
            h2 { "Settings of canvases" }
            (settings_table(visit, queue, settings))
            @if queue.next_cursor.is_some() {
                p { a href=(visit.link(&["queues", &queue.name, "settings"])) { "All settings of canvases" } }
            }
        }
    }
}

fn settings_table(visit: &Visit, queue: &QueueJson, settings: &[FacetSettingsJson]) -> Markup {
    table(
        "Settings of canvases",
        &["Canvas", "State", ">Weight", ">In flight at most"],
        html! {
            @for own in settings {
                tr {
                    td { (link(visit, &queue.name, own.canvas)) }
                    td { (state(own.weight.unwrap_or(queue.weight))) }
                    td.number { (own_or(own.weight, Some(queue.weight))) }
                    td.number { (own_or(own.in_flight_max, queue.in_flight_max)) }
                }
            }
        },
    )
}

/// All canvases with settings of their own.
pub(crate) async fn settings(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let ask = visit.ask_everywhere(&["queues", path.get("queue")]).query("limit", 100);
    let queue: QueueJson = ask.query("cursor", visit.parameter("cursor")).shared().await?;
    let live = html! {
        (settings_table(&visit, &queue, queue.settings.as_deref().unwrap_or_default()))
        (pager(&visit, queue.next_cursor.as_deref()))
    };
    let title = format!("Settings of canvases in the queue {}", queue.name);
    Ok(View::new(title).above(back(&visit, &queue.name)).live(live))
}

/// The form for any canvas.
pub(super) fn any(visit: &Visit, queue: &QueueJson) -> Markup {
    html! {
        @if visit.may_everywhere(Scope::Operate) {
            details {
                summary { "Set a canvas's share" }
                (form::change(visit, &visit.link(&["queues", &queue.name, "facets"]), html! {
                    (form::text("facet", "Canvas", "", "its uuid"))
                    (fields(None))
                    button type="submit" { "Set it" }
                }))
            }
        }
    }
}

fn fields(own: Option<&FacetSettingsJson>) -> Markup {
    let text = |number: Option<u32>| number.map(|number| number.to_string()).unwrap_or_default();
    let (weight, most) = (own.and_then(|own| own.weight), own.and_then(|own| own.in_flight_max));
    html! {
        (form::text("weight", "Copies per round (0 pauses, empty: as the queue)", &text(weight), "as the queue"))
        (form::text("in_flight_max", "At most in flight (empty: as the queue)", &text(most), "as the queue"))
    }
}

/// One canvas of a queue, and the forms that change its share.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let canvas = read(path.get("facet"))?;
    let (queue, facet) = found(&visit, path.get("queue"), canvas).await?;
    let FacetJson { weight, in_flight_max, waiting, running, capped, oldest_due, .. } = facet;
    let own = FacetSettingsJson { canvas, weight, in_flight_max };
    let own = (weight.is_some() || in_flight_max.is_some()).then_some(&own);
    let has_copies = waiting + running > 0;
    let copies = match has_copies {
        true => html! { (counted(waiting, capped)) " waiting, " (number(running)) " running" },
        false => html! { "none" },
    };
    let above = html! {
        (back(&visit, &queue.name))
        p { (state(weight.unwrap_or(queue.weight))) }
        (facts(&[
            ("Canvas", Some(html! { code { (canvas.to_string()) } })),
            ("Copies", Some(copies)),
            ("Oldest due", has_copies.then(|| moment_or(oldest_due, "none is due"))),
            ("Weight", Some(own_or(weight, Some(queue.weight)))),
            ("In flight at most", Some(own_or(in_flight_max, queue.in_flight_max))),
        ]))
        (forms(&visit, &queue.name, canvas, own))
    };
    Ok(View::new(format!("A canvas in the queue {}", queue.name)).above(above))
}

fn forms(visit: &Visit, queue: &str, canvas: Uuid, own: Option<&FacetSettingsJson>) -> Markup {
    let action = visit.link(&["queues", queue, "facets", &canvas.to_string()]);
    let most = own.and_then(|own| own.in_flight_max).map(|most| most.to_string()).unwrap_or_default();
    html! {
        @if visit.may_everywhere(Scope::Operate) {
            (form::change(visit, &action, html! {
                (fields(own))
                button type="submit" { "Set its share" }
            }))
            div.actions {
                @if own.and_then(|own| own.weight) != Some(0) {
                    (form::change(visit, &action, html! {
                        (form::hidden("weight", "0"))
                        (form::hidden("in_flight_max", &most))
                        button type="submit" { "Pause it in this queue" }
                    }))
                }
                @if own.is_some() {
                    (form::change(visit, &action, html! { button type="submit" { "Set it as the queue has it" } }))
                }
            }
        }
    }
}

/// A queue, and a canvas in it.
async fn found(visit: &Visit, queue: &str, canvas: Uuid) -> Result<(QueueJson, FacetJson), Problem> {
    let canvas = canvas.to_string();
    let found = visit.ask_everywhere(&["queues", queue]).query("limit", 1);
    let facet = visit.ask_everywhere(&["queues", queue, "facets", &canvas]);
    let (found, facet) = tokio::join!(found.get::<QueueJson>(), facet.get::<FacetJson>());
    Ok((found?, facet?))
}

fn read(canvas: &str) -> Result<Uuid, Problem> {
    canvas.trim().parse().map_err(|_| Problem::bad_request("a canvas is a uuid, such as its emits name it"))
}

/// Sets the share of the canvas that the address names.
pub(crate) async fn set(visit: Visit, path: PathParts, Form(form): Form<FacetForm>) -> Result<Done, Problem> {
    sent(&visit, path.get("queue"), read(path.get("facet"))?, &form).await
}

/// Sets the share of the canvas that the form names.
pub(crate) async fn set_any(
    visit: Visit,
    path: PathParts,
    Form(form): Form<FacetForm>,
) -> Result<Done, Problem> {
    let canvas = read(given::required("the canvas", &form.facet)?)?;
    sent(&visit, path.get("queue"), canvas, &form).await
}

async fn sent(visit: &Visit, queue: &str, canvas: Uuid, form: &FacetForm) -> Result<Done, Problem> {
    let canvas = canvas.to_string();
    let settings = SetFacet {
        weight: given::number("the number of copies per round", &form.weight)?,
        in_flight_max: given::number("the number in flight", &form.in_flight_max)?,
    };
    let ask = visit.ask_everywhere(&["queues", queue, "facets", &canvas]);
    let FacetSet { settings, woken, waking } = ask.put(&settings).await?;
    let share = match settings.weight {
        Some(0) => "is paused in this queue".to_owned(),
        Some(weight) => format!("has the weight {weight} in this queue"),
        None => "has the weight of the queue".to_owned(),
    };
    let more = match (woken, waking) {
        (0, false) => String::new(),
        (_, true) => " Its waiting copies are being woken.".to_owned(),
        (woken, false) => format!(" Copies that were woken: {woken}."),
    };
    let link = visit.link(&["queues", queue, "facets", &canvas]);
    Ok(Done::new(link, format!("The canvas {share}.{more}")))
}

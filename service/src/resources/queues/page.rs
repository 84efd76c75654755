//! Registered queues in the browser, for those who may read every canvas: what they receive, how
//! much waits, and how canvases share them.

mod copies;
pub(crate) mod facets;
pub(crate) mod leases;
pub(crate) mod removal;

use futures_util::future::try_join_all;
use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::parts::{Tone, badge, empty, facts, number, pager, table, tile};
use crate::page::time::{length, moment};
use crate::page::view::View;
use crate::page::visit::{PathParts, Visit};
use crate::resources::pulls::wire::Pull;
use crate::resources::queues::wire::{FacetJson, QueueDepthJson, QueueJson};
use crate::resources::targets::wire::{OnDeath, TargetJson};
use crate::resources::wire::List;
use copies::counted;

/// How many queues are shown at once: the depth of each is counted.
const QUEUES: usize = 20;
/// How many canvases are shown on the page of a queue.
const CANVASES: usize = 20;
/// How many patterns are shown in the list of queues.
const PATTERNS: usize = 3;

/// The registered queues.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let cursor = visit.parameter("cursor");
    let ask = visit.ask_everywhere(&["queues"]).query("limit", QUEUES).query("cursor", &cursor);
    let queues: List<QueueJson> = ask.shared().await?;
    let depths = try_join_all(queues.items.iter().map(|queue| depth(&visit, &queue.name))).await?;
    if queues.items.is_empty() && cursor.is_empty() {
        return Ok(View::new("Queues").live(none()));
    }
    Ok(View::new("Queues").live(
        html! { (listed(&visit, &queues.items, &depths)) (pager(&visit, queues.next_cursor.as_deref())) },
    ))
}

/// How much there is to do in a queue; `None` if it was removed meanwhile.
async fn depth(visit: &Visit, queue: &str) -> Result<Option<QueueDepthJson>, Problem> {
    match visit.ask_everywhere(&["queues", queue, "depth"]).shared::<QueueDepthJson>().await {
        Ok(depth) => Ok(Some(depth)),
        Err(problem) if problem.kind == Kind::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

fn none() -> Markup {
    empty(
        "No queue is registered.",
        html! {
            "A queue gets a copy of every event that matches its patterns, on any canvas. Register one with "
            code { "wakeq queues put email_events '.*:email_event:.*'" } "."
        },
    )
}

fn listed(visit: &Visit, queues: &[QueueJson], depths: &[Option<QueueDepthJson>]) -> Markup {
    let head = ["Queue", "State", "Patterns", "Processed by", ">Ready", ">Canvases in turn", ">Weight"];
    table(
        "Queues",
        &head,
        html! {
            @for (queue, depth) in queues.iter().zip(depths) {
                tr {
                    td { a href=(visit.link(&["queues", &queue.name])) { (queue.name) } }
                    td { (state(queue)) }
                    td.words {
                        @for pattern in queue.patterns.iter().take(PATTERNS) { code { (pattern) } " " }
                        @if queue.patterns.len() > PATTERNS { "…" }
                    }
                    td { (processed_by(queue)) }
                    td.number { (depth.as_ref().map_or_else(|| "–".to_owned(), ready)) }
                    td.number { (depth.as_ref().map_or_else(|| "–".to_owned(), |depth| number(depth.canvases))) }
                    td.number { (number(queue.weight)) }
                }
            }
        },
    )
}

fn ready(depth: &QueueDepthJson) -> String {
    counted(depth.depth, depth.capped)
}

fn state(queue: &QueueJson) -> Markup {
    match (queue.draining, queue.weight) {
        (true, _) => badge(Tone::Waiting, "draining"),
        (false, 0) => badge(Tone::Waiting, "paused"),
        (false, _) => badge(Tone::Calm, "in turns"),
    }
}

fn processed_by(queue: &QueueJson) -> Markup {
    html! {
        @match (&queue.target, &queue.pull) {
            (Some(target), _) => { "the target " code { (target.url) } }
            (None, Some(_)) => { "programs that lease" }
            (None, None) => { "functions of workers" }
        }
    }
}

/// One queue, with the canvases that have copies in it.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let name = path.get("queue");
    let canvases = visit.ask_everywhere(&["queues", name, "facets"]).query("limit", CANVASES);
    let queue = visit.ask_everywhere(&["queues", name]).query("limit", CANVASES);
    let depth = visit.ask_everywhere(&["queues", name, "depth"]);
    let (queue, depth, canvases) = tokio::join!(
        queue.shared::<QueueJson>(),
        depth.shared::<QueueDepthJson>(),
        canvases.shared::<List<FacetJson>>(),
    );
    let (queue, depth, canvases) = (queue?, depth?, canvases?);
    let live = html! {
        p { (state(&queue)) }
        (tiles(&depth))
        (about(&queue))
        h2 { "Canvases with copies" }
        (facets::listed(&visit, &queue, &canvases.items))
        @if canvases.next_cursor.is_some() {
            p { a href=(visit.link(&["queues", name, "facets"])) { "All canvases with copies" } }
        }
        (facets::own_settings(&visit, &queue))
    };
    let view = View::new(format!("Queue {}", queue.name)).above(actions(&visit, &queue));
    Ok(view.live(live).below(facets::any(&visit, &queue)))
}

fn actions(visit: &Visit, queue: &QueueJson) -> Markup {
    html! {
        div.actions {
            @if queue.pull.is_some() { a.button href=(visit.link(&["queues", &queue.name, "leases"])) { "Leases" } }
            @if visit.may_everywhere(Scope::Operate) {
                a.button href=(visit.link(&["queues", &queue.name, "delete"])) { "Delete the queue" }
            }
        }
    }
}

fn tiles(depth: &QueueDepthJson) -> Markup {
    html! {
        div.tiles {
            (tile("copies ready to run", &ready(depth), Tone::Waiting, None))
            (tile("canvases in turn", &number(depth.canvases), Tone::Calm, None))
        }
    }
}

fn about(queue: &QueueJson) -> Markup {
    let patterns = html! { @for pattern in &queue.patterns { code { (pattern) } br; } };
    let weight = match queue.weight {
        0 => "none: canvases without a weight of their own are paused".to_owned(),
        weight => format!("{} copies of a canvas per round", number(weight)),
    };
    let visible = if queue.tenant_visible {
        "see their copies, and hold them by their rules"
    } else {
        "see nothing of it"
    };
    facts(&[
        ("Patterns", Some(patterns)),
        ("Processed by", Some(processed_by(queue))),
        (
            "Retries",
            queue.pull.as_ref().map(retries).or_else(|| queue.target.as_ref().map(retries_of_target)),
        ),
        ("Weight", Some(html! { (weight) })),
        ("In flight", Some(html! { (in_flight(queue)) })),
        ("Canvases", Some(html! { (visible) })),
        ("Made", Some(html! { (moment(queue.created_at)) " by " (queue.created_by) })),
        ("Changed", Some(html! { (moment(queue.updated_at)) " by " (queue.updated_by) })),
    ])
}

/// How many copies of a canvas there may be in flight.
fn in_flight(queue: &QueueJson) -> String {
    match (queue.in_flight_max, &queue.pull) {
        (Some(most), _) => format!("at most {} copies of a canvas at once", number(most)),
        (None, Some(_)) => "at most 1,000 copies of a canvas at once".to_owned(),
        (None, None) => "as many copies of a canvas as its turns bring".to_owned(),
    }
}

/// How copies are tried again.
pub(crate) fn retries(pull: &Pull) -> Markup {
    let Pull { retries, delay_s, factor, delay_max_s, on_death, .. } = pull;
    policy(*retries, *delay_s, *factor, *delay_max_s, *on_death)
}

fn retries_of_target(target: &TargetJson) -> Markup {
    let of = &target.policy;
    policy(of.retries, of.delay_s, of.factor, of.delay_max_s, of.on_death)
}

fn policy(retries: u32, delay_s: f64, factor: u32, delay_max_s: f64, on_death: OnDeath) -> Markup {
    html! {
        (number(retries)) ", the first after " (length(delay_s))
        @if factor > 1 { ", then " (number(factor)) " times as long each, up to " (length(delay_max_s)) }
        @match on_death {
            OnDeath::Skip => {}
            OnDeath::Halt => { "; a death halts its object" }
        }
    }
}

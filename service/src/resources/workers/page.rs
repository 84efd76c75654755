//! Workers in the browser: the processes, what each of them runs, and the nodes of consumer groups.

use maud::{Markup, html};

use crate::http::problem::Problem;
use crate::page::chart::bar;
use crate::page::parts::{Tone, badge, copied, empty, facts, number, pager, table};
use crate::page::time::moment;
use crate::page::view::View;
use crate::page::visit::{PathParts, Visit};
use crate::resources::groups::wire::GroupNodesJson;
use crate::resources::wire::List;
use crate::resources::workers::wire::{WorkerJson, WorkerRunJson, WorkerStateJson, WorkerSummaryJson};

/// The worker processes of all canvases, and the nodes of consumer groups.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let workers = visit.ask_everywhere(&["workers"]).query("limit", 100);
    let workers = workers.query("cursor", visit.parameter("cursor"));
    let nodes = visit.ask_everywhere(&["nodes"]).query("limit", 100);
    let (workers, nodes) =
        tokio::join!(workers.shared::<List<WorkerSummaryJson>>(), nodes.shared::<GroupNodesJson>());
    let (workers, nodes) = (workers?, nodes?);
    let live = html! { (listed(&visit, &workers)) (nodes_listed(&nodes)) };
    let about =
        html! { p { "Workers take the events of every canvas. One that was killed is listed for a day." } };
    Ok(View::new("Workers").above(about).live(live))
}

fn listed(visit: &Visit, workers: &List<WorkerSummaryJson>) -> Markup {
    if workers.items.is_empty() && workers.next_cursor.is_none() {
        return empty(
            "No worker was seen within a day.",
            html! {
                "Start one: " code { "wakeq work" } " for HTTP targets, or your own program with handlers."
            },
        );
    }
    let head = ["Worker", "State", "Running", "Release", "Host", "Last seen"];
    html! {
        (table("Workers", &head, html! {
            @for worker in &workers.items {
                tr {
                    td { (worker_link(visit, worker)) }
                    td { (state_badge(worker.state)) }
                    td { (load(worker)) }
                    td { (release(worker)) }
                    td { (worker.host.as_deref().unwrap_or("–")) }
                    td { (moment(worker.seen_at)) }
                }
            }
        }))
        (pager(visit, workers.next_cursor.as_deref()))
    }
}

fn worker_link(visit: &Visit, worker: &WorkerSummaryJson) -> Markup {
    let instance = worker.instance.to_string();
    html! {
        a href=(visit.link_with(&["workers", &worker.name], &[("instance", &instance)])) { (worker.name) }
    }
}

fn state_badge(state: WorkerStateJson) -> Markup {
    let (tone, word) = match state {
        WorkerStateJson::Working => (Tone::Calm, "working"),
        WorkerStateJson::Stopping => (Tone::Waiting, "stopping"),
        WorkerStateJson::Asleep => (Tone::Calm, "asleep"),
        WorkerStateJson::Lost => (Tone::Alarm, "lost"),
    };
    badge(tone, word)
}

/// How much of its capacity a worker uses.
fn load(worker: &WorkerSummaryJson) -> Markup {
    let words = format!("{} of {}", number(worker.running), number(worker.capacity));
    html! {
        (words)
        (bar(f64::from(worker.running), f64::from(worker.capacity), Tone::Busy, &words))
    }
}

/// The release of wakeq, and the build of the program if it is known.
fn release(worker: &WorkerSummaryJson) -> Markup {
    html! { (worker.release) @if let Some(build) = &worker.build { " " span.quiet { "build " (build) } } }
}

fn nodes_listed(nodes: &GroupNodesJson) -> Markup {
    html! {
        h2 { "Nodes of consumer groups" }
        @if nodes.items.is_empty() { p { "No process consumes the log as a member of a group." } }
        @else {
            (table("Nodes", &["Node", "Last heartbeat", "Coordinates"], html! {
                @for node in &nodes.items {
                    tr {
                        td { code { (node.id.to_string()) } }
                        td { (moment(node.heartbeat_at)) }
                        td {
                            @if nodes.coordinator == Some(node.id) {
                                "in term " @match nodes.term { Some(term) => (term), None => "–" }
                            } @else { "–" }
                        }
                    }
                }
            }))
        }
        @if nodes.coordinator.is_none() && !nodes.items.is_empty() {
            p {
                (badge(Tone::Waiting, "no coordinator"))
                " Sources stay where they are until a node takes over."
            }
        }
        @if nodes.next_cursor.is_some() {
            p.quiet { "These are the first 100: " code { "wakeq groups nodes" } " lists all." }
        }
    }
}

/// One worker: that instance, or else the one that was seen last.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let ask = visit.ask_everywhere(&["workers", path.get("worker")]);
    let shown: WorkerJson = ask.query("instance", visit.parameter("instance")).shared().await?;
    let live = html! { (about(&shown.worker)) (runs(&visit, &shown)) };
    Ok(View::new(format!("Worker {}", shown.worker.name)).live(live).below(handlers(&shown)))
}

fn about(worker: &WorkerSummaryJson) -> Markup {
    html! {
        p { (state_badge(worker.state)) " " (meaning(worker.state)) }
        (facts(&[
            ("Name", Some(copied(&worker.name))),
            ("Instance", Some(html! { code { (worker.instance.to_string()) } })),
            ("Running", Some(load(worker))),
            ("Last seen", Some(moment(worker.seen_at))),
            ("Started", Some(moment(worker.started_at))),
            ("Host", worker.host.as_ref().map(|host| html! { (host) })),
            ("Process", worker.pid.map(|pid| html! { (pid) })),
            ("Release", Some(release(worker))),
        ]))
    }
}

fn meaning(state: WorkerStateJson) -> &'static str {
    match state {
        WorkerStateJson::Working => "It takes events.",
        WorkerStateJson::Stopping => "It takes no more events, and ends when its handlers have.",
        WorkerStateJson::Asleep => "It was not seen for five minutes, as it sends nothing while it is idle.",
        WorkerStateJson::Lost => {
            "It was not seen for five minutes: it was killed, or does not reach the database. Others take \
             its events when their leases end."
        }
    }
}

fn runs(visit: &Visit, shown: &WorkerJson) -> Markup {
    let more = (shown.worker.running as usize).saturating_sub(shown.runs.len());
    html! {
        h2 { "What it ran when it was last seen" }
        @if shown.runs.is_empty() { p { "Nothing." } }
        @else {
            (table("Runs", &["Event", "Handler", "Since", "Canvas"], html! {
                @for run in &shown.runs { (run_row(visit, run)) }
            }))
        }
        @if more > 0 && !shown.runs.is_empty() {
            p.quiet { "and " (more) " more, which it had for less time" }
        }
    }
}

/// The events are of any canvas, and so lead to a page there.
fn run_row(visit: &Visit, run: &WorkerRunJson) -> Markup {
    let canvas = visit.at_root(&format!("/canvases/{}", run.canvas));
    html! {
        tr {
            td { a href=(format!("{canvas}/events/{}", run.event)) { code { (run.event.to_string()) } } }
            td { (run.handler) }
            td { (moment(run.since)) }
            td { a href=(canvas) { code { (run.canvas.to_string()) } } }
        }
    }
}

fn handlers(shown: &WorkerJson) -> Markup {
    let more = (shown.worker.handlers as usize).saturating_sub(shown.handlers.len());
    html! {
        h2 { "Its handlers" }
        @if shown.handlers.is_empty() && !shown.targets { p { "It has none." } }
        p { @for handler in &shown.handlers { span.tag { (handler) } " " } }
        @if more > 0 { p.quiet { "and " (more) " more" } }
        @if shown.targets { p { "It also calls HTTP targets." } }
    }
}

//! The leased copies of a pulled queue, and the end of a lease whose holder is lost.

use maud::{Markup, html};

use super::copies::back;
use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::parts::{empty, number, pager, table};
use crate::page::time::moment;
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::pulls::wire::LeaseJson;
use crate::resources::wire::List;

/// The leases of a queue.
pub(crate) async fn list(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let name = path.get("queue");
    let cursor = visit.parameter("cursor");
    let ask = visit.ask_everywhere(&["queues", name, "leases"]).query("limit", 100).query("cursor", &cursor);
    let leases: List<LeaseJson> = ask.shared().await?;
    let live = html! {
        @if leases.items.is_empty() && leases.next_cursor.is_none() && cursor.is_empty() {
            (empty("No copy is leased now.", html! {
                "Programs lease copies over HTTP, and hold them for an hour at most."
            }))
        } @else {
            (listed(&visit, name, &leases.items))
            (pager(&visit, leases.next_cursor.as_deref()))
        }
    };
    Ok(View::new(format!("Leases of the queue {name}")).above(back(&visit, name)).live(live))
}

fn listed(visit: &Visit, queue: &str, leases: &[LeaseJson]) -> Markup {
    let head = ["Copy", "Canvas", "Handler", ">Attempt", "The lease ends", "Act"];
    table(
        "Leases",
        &head,
        html! {
            @for lease in leases { (row(visit, queue, lease)) }
        },
    )
}

fn row(visit: &Visit, queue: &str, lease: &LeaseJson) -> Markup {
    let (id, canvas) = (lease.id.to_string(), lease.canvas.to_string());
    let copy = visit.at_root(&format!("/canvases/{canvas}/events/{id}"));
    html! {
        tr {
            td { a href=(copy) { code { (id) } } }
            td { code { (canvas) } }
            td { (lease.module) "/" (lease.name) }
            td.number { (number(lease.attempt)) }
            td { (moment(lease.lease_until)) }
            td {
                @if visit.may_everywhere(Scope::Operate) {
                    a href=(visit.link(&["queues", queue, "leases", &id, "end"])) { "End it" }
                }
            }
        }
    }
}

/// Asks before a lease is ended.
pub(crate) async fn ask_end(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let (queue, id) = (path.get("queue"), path.get("id"));
    visit.needs_everywhere(Scope::Operate)?;
    let question =
        "End 1 lease? Its holder is refused from then on, and the copy can be leased again at once.";
    let action = visit.link(&["queues", queue, "leases", id, "end"]);
    let leases = visit.link(&["queues", queue, "leases"]);
    let above = html! {
        p {
            "Of the copy " code { (id) } " in the queue " (queue)
            ". If the holder still works on it, two may do the same work."
        }
        (form::confirm(&visit, &action, question, "End the lease", &leases, html! {}))
    };
    Ok(View::new("End a lease").above(above))
}

/// Ends it.
pub(crate) async fn end(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let (queue, id) = (path.get("queue"), path.get("id"));
    visit.ask_everywhere(&["queues", queue, "leases", id]).delete().await?;
    Ok(Done::new(
        visit.link(&["queues", queue, "leases"]),
        "The lease was ended: the copy can be leased again.",
    ))
}

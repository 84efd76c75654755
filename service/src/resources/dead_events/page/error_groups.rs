//! What the dead events of a canvas died of, the most frequent first.

use maud::{Markup, html};

use super::{PAGE, cause_words, error_words, known_words, may_begin};
use crate::http::problem::{Kind, Problem};
use crate::page::form;
use crate::page::parts::{empty, number, pager, table};
use crate::page::time::moment;
use crate::page::view::View;
use crate::page::visit::Visit;
use crate::resources::dead_events::wire::group::{ErrorGroupJson, ErrorGroupsJson};
use crate::resources::events::page::handler_link;

/// The fields of the filter, as the API names them.
const FILTER: [&str; 5] = ["module", "name", "known", "order", "cursor"];
const KNOWN: [(&str, &str); 3] = [("", "known or not"), ("false", "not known yet"), ("true", "known")];
const ORDERS: [(&str, &str); 2] = [("count", "most events"), ("last_died", "died last")];

/// The error groups.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let given: Vec<_> =
        visit.parameters().into_iter().filter(|(name, _)| FILTER.contains(&name.as_str())).collect();
    let ask = visit.ask(&["dead-events", "groups"]).queries(&given).query("limit", PAGE);
    let filter = html! {
        p { "Events that were given up, by what they died of. They are kept, and can run again." }
        (filter(&visit))
    };
    let above = html! {
        p.actions { a.button href=(visit.link(&["dead-events", "list"])) { "Dead events one by one" } }
    };
    let view = View::new("Dead events").filter(filter).above(above);
    match ask.shared::<ErrorGroupsJson>().await {
        Ok(groups) => Ok(view.live(listed(&visit, &groups, given.is_empty()))),
        Err(problem) if problem.kind == Kind::BadRequest => Ok(view.refused(&problem)),
        Err(problem) => Err(problem),
    }
}

fn filter(visit: &Visit) -> Markup {
    let value = |name: &str| visit.parameter(name);
    let fields = html! {
        (form::text("module", "Module", &value("module"), "WORKER"))
        (form::text("name", "Handler", &value("name"), "send-email"))
        (form::select("known", "Known", &value("known"), &KNOWN))
        (form::select("order", "First come those with", &value("order"), &ORDERS))
    };
    form::filter(visit, form::found_as_typed(fields))
}

fn listed(visit: &Visit, groups: &ErrorGroupsJson, is_all: bool) -> Markup {
    if groups.items.is_empty() && groups.next_cursor.is_none() {
        return nothing(is_all);
    }
    let mut head = vec!["Error", "Handler", "Why", ">Events", "First died", "Last died", "Known"];
    if may_begin(visit) {
        head.push("Again");
    }
    html! {
        (table("Error groups", &head, html! { @for group in &groups.items { (row(visit, group)) } }))
        p.quiet {
            (number(groups.looked_at)) " dead events were counted."
            @if groups.more { " Only those that died last are: there may be older ones." }
        }
        (pager(visit, groups.next_cursor.as_deref()))
    }
}

fn nothing(is_all: bool) -> Markup {
    if is_all {
        return empty(
            "No event has died.",
            html! {
                "One dies when its handler has failed too often, or says that no retry can help. "
                "Then what it died of is shown here."
            },
        );
    }
    empty("No dead event is like that.", html! { "Clear the filter to see what else there is." })
}

fn row(visit: &Visit, group: &ErrorGroupJson) -> Markup {
    let id = group.id.to_string();
    let redrive = [("kind", "redrive"), ("error_group", id.as_str())];
    html! {
        tr {
            td.words {
                a href=(visit.link(&["dead-events", "groups", &id])) {
                    (error_words(&group.fingerprint))
                }
            }
            td { (handler_link(visit, &group.module, &group.name, None)) }
            td { (cause_words(&group.cause)) }
            td.number { (number(group.count)) }
            td { (moment(group.first_died_at)) }
            td { (moment(group.last_died_at)) }
            td.words { (known_words(group.known.as_ref())) }
            @if may_begin(visit) {
                td { a href=(visit.link_with(&["operations", "new"], &redrive)) { "Redrive all…" } }
            }
        }
    }
}

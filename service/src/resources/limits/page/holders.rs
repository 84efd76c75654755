//! Who is starving whom: which handlers, keys, families and objects hold the places of a limit, and
//! which wait for them.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use futures_util::stream::iter;
use maud::{Markup, html};
use uuid::Uuid;

use super::AT_ONCE;
use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::parts::{number, table};
use crate::page::time::moment_or;
use crate::page::view::View;
use crate::page::visit::{PathParts, Visit};
use crate::resources::events::page::state_badge;
use crate::resources::events::wire::{EventDetail, EventState, EventSummaryJson};
use crate::resources::limits::wire::LimitUseJson;
use crate::resources::objects::page::{event_link, handler_link};
use crate::resources::wire::List;

/// How many of those that hold places, and of those that wait, are looked at.
const LOOKED_AT: usize = 20;
/// Of how many keys of a family those that wait are looked at.
const KEYS: usize = 5;
/// How many of those that hold nothing are named.
const NAMED: usize = 3;
/// The words of a link that stands beside the name of what it limits.
const LIMIT_IT: &str = "Limit it";

/// What holds the places of a limit now, and what waits. Looked at once, since each event is asked
/// for.
pub(crate) async fn show(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let name = path.get("limit");
    let ask = visit.ask(&["limits", name, "uses"]).query("limit", 100);
    let uses: List<LimitUseJson> = ask.shared().await?;
    let ids = uses.items.iter().flat_map(|used| &used.holders).take(LOOKED_AT).copied().collect();
    let held = details(&visit, ids).await?;
    let held: Vec<_> = held.into_iter().filter(|event| event.state == EventState::Running).collect();
    let waiting = waiting(&visit, &uses.items).await?;
    let running: u64 = uses.items.iter().map(|used| u64::from(used.running)).sum();
    let waits: u64 = uses.items.iter().map(|used| used.waiting).sum();
    Ok(View::new(format!("Who holds the places of {name}")).above(html! {
        p.actions {
            a.button href=(visit.link(&["limits", name])) { "Back to the limit" } " "
            a.button href="" { "Look again" }
        }
        p {
            "Places held: " (number(running)) ". Waiting: " (number(waits)) ". Of these, "
            (held.len()) " and " (waiting.len()) " were looked at."
        }
        (compared(&visit, name, &counted(&held, &waiting), held.len()))
        (each("Those that hold places", &visit, &held))
        (each("Those that wait", &visit, &waiting))
    }))
}

/// These events, without those that have ended meanwhile.
async fn details(visit: &Visit, ids: Vec<Uuid>) -> Result<Vec<EventDetail>, Problem> {
    let ask = |id: Uuid| visit.ask(&["events", &id.to_string()]).shared::<EventDetail>();
    let asks: Vec<_> = ids.into_iter().map(ask).collect();
    let answers: Vec<_> = iter(asks).buffered(AT_ONCE).collect().await;
    let there =
        answers.into_iter().filter(|answer| !matches!(answer, Err(gone) if gone.kind == Kind::NotFound));
    there.collect()
}

/// The first events that wait for this limit, or for those keys of this family for which most wait.
async fn waiting(visit: &Visit, uses: &[LimitUseJson]) -> Result<Vec<EventDetail>, Problem> {
    let mut waited: Vec<_> = uses.iter().filter(|used| used.waiting > 0).collect();
    waited.sort_by_key(|used| std::cmp::Reverse(used.waiting));
    waited.truncate(KEYS);
    let each = LOOKED_AT / waited.len().max(1);
    let mut ids = Vec::new();
    for used in waited {
        let ask = visit.ask(&["events"]).query("waits_for", &used.name).query("limit", each);
        let found: List<EventSummaryJson> = ask.shared().await?;
        ids.extend(found.items.iter().map(|event| event.id));
    }
    // An operator's limit of a handler may have the same name.
    let is_meant = |event: &EventDetail| event.limit.as_ref().is_some_and(|wait| !wait.all_canvases);
    Ok(details(visit, ids).await?.into_iter().filter(is_meant).collect())
}

/// The family of a key.
fn family(key: &str) -> Option<&str> {
    key.split_once(':').map(|(family, _)| family)
}

/// What an event belongs to, each in words.
fn groups(event: &EventDetail) -> Vec<(&'static str, String)> {
    let mut groups = Vec::new();
    if let Some((module, name)) = event.module.as_deref().zip(event.name.as_deref()) {
        groups.push(("handler", format!("{module}/{name}")));
    }
    for key in event.options.iter().flat_map(|options| &options.limits) {
        groups.extend(family(key).map(|family| ("family", family.to_owned())));
        groups.push(("key", key.clone()));
    }
    groups.extend(event.place.as_ref().map(|place| ("object", place.object.clone())));
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// How many of each kind hold places, and how many wait: those that hold most come first.
fn counted(held: &[EventDetail], waiting: &[EventDetail]) -> Vec<Group> {
    let mut counts = BTreeMap::<(&'static str, String), [usize; 2]>::new();
    for (at, events) in [held, waiting].into_iter().enumerate() {
        for group in events.iter().flat_map(groups) {
            counts.entry(group).or_default()[at] += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

/// A kind of group, which group it is, and how many of its events hold places and wait.
type Group = ((&'static str, String), [usize; 2]);

fn compared(visit: &Visit, name: &str, counts: &[Group], held: usize) -> Markup {
    html! {
        h2 { "Who is starving whom" }
        @if counts.is_empty() { p { "Nothing holds a place of it, and nothing waits." } }
        @else {
            (verdict(visit, name, counts, held))
            (table("Who holds places and who waits", &["Kind", "Which", ">Hold places", ">Wait", "Limit"], html! {
                @for ((kind, which), [holds, waits]) in counts.iter().take(LOOKED_AT) {
                    tr {
                        td { (kind) } td { (which) } td.number { (holds) } td.number { (waits) }
                        td { (limiting(visit, name, kind, which, LIMIT_IT)) }
                    }
                }
            }))
        }
    }
}

/// In a sentence: the key that holds most while others hold nothing, with the way to limit it. If
/// emits name no keys, it is the object or the handler.
fn verdict(visit: &Visit, name: &str, counts: &[Group], held: usize) -> Markup {
    let found = ["key", "object", "handler"].into_iter().find_map(|kind| starving(kind, counts));
    let Some(Starving { kind, which, holds, starved }) = found else { return html! {} };
    let (names, more) = (starved.iter().take(NAMED), starved.len().saturating_sub(NAMED));
    let names = names.map(|name| (*name).to_owned()).collect::<Vec<_>>().join(", ");
    let words = format!("Give {which} a limit");
    html! {
        p.verdict {
            (which) " holds " (holds) " of the " (held) " places that were looked at, while " (names)
            @if more > 0 { " and " (more) " more" }
            @if starved.len() == 1 { " waits and holds none." } @else { " wait and hold none." }
        }
        p.actions { (limiting(visit, name, kind, which, &words)) }
    }
}

/// Who holds most places, and who waits without any.
struct Starving<'g> {
    kind: &'static str,
    which: &'g str,
    holds: usize,
    starved: Vec<&'g str>,
}

/// Among the groups of a kind.
fn starving<'g>(kind: &'static str, counts: &'g [Group]) -> Option<Starving<'g>> {
    let of_kind = move || counts.iter().filter(move |((own, _), _)| *own == kind);
    let ((_, which), [holds, _]) =
        of_kind().max_by_key(|(_, [holds, _])| *holds).filter(|(_, [holds, _])| *holds > 0)?;
    let starved = of_kind().filter(|(_, [holds, waits])| *holds == 0 && *waits > 0);
    let starved: Vec<&str> = starved.map(|((_, which), _)| which.as_str()).collect();
    (!starved.is_empty()).then_some(Starving { kind, which, holds: *holds, starved })
}

/// The way to a limit of a group, if it can have one and is not limited by this one already.
fn limiting(visit: &Visit, name: &str, kind: &str, which: &str, words: &str) -> Markup {
    let limit = match kind {
        "handler" => Some(format!("handler:{which}")),
        "key" | "family" => Some(which.to_owned()),
        _ => None,
    };
    let limit = limit.filter(|limit| limit != name && visit.may(Scope::Operate));
    html! {
        @if let Some(limit) = limit {
            a.button href=(visit.link(&["limits", &limit, "set"]))
                aria-label=[(words == LIMIT_IT).then(|| format!("{words}: {limit}"))] { (words) }
        }
    }
}

fn each(title: &str, visit: &Visit, events: &[EventDetail]) -> Markup {
    html! {
        @if !events.is_empty() {
            h2 { (title) }
            (table(title, &["Event", "State", "Handler", "Keys", "Object", "Since"], html! {
                @for event in events { (row(visit, event)) }
            }))
        }
    }
}

fn row(visit: &Visit, event: &EventDetail) -> Markup {
    let handler = event.module.as_deref().zip(event.name.as_deref());
    html! {
        tr {
            td { (event_link(visit, event.id)) }
            td { (state_badge(event.state)) }
            td { @if let Some((module, name)) = handler { (handler_link(visit, module, name)) } }
            td { @for key in event.options.iter().flat_map(|options| &options.limits) { span.tag { (key) } } }
            td {
                @if let Some(place) = &event.place {
                    a href=(visit.link(&["objects", &place.object])) { (place.object) }
                }
            }
            td { (moment_or(event.since, "–")) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_a_family_and_a_name_without_a_colon_has_none() {
        assert_eq!(family("customer:7:eu"), Some("customer"));
        assert_eq!(family("customer"), None);
    }

    #[test]
    fn who_holds_places_starves_those_that_hold_none() {
        let group = |kind, which: &str, counts| ((kind, which.to_owned()), counts);
        let of = |groups: &[Group]| {
            starving("key", groups)
                .map(|found| (found.which.to_owned(), found.holds, found.starved.join(" ")))
        };
        let some = [
            group("handler", "WORKER/sync", [3, 3]),
            group("key", "customer:7", [2, 5]),
            group("key", "customer:5", [1, 1]),
            group("key", "customer:8", [0, 2]),
            group("key", "customer:9", [0, 1]),
        ];
        assert_eq!(of(&some), Some(("customer:7".to_owned(), 2, "customer:8 customer:9".to_owned())));
        assert_eq!(of(&some[..3]), None, "each holds some");
        assert_eq!(of(&some[3..]), None, "none holds any");
        assert_eq!(of(&some[..1]), None, "there are no keys");
    }
}

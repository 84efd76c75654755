//! Limits in the browser: those of the canvas and the operator's, what is in use of them, and who
//! waits.

pub(crate) mod change;
pub(crate) mod holders;
mod owner;

use futures_util::StreamExt as _;
use futures_util::stream::iter;
use maud::{Markup, html};

use owner::{Owner, allowed};

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::chart::bar;
use crate::page::parts::{Tone, badge, copied, empty, facts, number, pager, table};
use crate::page::time::{moment, moment_or};
use crate::page::view::View;
use crate::page::visit::{PathParts, Visit};
use crate::resources::limits::wire::{LimitJson, LimitUseJson};
use crate::resources::objects::page::event_link;
use crate::resources::wire::List;

/// How many limits a page lists, each of which is asked for its use; how many at once.
const LISTED: usize = 20;
/// How many keys of each of them are looked at.
const KEYS: usize = 25;
const AT_ONCE: usize = 4;

/// The limits of the canvas, or with `of=operator` those of the operator.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let owner = Owner::of(&visit);
    let ask = owner.ask(&visit, &["limits"]).query("limit", LISTED);
    let limits: List<LimitJson> = ask.query("cursor", visit.parameter("cursor")).shared().await?;
    let uses = uses_of(&visit, owner, &limits.items).await?;
    let live = listed(&visit, owner, &limits, &uses);
    let title = if owner == Owner::Operator { "Limits over all canvases" } else { "Limits" };
    let new = html! { @if owner.may_change(&visit) { h2 { "Set a limit" } (change::form(&visit, owner, "", None)) } };
    Ok(View::new(title).above(about(&visit, owner)).live(live).below(new))
}

fn about(visit: &Visit, owner: Owner) -> Markup {
    html! {
        @match owner {
            Owner::Canvas => {
                p { "How many events run at a time or start in a period, over all workers." }
                @if visit.may_everywhere(Scope::Read) {
                    p.actions {
                        a.button href=(Owner::Operator.link(visit, &["limits"])) { "The operator's limits" }
                    }
                }
            },
            Owner::Operator => {
                p {
                    "Those of handlers count the events of all canvases together. Any other one is the \
                     default of each canvas that has none of its name, where its use is shown."
                }
                p.actions {
                    a.button href=(Owner::Canvas.link(visit, &["limits"])) { "The limits of this canvas" }
                }
            },
        }
    }
}

/// What is in use of each of these limits.
async fn uses_of(
    visit: &Visit,
    owner: Owner,
    limits: &[LimitJson],
) -> Result<Vec<List<LimitUseJson>>, Problem> {
    let ask = |limit: &LimitJson| {
        let ask = owner.ask(visit, &["limits", &limit.name, "uses"]);
        ask.query("limit", KEYS).shared::<List<LimitUseJson>>()
    };
    let asks: Vec<_> = limits.iter().map(ask).collect();
    let answers: Vec<_> = iter(asks).buffered(AT_ONCE).collect().await;
    answers.into_iter().collect()
}

fn listed(visit: &Visit, owner: Owner, limits: &List<LimitJson>, uses: &[List<LimitUseJson>]) -> Markup {
    if limits.items.is_empty() && limits.next_cursor.is_none() {
        return empty(
            if owner == Owner::Operator {
                "The operator has set no limit."
            } else {
                "This canvas has no limit."
            },
            html! {
                "Set one below, if you may: for the canvas, for a handler, or for a key that emits name."
            },
        );
    }
    let head = ["Limit", "Allows", "State", ">Running", ">Waiting", ">Keys in use", "Next start"];
    html! {
        (table("Limits", &head, html! {
            @for (limit, uses) in limits.items.iter().zip(uses) { (row(visit, owner, limit, uses)) }
        }))
        (pager(visit, limits.next_cursor.as_deref()))
    }
}

fn row(visit: &Visit, owner: Owner, limit: &LimitJson, uses: &List<LimitUseJson>) -> Markup {
    let running: u64 = uses.items.iter().map(|used| u64::from(used.running)).sum();
    let waiting: u64 = uses.items.iter().map(|used| used.waiting).sum();
    let next = uses.items.iter().filter_map(|used| used.next_start).min();
    let more = if uses.next_cursor.is_some() { "more than " } else { "" };
    let is_full = uses.items.iter().any(|used| is_full(limit, used));
    html! {
        tr {
            td { a href=(owner.link(visit, &["limits", &limit.name])) { (limit.name) } }
            td { (allowed(limit)) }
            td { (state_badge(is_full, waiting)) }
            td.number { (more) (number(running)) }
            td.number { (more) (number(waiting)) }
            td.number { (more) (uses.items.len()) }
            td { (moment_or(next, if starts_now(limit, &uses.items) { "now" } else { "-" })) }
        }
    }
}

/// Whether an event may start under one of the names that were counted. Without any, there is room.
fn starts_now(limit: &LimitJson, uses: &[LimitUseJson]) -> bool {
    uses.is_empty() && limit.starts_beside(0) || uses.iter().any(|used| limit.starts_beside(used.running))
}

fn is_full(limit: &LimitJson, used: &LimitUseJson) -> bool {
    limit.concurrency.is_some_and(|places| used.running >= places) || used.next_start.is_some()
}

fn state_badge(is_full: bool, waiting: u64) -> Markup {
    match (is_full, waiting) {
        (true, 1..) => badge(Tone::Alarm, "full, others wait"),
        (true, 0) => badge(Tone::Busy, "full"),
        (false, 1..) => badge(Tone::Waiting, "others wait"),
        (false, 0) => badge(Tone::Calm, "has room"),
    }
}

/// One limit: what it allows, what is in use of it, and who waits.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let (owner, name) = (Owner::of(&visit), path.get("limit"));
    let uses = owner.ask(&visit, &["limits", name, "uses"]).query("limit", 100);
    let uses = uses.query("cursor", visit.parameter("cursor"));
    let (limit, uses) = tokio::join!(
        owner.ask(&visit, &["limits", name]).shared::<LimitJson>(),
        uses.shared::<List<LimitUseJson>>()
    );
    let (limit, uses) = (limit?, uses?);
    let live = html! { (definition(&limit)) (starving(&limit, &uses)) (used(&visit, owner, &limit, &uses)) };
    let change = html! {
        @if owner.may_change(&visit) {
            h2 { (if limit.default { "Set one of this canvas" } else { "Change it" }) }
            p {
                "What runs goes on. If it allows less than before, nothing new starts until enough has ended."
            }
            (change::form(&visit, owner, &limit.name, Some(&limit)))
        }
    };
    Ok(View::new(format!("Limit {name}")).above(actions(&visit, owner, &limit)).live(live).below(change))
}

fn actions(visit: &Visit, owner: Owner, limit: &LimitJson) -> Markup {
    html! {
        div.actions {
            @if owner == Owner::Canvas {
                a.button href=(visit.link(&["limits", &limit.name, "holders"])) { "Who holds the places" }
            }
            @if owner.may_change(visit) && !limit.default {
                a.button href=(owner.link(visit, &["limits", &limit.name, "remove"])) { "Remove the limit" }
            }
        }
    }
}

fn definition(limit: &LimitJson) -> Markup {
    let default = "the operator's, since this canvas has no limit of this name";
    html! {
        (facts(&[
            ("Limits", Some(copied(&limit.name))),
            ("Allows", Some(html! { (allowed(limit)) })),
            ("Default", limit.default.then(|| html! { (default) })),
            ("Changed", Some(html! { (moment(limit.updated_at)) " by " (limit.updated_by) })),
            ("Set first", Some(html! { (moment(limit.created_at)) " by " (limit.created_by) })),
        ]))
    }
}

/// Which keys hold all of their places while others wait for them, those with most waiting first.
fn starving(limit: &LimitJson, uses: &List<LimitUseJson>) -> Markup {
    let mut waited: Vec<_> = uses.items.iter().filter(|used| used.waiting > 0).collect();
    waited.sort_by_key(|used| std::cmp::Reverse(used.waiting));
    html! {
        h2 { "Who waits" }
        @if waited.is_empty() { p { "No event waits for it." } }
        @else { ul { @for used in waited.iter().take(20) { li { (sentence(limit, used)) } } } }
    }
}

fn sentence(limit: &LimitJson, used: &LimitUseJson) -> Markup {
    let waiting = match used.waiting {
        1 => "1 event waits".to_owned(),
        10_000.. => "10\u{202f}000 events or more wait".to_owned(),
        waiting => format!("{} events wait", number(waiting)),
    };
    html! {
        strong { (used.name) } ": " (waiting)
        @if let Some(places) = limit.concurrency {
            ", while " (number(used.running)) " of its " (number(places)) " places are held"
        }
        @if let Some(next) = used.next_start { ", and its rate lets the next one start " (moment(next)) }
        "."
    }
}

fn used(visit: &Visit, owner: Owner, limit: &LimitJson, uses: &List<LimitUseJson>) -> Markup {
    html! {
        h2 { "In use" }
        @if uses.items.is_empty() { p { "Nothing was counted under it for an hour." } }
        @else {
            (table("In use", &["Counted", "Running", ">Waiting", "Next start", "Held by"], html! {
                @for used in &uses.items {
                    tr {
                        td { (used.name) (alone(visit, owner, limit, used)) }
                        td { (places(limit, used)) }
                        td.number { (waiting(visit, owner, used)) }
                        td { (moment_or(used.next_start, limit.start_without_time(used))) }
                        td { (holders_of(visit, owner, used)) }
                    }
                }
            }))
        }
        (pager(visit, uses.next_cursor.as_deref()))
    }
}

/// How many wait, with the way to their list. An operator's may be of any canvas.
fn waiting(visit: &Visit, owner: Owner, used: &LimitUseJson) -> Markup {
    let listed = owner == Owner::Canvas && used.waiting > 0;
    html! {
        @if listed {
            a href=(visit.link_with(&["events"], &[("waits_for", &used.name)])) { (number(used.waiting)) }
        } @else { (number(used.waiting)) }
    }
}

/// The way to a limit of its own for a key of a family.
fn alone(visit: &Visit, owner: Owner, limit: &LimitJson, used: &LimitUseJson) -> Markup {
    let has_none = owner == Owner::Canvas && used.name != limit.name && owner.may_change(visit);
    html! {
        @if has_none {
            br;
            a href=(visit.link(&["limits", &used.name, "set"])) aria-label=(format!("Limit it alone: {}", used.name)) {
                "Limit it alone"
            }
        }
    }
}

fn places(limit: &LimitJson, used: &LimitUseJson) -> Markup {
    let Some(places) = limit.concurrency else { return html! { (number(used.running)) } };
    let tone = if used.running >= places { Tone::Alarm } else { Tone::Busy };
    let words = format!("{} of {}", number(used.running), number(places));
    html! { (words) (bar(f64::from(used.running), f64::from(places), tone, &words)) }
}

/// The first of the events that hold places. Those of an operator's limit are of any canvas.
fn holders_of(visit: &Visit, owner: Owner, used: &LimitUseJson) -> Markup {
    html! {
        @for id in &used.holders {
            @match owner {
                Owner::Canvas => (event_link(visit, *id)),
                Owner::Operator => code { (id.to_string()) },
            }
            " "
        }
        @if used.running as usize > used.holders.len() { span.quiet { "and others" } }
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::resources::limits::wire::{OnFullJson, RateJson};

    #[test]
    fn an_event_starts_now_only_where_a_name_has_a_place() {
        let at = DateTime::UNIX_EPOCH;
        let rate = Some(RateJson { count: 5, period_s: 1.0, burst: None });
        let starts = |rate, running: &[u32]| {
            let limit = LimitJson {
                name: "customer".to_owned(),
                concurrency: Some(2),
                rate,
                on_full: OnFullJson::Wait,
                waiting_max: None,
                default: false,
                created_at: at,
                created_by: "ada".to_owned(),
                updated_at: at,
                updated_by: "ada".to_owned(),
            };
            let used = |running: &u32| LimitUseJson {
                name: "customer:7".to_owned(),
                running: *running,
                holders: Vec::new(),
                waiting: 3,
                next_start: None,
            };
            starts_now(&limit, &running.iter().map(used).collect::<Vec<_>>())
        };
        assert!(starts(rate, &[]) && starts(rate, &[1]) && starts(rate, &[2, 1]));
        assert!(!starts(rate, &[2]) && !starts(rate, &[2, 2]), "each waits for a place");
        assert!(!starts(None, &[]) && !starts(None, &[1]));
    }
}

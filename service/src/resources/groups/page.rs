//! Consumer groups in the browser: how far they are behind, and who owns which source. They read
//! the log of every canvas.

pub(crate) mod change;
pub(crate) mod dead;

use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::parts::{Tone, badge, empty, number, pager, table, tile};
use crate::page::time::{moment, moment_or};
use crate::page::view::View;
use crate::page::visit::{PathParts, Visit};
use crate::resources::groups::wire::{GroupJson, GroupSourceJson, GroupSubscriber, GroupSummary};
use crate::resources::wire::List;

/// How many sources and subscribers of a group are shown.
const SHOWN: usize = 500;

/// All groups.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let ask = visit.ask_everywhere(&["groups"]).query("limit", 100);
    let groups: List<GroupSummary> = ask.query("cursor", visit.parameter("cursor")).shared().await?;
    let about = html! {
        p {
            "A group is the consumers of one name, in any number of processes. It reads the log of every \
             canvas, and keeps it from being dropped until it is removed."
        }
    };
    Ok(View::new("Groups").above(about).live(listed(&visit, &groups)))
}

fn listed(visit: &Visit, groups: &List<GroupSummary>) -> Markup {
    if groups.items.is_empty() && groups.next_cursor.is_none() {
        return empty(
            "No group reads the log.",
            html! {
                "A group is there once a program with consumers has started. " code { "wakeq work" }
                " starts none."
            },
        );
    }
    let head = ["Group", "State", ">Subscribers", ">Sources", ">Without owner", ">Lag"];
    html! {
        (table("Groups", &head, html! {
            @for group in &groups.items {
                tr {
                    td { a href=(visit.link(&["groups", &group.name])) { (group.name) } }
                    td { (state_badge(group)) }
                    td.number { @if group.alone { "alone" } @else { (group.subscribers) } }
                    td.number { (group.sources) }
                    td.number { (group.idle) }
                    td.number { (number(group.lag)) }
                }
            }
        }))
        (pager(visit, groups.next_cursor.as_deref()))
    }
}

fn state_badge(group: &GroupSummary) -> Markup {
    if group.unhealthy > 0 {
        badge(Tone::Alarm, &format!("{} unhealthy", group.unhealthy))
    } else if group.subscribers == 0 && !group.alone {
        badge(Tone::Alarm, "abandoned")
    } else if group.idle > 0 {
        badge(Tone::Waiting, "sources without owner")
    } else {
        badge(Tone::Calm, "healthy")
    }
}

/// One group: its sources with their owners, and its subscribers.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let ask = visit.ask_everywhere(&["groups", path.get("group")]);
    let group: GroupJson = ask.shared().await?;
    let live = html! {
        (counts(&group))
        (failing(&group))
        (sources(&visit, &group))
        (subscribers(&group))
    };
    Ok(View::new(format!("Group {}", group.name)).above(actions(&visit, &group)).live(live))
}

fn actions(visit: &Visit, group: &GroupJson) -> Markup {
    let to = |part: &str| visit.link(&["groups", &group.name, part]);
    html! {
        div.actions {
            a.button href=(to("dead")) { "Dead events" }
            @if visit.may_everywhere(Scope::Operate) {
                (form::button(visit, &to("recover"), "Retry what failed"))
                a.button href=(to("reset")) { "Reset its position" }
                a.button href=(to("remove")) { "Remove the group" }
            }
        }
    }
}

fn counts(group: &GroupJson) -> Markup {
    let lag = group.sources.iter().map(|source| source.lag).max().unwrap_or(0);
    let there = group.subscribers.iter().filter(|one| !one.lapsed || one.unhealthy.is_some()).count();
    let is_alone = group.alone.is_some();
    let idle = group.sources.iter().filter(|source| source.subscriber.is_none() && !is_alone).count();
    let is_abandoned = there == 0 && !is_alone;
    let tone = |is_off: bool, tone: Tone| if is_off { tone } else { Tone::Calm };
    html! {
        div.tiles {
            (tile("lag, in log numbers", &number(lag), tone(lag > 0, Tone::Waiting), None))
            (tile("sources", &group.sources.len().to_string(), Tone::Calm, None))
            (tile("sources without owner", &idle.to_string(), tone(idle > 0, Tone::Waiting), None))
            (tile("subscribers", &there.to_string(), tone(is_abandoned, Tone::Alarm), None))
        }
        @if is_abandoned {
            p {
                (badge(Tone::Alarm, "abandoned")) " Nobody reads for this group, and the log is kept for it. \
                 Start its program, or remove the group."
            }
        }
        @if let Some(process) = group.alone {
            p { "The process " code { (process.to_string()) } " owns all of its sources." }
        }
        @if let Some(pin) = group.pin {
            p { "For its entity type, the log keeps everything after number " (pin) "." }
        }
    }
}

/// The events for which sources wait.
fn failing(group: &GroupJson) -> Markup {
    let waiting = || group.sources.iter().filter_map(|source| Some((source, source.failing.as_ref()?)));
    let head = ["Source", ">Log number", ">Attempts", "Since", "Error of the last attempt"];
    html! {
        @if waiting().next().is_some() {
            h2 { "What it waits for" }
            (table("Failing events", &head, html! {
                @for (source, failing) in waiting().take(SHOWN) {
                    tr {
                        td { (source.source) }
                        td.number { (failing.seq) }
                        td.number { (failing.attempts) }
                        td { (moment(failing.since)) }
                        td.words { (failing.error) }
                    }
                }
            }))
        }
    }
}

fn sources(visit: &Visit, group: &GroupJson) -> Markup {
    let may_operate = visit.may_everywhere(Scope::Operate);
    let mut head = vec!["Source", "Owner", ">Position", ">Lag", "Moved"];
    head.extend(may_operate.then_some("What to do"));
    html! {
        h2 { "Sources" }
        @if group.sources.is_empty() { p { "It has none." } }
        @else {
            (table("Sources", &head, html! {
                @for source in group.sources.iter().take(SHOWN) {
                    tr {
                        td { (source.source) }
                        td { (owner(source, group.alone.is_some())) }
                        td.number { (source.position) }
                        td.number { (number(source.lag)) }
                        td { (moment_or(source.moved_at, "never")) }
                        @if may_operate { td { (controls(visit, group, source)) } }
                    }
                }
            }))
            @if group.sources.len() > SHOWN { p.quiet { "and " (group.sources.len() - SHOWN) " more" } }
        }
    }
}

fn owner(source: &GroupSourceJson, is_alone: bool) -> Markup {
    html! {
        @match source.subscriber {
            Some(subscriber) => { code { (subscriber.to_string()) } },
            None => { (if is_alone { "alone" } else { "–" }) },
        }
        @if source.releasing { " " (badge(Tone::Waiting, "being handed over")) }
    }
}

fn controls(visit: &Visit, group: &GroupJson, source: &GroupSourceJson) -> Markup {
    let to = |part: &str| visit.link_with(&["groups", &group.name, part], &[("source", &source.source)]);
    html! { a href=(to("reset")) { "Reset" } " " a href=(to("remove")) { "Remove" } }
}

fn subscribers(group: &GroupJson) -> Markup {
    html! {
        h2 { "Subscribers" }
        @if group.subscribers.is_empty() { p { "It has none." } }
        @else {
            (table("Subscribers", &["Subscriber", "Node", "State", "Last heartbeat"], html! {
                @for one in group.subscribers.iter().take(SHOWN) {
                    tr {
                        td { code { (one.id.to_string()) } }
                        td { code { (one.node.to_string()) } }
                        td.words { (health(one)) }
                        td { (moment(one.heartbeat_at)) }
                    }
                }
            }))
        }
    }
}

fn health(one: &GroupSubscriber) -> Markup {
    match &one.unhealthy {
        Some(why) => html! { (badge(Tone::Alarm, "unhealthy")) " " (why) },
        None if one.lapsed => badge(Tone::Alarm, "no heartbeat for a lease"),
        None => badge(Tone::Calm, "healthy"),
    }
}

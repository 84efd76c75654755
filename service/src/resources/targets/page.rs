//! HTTP targets in the browser: those of a handler and of the canvas, and one of them.

pub(crate) mod changes;
mod form;
pub(crate) mod secret;

use axum::http::Method;
use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form as forms;
use crate::page::parts::{Tone, badge, copied, empty, facts, number, pager, table};
use crate::page::time::{length, moment};
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::attempts::page as attempts;
use crate::resources::handlers::wire::Handler;
use crate::resources::targets::wire::keep::KeepJson;
use crate::resources::targets::wire::{OnDeath, Policy, RESERVED_MODIFIERS, SlowedJson, TargetJson};
use crate::resources::wire::List;
pub(crate) use form::kept_for;

/// How many targets are shown with their handler.
const SHOWN: usize = 50;

/// The target that a page's path names.
struct Address<'a> {
    module: &'a str,
    name: &'a str,
    modifier: &'a str,
}

impl<'a> Address<'a> {
    /// Refuses modifiers that no target has: as a part of the API's path each means something else.
    fn new(module: &'a str, name: &'a str, modifier: &'a str) -> Result<Self, Problem> {
        if RESERVED_MODIFIERS.contains(&modifier) {
            let words = format!("a target can't have the modifier {modifier}: choose another one");
            return Err(Problem::bad_request(words));
        }
        Ok(Self { module, name, modifier })
    }

    fn of(path: &'a PathParts) -> Result<Self, Problem> {
        Self::new(path.get("module"), path.get("name"), path.get("modifier"))
    }

    /// Below the canvas, for the API.
    fn path(&self) -> [&'a str; 4] {
        ["handlers", self.module, self.name, self.modifier]
    }

    /// The page of the target, or of what is done to it.
    fn link(&self, visit: &Visit, verb: Option<&str>) -> String {
        let page = ["handlers", self.module, self.name, "targets", self.modifier];
        visit.link(&page.into_iter().chain(verb).collect::<Vec<_>>())
    }

    /// In words.
    fn words(&self) -> String {
        format!("{}/{}/{}", self.module, self.name, self.modifier)
    }
}

/// The targets of the canvas, or of the handler that the address names.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let (module, name) = (visit.parameter("module"), visit.parameter("name"));
    let ask = visit.ask(&["targets"]).query("limit", 100).query("cursor", visit.parameter("cursor"));
    let module = if name.is_empty() { String::new() } else { module };
    let targets = ask.query("module", &module).query("name", &name).shared::<List<TargetJson>>().await?;
    let filter = forms::filter(
        &visit,
        html! {
            (forms::text("name", "Handler", &name, "send-email"))
            (forms::text("module", "Module", &module, "WORKER"))
        },
    );
    let live = if targets.items.is_empty() && targets.next_cursor.is_none() {
        empty(
            "No handler has a target like that.",
            html! { "Register one on the page of its " a href=(visit.link(&["handlers"])) { "handler" } "." },
        )
    } else {
        html! { (listed(&visit, &targets.items)) (pager(&visit, targets.next_cursor.as_deref())) }
    };
    Ok(View::new("Targets").filter(filter).live(live))
}

/// The targets on the page of their handler: the first of them.
pub(crate) fn of_handler(visit: &Visit, handler: &Handler) -> Markup {
    let Handler { module, name, targets, more_targets, .. } = handler;
    if targets.is_empty() {
        return empty(
            "No URL gets the events of this handler.",
            html! {
                "Workers run it, if any has a function for it. To have a URL called instead, register a target."
            },
        );
    }
    let all = visit.link_with(&["targets"], &[("module", module.as_str()), ("name", name.as_str())]);
    html! {
        (listed(visit, targets.get(..SHOWN).unwrap_or(targets)))
        @if targets.len() > SHOWN || *more_targets { p { a href=(all) { "All targets of this handler" } } }
    }
}

fn listed(visit: &Visit, targets: &[TargetJson]) -> Markup {
    table(
        "Targets",
        &["Target", "URL", "State", ">Retries", ">Timeout", "Changed", "By"],
        html! {
            @for target in targets {
                @let TargetJson { module, name, modifier, .. } = target;
                tr {
                    td {
                        a href=(visit.link(&["handlers", module, name, "targets", modifier])) {
                            (module) "/" (name) "/" (modifier)
                        }
                    }
                    td.words { (target.url) }
                    td { (state(target)) }
                    td.number { (number(target.policy.retries)) }
                    td.number { (length(target.policy.timeout_s)) }
                    td { (moment(target.updated_at)) }
                    td { (target.updated_by) }
                }
            }
        },
    )
}

fn state(target: &TargetJson) -> Markup {
    match (target.gone_since, target.slowed, target.previous_secret_until) {
        (Some(_), _, _) => badge(Tone::Alarm, "gone"),
        (None, Some(SlowedJson { per_second, .. }), _) => {
            badge(Tone::Waiting, &format!("slowed to {per_second} per second"))
        }
        (None, None, Some(_)) => badge(Tone::Busy, "signs with two secrets"),
        (None, None, None) => badge(Tone::Calm, "open"),
    }
}

/// One target.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let address = Address::of(&path)?;
    let target: TargetJson = visit.ask(&address.path()).shared().await?;
    let answers = attempts::of_target(&visit, [address.module, address.name, address.modifier]).await?;
    let view = View::new(format!("Target of {}", address.words())).above(actions(&visit, &address));
    Ok(view.live(html! { (warnings(&target)) (answers) (about(&visit, &target)) }))
}

fn actions(visit: &Visit, address: &Address<'_>) -> Markup {
    let may = |scope: Scope| visit.may_on(scope, address.module, address.name);
    let to = |verb: &str| address.link(visit, Some(verb));
    html! {
        div.actions {
            a.button href=(visit.link(&["handlers", address.module, address.name])) { "To its handler" }
            @if [Scope::Operate, Scope::Read, Scope::Values].into_iter().all(may) {
                a.button href=(to("change")) { "Change" }
                a.button href=(to("rotate")) { "Replace the signing secret" }
            }
            @if may(Scope::Operate) { a.button href=(to("delete")) { "Delete" } }
        }
    }
}

fn warnings(target: &TargetJson) -> Markup {
    html! {
        @if let Some(since) = target.gone_since {
            div.trouble {
                p {
                    "Nothing is sent there since " (moment(since)) ", because it answered 410 Gone. Its events \
                     wait."
                }
                p { "Change the target, even to the same URL, and they are sent again." }
            }
        }
        @if let Some(SlowedJson { per_second, until }) = target.slowed {
            p {
                "It answered 429 or 503, so workers send it at most " (per_second.to_string()) " events per \
                 second, and more while it accepts them."
                @if let Some(until) = until { " A worker sends it none until " (moment(until)) "." }
            }
        }
        @if let Some(until) = target.previous_secret_until {
            p {
                "Requests are also signed with the secret before this one, for the last time " (moment(until))
                ": give the receiver the new one by then."
            }
        }
    }
}

fn about(visit: &Visit, target: &TargetJson) -> Markup {
    let TargetJson { module, name, audience, header_names, policy, .. } = target;
    let of_handler = [("module", module.as_str()), ("name", name.as_str())];
    let headers = (!header_names.is_empty()).then(|| html! { (header_names.join(", ")) });
    html! {
        h2 { "Where and how" }
        (facts(&[
            ("State", Some(state(target))),
            ("URL", Some(copied(&target.url))),
            ("Retries", Some(html! { (retries(policy)) })),
            ("Timeout", Some(html! { (length(policy.timeout_s)) })),
            ("At a time", policy.concurrency.map(|most| html! { (number(most)) " on each worker" })),
            ("When an event dies", Some(html! { (on_death(policy.on_death)) })),
            ("Ended events", Some(html! { (kept(policy.keep_s)) })),
            ("Token for", audience.as_ref().map(|audience| html! { (audience) })),
            ("Headers", headers),
            ("Registered", Some(html! { (moment(target.created_at)) " by " (target.created_by) })),
            ("Last changed", Some(html! { (moment(target.updated_at)) " by " (target.updated_by) })),
        ]))
        p {
            "Its events are "
            a href=(visit.link_with(&["events"], &of_handler)) { "in the queue" } " or "
            a href=(visit.link_with(&["dead-events"], &of_handler)) { "dead" } "."
        }
    }
}

fn retries(policy: &Policy) -> String {
    let Policy { retries, delay_s, factor, delay_max_s, .. } = policy;
    let growing = match factor {
        1 => String::new(),
        factor => format!(", then {factor} times as long each time, up to {}", length(*delay_max_s)),
    };
    match retries {
        0 => "none".to_owned(),
        retries => format!("{}, the first after {}{growing}", number(*retries), length(*delay_s)),
    }
}

fn on_death(on_death: OnDeath) -> &'static str {
    match on_death {
        OnDeath::Skip => "later events of its object run",
        OnDeath::Halt => "its object halts until somebody redrives or skips the event",
    }
}

/// What becomes of events that have ended.
pub(crate) fn kept(keep_s: KeepJson<u32>) -> String {
    if keep_s.is_nothing() {
        return "are deleted".to_owned();
    }
    format!("are kept for {}", keep_s.written(|seconds| length(seconds.into())))
}

/// Asks before a target is deleted: how many events its handler has.
pub(crate) async fn ask_delete(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let address = Address::of(&path)?;
    visit.needs_on(Scope::Operate, address.module, address.name)?;
    let target: TargetJson = visit.ask(&address.path()).get().await?;
    let handler: Handler = visit.ask(&["handlers", address.module, address.name]).get().await?;
    let waiting = handler.waiting + handler.delayed + handler.paused + handler.running;
    let words = address.words();
    let question = format!("Delete the target of {words}, with its secret and its headers?");
    let (action, back) = (address.link(&visit, Some("delete")), address.link(&visit, None));
    Ok(View::new(format!("Delete the target of {words}")).above(html! {
        p { "It sends to " code { (target.url) } "." }
        p {
            "No event is deleted. The handler has " (number(waiting)) " that have not ended, and those that \
             go to this target then wait until a worker has a function for them or another target is \
             registered."
        }
        (forms::confirm(&visit, &action, &question, "Delete the target", &back, html! {}))
    }))
}

/// Deletes it.
pub(crate) async fn delete(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let address = Address::of(&path)?;
    visit.ask(&address.path()).order(Method::DELETE).await?;
    let back = visit.link(&["handlers", address.module, address.name]);
    Ok(Done::new(back, format!("The target of {} is deleted. Its events wait.", address.words())))
}

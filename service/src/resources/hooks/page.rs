//! Webhooks in the browser: who may send, which handler gets what was sent, and the secrets, of
//! which a generated one is shown once.

mod change;

use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::parts::{copied, empty, facts, pager, table};
use crate::page::time::moment;
use crate::page::view::View;
use crate::page::visit::{PathParts, Visit};
use crate::resources::hooks::wire::{HookHandler, HookJson, HookKind, HookValue};
use crate::resources::wire::List;
pub(crate) use change::{ask_delete, create, delete, put, rotate};

/// The hooks of the canvas.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let ask = visit.ask(&["hooks"]).query("limit", 100).query("cursor", visit.parameter("cursor"));
    let hooks: List<HookJson> = ask.get().await?;
    Ok(View::new("Webhooks").above(change::new(&visit)).below(listed(&visit, &hooks)))
}

fn listed(visit: &Visit, hooks: &List<HookJson>) -> Markup {
    if hooks.items.is_empty() && visit.parameter("cursor").is_empty() {
        return empty(
            "No other system may send webhooks here.",
            html! {
                "A hook lets Stripe, GitHub or any sender of Standard Webhooks emit events without a key "
                "of yours. Make one here, or with " code { "wakeq hooks put" } "."
            },
        );
    }
    html! {
        (table("Webhooks", &["Hook", "Sender", "Handler", "Value", "Changed", "By"], html! {
            @for hook in &hooks.items {
                tr {
                    td { a href=(visit.link(&["hooks", &hook.name])) { (hook.name) } }
                    td { (sender(hook.kind)) }
                    td { (handler(visit, &hook.handler)) }
                    td { (value(hook.value)) }
                    td { (moment(hook.updated_at)) }
                    td { (hook.updated_by) }
                }
            }
        }))
        (pager(visit, hooks.next_cursor.as_deref()))
    }
}

fn sender(kind: HookKind) -> &'static str {
    match kind {
        HookKind::Standard => "Standard Webhooks",
        HookKind::Stripe => "Stripe",
        HookKind::GitHub => "GitHub",
    }
}

fn value(value: HookValue) -> &'static str {
    match value {
        HookValue::Data => "the body",
        HookValue::Envelope => "a CloudEvent around the body",
    }
}

fn handler(visit: &Visit, handler: &HookHandler) -> Markup {
    let HookHandler { module, name, modifier } = handler;
    html! {
        a href=(visit.link(&["handlers", module, name])) { (module) "/" (name) }
        @if modifier != "_" { " / " (modifier) }
    }
}

/// One hook.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let hook: HookJson = visit.ask(&["hooks", path.get("hook")]).get().await?;
    let below = html! { (about(&visit, &hook)) (change::existing(&visit, &hook)) };
    Ok(View::new(format!("Webhook {}", hook.name)).above(actions(&visit, &hook)).below(below))
}

fn actions(visit: &Visit, hook: &HookJson) -> Markup {
    html! {
        @if visit.may(Scope::Operate) {
            div.actions {
                a.button href=(visit.link(&["hooks", &hook.name, "delete"])) { "Delete the hook" }
            }
        }
    }
}

fn about(visit: &Visit, hook: &HookJson) -> Markup {
    let address = visit.at_root(&format!("/v1/canvases/{}/hooks/{}", visit.canvas(), hook.name));
    let secret = match hook.previous_secret_until {
        Some(until) => {
            html! { "The secret was replaced. The one before it is accepted, too, until " (moment(until)) "." }
        }
        None => html! { "There is one secret. It is not shown: if it is lost, replace it." },
    };
    facts(&[
        ("Sender", Some(html! { (sender(hook.kind)) })),
        ("It sends to", Some(html! { (copied(&address)) " at this server" })),
        ("Handler", Some(handler(visit, &hook.handler))),
        ("Value of an event", Some(html! { (value(hook.value)) })),
        ("Secret", Some(secret)),
        ("Made", Some(html! { (moment(hook.created_at)) " by " (hook.created_by) })),
        ("Changed", Some(html! { (moment(hook.updated_at)) " by " (hook.updated_by) })),
    ])
}

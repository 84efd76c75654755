//! Stopping a whole canvas, or everything, in the browser, and lifting that.

use axum::Form;
use axum::http::Method;
use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::form;
use crate::page::parts::empty;
use crate::page::view::{Done, View};
use crate::page::visit::Visit;
use crate::resources::handlers::page::rules::{self, StopForm};
use crate::resources::handlers::wire::{Lifted, RuleJson, RuleKind, RuleReachJson, Stopped};
use crate::resources::wire::List;

const CANVAS: &str = "The whole canvas";
const EVERYTHING: &str = "Everything";

/// What stops the canvas as a whole.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let switches: List<RuleJson> = visit.ask(&["switches"]).shared().await?;
    let above = html! { (words()) (actions(&visit, &switches.items)) };
    Ok(View::new("Stop a canvas").above(above).live(standing(&visit, &switches.items)))
}

fn words() -> Markup {
    html! {
        p {
            "A pause or a block here holds every handler of the canvas, also those to come. What runs goes \
             on to its end. Events are accepted and wait, and crons go on ticking."
        }
    }
}

fn standing(visit: &Visit, switches: &[RuleJson]) -> Markup {
    if switches.is_empty() {
        let next = html! {
            "Single handlers may be stopped all the same: see the "
            a href=(visit.link(&["handlers"])) { "handlers" } "."
        };
        return empty("Nothing stops the canvas as a whole.", next);
    }
    rules::listed(visit, switches)
}

fn actions(visit: &Visit, switches: &[RuleJson]) -> Markup {
    let is = |kind: RuleKind, stops: RuleReachJson| rules::standing(switches, kind, stops).is_some();
    let to = |path: &str| visit.link(&[path]);
    html! {
        div.actions {
            @if visit.may(Scope::Operate) {
                @if is(RuleKind::Pause, RuleReachJson::Canvas) {
                    (form::button(visit, &to("unpause"), "Lift the pause"))
                    a.button href=(to("pause")) { "Change the pause" }
                } @else {
                    a.button href=(to("pause")) { "Pause the canvas" }
                }
            }
            @if visit.may(Scope::Admin) {
                @if is(RuleKind::Block, RuleReachJson::Canvas) {
                    (form::button(visit, &to("unblock"), "Lift the block"))
                    a.button href=(to("block")) { "Change the block" }
                } @else {
                    a.button href=(to("block")) { "Block the canvas" }
                }
            }
            @if visit.may_everywhere(Scope::Admin) {
                @if is(RuleKind::Block, RuleReachJson::Everything) {
                    (form::button(visit, &to("unblock-everything"), "Lift the block of everything"))
                } @else {
                    a.button href=(to("block-everything")) { "Block everything" }
                }
            }
        }
    }
}

/// Asks why and until when the canvas is to be paused.
pub(crate) async fn ask_pause(visit: Visit) -> Result<View, Problem> {
    visit.needs(Scope::Operate)?;
    let rule = (RuleKind::Pause, RuleReachJson::Canvas);
    asked(&visit, "Pause the whole canvas", "pause", rule).await
}

/// Asks why and until when the canvas is to be blocked.
pub(crate) async fn ask_block(visit: Visit) -> Result<View, Problem> {
    visit.needs(Scope::Admin)?;
    let rule = (RuleKind::Block, RuleReachJson::Canvas);
    asked(&visit, "Block the whole canvas", "block", rule).await
}

/// Asks why and until when everything is to be blocked.
pub(crate) async fn ask_block_all(visit: Visit) -> Result<View, Problem> {
    visit.needs_everywhere(Scope::Admin)?;
    let rule = (RuleKind::Block, RuleReachJson::Everything);
    asked(&visit, "Block every canvas and every queue", "block-everything", rule).await
}

async fn asked(
    visit: &Visit,
    title: &str,
    path: &str,
    (kind, stops): (RuleKind, RuleReachJson),
) -> Result<View, Problem> {
    let switches: List<RuleJson> = visit.ask(&["switches"]).get().await?;
    let standing = rules::standing(&switches.items, kind, stops);
    let (action, back) = (visit.link(&[path]), visit.link(&["switches"]));
    let yes = if standing.is_some() { "Change reason and end" } else { title };
    let who = match (kind, stops) {
        (RuleKind::Pause, _) => "Whoever may operate the canvas can lift the pause.",
        (RuleKind::Block, RuleReachJson::Everything) => {
            "This is about every tenant, and copies in queues are held as well. Only an admin of every \
             canvas can lift it."
        }
        (RuleKind::Block, RuleReachJson::Handler | RuleReachJson::Canvas) => {
            "Only an admin of the canvas can lift the block."
        }
    };
    let form = rules::stop(visit, &action, yes, &back, standing);
    Ok(View::new(title).above(html! { (words()) p { (who) } (form) }))
}

/// Pauses the canvas.
pub(crate) async fn pause(visit: Visit, Form(form): Form<StopForm>) -> Result<Done, Problem> {
    let stopped: Stopped = visit.ask(&["pause"]).put(&form.read()?).await?;
    Ok(done(&visit, rules::stopped(CANVAS, &stopped)))
}

/// Lifts the pause of the canvas.
pub(crate) async fn unpause(visit: Visit) -> Result<Done, Problem> {
    let lifted: Lifted = visit.ask(&["pause"]).answer_to(Method::DELETE).await?;
    Ok(done(&visit, rules::lifted("the whole canvas", RuleKind::Pause, &lifted)))
}

/// Blocks the canvas.
pub(crate) async fn block(visit: Visit, Form(form): Form<StopForm>) -> Result<Done, Problem> {
    let stopped: Stopped = visit.ask_admin(&["block"]).put(&form.read()?).await?;
    Ok(done(&visit, rules::stopped(CANVAS, &stopped)))
}

/// Lifts the block of the canvas.
pub(crate) async fn unblock(visit: Visit) -> Result<Done, Problem> {
    let lifted: Lifted = visit.ask_admin(&["block"]).answer_to(Method::DELETE).await?;
    Ok(done(&visit, rules::lifted("the whole canvas", RuleKind::Block, &lifted)))
}

/// Blocks everything.
pub(crate) async fn block_all(visit: Visit, Form(form): Form<StopForm>) -> Result<Done, Problem> {
    let stopped: Stopped = visit.ask_everywhere(&["block"]).put(&form.read()?).await?;
    Ok(done(&visit, rules::stopped(EVERYTHING, &stopped)))
}

/// Lifts the block of everything.
pub(crate) async fn unblock_all(visit: Visit) -> Result<Done, Problem> {
    let lifted: Lifted = visit.ask_everywhere(&["block"]).answer_to(Method::DELETE).await?;
    Ok(done(&visit, rules::lifted("everything", RuleKind::Block, &lifted)))
}

fn done(visit: &Visit, said: String) -> Done {
    Done::new(visit.link(&["switches"]), said)
}

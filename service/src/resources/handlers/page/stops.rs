//! Pausing and blocking a handler in the browser, and lifting that.

use axum::Form;
use axum::http::Method;
use maud::html;

use super::rules::{self, StopForm};
use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::handlers::wire::{Handler, Lifted, RuleKind, RuleReachJson, Stopped};

/// Asks why and until when a handler is to be paused.
pub(crate) async fn ask_pause(visit: Visit, path: PathParts) -> Result<View, Problem> {
    asked(&visit, &path, RuleKind::Pause).await
}

/// Asks why and until when a handler is to be blocked.
pub(crate) async fn ask_block(visit: Visit, path: PathParts) -> Result<View, Problem> {
    asked(&visit, &path, RuleKind::Block).await
}

async fn asked(visit: &Visit, path: &PathParts, kind: RuleKind) -> Result<View, Problem> {
    let (module, name) = (path.get("module"), path.get("name"));
    match kind {
        RuleKind::Pause => visit.needs_on(Scope::Operate, module, name)?,
        RuleKind::Block => visit.needs(Scope::Admin)?,
    }
    let handler: Handler = visit.ask(&["handlers", module, name]).get().await?;
    let standing = rules::standing(&handler.rules, kind, RuleReachJson::Handler);
    let (verb, who) = match kind {
        RuleKind::Pause => ("pause", "Whoever may operate it can lift the pause."),
        RuleKind::Block => ("block", "Only an admin can lift the block."),
    };
    let action = visit.link(&["handlers", module, name, verb]);
    let yes = match (kind, standing) {
        (RuleKind::Pause, None) => "Pause the handler",
        (RuleKind::Block, None) => "Block the handler",
        (RuleKind::Pause, Some(_)) => "Change the pause",
        (RuleKind::Block, Some(_)) => "Change the block",
    };
    let back = visit.link(&["handlers", module, name]);
    Ok(View::new(format!("{yes} {module}/{name}")).above(html! {
        p {
            "No event of it starts from then on. What runs goes on to its end, and events that are emitted \
             wait. " (who)
        }
        (rules::stop(visit, &action, yes, &back, standing))
    }))
}

/// Pauses a handler.
pub(crate) async fn pause(
    visit: Visit,
    path: PathParts,
    Form(form): Form<StopForm>,
) -> Result<Done, Problem> {
    let (module, name) = (path.get("module"), path.get("name"));
    let ask = visit.ask(&["handlers", module, name, "pause"]);
    let stopped: Stopped = ask.put(&form.read()?).await?;
    Ok(done(&visit, &path, rules::stopped(&format!("{module}/{name}"), &stopped)))
}

/// Blocks a handler.
pub(crate) async fn block(
    visit: Visit,
    path: PathParts,
    Form(form): Form<StopForm>,
) -> Result<Done, Problem> {
    let (module, name) = (path.get("module"), path.get("name"));
    let ask = visit.ask_admin(&["handlers", module, name, "block"]);
    let stopped: Stopped = ask.put(&form.read()?).await?;
    Ok(done(&visit, &path, rules::stopped(&format!("{module}/{name}"), &stopped)))
}

/// Lifts the pause of a handler.
pub(crate) async fn unpause(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let (module, name) = (path.get("module"), path.get("name"));
    let lifted: Lifted = visit.ask(&["handlers", module, name, "pause"]).answer_to(Method::DELETE).await?;
    Ok(done(&visit, &path, rules::lifted(&format!("{module}/{name}"), RuleKind::Pause, &lifted)))
}

/// Lifts the block of a handler.
pub(crate) async fn unblock(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let (module, name) = (path.get("module"), path.get("name"));
    let lifted: Lifted =
        visit.ask_admin(&["handlers", module, name, "block"]).answer_to(Method::DELETE).await?;
    Ok(done(&visit, &path, rules::lifted(&format!("{module}/{name}"), RuleKind::Block, &lifted)))
}

fn done(visit: &Visit, path: &PathParts, said: String) -> Done {
    Done::new(visit.link(&["handlers", path.get("module"), path.get("name")]), said)
}

//! Registering a target in the browser, and changing one.

use axum::Form;
use axum::response::Response;
use maud::html;

use super::form::{self, TargetForm};
use super::{Address, secret};
use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::view::View;
use crate::page::visit::{PathParts, Visit};
use crate::resources::targets::wire::{PutAnswer, TargetJson};

/// Asks where the events of a handler are to be sent.
pub(crate) async fn ask_register(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let (module, name) = (path.get("module"), path.get("name"));
    needs_all(&visit, module, name)?;
    let action = visit.link(&["handlers", module, name, "new-target"]);
    let back = visit.link(&["handlers", module, name]);
    Ok(View::new(format!("Register a target for {module}/{name}")).above(html! {
        p {
            "Its events are then sent to the URL by HTTP, each signed with a secret that is made for the \
             target and shown once."
        }
        (form::show(&visit, &action, &back, &TargetForm::new()))
    }))
}

/// Registers it, unless the handler has one with this modifier.
pub(crate) async fn register(
    visit: Visit,
    path: PathParts,
    Form(form): Form<TargetForm>,
) -> Result<Response, Problem> {
    let address = Address::new(path.get("module"), path.get("name"), form.modifier())?;
    let put = form.read()?;
    match visit.ask(&address.path()).get::<TargetJson>().await {
        Ok(_) => {
            let words = "the handler has a target with this modifier already: change that one, or choose \
                         another modifier";
            return Err(Problem::new(Kind::Conflict, words));
        }
        Err(problem) if problem.kind == Kind::NotFound => {}
        Err(problem) => return Err(problem),
    }
    let answer: PutAnswer = visit.ask(&address.path()).put(&put).await?;
    Ok(secret::answered(&visit, &address, &answer, "The target is registered."))
}

/// Shows a target in the form in which it can be changed.
pub(crate) async fn ask_change(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let address = Address::of(&path)?;
    needs_all(&visit, address.module, address.name)?;
    let target: TargetJson = visit.ask(&address.path()).get().await?;
    let (action, back) = (address.link(&visit, Some("change")), address.link(&visit, None));
    let form = form::show(&visit, &action, &back, &TargetForm::of(&target));
    Ok(View::new(format!("Change the target of {}", address.words())).above(form))
}

/// Changes it, unless somebody else has meanwhile.
pub(crate) async fn change(
    visit: Visit,
    path: PathParts,
    Form(form): Form<TargetForm>,
) -> Result<Response, Problem> {
    let address = Address::of(&path)?;
    let put = form.read()?;
    let target: TargetJson = visit.ask(&address.path()).get().await?;
    if !form.is_of(&target) {
        let words = "somebody has changed this target since the form was shown, and nothing was changed: \
                     open the form again";
        return Err(Problem::new(Kind::Conflict, words));
    }
    let answer: PutAnswer = visit.ask(&address.path()).put(&put).await?;
    Ok(secret::answered(&visit, &address, &answer, "The target is changed."))
}

/// A target gets the events of its handler, so it takes the rights to see them as well.
fn needs_all(visit: &Visit, module: &str, name: &str) -> Result<(), Problem> {
    visit.needs_on(Scope::Operate, module, name)?;
    visit.needs_on(Scope::Read, module, name)?;
    visit.needs_on(Scope::Values, module, name)
}

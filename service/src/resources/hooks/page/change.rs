//! Changes of hooks: their forms, and what these do.

use axum::Form;
use axum::response::{IntoResponse, Response};
use chrono::SecondsFormat;
use maud::{Markup, html};
use serde::Deserialize;

use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::parts::copied;
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::page::{form, given};
use crate::resources::hooks::wire::{HookHandler, HookJson, HookKind, HookValue, PutHook, PutHookAnswer};
use crate::resources::targets::wire::SecretText;

/// A hook as it is put. It is replaced as a whole but for its secret.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct HookForm {
    hook: String,
    kind: Option<HookKind>,
    module: String,
    handler: String,
    modifier: String,
    value: HookValue,
    secret: String,
    drop_previous_secret: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct RotateForm {
    drop_replaced_secret: bool,
    /// When the hook was changed last before the form was shown.
    changed_at: String,
}

/// Whether the person may put hooks: these emit events.
fn may_put(visit: &Visit) -> bool {
    visit.may(Scope::Operate) && visit.may(Scope::Emit)
}

/// The form for a new hook.
pub(super) fn new(visit: &Visit) -> Markup {
    let kinds = [("standard", "Standard Webhooks"), ("stripe", "Stripe"), ("github", "GitHub")];
    html! {
        @if may_put(visit) {
            details {
                summary { "New webhook" }
                p { "Stripe makes the secret of its endpoint itself, so copy it from there." }
                (form::change(visit, &visit.link(&["hooks"]), html! {
                    (form::text("hook", "Name, the last part of the address", "", "payments"))
                    (form::select("kind", "Sender", "standard", &kinds))
                    (fields(None))
                    (form::text("secret", "Secret of the sender (empty: a new one)", "", "whsec_…"))
                    button type="submit" { "Make the hook" }
                }))
            }
        }
    }
}

/// The forms that change a hook and its secret.
pub(super) fn existing(visit: &Visit, hook: &HookJson) -> Markup {
    let link = visit.link(&["hooks", &hook.name]);
    html! {
        @if may_put(visit) {
            details {
                summary { "Change the hook" }
                (form::change(visit, &link, html! {
                    (form::hidden("kind", code(hook.kind)))
                    (fields(Some(hook)))
                    (form::text("secret", "New secret of the sender (empty: as it is)", "", "whsec_…"))
                    (form::check("drop_previous_secret", "Refuse what is signed with an earlier secret", false))
                    button type="submit" { "Change the hook" }
                }))
            }
            // Stripe makes its secrets itself.
            @if hook.kind != HookKind::Stripe {
                details {
                    summary { "Replace the secret" }
                    p {
                        "A new secret is generated and shown once. Enter it at the sender within 24 hours: "
                        "for that long, the present one is accepted, too."
                    }
                    (form::change(visit, &visit.link(&["hooks", &hook.name, "rotate-secret"]), html! {
                        (form::hidden("changed_at", &changed_at(hook)))
                        (form::check("drop_replaced_secret", "It has leaked: refuse it at once", false))
                        button type="submit" { "Generate a new secret" }
                    }))
                }
            }
        }
    }
}

fn fields(hook: Option<&HookJson>) -> Markup {
    let handler = hook.map(|hook| &hook.handler);
    let value = match hook.map(|hook| hook.value).unwrap_or_default() {
        HookValue::Data => "data",
        HookValue::Envelope => "envelope",
    };
    let values = [("data", "the body"), ("envelope", "a CloudEvent around the body")];
    html! {
        (form::text("module", "Module", handler.map_or("WORKER", |handler| handler.module.as_str()), "WORKER"))
        (form::text("handler", "Handler", handler.map_or("", |handler| handler.name.as_str()), "on-payment"))
        (form::text("modifier", "Modifier", handler.map_or("_", |handler| handler.modifier.as_str()), "_"))
        (form::select("value", "Value of an event", value, &values))
    }
}

/// A kind as the API names it.
fn code(kind: HookKind) -> &'static str {
    match kind {
        HookKind::Standard => "standard",
        HookKind::Stripe => "stripe",
        HookKind::GitHub => "github",
    }
}

/// Makes a hook whose name is free.
pub(crate) async fn create(visit: Visit, Form(form): Form<HookForm>) -> Result<Response, Problem> {
    let name = given::required("the name", &form.hook)?.to_owned();
    match visit.ask(&["hooks", &name]).get::<HookJson>().await {
        Ok(_) => {
            let words =
                format!("there is a hook {name} already: change it on its page, or choose another name");
            Err(Problem::new(Kind::Conflict, words))
        }
        Err(problem) if problem.kind == Kind::NotFound => sent(&visit, &name, form.read()?).await,
        Err(problem) => Err(problem),
    }
}

/// Replaces a hook.
pub(crate) async fn put(
    visit: Visit,
    path: PathParts,
    Form(form): Form<HookForm>,
) -> Result<Response, Problem> {
    sent(&visit, path.get("hook"), form.read()?).await
}

/// To the microsecond, as the database has it.
fn changed_at(hook: &HookJson) -> String {
    hook.updated_at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Replaces the secret of a hook by a generated one, once: a form that is sent again would end the
/// secret that the sender still has.
pub(crate) async fn rotate(
    visit: Visit,
    path: PathParts,
    Form(form): Form<RotateForm>,
) -> Result<Response, Problem> {
    let hook: HookJson = visit.ask(&["hooks", path.get("hook")]).get().await?;
    // Whoever may not is refused by the API, which records it.
    if may_put(&visit) && form.changed_at != changed_at(&hook) {
        let words = "this hook was changed since the form was shown, maybe by the same form, and nothing was changed \
                     now: load its page again";
        return Err(Problem::new(Kind::Conflict, words));
    }
    let HookJson { name, kind, handler, value, .. } = hook;
    let drop_previous_secret = form.drop_replaced_secret;
    let new = PutHook { kind, handler, value, secret: None, rotate_secret: true, drop_previous_secret };
    visit.once(sent(&visit, &name, new)).await
}

impl HookForm {
    fn read(self) -> Result<PutHook, Problem> {
        let kind = self.kind.ok_or_else(|| Problem::bad_request("say which sender it is for"))?;
        Ok(PutHook {
            kind,
            handler: HookHandler {
                module: given::text(&self.module).unwrap_or("WORKER").to_owned(),
                name: given::required("the handler", &self.handler)?.to_owned(),
                modifier: given::text(&self.modifier).unwrap_or("_").to_owned(),
            },
            value: self.value,
            secret: given::text(&self.secret).map(|secret| SecretText(secret.to_owned())),
            rotate_secret: false,
            drop_previous_secret: self.drop_previous_secret,
        })
    }
}

/// Puts a hook. A generated secret is shown in place of a redirect, which would carry it in a
/// cookie.
async fn sent(visit: &Visit, name: &str, new: PutHook) -> Result<Response, Problem> {
    let PutHookAnswer { new, hook, secret } = visit.ask(&["hooks", name]).put(&new).await?;
    let link = visit.link(&["hooks", &hook.name]);
    let HookHandler { module, name: handler, .. } = &hook.handler;
    let verb = if new { "made" } else { "changed" };
    let said = format!("The hook {} was {verb}: what is sent to it goes to {module}/{handler}.", hook.name);
    let Some(SecretText(secret)) = secret else { return Ok(Done::new(link, said).into_response()) };
    let above = html! {
        p.said role="status" { (said) }
        p { "This is its new secret. Enter it at the sender now: it is not shown again." }
        p { (copied(&secret)) }
        p { a.button href=(link) { "Go on to the hook" } }
    };
    Ok(View::new(format!("Secret of the hook {}", hook.name)).above(above).into_response())
}

/// Asks before a hook is deleted.
pub(crate) async fn ask_delete(visit: Visit, path: PathParts) -> Result<View, Problem> {
    visit.needs(Scope::Operate)?;
    let hook: HookJson = visit.ask(&["hooks", path.get("hook")]).get().await?;
    let question = format!("Delete 1 hook, {}? Webhooks for it are refused from then on.", hook.name);
    let (action, back) = (visit.link(&["hooks", &hook.name, "delete"]), visit.link(&["hooks", &hook.name]));
    let above = html! {
        p {
            "The events that it has emitted stay. Its secret is gone for good, and a hook that is made in "
            "its place gets another."
        }
        (form::confirm(&visit, &action, &question, "Delete the hook", &back, html! {}))
    };
    Ok(View::new(format!("Delete the hook {}", hook.name)).above(above))
}

/// Deletes it.
pub(crate) async fn delete(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let name = path.get("hook");
    visit.ask(&["hooks", name]).delete().await?;
    Ok(Done::new(visit.link(&["hooks"]), format!("The hook {name} was deleted.")))
}

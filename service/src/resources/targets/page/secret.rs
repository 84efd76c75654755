//! A signing secret that was made: shown once, with what to do with it. It is never in an address
//! or in a cookie, so the answer to the form itself shows it.

use axum::Form;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::Address;
use super::form::moment as changed_at;
use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::form;
use crate::page::parts::copied;
use crate::page::time::moment;
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::resources::targets::wire::{PutAnswer, PutTarget, SecretText, TargetJson};

/// A secret of the person's own; empty for one that is made here.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct RotateForm {
    secret: String,
    /// When the target was changed last before the form was shown.
    changed_at: String,
}

/// Asks before the signing secret is replaced.
pub(crate) async fn ask_rotate(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let address = Address::of(&path)?;
    for scope in [Scope::Operate, Scope::Read] {
        visit.needs_on(scope, address.module, address.name)?;
    }
    let target: TargetJson = visit.ask(&address.path()).get().await?;
    let (action, back) = (address.link(&visit, Some("rotate")), address.link(&visit, None));
    Ok(View::new(format!("Replace the signing secret of {}", address.words())).above(html! {
        p {
            "Requests to " code { (target.url) } " are then signed with the new secret, and for 24 hours with \
             the present one as well. The receiver has to know the new one by then."
        }
        @if let Some(until) = target.previous_secret_until {
            p {
                strong {
                    "The secret was replaced before, and the one before it signs as well, for the last time "
                    (moment(until)) ". That ends now: a target has two secrets at most."
                }
            }
        }
        (form::change(&visit, &action, html! {
            (form::hidden("changed_at", &changed_at(&target)))
            (form::text("secret", "A secret of your own (empty: one is made)", "", "whsec_…"))
            p.choices {
                button.main type="submit" { "Replace the secret" } " "
                a.button href=(back) { "Leave it as it is" }
            }
        }))
    }))
}

/// Replaces it, once: a form that is sent again would end the secret that the receiver still has.
pub(crate) async fn rotate(
    visit: Visit,
    path: PathParts,
    Form(form): Form<RotateForm>,
) -> Result<Response, Problem> {
    let address = Address::of(&path)?;
    let target: TargetJson = visit.ask(&address.path()).get().await?;
    let may = |scope| visit.may_on(scope, address.module, address.name);
    // Whoever may not is refused by the API, which records it.
    if may(Scope::Operate) && may(Scope::Read) && form.changed_at != changed_at(&target) {
        let words = "this target was changed since the form was shown, maybe by the same form, and nothing was \
                     changed now: open the form again";
        return Err(Problem::new(Kind::Conflict, words));
    }
    let TargetJson { url, policy, audience, .. } = target;
    let given = form.secret.trim();
    let secret = (!given.is_empty()).then(|| SecretText(given.to_owned()));
    let rotate_secret = secret.is_none();
    let put = PutTarget { url, policy, audience, secret, rotate_secret, headers: None };
    let answer: PutAnswer = visit.once(visit.ask(&address.path()).put(&put)).await?;
    Ok(answered(&visit, &address, &answer, "The signing secret is replaced."))
}

/// What the registration of a target has led to: the page that shows its secret, if one was made,
/// or else the target's.
pub(super) fn answered(visit: &Visit, address: &Address<'_>, answer: &PutAnswer, said: &str) -> Response {
    let woken = match (answer.woken, answer.waking) {
        (0, false) => "",
        (_, true) => " Events that waited for it are being woken.",
        (_, false) => " Events that waited for it were woken.",
    };
    let still = if answer.still.is_some() { " Its handler is still stopped." } else { "" };
    let said = format!("{said}{woken}{still}");
    match &answer.secret {
        Some(secret) => shown(visit, address, secret, &said).into_response(),
        None => Done::new(address.link(visit, None), said).into_response(),
    }
}

fn shown(visit: &Visit, address: &Address<'_>, SecretText(secret): &SecretText, said: &str) -> View {
    let words: Markup = html! {
        p.said role="status" { (said) }
        h2 { "The signing secret, shown only now" }
        p { (copied(secret)) }
        p {
            "Give it to the receiver, which verifies the signature of each request with it. Nobody can read \
             it here again; if it is lost, replace it."
        }
        p.actions { a.button href=(address.link(visit, None)) { "It is stored: go on to the target" } }
    };
    View::new(format!("Target of {}", address.words())).above(words)
}

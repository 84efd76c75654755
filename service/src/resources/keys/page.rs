//! Keys in the browser: who has which, a new one, and the end of one.

use axum::Form;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;

use crate::access::Scope;
use crate::http::problem::Problem;
use crate::page::parts::{Tone, badge, copied, empty, facts, pager, table};
use crate::page::time::{moment, moment_or};
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::page::{form, given};
use crate::resources::keys::wire::{CreateKey, CreatedKeyJson, KeyJson};
use crate::resources::wire::List;

/// How long a key may live, in days, with the words for it.
const LIFETIMES: [(&str, &str); 6] = [
    ("1", "1 day"),
    ("7", "7 days"),
    ("30", "30 days"),
    ("90", "90 days"),
    ("365", "1 year"),
    ("3652", "10 years"),
];
const LIFETIME: &str = "365";
const DAY_S: u64 = 24 * 3600;

/// What each scope allows.
const SCOPES: [(Scope, &str); 5] = [
    (Scope::Emit, "emit: emit events, append to the log"),
    (Scope::Read, "read: look at everything but values, keys and the record"),
    (Scope::Values, "values: with read, see values, results, checkpoints, payloads and states"),
    (Scope::Operate, "operate: pause, cancel, redrive, set limits"),
    (Scope::Admin, "admin: block, manage keys, read the record"),
];

/// How many keys are looked through for one of them.
const SOUGHT_MAX: usize = 1_000;

/// The keys of the canvas, newest first.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let ask = visit.ask_admin(&["keys"]).query("limit", 100).query("cursor", visit.parameter("cursor"));
    let keys: List<KeyJson> = ask.get().await?;
    let below = html! { (listed(&visit, &keys)) (maker(&visit, &NewKeyForm::first())) };
    Ok(View::new("Keys").above(introduction(&visit)).below(below))
}

fn introduction(visit: &Visit) -> Markup {
    html! {
        p.quiet {
            "A key lets a program, or a person in these pages, use this canvas as far as its scopes go. Those for every \
             canvas are not listed here: an operator makes them on the database."
        }
        @if visit.may(Scope::Admin) { p.actions { a.button href="#new" { "Make a key" } } }
    }
}

fn listed(visit: &Visit, keys: &List<KeyJson>) -> Markup {
    if keys.items.is_empty() {
        return empty(
            "There are no keys here.",
            html! { "Make one below for each program that uses this canvas." },
        );
    }
    let head = ["Key", "Holder", "Scopes", "State", "Made", "Expires", "Last used", "Change"];
    html! {
        (table("Keys", &head, html! { @for key in &keys.items { (row(visit, key)) } }))
        (pager(visit, keys.next_cursor.as_deref()))
    }
}

fn row(visit: &Visit, key: &KeyJson) -> Markup {
    html! {
        tr {
            td {
                code { "wakeq_" (key.id) }
                @if is_own(visit, &key.id) { " " span.quiet { "(yours)" } }
            }
            td { (key.holder) }
            td { (scopes(&key.scopes)) }
            td { (state(key)) }
            td { (moment(key.created_at)) " by " (key.created_by) }
            td { (moment(key.expires_at)) }
            td { (moment_or(key.last_used_at, "never")) }
            td {
                @if key.state == "live" && visit.may(Scope::Admin) {
                    a.button href=(visit.link(&["keys", &key.id, "revoke"])) { "Revoke" }
                }
            }
        }
    }
}

fn is_own(visit: &Visit, id: &str) -> bool {
    visit.key().is_some_and(|own| own == id)
}

fn scopes(scopes: &[String]) -> Markup {
    html! { @for scope in scopes { span.tag { (scope) } } }
}

fn state(key: &KeyJson) -> Markup {
    match (key.state.as_str(), key.revoked_at) {
        ("live", _) => badge(Tone::Calm, "live"),
        (_, Some(at)) => html! { (badge(Tone::Alarm, "revoked")) " " (moment(at)) },
        (state, None) => badge(Tone::Waiting, state),
    }
}

fn maker(visit: &Visit, given: &NewKeyForm) -> Markup {
    html! {
        @if visit.may(Scope::Admin) {
            h2 #new { "Make a key" }
            (form::change(visit, &visit.link(&["keys"]), html! {
                (form::text("holder", "Holder: a program or a person", &given.holder, "billing"))
                (form::select("days", "Lives for", &given.days, &LIFETIMES))
                @for (scope, words) in SCOPES { (form::check(scope.as_str(), words, given.has(scope))) }
                (form::area("narrow", "Or scopes for some handlers only, one on a line", &given.narrow, 2))
                p.field.wide.quiet {
                    "A scope for some handlers is written as " code { "emit:WORKER/*" } " or "
                    code { "operate:WORKER/resize" } ". No scope includes another. A holder may have two live keys, so \
                    that one can be replaced without a pause."
                }
                button.main type="submit" { "Make the key" }
            }))
        }
    }
}

/// What is to be made.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct NewKeyForm {
    holder: String,
    days: String,
    emit: String,
    read: String,
    values: String,
    operate: String,
    admin: String,
    narrow: String,
}

impl NewKeyForm {
    /// What the form begins with.
    fn first() -> Self {
        Self { days: LIFETIME.to_owned(), read: "true".to_owned(), ..Self::default() }
    }

    fn has(&self, scope: Scope) -> bool {
        let given = match scope {
            Scope::Emit => &self.emit,
            Scope::Read => &self.read,
            Scope::Values => &self.values,
            Scope::Operate => &self.operate,
            Scope::Admin => &self.admin,
        };
        !given.is_empty()
    }

    fn wanted(&self) -> Result<CreateKey, Problem> {
        let whole = SCOPES.iter().filter(|(scope, _)| self.has(*scope)).map(|(scope, _)| scope.to_string());
        let narrow = self.narrow.split(|sign: char| sign.is_whitespace() || sign == ',');
        let narrow = narrow.filter(|text| !text.is_empty()).map(str::to_owned);
        let days: Option<u64> = given::number("the number of days", &self.days)?;
        Ok(CreateKey {
            holder: self.holder.trim().to_owned(),
            scopes: whole.chain(narrow).collect(),
            lifetime_s: days.map(|days| days.saturating_mul(DAY_S)),
        })
    }
}

/// Makes a key, or shows the form again with what is wrong.
pub(crate) async fn create(visit: Visit, Form(given): Form<NewKeyForm>) -> Response {
    let made = created(&visit, &given).await;
    let refused = |problem: Problem| View::new("Make a key").below(maker(&visit, &given)).refused(&problem);
    made.unwrap_or_else(refused).into_response()
}

/// The page that shows a new key, the only one: nothing of it is in an address or a cookie.
async fn created(visit: &Visit, given: &NewKeyForm) -> Result<View, Problem> {
    let new = given.wanted()?;
    let created: CreatedKeyJson = visit.ask_admin(&["keys"]).post(&new).await?;
    Ok(View::new("A new key").above(html! {
        p.said role="status" { "This is the only time that the key is shown. Copy it now, and give it to its holder." }
        p { (copied(&created.key.0)) }
        (facts(&[
            ("Holder", Some(html! { (new.holder) })),
            ("Scopes", Some(scopes(&new.scopes))),
            ("Expires", Some(moment(created.expires_at))),
            ("Known as", Some(html! { code { "wakeq_" (created.id) } })),
        ]))
        p { "A program sends it as " code { "Authorization: Bearer …" } "; a person signs in to these pages with it." }
        p.actions {
            a.button href=(visit.link(&["keys"])) { "I have copied it: all keys" } " "
            a.button href=(visit.link(&["keys", &created.id, "revoke"])) { "Revoke it" }
        }
    }))
}

/// Asks before a key is revoked.
pub(crate) async fn ask_revoke(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let id = path.get("key");
    let keys: List<KeyJson> = visit.ask_admin(&["keys"]).query("limit", SOUGHT_MAX).get().await?;
    let known = keys.items.iter().find(|key| key.id == id);
    let question = match known {
        Some(key) => format!("Revoke this 1 key of {}?", key.holder),
        None => "Revoke this 1 key?".to_owned(),
    };
    let (action, back) = (visit.link(&["keys", id, "revoke"]), visit.link(&["keys"]));
    let words = html! {
        p.field.wide {
            "Whatever uses it is refused everywhere within a minute, and people who have signed in with it are signed \
             out. It can't be taken back: make another key instead."
            @if is_own(&visit, id) { " " strong { "You are signed in with this key yourself." } }
        }
    };
    Ok(View::new("Revoke a key").above(html! {
        (facts(&[
            ("Key", Some(html! { code { "wakeq_" (id) } })),
            ("Holder", known.map(|key| html! { (key.holder) })),
            ("Scopes", known.map(|key| scopes(&key.scopes))),
            ("Last used", known.map(|key| moment_or(key.last_used_at, "never"))),
        ]))
        (form::confirm(&visit, &action, &question, "Revoke the key", &back, words))
    }))
}

/// Revokes it.
pub(crate) async fn revoke(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let id = path.get("key");
    visit.ask_admin(&["keys", id]).delete().await?;
    Ok(Done::new(
        visit.link(&["keys"]),
        format!("The key wakeq_{id} was revoked. It is refused within a minute."),
    ))
}

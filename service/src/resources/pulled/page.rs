//! Pulled handlers in the browser: those whose events programs lease, and how these are tried
//! again.

use axum::Form;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Number, Value, json};

use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::parts::{Tone, badge, empty, facts, number, pager, table, tile};
use crate::page::time::{moment, moment_or};
use crate::page::view::{Done, View};
use crate::page::visit::{PathParts, Visit};
use crate::page::{form, given};
use crate::resources::handlers::wire::{Handler, RuleKind};
use crate::resources::pulled::wire::{PulledHandlerJson, PutPulledAnswer};
use crate::resources::pulls::wire::Pull;
use crate::resources::queues::page::retries;
use crate::resources::targets::page::{kept, kept_for};
use crate::resources::targets::wire::OnDeath;
use crate::resources::wire::List;
use crate::resources::workers::wire::ProgramJson;

/// How a handler is pulled. What is empty has its default.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct PullForm {
    module: String,
    handler: String,
    retries: String,
    delay_s: String,
    factor: String,
    delay_max_s: String,
    on_death: OnDeath,
    keep_s: String,
}

fn may_put(visit: &Visit, module: &str, name: &str) -> bool {
    visit.may_on(Scope::Operate, module, name) && visit.may_on(Scope::Read, module, name)
}

/// The pulled handlers of the canvas.
pub(crate) async fn list(visit: Visit) -> Result<View, Problem> {
    let ask = visit.ask(&["pulled-handlers"]).query("limit", 100).query("cursor", visit.parameter("cursor"));
    let programs = visit.ask(&["programs"]).query("limit", 100);
    let (handlers, programs) =
        tokio::join!(ask.get::<List<PulledHandlerJson>>(), programs.get::<List<ProgramJson>>());
    let below = html! { (listed(&visit, &handlers?)) (at_work(&visit, &programs?)) };
    Ok(View::new("Pulled handlers").above(new(&visit)).below(below))
}

fn new(visit: &Visit) -> Markup {
    html! {
        @if visit.may(Scope::Operate) && visit.may(Scope::Read) {
            details {
                summary { "New pulled handler" }
                p { "From then on, programs lease its events over HTTP, and no worker or target receives any." }
                (form::change(visit, &visit.link(&["pulled-handlers"]), html! {
                    (form::text("module", "Module", "WORKER", "WORKER"))
                    (form::text("handler", "Handler", "", "render"))
                    (fields(None))
                    button type="submit" { "Let programs lease its events" }
                }))
            }
        }
    }
}

fn fields(policy: Option<&Pull>) -> Markup {
    let text = |value: fn(&Pull) -> String| policy.map(value).unwrap_or_default();
    let on_death = match policy.map(|policy| policy.on_death).unwrap_or_default() {
        OnDeath::Skip => "skip",
        OnDeath::Halt => "halt",
    };
    let choices = [("skip", "what comes later on its object runs"), ("halt", "its object is halted")];
    html! {
        (form::text("retries", "Retries", &text(|policy| policy.retries.to_string()), "2"))
        (form::text("delay_s", "First delay, in s", &text(|policy| policy.delay_s.to_string()), "300"))
        (form::text("factor", "Each further delay times", &text(|policy| policy.factor.to_string()), "1"))
        (form::text("delay_max_s", "Longest delay, in s", &text(|policy| policy.delay_max_s.to_string()), "86400"))
        (form::select("on_death", "When an event dies", on_death, &choices))
        (form::text("keep_s", "Keep ended events, in s", &text(written), "0"))
    }
}

/// How long events are kept, as the form has it.
fn written(policy: &Pull) -> String {
    policy.keep_s.written(|seconds| seconds.to_string())
}

fn listed(visit: &Visit, handlers: &List<PulledHandlerJson>) -> Markup {
    if handlers.items.is_empty() && handlers.next_cursor.is_none() {
        return empty(
            "No handler is pulled.",
            html! {
                "Workers and targets run the events of all handlers. A pulled one is for programs that can "
                "only call out: make one here, and let them lease its events over HTTP."
            },
        );
    }
    html! {
        (table("Pulled handlers", &["Handler", "Retries", "Changed", "By"], html! {
            @for handler in &handlers.items {
                tr {
                    td {
                        a href=(visit.link(&["pulled-handlers", &handler.module, &handler.name])) {
                            (handler.module) "/" (handler.name)
                        }
                    }
                    td.words { (retries(&handler.policy)) }
                    td { (moment(handler.updated_at)) }
                    td { (handler.updated_by) }
                }
            }
        }))
        (pager(visit, handlers.next_cursor.as_deref()))
    }
}

/// The programs that gave a name when they leased events.
fn at_work(visit: &Visit, programs: &List<ProgramJson>) -> Markup {
    if programs.items.is_empty() {
        return html! {};
    }
    html! {
        h2 { "Programs at work" }
        (table("Programs", &["Program", "Handler", "Since", "Last seen"], html! {
            @for program in &programs.items {
                tr {
                    td { code { (program.worker) } }
                    td {
                        a href=(visit.link(&["pulled-handlers", &program.module, &program.name])) {
                            (program.module) "/" (program.name)
                        }
                    }
                    td { (moment(program.since)) }
                    td { (moment(program.seen_at)) }
                }
            }
        }))
        @if programs.next_cursor.is_some() {
            p.quiet { "These are the first 100: " code { "wakeq workers programs" } " lists all." }
        }
    }
}

/// One pulled handler.
pub(crate) async fn one(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let (module, name) = (path.get("module"), path.get("name"));
    let pulled = visit.ask(&["handlers", module, name, "pull"]);
    let handler = visit.ask(&["handlers", module, name]);
    let (pulled, handler) = tokio::join!(pulled.shared::<PulledHandlerJson>(), handler.shared::<Handler>());
    let (pulled, handler) = (pulled?, handler?);
    let live = html! { (counts(&visit, &handler)) (about(&visit, &pulled)) };
    let view = View::new(format!("Pulled handler {}/{}", pulled.module, pulled.name));
    Ok(view.above(actions(&visit, &pulled)).live(live).below(change(&visit, &pulled)))
}

fn actions(visit: &Visit, pulled: &PulledHandlerJson) -> Markup {
    let PulledHandlerJson { module, name, .. } = pulled;
    html! {
        @if visit.may_on(Scope::Operate, module, name) {
            div.actions {
                a.button href=(visit.link(&["pulled-handlers", module, name, "delete"])) { "Stop pulling" }
            }
        }
    }
}

fn counts(visit: &Visit, handler: &Handler) -> Markup {
    let Handler { module, name, .. } = handler;
    let in_state = |state: &str| {
        visit
            .link_with(&["events"], &[("module", module.as_str()), ("name", name.as_str()), ("state", state)])
    };
    html! {
        div.tiles {
            (tile("leased now", &number(handler.running), Tone::Busy, Some(&in_state("running"))))
            (tile("waiting to be leased", &number(handler.waiting), Tone::Waiting, Some(&in_state("ready"))))
            (tile("delayed", &number(handler.delayed), Tone::Waiting, None))
            (tile("dead", &number(handler.dead), if handler.dead > 0 { Tone::Alarm } else { Tone::Calm }, None))
        }
        p { "The oldest event has been due since " (moment_or(handler.oldest_due, "no time: none is due")) "." }
        @for rule in &handler.rules {
            p {
                @match rule.kind {
                    RuleKind::Pause => { (badge(Tone::Waiting, "paused")) }
                    RuleKind::Block => { (badge(Tone::Alarm, "blocked")) }
                }
                " by " (rule.created_by) " " (moment(rule.created_at)) ": nothing is leased until that is lifted."
            }
        }
    }
}

fn about(visit: &Visit, pulled: &PulledHandlerJson) -> Markup {
    let PulledHandlerJson { module, name, policy, .. } = pulled;
    facts(&[
        ("Handler", Some(html! { a href=(visit.link(&["handlers", module, name])) { (module) "/" (name) } })),
        ("Retries", Some(retries(policy))),
        (
            "Leases",
            Some(
                html! { "each as long as its program asks for, up to an hour; one that expires counts as a loss" },
            ),
        ),
        ("Ended events", Some(html! { (kept(policy.keep_s)) })),
        ("Made", Some(html! { (moment(pulled.created_at)) " by " (pulled.created_by) })),
        ("Changed", Some(html! { (moment(pulled.updated_at)) " by " (pulled.updated_by) })),
    ])
}

fn change(visit: &Visit, pulled: &PulledHandlerJson) -> Markup {
    let PulledHandlerJson { module, name, policy, .. } = pulled;
    html! {
        @if may_put(visit, module, name) {
            details {
                summary { "Change how its events are tried again" }
                (form::change(visit, &visit.link(&["pulled-handlers", module, name]), html! {
                    (fields(Some(policy)))
                    button type="submit" { "Change it" }
                }))
            }
        }
    }
}

/// Makes a handler a pulled one that is not.
pub(crate) async fn create(visit: Visit, Form(form): Form<PullForm>) -> Result<Done, Problem> {
    let module = given::text(&form.module).unwrap_or("WORKER");
    let name = given::required("the handler", &form.handler)?;
    match visit.ask(&["handlers", module, name, "pull"]).get::<PulledHandlerJson>().await {
        Ok(_) => {
            let words = format!("{module}/{name} is pulled already: change it on its page");
            Err(Problem::new(Kind::Conflict, words))
        }
        Err(problem) if problem.kind == Kind::NotFound => sent(&visit, module, name, &form).await,
        Err(problem) => Err(problem),
    }
}

/// Changes how the events of a pulled handler are tried again.
pub(crate) async fn put(visit: Visit, path: PathParts, Form(form): Form<PullForm>) -> Result<Done, Problem> {
    sent(&visit, path.get("module"), path.get("name"), &form).await
}

impl PullForm {
    /// The policy, with what is given.
    fn policy(&self) -> Result<Value, Problem> {
        let mut policy = Map::new();
        for (field, label, text) in [
            ("retries", "the number of retries", &self.retries),
            ("delay_s", "the delay", &self.delay_s),
            ("factor", "the factor", &self.factor),
            ("delay_max_s", "the longest delay", &self.delay_max_s),
        ] {
            if let Some(number) = given::number::<Number>(label, text)? {
                policy.insert(field.to_owned(), Value::Number(number));
            }
        }
        policy.insert("on_death".to_owned(), json!(self.on_death));
        policy.insert("keep_s".to_owned(), json!(kept_for(&self.keep_s)?));
        Ok(Value::Object(policy))
    }
}

async fn sent(visit: &Visit, module: &str, name: &str, form: &PullForm) -> Result<Done, Problem> {
    let ask = visit.ask(&["handlers", module, name, "pull"]);
    let PutPulledAnswer { new, still, .. } = ask.put(&form.policy()?).await?;
    let done = if new { "Programs can lease its events from now on." } else { "It was changed." };
    let held = match still {
        Some(RuleKind::Pause) => " A pause still holds them.",
        Some(RuleKind::Block) => " A block still holds them.",
        None => "",
    };
    Ok(Done::new(visit.link(&["pulled-handlers", module, name]), format!("{done}{held}")))
}

/// Asks before a handler is pulled no more.
pub(crate) async fn ask_delete(visit: Visit, path: PathParts) -> Result<View, Problem> {
    let (module, name) = (path.get("module"), path.get("name"));
    visit.needs_on(Scope::Operate, module, name)?;
    let pulled = visit.ask(&["handlers", module, name, "pull"]).get::<PulledHandlerJson>().await?;
    let handler = visit.ask(&["handlers", module, name]).get::<Handler>().await?;
    let (leased, noun) = (number(handler.running), if handler.running == 1 { "event" } else { "events" });
    let PulledHandlerJson { module, name, .. } = &pulled;
    let question = format!(
        "Stop pulling {module}/{name}? It has {leased} leased {noun}, which can't be completed any more."
    );
    let (action, back) = (
        visit.link(&["pulled-handlers", module, name, "delete"]),
        visit.link(&["pulled-handlers", module, name]),
    );
    let above = html! {
        p {
            "Workers and targets receive its events again. Events that are leased now run again when "
            "their leases end."
        }
        (form::confirm(&visit, &action, &question, "Stop pulling", &back, html! {}))
    };
    Ok(View::new(format!("Stop pulling {module}/{name}")).above(above))
}

/// Lets workers and targets receive its events again.
pub(crate) async fn delete(visit: Visit, path: PathParts) -> Result<Done, Problem> {
    let (module, name) = (path.get("module"), path.get("name"));
    visit.ask(&["handlers", module, name, "pull"]).delete().await?;
    let said = format!("Workers and targets receive the events of {module}/{name} again.");
    Ok(Done::new(visit.link(&["pulled-handlers"]), said))
}

//! What is wrong now, worst first: a sentence each, with a link to where it is mended.

use futures_util::future::join_all;
use maud::{Markup, html};

use crate::access::Scope;
use crate::http::problem::{Kind, Problem};
use crate::page::parts::{Tone, badge, number};
use crate::page::time::{length, moment};
use crate::page::visit::Visit;
use crate::resources::doctor::wire::{DoctorReport, FindingJson, LevelJson};
use crate::resources::events::wire::EventSummaryJson;
use crate::resources::groups::wire::GroupSummary;
use crate::resources::handlers::wire::{CanvasCounts, DepthJson, Handler, RuleJson, RuleKind, RuleReachJson};
use crate::resources::limits::wire::{LimitJson, LimitUseJson};
use crate::resources::wire::List;
use crate::resources::workers::wire::{WorkerStateJson, WorkerSummaryJson};

/// How many of a kind are named.
const NAMED_MAX: usize = 5;
/// How many limits are looked at, and how many keys of each.
const LIMITS_MAX: usize = 10;
const KEYS_MAX: usize = 20;
/// How many workers and groups are looked at.
const LISTED_MAX: usize = 1_000;
/// How long an event that is free to run may have been due.
const DUE_MAX_S: f64 = 60.0;

/// Something that somebody should look at.
struct Trouble {
    tone: Tone,
    words: Markup,
}

impl Trouble {
    fn alarm(words: Markup) -> Self {
        Self { tone: Tone::Alarm, words }
    }

    fn notice(words: Markup) -> Self {
        Self { tone: Tone::Waiting, words }
    }
}

/// What the page has asked for already.
pub(super) struct Known<'k> {
    pub(super) counts: &'k CanvasCounts,
    /// How many events died in the last hour.
    pub(super) died_in_hour: u64,
    /// If the person may see it.
    pub(super) doctor: Option<&'k Result<DoctorReport, Problem>>,
}

/// The list of what is wrong.
pub(super) async fn list(visit: &Visit, known: &Known<'_>) -> Markup {
    let is_operator = visit.may_everywhere(Scope::Read);
    let (switches, depth, limits, workers, groups) = tokio::join!(
        visit.ask(&["switches"]).shared::<List<RuleJson>>(),
        visit.ask(&["depth"]).shared::<DepthJson>(),
        full_limits(visit),
        allowed(is_operator, listed::<WorkerSummaryJson>(visit, "workers")),
        allowed(is_operator, listed::<GroupSummary>(visit, "groups")),
    );
    let mut unseen = Vec::new();
    let switches = seen("What stops the canvas", Some(switches), &mut unseen).map(items).unwrap_or_default();
    let depth = seen("What is due", Some(depth), &mut unseen);
    let limits = seen("Limits", Some(limits), &mut unseen).unwrap_or_default();
    let workers = seen("Workers", workers, &mut unseen).map(items);
    let groups = seen("Groups", groups, &mut unseen).map(items).unwrap_or_default();
    if let Some(Err(problem)) = known.doctor {
        unseen.push(not_looked_at("The database", problem));
    }
    let findings = known.doctor.and_then(|report| report.as_ref().ok());
    let findings: &[FindingJson] = findings.map_or(&[][..], |report| report.findings.as_slice());
    let troubles: Vec<Trouble> = of_switches(&switches)
        .into_iter()
        .chain(of_workers(visit, workers.as_deref()))
        .chain(of_doctor(findings, LevelJson::Fail))
        .chain(unseen)
        .chain(of_handlers(visit, known.counts))
        .chain(overdue(visit, depth, workers.as_deref()))
        .chain(of_dead(visit, known.died_in_hour))
        .chain(of_limits(visit, &limits))
        .chain(of_rules(known.counts))
        .chain(of_groups(visit, &groups))
        .chain(of_doctor(findings, LevelJson::Warn))
        .collect();
    shown(&troubles)
}

fn shown(troubles: &[Trouble]) -> Markup {
    html! {
        h2 { "What is wrong now" }
        @if troubles.is_empty() { p { (badge(Tone::Calm, "Nothing is wrong")) } }
        @else {
            ul.troubles {
                @for trouble in troubles {
                    @let word = if trouble.tone == Tone::Alarm { "wrong" } else { "look" };
                    li { (badge(trouble.tone, word)) span { (trouble.words) } }
                }
            }
        }
    }
}

fn items<T>(list: List<T>) -> Vec<T> {
    list.items
}

async fn listed<T: serde::de::DeserializeOwned>(visit: &Visit, what: &str) -> Result<List<T>, Problem> {
    visit.ask_everywhere(&[what]).query("limit", LISTED_MAX).shared().await
}

async fn allowed<T>(
    may: bool,
    asking: impl Future<Output = Result<T, Problem>>,
) -> Option<Result<T, Problem>> {
    if may { Some(asking.await) } else { None }
}

/// What was asked for, if the person may see it. If it could not be looked at, that is wrong, too.
fn seen<T>(what: &str, asked: Option<Result<T, Problem>>, unseen: &mut Vec<Trouble>) -> Option<T> {
    match asked? {
        Ok(found) => Some(found),
        Err(problem) => {
            unseen.push(not_looked_at(what, &problem));
            None
        }
    }
}

fn not_looked_at(what: &str, problem: &Problem) -> Trouble {
    problem.log();
    Trouble::alarm(html! { (what) " could not be looked at: " (problem.detail()) "." })
}

/// What is used of a limit where events wait for more.
struct FullLimit {
    limit: String,
    used: LimitUseJson,
}

/// Limits for which events wait.
#[derive(Default)]
struct FullLimits {
    /// Of the first ones.
    first: Vec<FullLimit>,
    /// Whether there are others, and events wait for any.
    may_be_others: bool,
}

async fn full_limits(visit: &Visit) -> Result<FullLimits, Problem> {
    let limits: List<LimitJson> = visit.ask(&["limits"]).query("limit", LIMITS_MAX).shared().await?;
    let uses = limits.items.iter().map(|limit| {
        let ask = visit.ask(&["limits", &limit.name, "uses"]).query("limit", KEYS_MAX);
        ask.shared::<List<LimitUseJson>>()
    });
    let mut full = Vec::new();
    for (limit, uses) in limits.items.iter().zip(join_all(uses).await) {
        match uses {
            Ok(uses) => {
                let waited = uses.items.into_iter().filter(|used| used.waiting > 0);
                full.extend(waited.map(|used| FullLimit { limit: limit.name.clone(), used }));
            }
            // It was removed just now.
            Err(problem) if problem.kind == Kind::NotFound => {}
            Err(problem) => return Err(problem),
        }
    }
    let may_be_others = limits.next_cursor.is_some() && limits_are_waited_for(visit).await?;
    Ok(FullLimits { first: full, may_be_others })
}

async fn limits_are_waited_for(visit: &Visit) -> Result<bool, Problem> {
    let ask = visit.ask(&["events"]).query("state", "limited").query("limit", 1);
    Ok(!ask.shared::<List<EventSummaryJson>>().await?.items.is_empty())
}

/// Rules on the whole canvas, and on everything.
fn of_switches(switches: &[RuleJson]) -> Vec<Trouble> {
    let of_rule = |rule: &RuleJson| {
        let what = match rule.stops {
            RuleReachJson::Everything => "Everything, on every canvas,",
            RuleReachJson::Canvas | RuleReachJson::Handler => "The whole canvas",
        };
        let how = match rule.kind {
            RuleKind::Pause => "paused",
            RuleKind::Block => "blocked",
        };
        Trouble::alarm(html! {
            (what) " is " (how) " by " (rule.created_by) ", since " (moment(rule.created_at))
            @if let Some(reason) = &rule.reason { ", because: " (reason) }
            @if let Some(until) = rule.until { ", until " (moment(until)) }
            ". Nothing of it starts."
        })
    };
    switches.iter().map(of_rule).collect()
}

fn at_work(workers: &[WorkerSummaryJson]) -> usize {
    let works = |worker: &&WorkerSummaryJson| match worker.state {
        WorkerStateJson::Working | WorkerStateJson::Asleep => true,
        WorkerStateJson::Stopping | WorkerStateJson::Lost => false,
    };
    workers.iter().filter(works).count()
}

fn of_workers(visit: &Visit, workers: Option<&[WorkerSummaryJson]>) -> Option<Trouble> {
    let workers = workers.filter(|workers| at_work(workers) == 0)?;
    let latest = workers.iter().map(|worker| worker.seen_at).max();
    Some(Trouble::alarm(html! {
        "No worker is at work, so nothing runs"
        @if let Some(latest) = latest { ": the last one was seen " (moment(latest)) }
        ". Start one; " a href=(visit.link(&["workers"])) { "workers" } " shows which there were."
    }))
}

fn of_doctor(findings: &[FindingJson], level: LevelJson) -> impl Iterator<Item = Trouble> {
    findings.iter().filter(move |finding| finding.level == level).map(move |finding| {
        let words = html! {
            "The doctor on " a href="#doctor" { (finding.what) } ": " (finding.found) "."
            @if let Some(mend) = &finding.mend { " To mend it: " (mend) "." }
        };
        if level == LevelJson::Fail { Trouble::alarm(words) } else { Trouble::notice(words) }
    })
}

fn of_handlers(visit: &Visit, counts: &CanvasCounts) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    let unknown = counts.unknown.iter().filter_map(|handler| Some((handler, handler.unknown_since?)));
    for (handler, since) in unknown.take(NAMED_MAX) {
        troubles.push(Trouble::alarm(html! {
            "No worker knows the handler " (link(visit, handler)) ", since " (moment(since))
            ": its events wait. Start a worker that has it, or see whether the name is right."
        }));
    }
    let more = counts.unknown_handlers.saturating_sub(troubles.len() as i64);
    if more > 0 {
        let all = visit.link(&["handlers"]);
        troubles.push(Trouble::alarm(html! {
            a href=(all) { (counted(more.unsigned_abs(), "more handler is", "more handlers are")) }
            " known to no worker."
        }));
    }
    if counts.halted > 0 {
        let all = visit.link(&["halted-objects"]);
        troubles.push(Trouble::alarm(html! {
            a href=(all) { (counted(counts.halted.unsigned_abs(), "object is halted", "objects are halted")) }
            " behind an event that died: redrive the event, or skip it."
        }));
    }
    troubles
}

/// Events that are due and free to run, and should have started.
fn overdue(
    visit: &Visit,
    depth: Option<DepthJson>,
    workers: Option<&[WorkerSummaryJson]>,
) -> Option<Trouble> {
    let DepthJson { depth, oldest_age_s, capped: _ } = depth?;
    let age_s = oldest_age_s.filter(|age_s| *age_s > DUE_MAX_S)?;
    let working = workers.map(at_work);
    let ready = visit.link_with(&["events"], &[("state", "ready")]);
    // Without a worker, that is what is wrong.
    (working != Some(0)).then(|| {
        Trouble::alarm(html! {
            a href=(ready) { (counted(depth, "event is", "events are")) " overdue" }
            ", the oldest for " (length(age_s))
            @if let Some(working) = working { ", although " (counted(working as u64, "worker is", "workers are")) " at work" }
            ". Workers may be busy, or lack the handler, or not be notified."
        })
    })
}

fn of_dead(visit: &Visit, died: u64) -> Option<Trouble> {
    (died > 0).then(|| {
        Trouble::alarm(html! {
            a href=(visit.link(&["dead-events"])) { (counted(died, "event", "events")) }
            " died within the last hour: see why, mend it, and redrive them."
        })
    })
}

fn of_limits(visit: &Visit, full: &FullLimits) -> Vec<Trouble> {
    let of_use = |FullLimit { limit, used }: &FullLimit| {
        Trouble::notice(html! {
            (counted(used.waiting, "event waits", "events wait")) " for the limit "
            a href=(visit.link(&["limits", limit])) { (used.name) } ", of which " (number(used.running)) " are running. "
            a href=(visit.link(&["limits", limit, "holders"])) { "Who holds the places" }
        })
    };
    let others = full.may_be_others.then(|| {
        Trouble::notice(html! {
            a href=(visit.link_with(&["events"], &[("state", "limited")])) { "Events wait for limits" }
            ", of which there are more than the " (number(LIMITS_MAX as u64)) " that are looked at here: "
            a href=(visit.link(&["limits"])) { "all limits" } "."
        })
    });
    full.first.iter().take(NAMED_MAX).map(of_use).chain(others).collect()
}

/// The rules on handlers, which the page lists below.
fn of_rules(counts: &CanvasCounts) -> Option<Trouble> {
    let stopped = counts.stopped_handlers;
    (stopped > 0).then(|| {
        Trouble::notice(html! {
            a href="#stopped" { (counted(stopped.unsigned_abs(), "handler is", "handlers are")) " paused or blocked" }
            ", and events wait for that to end."
        })
    })
}

/// Groups that nobody consumes although there is something to read.
fn of_groups(visit: &Visit, groups: &[GroupSummary]) -> Vec<Trouble> {
    let abandoned = groups.iter().filter(|group| group.subscribers == 0 && !group.alone && group.lag > 0);
    let of_group = |group: &GroupSummary| {
        Trouble::notice(html! {
            "No process consumes the group " a href=(visit.link(&["groups", &group.name])) { (group.name) }
            ", which is " (number(group.lag)) " behind, and keeps the log. Start its members, or remove it."
        })
    };
    abandoned.take(NAMED_MAX).map(of_group).collect()
}

fn counted(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{} {many}", number(count)) }
}

fn link(visit: &Visit, handler: &Handler) -> Markup {
    let Handler { module, name, .. } = handler;
    html! { a href=(visit.link(&["handlers", module, name])) { (module) "/" (name) } }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn when_nothing_is_wrong_that_is_said() {
        assert!(shown(&[]).into_string().contains("Nothing is wrong"));
        let some = shown(&[Trouble::alarm(html! { "It burns." })]).into_string();
        assert!(some.contains("It burns.") && !some.contains("Nothing is wrong"), "{some}");
    }

    #[test]
    fn what_people_wrote_is_escaped() {
        let evil = "<script>alert(1)</script>".to_owned();
        let rule = RuleJson {
            kind: RuleKind::Block,
            stops: RuleReachJson::Canvas,
            reason: Some(evil.clone()),
            until: None,
            created_by: evil.clone(),
            created_at: DateTime::UNIX_EPOCH,
        };
        let finding =
            FindingJson { level: LevelJson::Fail, what: evil.clone(), found: evil, mend: Some("x".into()) };
        let troubles: Vec<_> =
            of_switches(&[rule]).into_iter().chain(of_doctor(&[finding], LevelJson::Fail)).collect();
        let shown = shown(&troubles).into_string();
        assert!(shown.contains("is blocked by") && !shown.contains("<script"), "{shown}");
    }
}

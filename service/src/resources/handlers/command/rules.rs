//! `wakeq pause`, `unpause`, `block` and `unblock`: of a handler, of the whole canvas, or of
//! everything.

use std::time::Duration;

use clap::Args;

use super::calls::at;
use crate::cli::Context;
use crate::cli::arguments::{self, HandlerName};
use crate::cli::client::{Client, Request};
use crate::cli::show::{self, JsonArg};
use crate::resources::handlers::wire::{Lifted, RuleKind, StopRequest, Stopped};
use wakeq::{CanvasId, Timestamp};

#[derive(Args)]
pub(crate) struct Pause {
    #[command(flatten)]
    what: HandlerOrCanvas,
    #[command(flatten)]
    stop: Stop,
}

#[derive(Args)]
pub(crate) struct Unpause {
    #[command(flatten)]
    what: HandlerOrCanvas,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
pub(crate) struct Block {
    #[command(flatten)]
    what: HandlerOrMore,
    #[command(flatten)]
    stop: Stop,
}

#[derive(Args)]
pub(crate) struct Unblock {
    #[command(flatten)]
    what: HandlerOrMore,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct HandlerOrCanvas {
    /// The handler: its name, or MODULE/name when the module is not WORKER
    #[arg(required_unless_present = "canvas_wide")]
    handler: Option<HandlerName>,
    /// The whole canvas instead of one handler
    #[arg(long, conflicts_with = "handler")]
    canvas_wide: bool,
}

#[derive(Args)]
struct HandlerOrMore {
    /// The handler: its name, or MODULE/name when the module is not WORKER
    #[arg(required_unless_present_any = ["canvas_wide", "all_canvases"])]
    handler: Option<HandlerName>,
    /// The whole canvas instead of one handler
    #[arg(long, conflicts_with = "handler")]
    canvas_wide: bool,
    /// Every canvas and every queue
    #[arg(long, conflicts_with_all = ["handler", "canvas_wide"])]
    all_canvases: bool,
}

#[derive(Args)]
struct Stop {
    /// Reason to show to others
    #[arg(long)]
    reason: Option<String>,
    /// Lift it at this time (2030-01-31T08:00:00Z)
    #[arg(long, conflicts_with = "lasting", value_parser = arguments::timestamp)]
    until: Option<Timestamp>,
    /// Lift it after this long (30m, 2h)
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    lasting: Option<Duration>,
    #[command(flatten)]
    json: JsonArg,
}

/// What a rule stops.
enum Subject {
    Handler(HandlerName),
    Canvas,
    Everything,
}

impl From<HandlerOrCanvas> for Subject {
    fn from(HandlerOrCanvas { handler, canvas_wide: _ }: HandlerOrCanvas) -> Self {
        handler.map_or(Self::Canvas, Self::Handler)
    }
}

impl From<HandlerOrMore> for Subject {
    fn from(HandlerOrMore { handler, canvas_wide: _, all_canvases }: HandlerOrMore) -> Self {
        match handler {
            Some(handler) => Self::Handler(handler),
            None if all_canvases => Self::Everything,
            None => Self::Canvas,
        }
    }
}

impl Subject {
    /// The request about a rule on it. Blocks are below the routes for admins.
    fn rule(&self, verb: fn(&[&str]) -> Request, kind: RuleKind) -> Request {
        match (self, kind) {
            (Self::Handler(handler), RuleKind::Pause) => at(verb, handler, &["pause"]),
            (Self::Handler(handler), RuleKind::Block) => at(verb, handler, &["block"]).admin(),
            (Self::Canvas, RuleKind::Pause) => verb(&["pause"]),
            (Self::Canvas, RuleKind::Block) => verb(&["block"]).admin(),
            (Self::Everything, _) => verb(&["block"]).everywhere(),
        }
    }

    fn words(&self, canvas: CanvasId) -> String {
        match self {
            Self::Handler(handler) => handler.to_string(),
            Self::Canvas => format!("canvas {canvas}"),
            Self::Everything => "everything".to_owned(),
        }
    }
}

impl Pause {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        self.stop.run(context, RuleKind::Pause, &self.what.into()).await
    }
}

impl Block {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        self.stop.run(context, RuleKind::Block, &self.what.into()).await
    }
}

impl Unpause {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        lift(context, RuleKind::Pause, &self.what.into(), self.json).await
    }
}

impl Unblock {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        lift(context, RuleKind::Block, &self.what.into(), self.json).await
    }
}

impl Stop {
    async fn run(self, context: &Context, kind: RuleKind, subject: &Subject) -> anyhow::Result<()> {
        let client = context.client().await?;
        let for_s = self.lasting.map(|lasting| lasting.as_secs_f64());
        let stop = StopRequest { reason: self.reason, until: self.until, for_s };
        let stopped = client.call(subject.rule(Request::put, kind).silent().body(&stop)?).await?;
        let words = subject.words(client.canvas);
        self.json.print(&stopped, |stopped: &Stopped| print_stopped(&words, kind, stopped))?;
        if let Subject::Handler(handler) = subject {
            note_if_empty(&client, handler).await;
        }
        Ok(())
    }
}

fn print_stopped(subject: &str, kind: RuleKind, stopped: &Stopped) -> anyhow::Result<()> {
    let state = show::rule_state(kind);
    let words = if stopped.new { "" } else { "was " };
    let replaced = if stopped.new { "" } else { " already: reason and end replaced" };
    show::line(format_args!("{subject} {words}{state}{replaced}"))?;
    match stopped.also {
        Some(other) => show::line(format_args!("{subject} is {} as well", show::rule_state(other))),
        None => Ok(()),
    }
}

/// A mistyped name is stopped as well, which someone in a hurry should notice. The caller may lack
/// the right to read.
async fn note_if_empty(client: &Client, handler: &HandlerName) {
    let Ok(found) = client.handler(handler).await else { return };
    if [found.waiting, found.paused, found.delayed, found.running, found.dead] == [0; 5] {
        show::note("it has no events now; if that surprises you, look for the right name in `wakeq stats`");
    }
}

async fn lift(context: &Context, kind: RuleKind, subject: &Subject, json: JsonArg) -> anyhow::Result<()> {
    let client = context.client().await?;
    let lifted = client.call(subject.rule(Request::delete, kind).for_a_while()).await?;
    json.print(&lifted, |lifted: &Lifted| print_lifted(&subject.words(client.canvas), kind, lifted))
}

fn print_lifted(subject: &str, kind: RuleKind, lifted: &Lifted) -> anyhow::Result<()> {
    let rule = show::rule_word(kind);
    if lifted.lifted {
        let woken = show::count(lifted.woken as u64, "waiting event");
        let waking = if lifted.waking { " so far, and waking continues" } else { "" };
        show::line(format_args!("{subject}: {rule} lifted, {woken} woken{waking}"))?;
    } else {
        show::line(format_args!("{subject}: there was no {rule}"))?;
    }
    match lifted.still {
        Some(RuleKind::Block) => {
            show::line(format_args!("{subject} is still blocked: only `wakeq unblock` lifts that"))?;
        }
        Some(RuleKind::Pause) => {
            show::line(format_args!("{subject} is still paused: `wakeq unpause` lifts that"))?;
        }
        None => {}
    }
    match &lifted.under {
        Some(rule) => show::line(format_args!("{subject} still waits under a {}", show::rule(rule))),
        None => Ok(()),
    }
}

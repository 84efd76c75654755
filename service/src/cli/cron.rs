//! `wakeq cron`: put, show, pause and delete schedules that emit events.

use clap::{Args, Subcommand};
use serde_json::value::RawValue;

use super::Context;
use super::arguments::ListArgs;
use super::show::{self, JsonArg, field, moment};
use super::table::Table;
use super::{emit, text, value};
use crate::api::{Cron, CronTick, PauseCron, PutCron};
use wakeq::Name;
use wakeq::crons::MissedTicks;

#[derive(Args)]
pub(crate) struct Crons {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Create or replace a cron
    Put(Put),
    /// List the crons with their next ticks
    List(ListOf),
    /// Show one cron with its next five ticks
    Show(Show),
    /// Pause a cron
    Pause(Pause),
    /// Resume a cron
    Unpause(One),
    /// Delete a cron
    Delete(One),
}

#[derive(Args)]
struct Put {
    /// The cron's name: its events are for the handler CRON/name
    name: Name,
    /// Minute, hour, day, month and weekday, such as '30 8 * * MON-FRI'; with six fields, the first
    /// is seconds
    expression: String,
    /// The value of its events, as JSON
    #[arg(default_value = "null", value_parser = emit::json)]
    value: String,
    /// The time zone of the expression (Europe/Berlin)
    #[arg(long, default_value = "UTC")]
    zone: String,
    /// How to handle missed ticks: skip, once (emit the last one) or all
    #[arg(long, default_value_t = MissedTicks::Skip)]
    missed: MissedTicks,
    /// The handler's modifier [default: _]
    #[arg(long)]
    modifier: Option<Name>,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct ListOf {
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Show {
    /// The cron's name
    name: Name,
    /// Show the whole value
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Pause {
    /// The cron's name
    name: Name,
    /// Reason to show to others
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct One {
    /// The cron's name
    name: Name,
    #[command(flatten)]
    json: JsonArg,
}

impl Crons {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            Verb::Put(command) => command.run(context).await,
            Verb::List(command) => command.run(context).await,
            Verb::Show(command) => command.run(context).await,
            Verb::Pause(command) => command.run(context).await,
            Verb::Unpause(command) => command.unpause(context).await,
            Verb::Delete(command) => command.delete(context).await,
        }
    }
}

impl Put {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let new = PutCron {
            expression: self.expression,
            zone: self.zone,
            value: Some(RawValue::from_string(self.value.trim().to_owned())?),
            modifier: self.modifier.map(|modifier| modifier.to_string()),
            missed: self.missed.into(),
        };
        let cron = context.backend().await?.put_cron(&self.name, new).await?;
        self.json.print(&cron, state)
    }
}

impl ListOf {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let backend = context.backend().await?;
        let crons = self.list.gather(async |page| backend.crons(page).await).await?;
        self.json.print_list(&crons, |crons| {
            let mut table = Table::new(["NAME", "EXPRESSION", "ZONE", ">TICKS", "NEXT"]);
            for cron in crons {
                let (name, expression) = (cron.name.clone(), cron.expression.clone());
                table.row([name, expression, cron.zone.clone(), cron.ticks.to_string(), next(cron)]);
            }
            table.print("no crons")
        })
    }
}

impl Show {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let cron = context.backend().await?.cron(&self.name).await?;
        self.json.print(&cron, |cron| {
            field("cron", &cron.name)?;
            field("handler", format_args!("CRON/{}/{}", cron.name, cron.modifier))?;
            field("ticks", format_args!("{} in {}", cron.expression, cron.zone))?;
            field("missed", MissedTicks::from(cron.missed))?;
            match &cron.paused {
                Some(_) => field("paused", next(cron))?,
                None => cron.next.iter().try_for_each(|tick| field("next", local(tick)))?,
            }
            let last = cron.last.map_or_else(|| "never".to_owned(), moment);
            field("last", format_args!("{last}; {} emitted", show::count(cron.ticks, "event")))?;
            field("made", format_args!("{} by {}", moment(cron.created_at), cron.created_by))?;
            match &cron.value {
                Some(value) => field("value", value::pretty(value.get(), self.full)),
                None => Ok(()),
            }
        })
    }
}

impl Pause {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let request = PauseCron { reason: self.reason };
        let cron = context.backend().await?.pause_cron(&self.name, request).await?;
        self.json.print(&cron, state)
    }
}

impl One {
    async fn unpause(self, context: &Context) -> anyhow::Result<()> {
        let cron = context.backend().await?.unpause_cron(&self.name).await?;
        self.json.print(&cron, state)
    }

    async fn delete(self, context: &Context) -> anyhow::Result<()> {
        context.backend().await?.delete_cron(&self.name).await?;
        self.json.print(&serde_json::json!({ "name": self.name.as_str() }), |_| {
            show::line(format_args!("cron {} is deleted", self.name))
        })
    }
}

/// A cron and its current state on one line.
fn state(cron: &Cron) -> anyhow::Result<()> {
    let word = if cron.paused.is_some() { "" } else { "next " };
    let Cron { name, expression, zone, .. } = cron;
    show::line(text::clean(&format!("cron {name}: {expression} in {zone}, {word}{}", next(cron))))
}

/// When a cron ticks next, or why it does not.
fn next(cron: &Cron) -> String {
    match (&cron.paused, cron.next.first()) {
        (Some(pause), _) => {
            let reason = pause.reason.as_deref().unwrap_or("no reason given");
            format!("paused by {} since {}: {reason}", pause.by, moment(pause.since))
        }
        (None, Some(tick)) => local(tick),
        (None, None) => "never".to_owned(),
    }
}

/// A time, with the local time if its zone differs from UTC.
fn local(tick: &CronTick) -> String {
    let utc = moment(tick.at);
    if tick.local.naive_local() == tick.at.naive_utc() {
        return utc;
    }
    format!("{utc} ({} there)", tick.local.format("%a %H:%M:%S %:z"))
}

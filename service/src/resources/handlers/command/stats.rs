//! `wakeq stats`, also known as `wakeq handlers list`: all handlers with events, rules or targets,
//! once or repeatedly, or what happened to their events.

use std::io::IsTerminal;
use std::time::{Duration, SystemTime};

use clap::Args;

use crate::cli::Context;
use crate::cli::arguments::{HandlerName, TableArgs};
use crate::cli::client::{Client, Request};
use crate::cli::show::{self, field, moment};
use crate::cli::table::Table;
use crate::resources::handlers::wire::{CanvasCounts, Handler};
use crate::resources::statistics::command::HistoryArgs;
use crate::resources::targets::wire::TargetJson;
use crate::resources::wire::List;
use wakeq::Timestamp;
use wakeq::internals::Spelled;

/// Clears the terminal, and moves the cursor to its top.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";

#[derive(Args)]
pub(crate) struct Stats {
    /// Only this handler: its name, or MODULE/name
    handler: Option<HandlerName>,
    /// Refresh it every SECONDS (2) until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u64).range(1..=3600), conflicts_with = "json")]
    watch: Option<u64>,
    /// Count what all handlers of the canvas have together, and show the busiest
    #[arg(long, conflicts_with_all = ["handler", "watch", "history", "limit", "cursor"])]
    total: bool,
    #[command(flatten)]
    history: HistoryArgs,
    #[command(flatten)]
    table: TableArgs,
}

impl Stats {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let client = context.client().await?;
        if self.history.is_given() {
            return self.history.run(&client, self.handler.as_ref(), self.table.json).await;
        }
        if self.total {
            let counts: CanvasCounts = client.call(Request::get(&["counts"])).await?;
            return self.table.json.print(&counts, print_total);
        }
        match self.watch {
            Some(seconds) => self.watch(&client, Duration::from_secs(seconds)).await,
            None => self.table.json.print_list(&self.look(&client).await?, print),
        }
    }

    async fn look(&self, client: &Client) -> anyhow::Result<List<Handler>> {
        let Some(handler) = &self.handler else {
            let page = async |page| client.call(Request::get(&["handlers"]).page(page)).await;
            return self.table.list.clone().gather(page).await;
        };
        let found = client.handler(handler).await?;
        Ok(List::whole(Some(found).filter(|found| !found.is_empty())))
    }

    /// Succeeds on Ctrl-C, and fails if a query fails. The time above the table is this machine's,
    /// and is not compared with anything.
    async fn watch(&self, client: &Client, period: Duration) -> anyhow::Result<()> {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let looking = async {
            loop {
                ticks.tick().await;
                let list = self.look(client).await?;
                if std::io::stdout().is_terminal() {
                    show::raw(CLEAR)?;
                }
                show::line(format_args!(
                    "{}, every {}",
                    moment(Timestamp::from(SystemTime::now())),
                    Spelled(period)
                ))?;
                print(&list.items)?;
                show::note_of_more(list.next_cursor.as_deref());
            }
        };
        tokio::select! {
            ended = looking => ended,
            stopped = tokio::signal::ctrl_c() => Ok(stopped?),
        }
    }
}

fn print(handlers: &[Handler]) -> anyhow::Result<()> {
    let head = ["HANDLER", ">WAITING", ">DELAYED", ">PAUSED", ">RUNNING", ">DEAD", "RULES"];
    Table::of(head, handlers.iter().map(row)).print("no events, no rules, and no targets")
}

fn print_total(counts: &CanvasCounts) -> anyhow::Result<()> {
    let fields = [
        ("handlers", counts.handlers),
        ("waiting", counts.waiting),
        ("delayed", counts.delayed),
        ("paused", counts.paused),
        ("running", counts.running),
        ("dead", counts.dead),
        ("halted", counts.halted),
        ("stopped", counts.stopped_handlers),
        ("unknown", counts.unknown_handlers),
    ];
    fields.into_iter().try_for_each(|(word, count)| field(word, count))?;
    if let Some(due) = counts.oldest_due {
        field("oldest", format_args!("due since {}", moment(due)))?;
    }
    if counts.capped {
        field("capped", "there may be more than was counted")?;
    }
    print(&counts.busiest)
}

fn row(handler: &Handler) -> [String; 7] {
    let Handler { module, name, waiting, delayed, paused, running, dead, .. } = handler;
    let [waiting, delayed, paused, running, dead] =
        [waiting, delayed, paused, running, dead].map(ToString::to_string);
    [format!("{module}/{name}"), waiting, delayed, paused, running, dead, rules(handler)]
}

/// The rules in force, what else holds its events, and where they go.
fn rules(handler: &Handler) -> String {
    let standing = handler.rules.iter().map(show::rule);
    let targets = handler.targets.iter().map(target);
    let halted = halted(handler).map(|objects| format!("halted: {objects}"));
    standing
        .chain(halted)
        .chain(handler.unknown_since.map(unknown))
        .chain(targets)
        .chain(handler.more_targets.then(|| "more targets: `wakeq handlers targets`".to_owned()))
        .collect::<Vec<_>>()
        .join("; ")
}

/// The number of objects that are halted for the handler, if any.
pub(crate) fn halted(handler: &Handler) -> Option<String> {
    let objects = u64::try_from(handler.halted).ok().filter(|objects| *objects > 0)?;
    Some(show::count(objects, "object"))
}

/// In words, where events are sent.
fn target(target: &TargetJson) -> String {
    match target.modifier.as_str() {
        "_" => format!("sent to {}", target.url),
        modifier => format!("{modifier} sent to {}", target.url),
    }
}

/// In words, that some worker lacks the handler.
pub(crate) fn unknown(since: Timestamp) -> String {
    format!("some worker has lacked this handler, or one of its modifiers, since {}", moment(since))
}

//! `wakeq settings show` and `wakeq settings set`.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};

use super::show::JsonArg;
use super::{Context, show};
use wakeq::Timing;
use wakeq::internals::Spelled;

#[derive(Args)]
pub(crate) struct Settings {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the durations of this deployment
    Show,
    /// Change the given durations (--lease 30s; --help-all lists them); stop all other processes
    /// first, and restart them with the same values
    Set,
}

impl Settings {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        context.without_server()?;
        let store = match self.verb {
            Verb::Show => context.store().await?,
            Verb::Set => context.database.replace(&context.timing).await?,
        };
        let durations = store.timing().fields().into_iter();
        let durations: BTreeMap<_, _> =
            durations.map(|(name, value)| (name, Spelled(value).to_string())).collect();
        self.json.print(&durations, |_| show_timing(store.timing()))
    }
}

fn show_timing(timing: &Timing) -> anyhow::Result<()> {
    for (name, value) in timing.fields() {
        show::line(format_args!("{name:22} {}", Spelled(value)))?;
    }
    Ok(())
}

//! `wakeq settings show` and `wakeq settings set`.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::cli::show::JsonArg;
use crate::cli::{Context, show};
use wakeq::internals::Spelled;
use wakeq::{Store, Timing};

/// How often the database is looked at, and the pause in between.
const LOOKS: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(200);

#[derive(Args)]
pub(crate) struct Settings {
    #[command(subcommand)]
    verb: SettingsVerb,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Subcommand)]
enum SettingsVerb {
    /// Show the durations of this deployment
    Show,
    /// Change the given durations (--lease 30s; --help-all lists them); stop all other processes
    /// first, and restart them with the same values
    Set {
        /// Change them although processes are connected or events are claimed; those may run twice
        #[arg(long)]
        force: bool,
    },
}

impl Settings {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        context.without_server()?;
        let store = match self.verb {
            SettingsVerb::Show => context.store().await?,
            SettingsVerb::Set { force } => {
                if !force {
                    refuse_in_use(context).await?;
                }
                context.database.replace(&context.timing).await?
            }
        };
        let durations = store.timing().fields().into_iter();
        let durations: BTreeMap<_, _> =
            durations.map(|(name, value)| (name, Spelled(value).to_string())).collect();
        self.json.print(&durations, |_| show_timing(store.timing()))
    }
}

/// Fails if other processes use the database, or have left claims whose leases stand. A process
/// that has just ended is given a moment to leave.
async fn refuse_in_use(context: &Context) -> anyhow::Result<()> {
    let (url, config) = (context.database.url()?, context.database.to_migrate());
    let mut looks = 0;
    loop {
        let found = Store::database_use(url, &config).await?;
        if found.sessions.is_empty() && !found.is_claimed {
            return Ok(());
        }
        looks += 1;
        if looks == LOOKS {
            let others = match &found.sessions[..] {
                [] => "events are claimed under leases that stand".to_owned(),
                sessions => format!("processes of wakeq are connected ({})", sessions.join("; ")),
            };
            anyhow::bail!(
                "{others}: with other durations their events may run twice. Stop them, or use --force"
            );
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn show_timing(timing: &Timing) -> anyhow::Result<()> {
    for (name, value) in timing.fields() {
        show::line(format_args!("{name:22} {}", Spelled(value)))?;
    }
    Ok(())
}

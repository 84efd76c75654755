//! `wakeq quotas`: a canvas's limits and usage, which operators can set and unset.

use clap::{Args, Subcommand};

use crate::cli::Context;
use crate::cli::client::{Client, Request};
use crate::cli::show::{self, JsonArg};
use crate::cli::table::Table;
use crate::resources::quotas::wire::{self, SetQuota, UnsetQuota};
use crate::resources::wire::List;
use wakeq::control::Quota;

#[derive(Args)]
pub(crate) struct Quotas {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the limits of the canvas and its usage
    Show {
        #[command(flatten)]
        json: JsonArg,
    },
    /// Set a limit of the canvas; through a server this requires a key for all canvases
    Set {
        /// The quota: events, event-bytes, objects, log-streams, log-bytes, entities,
        /// entity-events, crons, cron-ticks, keys or targets
        quota: Quota,
        /// The limit; existing data is kept
        limit: u64,
    },
    /// Restore the default limit of the canvas; through a server this requires a key for all
    /// canvases
    Unset {
        /// The quota
        quota: Quota,
        #[command(flatten)]
        json: JsonArg,
    },
}

impl Quotas {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let client = context.client().await?;
        match self.verb {
            Verb::Show { json } => {
                let quotas = client.quotas().await?;
                json.print(&quotas, |quotas| {
                    let mut table = Table::new(["QUOTA", ">USED", ">LIMIT", "SET"]);
                    for quota in &quotas.items {
                        let set = if quota.set { "for this canvas" } else { "" };
                        table.row([
                            quota.quota.clone(),
                            quota.used.to_string(),
                            quota.limit.to_string(),
                            set.to_owned(),
                        ]);
                    }
                    table.print("there are no quotas")
                })
            }
            Verb::Set { quota, limit } => {
                client.set_quota(quota, SetQuota { limit }).await?;
                show::line(format_args!("{quota}: the canvas may keep {limit}"))
            }
            Verb::Unset { quota, json } => {
                let unset = client.unset_quota(quota).await?;
                let limit = quota.default_limit();
                json.print(&unset, |unset| {
                    let words = if unset.unset { "was unset" } else { "was not set" };
                    show::line(format_args!(
                        "{quota} {words}: the canvas may keep {limit}, like every canvas"
                    ))
                })
            }
        }
    }
}

impl Client {
    /// The limits and usage of the command's canvas.
    pub(crate) async fn quotas(&self) -> anyhow::Result<List<wire::Quota>> {
        self.call(Request::get(&["quotas"])).await
    }

    pub(crate) async fn set_quota(&self, quota: Quota, new: SetQuota) -> anyhow::Result<()> {
        let canvas = self.canvas.to_string();
        let request = Request::put(&["quotas", &canvas, quota.as_str()]).everywhere().silent();
        self.send(request.body(&new)?).await.map(drop)
    }

    pub(crate) async fn unset_quota(&self, quota: Quota) -> anyhow::Result<UnsetQuota> {
        let canvas = self.canvas.to_string();
        self.call(Request::delete(&["quotas", &canvas, quota.as_str()]).everywhere().silent()).await
    }
}

//! `wakeq quotas`: a canvas's limits and usage, which operators can set and unset.

use clap::{Args, Subcommand};

use crate::cli::Context;
use crate::cli::arguments::TableArgs;
use crate::cli::client::Request;
use crate::cli::show::{self, JsonArg};
use crate::resources::quotas::wire::{self, SetQuota, UnsetQuota};
use wakeq::control::Quota;

#[derive(Args)]
pub(crate) struct Quotas {
    #[command(subcommand)]
    verb: QuotaVerb,
}

#[derive(Subcommand)]
enum QuotaVerb {
    /// Show the limits of the canvas and its usage
    Show {
        /// Only this quota
        quota: Option<Quota>,
        #[command(flatten)]
        table: TableArgs,
    },
    /// Set a limit of the canvas; through a server this requires a key for all canvases
    Set {
        /// The quota: events, event-bytes, objects, object-bytes, chosen-ids, idempotency-keys,
        /// log-streams, log-bytes, entities, entity-events, crons, cron-ticks, keys, targets,
        /// hooks, batches, rules or audit-lines
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
        // Only admins of every canvas may set quotas.
        let at = |verb: fn(&[&str]) -> Request, quota: Quota| {
            verb(&["quotas", &context.canvas.canvas.to_string(), quota.as_str()]).everywhere().silent()
        };
        match self.verb {
            QuotaVerb::Show { quota: None, table } => {
                let head = ["QUOTA", ">USED", ">LIMIT", "SET"];
                table.print(context, Request::get(&["quotas"]), head, "there are no quotas", row).await
            }
            QuotaVerb::Show { quota: Some(quota), table } => {
                let one = context.call(Request::get(&["quotas", quota.as_str()])).await?;
                table.json.print(&one, |one: &wire::Quota| {
                    let set = if one.set { ", which was set for this canvas" } else { "" };
                    show::line(format_args!("{quota}: {} of {}{set}", one.used, one.limit))
                })
            }
            QuotaVerb::Set { quota, limit } => {
                context.send(at(Request::put, quota).body(&SetQuota { limit })?).await?;
                show::line(format_args!("{quota}: the canvas may keep {limit}"))
            }
            QuotaVerb::Unset { quota, json } => {
                let limit = quota.default_limit();
                json.print(&context.call(at(Request::delete, quota)).await?, |unset: &UnsetQuota| {
                    let words = if unset.unset { "was unset" } else { "was not set" };
                    show::line(format_args!(
                        "{quota} {words}: the canvas may keep {limit}, like every canvas"
                    ))
                })
            }
        }
    }
}

fn row(quota: &wire::Quota) -> [String; 4] {
    let set = if quota.set { "for this canvas" } else { "" };
    [quota.quota.clone(), quota.used.to_string(), quota.limit.to_string(), set.to_owned()]
}

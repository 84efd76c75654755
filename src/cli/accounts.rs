//! `wakeq accounts allow`, `list` and `remove`: the Google service accounts that are let in.

use clap::{Args, Subcommand};

use super::reach::{self, ByArg, ReachArg, access};
use super::{Context, show};
use crate::access::{Account, Scope, Scopes};

#[derive(Args)]
pub(crate) struct Accounts {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Let a service account in, or replace what it is allowed
    Allow(Allow),
    /// Those that are let in, by address
    List {
        #[command(flatten)]
        reach: ReachArg,
    },
    /// Shut a service account out, everywhere within a minute
    Remove(Remove),
}

#[derive(Args)]
struct Allow {
    /// Its address, name@project.iam.gserviceaccount.com
    email: String,
    /// What it is allowed: emit, read, operate or admin; may be given several times
    #[arg(long = "scope", value_name = "SCOPE", required = true)]
    scopes: Vec<Scope>,
    #[command(flatten)]
    reach: ReachArg,
    #[command(flatten)]
    by: ByArg,
}

#[derive(Args)]
struct Remove {
    /// Its address
    email: String,
    #[command(flatten)]
    reach: ReachArg,
    #[command(flatten)]
    by: ByArg,
}

impl Accounts {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            Verb::Allow(allow) => allow.run(context).await,
            Verb::List { reach } => list(context, reach).await,
            Verb::Remove(remove) => remove.run(context).await,
        }
    }
}

impl Allow {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (email, reach) = (&self.email, self.reach.reach(context));
        let scopes: Scopes = self.scopes.into_iter().collect();
        let new = access(context).await?.allow_account(email, reach, scopes, &self.by.actor()).await?;
        let what = if new { "is let in" } else { "was let in already: scopes replaced" };
        show::line(format_args!("{email} {what}, on {}: {scopes}", reach::named(reach)))
    }
}

async fn list(context: &Context, reach: ReachArg) -> anyhow::Result<()> {
    let accounts = access(context).await?.accounts(reach.within(context)).await?;
    if accounts.is_empty() {
        return show::line("no service accounts");
    }
    show::line(format_args!("{:50}  {:23}  {:20}  CANVAS", "ACCOUNT", "SCOPES", "SINCE"))?;
    accounts.iter().try_for_each(|account| {
        let Account { email, scopes, created_at, .. } = account;
        let (since, canvas) = (show::moment(*created_at), reach::column(account.reach));
        show::line(format_args!("{email:50}  {scopes:23}  {since:20}  {canvas}"))
    })
}

impl Remove {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (email, reach) = (&self.email, self.reach.reach(context));
        let removed = access(context).await?.remove_account(email, reach, &self.by.actor()).await?;
        let place = reach::named(reach);
        anyhow::ensure!(
            removed,
            "{email} was not let in on {place}; see `wakeq accounts list --all-canvases`"
        );
        show::line(format_args!("{email} is shut out of {place}; it is refused everywhere within a minute"))
    }
}

//! `wakeq keys create`, `list` and `revoke`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::reach::{self, ByArg, ReachArg, access};
use super::{Context, show};
use crate::access::{Key, KeyId, NewKey, Scope, Within};

#[derive(Args)]
pub(crate) struct Keys {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a key and print it: the only time that it is shown
    Create(Create),
    /// The newest first, revoked and expired ones included
    List(List),
    /// Make a key worthless, everywhere within a minute
    Revoke(Revoke),
}

#[derive(Args)]
struct Create {
    /// Whom it is for; up to two live keys may have the same name, for a rotation
    #[arg(value_name = "NAME")]
    holder: String,
    /// What it allows: emit, read, operate or admin; may be given several times
    #[arg(long = "scope", value_name = "SCOPE", required = true)]
    scopes: Vec<Scope>,
    #[command(flatten)]
    reach: ReachArg,
    /// How long it lives, ten years at most (90d)
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "365d")]
    expires: Duration,
    #[command(flatten)]
    by: ByArg,
}

#[derive(Args)]
struct List {
    #[command(flatten)]
    reach: ReachArg,
    /// How many at most
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

#[derive(Args)]
struct Revoke {
    /// Its first part, as `keys list` shows it
    #[arg(value_name = "PREFIX")]
    id: KeyId,
    #[command(flatten)]
    by: ByArg,
}

impl Keys {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            Verb::Create(create) => create.run(context).await,
            Verb::List(list) => list.run(context).await,
            Verb::Revoke(revoke) => revoke.run(context).await,
        }
    }
}

impl Create {
    /// The key alone goes to standard output, so that a script can take it from there.
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let new = NewKey {
            holder: self.holder,
            reach: self.reach.reach(context),
            scopes: self.scopes.into_iter().collect(),
            lifetime: Some(self.expires),
        };
        let created = access(context).await?.create_key(&new, &self.by.actor()).await?;
        let (until, place) = (show::moment(created.expires_at), reach::named(new.reach));
        show::line(created.key.reveal())?;
        show::note(format_args!(
            "{:?} for {}, on {place}: {}, until {until}. The key is not shown again: only its hash is kept.",
            created.key.id(),
            new.holder,
            new.scopes
        ));
        Ok(())
    }
}

impl List {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let keys = access(context).await?.keys(self.reach.within(context), None, self.limit).await?;
        if keys.is_empty() {
            return show::line("no keys");
        }
        show::line(format_args!(
            "{:18}  {:20}  {:23}  {:7}  {:20}  {:20}  CANVAS",
            "PREFIX", "NAME", "SCOPES", "STATE", "EXPIRES", "LAST USED"
        ))?;
        keys.iter().try_for_each(|key| show::line(row(key)))
    }
}

fn row(key: &Key) -> String {
    let Key { id, holder, scopes, .. } = key;
    let (id, state, expires) = (format!("{id:?}"), key.state.as_str(), show::moment(key.expires_at));
    let used = key.last_used_at.map_or("-".to_owned(), show::moment);
    let canvas = reach::column(key.reach);
    format!("{id:18}  {holder:20}  {scopes:23}  {state:7}  {expires:20}  {used:20}  {canvas}")
}

impl Revoke {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let id = self.id;
        let revoked = access(context).await?.revoke_key(Within::Everything, id, &self.by.actor()).await?;
        anyhow::ensure!(
            revoked,
            "no key {id:?}, or it was revoked before; `wakeq keys list --all-canvases` shows them"
        );
        show::line(format_args!("{id:?} revoked; it is refused everywhere within a minute"))
    }
}

//! `wakeq keys`: create, list and revoke keys for the API.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::Context;
use super::arguments::ListArgs;
use super::backend::Canvases;
use super::show::{self, JsonArg, moment};
use super::table::Table;
use crate::access::{InvalidScope, KeyId, read_scopes};
use crate::api::{CreateKey, Key};

#[derive(Args)]
pub(crate) struct Keys {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Create a key and print it; it is shown only once
    Create(Create),
    /// List keys by their prefix, including revoked and expired ones
    List(ListKeys),
    /// Revoke a key; takes effect everywhere within a minute
    Revoke(Revoke),
}

/// The canvas of the command, or every one.
#[derive(Args, Clone, Copy)]
pub(super) struct CanvasesArg {
    /// For all canvases; requires direct database access
    #[arg(long)]
    all_canvases: bool,
}

impl CanvasesArg {
    pub(super) fn canvases(self) -> Canvases {
        if self.all_canvases { Canvases::Every } else { Canvases::One }
    }
}

#[derive(Args)]
struct Create {
    /// Name of the holder; up to two live keys may share it, for rotation
    #[arg(value_name = "NAME")]
    holder: String,
    /// A scope: emit, read, operate or admin; repeatable. Registering targets requires operate and
    /// read, creating crons operate and emit. All but admin can be limited to handlers:
    /// emit:WORKER/*, operate:WORKER/resize
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_parser = scope)]
    scopes: Vec<String>,
    #[command(flatten)]
    canvases: CanvasesArg,
    /// Lifetime of the key, at most ten years (90d)
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "365d")]
    expires: Duration,
    #[command(flatten)]
    json: JsonArg,
}

/// All scopes in their order.
pub(super) fn written(scopes: &[String]) -> Result<String, InvalidScope> {
    let (whole, narrow) = read_scopes(scopes)?;
    let whole = whole.iter().map(|scope| scope.to_string());
    let all: Vec<_> = whole.chain(narrow.iter().map(ToString::to_string)).collect();
    Ok(all.join(","))
}

/// Validates a scope.
pub(super) fn scope(text: &str) -> Result<String, InvalidScope> {
    let text = text.to_owned();
    read_scopes(std::slice::from_ref(&text))?;
    Ok(text)
}

#[derive(Args)]
struct ListKeys {
    #[command(flatten)]
    canvases: CanvasesArg,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct Revoke {
    /// The key's prefix, as shown by `keys list`
    #[arg(value_name = "PREFIX")]
    id: KeyId,
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
    /// Only the key goes to standard output, where scripts can read it.
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let scopes = written(&self.scopes)?;
        let new = CreateKey {
            holder: self.holder.clone(),
            scopes: self.scopes,
            lifetime_s: Some(self.expires.as_secs()),
        };
        let canvases = self.canvases.canvases();
        let created = context.backend().await?.create_key(canvases, new).await?;
        self.json.print(&created, |created| show::line(&created.key.0))?;
        let place = match canvases {
            Canvases::One => format!("canvas {}", context.canvas.canvas),
            Canvases::Every => "every canvas".to_owned(),
        };
        show::note(format_args!(
            "wakeq_{} for {}, on {place}: {scopes}, until {}. The key is not shown again: only its hash is kept.",
            created.id,
            self.holder,
            moment(created.expires_at)
        ));
        Ok(())
    }
}

impl ListKeys {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (backend, canvases) = (context.backend().await?, self.canvases.canvases());
        let list = self.list.gather(async |page| backend.keys(canvases, page).await).await?;
        self.json.print_list(&list, |keys| {
            let mut table =
                Table::new(["PREFIX", "NAME", "SCOPES", "STATE", "EXPIRES", "LAST USED", "CANVAS"]);
            keys.iter().for_each(|key| table.row(row(key)));
            table.print("no keys")
        })
    }
}

fn row(key: &Key) -> [String; 7] {
    [
        format!("wakeq_{}", key.id),
        key.holder.clone(),
        key.scopes.join(","),
        key.state.clone(),
        moment(key.expires_at),
        key.last_used_at.map_or("-".to_owned(), moment),
        key.canvas.map_or("every".to_owned(), |canvas| canvas.to_string()),
    ]
}

impl Revoke {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let id = self.id;
        context.backend().await?.revoke_key(&id.to_string()).await?;
        show::line(format_args!("{id:?} revoked; it is refused everywhere within a minute"))
    }
}

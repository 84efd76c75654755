//! `wakeq keys`: create, list and revoke keys for the API.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::access::{
    Access, AccessConfig, CredentialFilter, InvalidScope, KeyId, NewKey, Reach, read_scopes,
};
use crate::cli::Context;
use crate::cli::arguments::TableArgs;
use crate::cli::client::{Page, Request, ServerChoice};
use crate::cli::failure::Failure;
use crate::cli::show::{self, JsonArg, moment};
use crate::resources::keys::wire::{CreateKey, CreatedKeyJson, KeyJson};
use crate::resources::wire::List;

#[derive(Args)]
pub(crate) struct Keys {
    #[command(subcommand)]
    verb: KeyVerb,
}

#[derive(Subcommand)]
enum KeyVerb {
    /// Create a key and print it; it is shown only once
    Create(Create),
    /// List keys by their prefix, including revoked and expired ones
    List(ListKeys),
    /// Revoke a key; takes effect everywhere within a minute
    Revoke(Revoke),
}

/// The canvas of the command, or every one.
#[derive(Args, Clone, Copy)]
pub(crate) struct CanvasesArg {
    /// For all canvases; requires direct database access
    #[arg(long)]
    all_canvases: bool,
}

impl CanvasesArg {
    pub(crate) fn reach(self, context: &Context) -> Reach {
        if self.all_canvases { Reach::EveryCanvas } else { Reach::Canvas(context.canvas.canvas) }
    }
}

/// Where a credential is valid, in words.
pub(crate) fn named(reach: Reach) -> String {
    match reach {
        Reach::Canvas(canvas) => format!("canvas {canvas}"),
        Reach::EveryCanvas => "every canvas".to_owned(),
    }
}

#[derive(Args)]
struct Create {
    /// Name of the holder; up to two live keys may share it, for rotation
    #[arg(value_name = "NAME")]
    holder: String,
    /// A scope: emit, read, values, operate or admin; repeatable. Seeing values requires read and
    /// values, registering targets and leasing events operate as well, creating crons operate and
    /// emit. All but admin can be limited to handlers: emit:WORKER/*, operate:WORKER/resize
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
pub(crate) fn written(scopes: &[String]) -> Result<String, InvalidScope> {
    let (whole, narrow) = read_scopes(scopes)?;
    let whole = whole.iter().map(|scope| scope.to_string());
    let all: Vec<_> = whole.chain(narrow.iter().map(ToString::to_string)).collect();
    Ok(all.join(","))
}

/// Validates a scope.
pub(crate) fn scope(text: &str) -> Result<String, InvalidScope> {
    let text = text.to_owned();
    read_scopes(std::slice::from_ref(&text))?;
    Ok(text)
}

#[derive(Args)]
struct ListKeys {
    #[command(flatten)]
    canvases: CanvasesArg,
    #[command(flatten)]
    table: TableArgs,
}

#[derive(Args)]
struct Revoke {
    /// The key's prefix, as shown by `keys list`
    #[arg(value_name = "PREFIX")]
    id: KeyId,
}

impl Keys {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            KeyVerb::Create(create) => create.run(context).await,
            KeyVerb::List(list) => list.run(context).await,
            KeyVerb::Revoke(revoke) => revoke.run(context).await,
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
        let reach = self.canvases.reach(context);
        let created: CreatedKeyJson = match reach {
            Reach::Canvas(_) => context.call(Request::post(&["keys"]).admin().silent().body(&new)?).await?,
            Reach::EveryCanvas => create_everywhere(context, new).await?,
        };
        self.json.print(&created, |created| show::line(&created.key.0))?;
        show::note(format_args!(
            "wakeq_{} for {}, on {}: {scopes}, until {}. The key is not shown again: only its hash is kept.",
            created.id,
            self.holder,
            named(reach),
            moment(created.expires_at)
        ));
        Ok(())
    }
}

impl ListKeys {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let head = ["PREFIX", "NAME", "SCOPES", "STATE", "EXPIRES", "LAST USED", "CANVAS"];
        match self.canvases.reach(context) {
            Reach::Canvas(_) => {
                self.table.print(context, Request::get(&["keys"]).admin(), head, "no keys", row).await
            }
            Reach::EveryCanvas => {
                let access = access(context).await?;
                let page = async |page| list_everywhere(&access, page).await;
                self.table.json.print_table(&self.table.list.gather(page).await?, head, "no keys", row)
            }
        }
    }
}

/// For keys of every canvas, which the API does not manage.
async fn access(context: &Context) -> anyhow::Result<Access> {
    match context.server.choice() {
        ServerChoice::Flag(_) | ServerChoice::Environment(_) => {
            let words = "a server manages the keys of one canvas: `--all-canvases` works only on \
                         the database";
            Err(Failure::Usage(words.to_owned()).into())
        }
        ServerChoice::Unset => {
            let store = context.database.connect(&context.timing).await?;
            Ok(Access::new(store, AccessConfig::default())?)
        }
    }
}

async fn create_everywhere(context: &Context, new: CreateKey) -> anyhow::Result<CreatedKeyJson> {
    let access = access(context).await?;
    let (scopes, narrow) = read_scopes(&new.scopes)?;
    let lifetime = new.lifetime_s.map(Duration::from_secs);
    let new = NewKey { holder: new.holder, reach: Reach::EveryCanvas, scopes, lifetime };
    Ok(access.create_narrow_key(&new, &narrow, &context.actor()).await?.into())
}

async fn list_everywhere(access: &Access, page: Page) -> anyhow::Result<List<KeyJson>> {
    let after: Option<KeyId> = page.cursor.as_deref().map(str::parse).transpose()?;
    let keys = access.keys(CredentialFilter::Everything, after, page.limit + 1).await?;
    Ok(List::page(keys, page.limit, |key| key.id.to_string()))
}

fn row(key: &KeyJson) -> [String; 7] {
    [
        format!("wakeq_{}", key.id),
        key.holder.clone(),
        key.scopes.join(","),
        key.state.clone(),
        moment(key.expires_at),
        show::or_dash(key.last_used_at.map(moment)),
        key.canvas.map_or("every".to_owned(), |canvas| canvas.to_string()),
    ]
}

impl Revoke {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let id = self.id;
        context.send(Request::delete(&["keys", &id.to_string()]).admin().silent()).await?;
        show::line(format_args!("{id:?} revoked; it is refused everywhere within a minute"))
    }
}

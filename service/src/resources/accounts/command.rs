//! `wakeq accounts allow`, `list` and `remove`: the Google accounts that have access. Needs the
//! database.

use clap::{Args, Subcommand};

use crate::access::{self, Access, AccessConfig, CredentialFilter, Reach, read_scopes};
use crate::cli::Context;
use crate::cli::arguments::TableArgs;
use crate::cli::client::Page;
use crate::cli::failure::Failure;
use crate::cli::show;
use crate::resources::accounts::wire::AccountJson as Listed;
use crate::resources::keys::command::{CanvasesArg, named, scope, written};
use crate::resources::wire::List;

#[derive(Args)]
pub(crate) struct Accounts {
    #[command(subcommand)]
    verb: AccountVerb,
}

#[derive(Subcommand)]
enum AccountVerb {
    /// Allow a service account, or a person in the pages, or replace the scopes
    Allow(Allow),
    /// List the allowed accounts by address
    List {
        #[command(flatten)]
        canvases: CanvasesArg,
        #[command(flatten)]
        table: TableArgs,
    },
    /// Remove an account; takes effect everywhere within a minute
    Remove(Remove),
}

#[derive(Args)]
struct Allow {
    /// The address: name@project.iam.gserviceaccount.com or, for the pages, that of a person who
    /// comes through Google's identity-aware proxy or signs in at the OpenID provider
    email: String,
    /// A scope: emit, read, values, operate or admin; repeatable. Seeing values requires read and
    /// values, registering targets and leasing events operate as well, creating crons operate and
    /// emit. All but admin can be limited to handlers: emit:WORKER/*, operate:WORKER/resize
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_parser = scope)]
    scopes: Vec<String>,
    #[command(flatten)]
    canvases: CanvasesArg,
}

#[derive(Args)]
struct Remove {
    /// The account's address
    email: String,
    #[command(flatten)]
    canvases: CanvasesArg,
}

impl Accounts {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            AccountVerb::Allow(allow) => allow.run(context).await,
            AccountVerb::List { canvases, table } => list(context, canvases, table).await,
            AccountVerb::Remove(remove) => remove.run(context).await,
        }
    }
}

impl Allow {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (email, reach) = (&self.email, self.canvases.reach(context));
        let (scopes, narrow) = read_scopes(&self.scopes)?;
        let access = access(context).await?;
        let new = access.allow_narrow_account(email, reach, scopes, &narrow, &context.actor()).await?;
        let scopes = written(&self.scopes)?;
        let what = if new { "is allowed" } else { "was already allowed: scopes replaced" };
        show::line(format_args!("{email} {what}, on {}: {scopes}", named(reach)))
    }
}

async fn list(context: &Context, canvases: CanvasesArg, table: TableArgs) -> anyhow::Result<()> {
    let filter = match canvases.reach(context) {
        reach @ Reach::Canvas(_) => CredentialFilter::Reach(reach),
        Reach::EveryCanvas => CredentialFilter::Everything,
    };
    let access = access(context).await?;
    let page = async |page: Page| {
        let after = page.cursor.as_deref().map(position).transpose()?;
        let after = after.as_ref().map(|(email, reach)| (email.as_str(), *reach));
        let accounts = access.accounts(filter, after, page.limit + 1).await?;
        Ok(List::page(accounts, page.limit, cursor))
    };
    let accounts = table.list.gather(page).await?;
    let head = ["ACCOUNT", "SCOPES", "SINCE", "CANVAS"];
    table.json.print_table(&accounts, head, "no accounts", row)
}

/// Where the page after an account begins, as a text.
fn cursor(account: &access::Account) -> String {
    match account.reach {
        Reach::EveryCanvas => account.email.clone(),
        Reach::Canvas(canvas) => format!("{}~{canvas}", account.email),
    }
}

fn position(cursor: &str) -> anyhow::Result<(String, Reach)> {
    let (email, canvas) = cursor.split_once('~').map_or((cursor, None), |(email, rest)| (email, Some(rest)));
    let reach = canvas.map_or(Ok(Reach::EveryCanvas), |canvas| canvas.parse().map(Reach::Canvas));
    let reach = reach.map_err(|_| Failure::Usage("the cursor is not one of this list".to_owned()))?;
    Ok((email.to_owned(), reach))
}

fn row(account: &Listed) -> [String; 4] {
    let canvas = account.canvas.map_or("every".to_owned(), |canvas| canvas.to_string());
    [account.email.clone(), account.scopes.join(","), show::moment(account.created_at), canvas]
}

impl Remove {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (email, reach) = (&self.email, self.canvases.reach(context));
        let removed = access(context).await?.remove_account(email, reach, &context.actor()).await?;
        let place = named(reach);
        if !removed {
            let words =
                format!("{email} was not allowed on {place}; see `wakeq accounts list --all-canvases`");
            return Err(Failure::NotFound(words).into());
        }
        show::line(format_args!(
            "{email} is no longer allowed on {place}; it is refused everywhere within a minute"
        ))
    }
}

/// For managing accounts: can't verify tokens.
async fn access(context: &Context) -> anyhow::Result<Access> {
    Ok(Access::new(context.store().await?, AccessConfig::default())?)
}

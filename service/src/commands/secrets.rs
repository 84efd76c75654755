//! `wakeq secrets`: creates and replaces the keys that encrypt the secrets of targets and hooks.

use std::cell::Cell;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::failure::Failure;
use crate::cli::progress::Progress;
use crate::cli::show::JsonArg;
use crate::cli::{Context, show, text};
use wakeq::internals::SealError;
use wakeq::targets::SecretKeys;
use wakeq::{Actor, Store};

#[derive(Args)]
pub(crate) struct Secrets {
    #[command(subcommand)]
    verb: SecretsVerb,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Subcommand)]
enum SecretsVerb {
    /// Print a new key for WAKEQ_SECRET_KEY
    NewKey,
    /// Encrypt all secrets of targets and hooks under the first key, including those in plain text
    Rotate,
}

#[derive(Serialize)]
struct RotationReport {
    /// Targets whose secrets and headers were re-encrypted.
    changed: u64,
    /// Hooks whose secrets were re-encrypted.
    hooks: u64,
    /// Targets and hooks whose secrets can't be decrypted with the given keys.
    unopened: Vec<String>,
}

/// How many targets and hooks have been changed so far.
#[derive(Default)]
struct Changed {
    targets: Cell<u64>,
    hooks: Cell<u64>,
}

impl Secrets {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            SecretsVerb::NewKey => {
                let key = SecretKeys::generate()?.to_string();
                self.json.print(&serde_json::json!({ "key": key }), |_| show::line(&key))
            }
            SecretsVerb::Rotate => rotate(context, self.json).await,
        }
    }
}

async fn rotate(context: &Context, json: JsonArg) -> anyhow::Result<()> {
    let store = context.store().await?;
    if store.secret_keys().ids().is_empty() {
        let words = "there is no key to encrypt with: set WAKEQ_SECRET_KEY, with the new key first, NEW,OLD";
        return Err(Failure::Usage(words.to_owned()).into());
    }
    let changed = Changed::default();
    let so_far = || format!("the secrets of {} encrypted so far", changed.words());
    let actor = context.actor();
    let unopened = Progress::on_stderr().watch(reseal(&store, &actor, &changed), so_far).await?;
    let (targets, hooks) = (changed.targets.get(), changed.hooks.get());
    let rotated = RotationReport { changed: targets, hooks, unopened };
    json.print(&rotated, |rotated| {
        show::line(format_args!("the secrets of {} are encrypted under the first key now", changed.words()))?;
        rotated.unopened.iter().try_for_each(|words| show::line(text::clean(words)))
    })?;
    anyhow::ensure!(
        rotated.unopened.is_empty(),
        "{} were left as they are: give their keys as well, or register those targets and hooks again",
        show::count(rotated.unopened.len() as u64, "secret")
    );
    Ok(())
}

impl Changed {
    /// Deployments without hooks are told of targets alone.
    fn words(&self) -> String {
        let targets = show::count(self.targets.get(), "target");
        match self.hooks.get() {
            0 => targets,
            hooks => format!("{targets} and {}", show::count(hooks, "hook")),
        }
    }
}

/// Counts what it changes, and returns the targets and hooks whose secrets can't be decrypted.
async fn reseal(store: &Store, actor: &Actor, changed: &Changed) -> anyhow::Result<Vec<String>> {
    let (mut unopened, mut after) = (Vec::new(), None);
    loop {
        let page = store.reseal(after.as_ref(), actor).await?;
        let page = page.map_err(|unsealed: SealError| anyhow::anyhow!(unsealed))?;
        changed.targets.set(changed.targets.get() + page.changed);
        unopened.extend(page.unopened);
        if page.last.is_none() {
            break;
        }
        after = page.last;
    }
    let mut after = None;
    loop {
        let page = store.reseal_hooks(after.as_ref(), actor).await?;
        let page = page.map_err(|unsealed: SealError| anyhow::anyhow!(unsealed))?;
        changed.hooks.set(changed.hooks.get() + page.changed);
        unopened.extend(page.unopened);
        if page.last.is_none() {
            return Ok(unopened);
        }
        after = page.last;
    }
}

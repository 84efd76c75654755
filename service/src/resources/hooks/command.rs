//! `wakeq hooks`: put, list, show and delete what other systems may emit by webhooks.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::Context;
use crate::cli::arguments::{HandlerAddressArg, TableArgs};
use crate::cli::client::Request;
use crate::cli::show::{self, JsonArg, field, moment};
use crate::cli::text;
use crate::resources::hooks::wire::{HookHandler, HookJson, HookValue, PutHook, PutHookAnswer};
use crate::resources::targets::command::{print_secret, read_secret};
use wakeq::Name;
use wakeq::hooks::HookKind;

#[derive(Args)]
pub(crate) struct Hooks {
    #[command(subcommand)]
    verb: HookVerb,
}

#[derive(Subcommand)]
enum HookVerb {
    /// Create or replace a hook
    Put(PutHookArgs),
    /// List the hooks of the canvas
    List(TableArgs),
    /// Show one hook
    Show(OneHook),
    /// Delete a hook; webhooks for it are refused from then on
    Delete(OneHook),
}

#[derive(Args)]
struct PutHookArgs {
    /// The hook's name, the last part of the path that its sender calls
    name: Name,
    /// Who signs: standard (Standard Webhooks), stripe or github; a hook keeps its kind
    kind: HookKind,
    /// The handler of the events: its name, MODULE/name when the module is not WORKER, or
    /// MODULE/name/modifier
    handler: HandlerAddressArg,
    /// Make the value a CloudEvent with the sender's id and kind of event, and with the body as its
    /// data
    #[arg(long)]
    envelope: bool,
    /// The secret that the sender signs with, in this file; required for a new hook of stripe.
    /// Without this, the current one or a generated one
    #[arg(long, value_name = "FILE", conflicts_with = "rotate_secret")]
    secret_file: Option<PathBuf>,
    /// Generate a new secret; the old one is accepted for 24 more hours
    #[arg(long)]
    rotate_secret: bool,
    /// Accept no previous secret from now on, not even the one that this replaces
    #[arg(long)]
    drop_previous_secret: bool,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Args)]
struct OneHook {
    /// The hook's name
    name: Name,
    #[command(flatten)]
    json: JsonArg,
}

impl Hooks {
    pub(crate) async fn run(self, context: &Context) -> anyhow::Result<()> {
        match self.verb {
            HookVerb::Put(command) => command.run(context).await,
            HookVerb::List(list) => {
                let head = ["NAME", "KIND", "HANDLER", "CHANGED", "BY"];
                list.print(context, Request::get(&["hooks"]), head, "no hooks", row).await
            }
            HookVerb::Show(OneHook { name, json }) => {
                let hook: HookJson = context.call(Request::get(&["hooks", name.as_str()])).await?;
                json.print(&hook, print)
            }
            HookVerb::Delete(OneHook { name, json }) => {
                context.send(Request::delete(&["hooks", name.as_str()]).silent()).await?;
                json.print(&serde_json::json!({ "name": name.as_str() }), |_| {
                    show::line(format_args!("hook {name} is deleted"))
                })
            }
        }
    }
}

impl PutHookArgs {
    async fn run(self, context: &Context) -> anyhow::Result<()> {
        let HandlerAddressArg { handler, modifier } = self.handler;
        let new = PutHook {
            kind: self.kind.into(),
            handler: HookHandler {
                module: handler.module.to_string(),
                name: handler.name.to_string(),
                modifier: modifier.unwrap_or_else(Name::no_modifier).to_string(),
            },
            value: if self.envelope { HookValue::Envelope } else { HookValue::Data },
            secret: self.secret_file.as_deref().map(read_secret).transpose()?,
            rotate_secret: self.rotate_secret,
            drop_previous_secret: self.drop_previous_secret,
        };
        let request = Request::put(&["hooks", self.name.as_str()]).silent().body(&new)?;
        let answer: PutHookAnswer = context.call(request).await?;
        self.json.print(&answer, print_put)?;
        if answer.secret.is_some() {
            show::note(
                "The secret is not shown again. Give it to the sender, which signs its webhooks with it.",
            );
        }
        Ok(())
    }
}

fn print_put(answer: &PutHookAnswer) -> anyhow::Result<()> {
    let replaced = if answer.new { "" } else { ", replacing the previous hook" };
    let HookJson { name, handler, .. } = &answer.hook;
    show::line(format_args!("hook {name} emits to {}{replaced}", address(handler)))?;
    print_secret(answer.secret.as_ref())
}

fn row(hook: &HookJson) -> [String; 5] {
    let HookJson { name, kind, handler, updated_at, updated_by, .. } = hook;
    let kind = HookKind::from(*kind).to_string();
    [name.clone(), kind, address(handler), show::moment(*updated_at), text::clean(updated_by)]
}

fn print(hook: &HookJson) -> anyhow::Result<()> {
    field("hook", &hook.name)?;
    field("kind", HookKind::from(hook.kind))?;
    field("handler", address(&hook.handler))?;
    field(
        "value",
        match hook.value {
            HookValue::Data => "the body",
            HookValue::Envelope => "a CloudEvent around the body",
        },
    )?;
    if let Some(until) = hook.previous_secret_until {
        field("secret", format_args!("the previous one is accepted, too, until {}", moment(until)))?;
    }
    field("made", format_args!("{} by {}", moment(hook.created_at), hook.created_by))?;
    field("changed", format_args!("{} by {}", moment(hook.updated_at), hook.updated_by))
}

fn address(handler: &HookHandler) -> String {
    let HookHandler { module, name, modifier } = handler;
    format!("{module}/{name}/{modifier}")
}

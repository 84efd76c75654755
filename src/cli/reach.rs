//! What `keys` and `accounts` share: where something counts, and who does it.

use clap::Args;

use super::Context;
use crate::access::{Access, AccessConfig, Reach, Within};
use crate::event::Actor;

/// The canvas of the command, or every one.
#[derive(Args, Clone, Copy)]
pub(super) struct ReachArg {
    /// Not one canvas, but every one
    #[arg(long)]
    all_canvases: bool,
}

impl ReachArg {
    /// Where something is to count.
    pub(super) fn reach(self, context: &Context) -> Reach {
        if self.all_canvases { Reach::EveryCanvas } else { Reach::Canvas(context.canvas.canvas) }
    }

    /// What is to be listed.
    pub(super) fn within(self, context: &Context) -> Within {
        if self.all_canvases { Within::Everything } else { context.canvas.canvas.into() }
    }
}

/// In words.
pub(super) fn named(reach: Reach) -> String {
    match reach {
        Reach::Canvas(canvas) => format!("canvas {canvas}"),
        Reach::EveryCanvas => "every canvas".to_owned(),
    }
}

/// In a column.
pub(super) fn column(reach: Reach) -> String {
    match reach {
        Reach::Canvas(canvas) => canvas.to_string(),
        Reach::EveryCanvas => "every".to_owned(),
    }
}

/// Who does it.
#[derive(Args)]
pub(super) struct ByArg {
    /// Who does it, for the record
    #[arg(long, env = "USER", default_value = "cli")]
    actor: String,
}

impl ByArg {
    /// As the record has it.
    pub(super) fn actor(&self) -> Actor {
        Actor::admin(&format!("cli:{}", self.actor))
    }
}

/// Keys and accounts, without anything that recognizes tokens.
pub(super) async fn access(context: &Context) -> anyhow::Result<Access> {
    let store = context.database.connect(&context.timing).await?;
    Ok(Access::new(store, AccessConfig::default())?)
}

//! `wakeq man`: a manual page for each command.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

#[derive(Args)]
pub(crate) struct Manual {
    /// Where to write the pages, such as ~/.local/share/man/man1; created if it is missing
    folder: PathBuf,
}

impl Manual {
    pub(super) fn run(self, whole: clap::Command) -> anyhow::Result<()> {
        let write = || {
            std::fs::create_dir_all(&self.folder)?;
            clap_mangen::generate_to(whole, &self.folder)
        };
        write().with_context(|| format!("can't write manual pages into {}", self.folder.display()))
    }
}

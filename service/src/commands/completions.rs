//! `wakeq completions`: a script for completing commands and options in a shell.

use std::path::Path;

use clap::Args;
use clap_complete::Shell;

use crate::cli::show;

#[derive(Args)]
pub(crate) struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    /// For the name by which this program was called: programs with their own handlers have another
    /// one.
    pub(super) fn run(self, mut whole: clap::Command) -> anyhow::Result<()> {
        let called = std::env::args_os().next().unwrap_or_default();
        let name = Path::new(&called).file_stem().and_then(|name| name.to_str()).unwrap_or("wakeq");
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut whole, name, &mut script);
        show::raw(&script)
    }
}

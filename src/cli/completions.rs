//! `wakeq completions`: a script that lets a shell complete commands and options.

use std::path::Path;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, show};

#[derive(Args)]
pub(crate) struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    /// For the name that this program was called by: programs with handlers of their own have another.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let called = std::env::args_os().next().unwrap_or_default();
        let name = Path::new(&called).file_stem().and_then(|name| name.to_str()).unwrap_or("wakeq");
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), name, &mut script);
        show::raw(&script)
    }
}

//! A private, throw-away Postgres for a chore: installed binaries, a Unix socket in a folder of its own, no port.
//!
//! It must never connect to a Postgres that was there before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::succeed;

/// A running cluster; dropping it ends it and removes its folder.
pub(crate) struct Postgres {
    binaries: PathBuf,
    folder: PathBuf,
}

impl Postgres {
    /// Creates a cluster and waits until it answers.
    pub(crate) fn start() -> Result<Self> {
        let binaries = binaries()?;
        let folder = String::from_utf8(output(as_owner("mktemp").args(["-d", "-t", "wakeq-xtask.XXXXXX"]))?)?;
        let postgres = Self { binaries, folder: PathBuf::from(folder.trim()) };
        let data = postgres.folder.join("data");
        let options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "--no-sync"];
        output(as_owner(postgres.binaries.join("initdb")).args(options).arg("--pgdata").arg(&data))?;
        output(as_owner("mkdir").args(["-m", "755"]).arg(postgres.sockets()))?;
        let settings = format!("-c listen_addresses='' -c fsync=off -k {}", postgres.sockets().display());
        let log = postgres.folder.join("log");
        let mut start = as_owner(postgres.binaries.join("pg_ctl"));
        succeed(
            start.args(["start", "--silent", "--wait", "-o", &settings, "-l"]).arg(log).arg("-D").arg(data),
        )?;
        Ok(postgres)
    }

    /// Where to connect.
    pub(crate) fn url(&self) -> String {
        url(&self.sockets())
    }

    /// The folder of its socket, which any user may enter who is given it.
    pub(crate) fn sockets(&self) -> PathBuf {
        self.folder.join("sockets")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let mut stop = as_owner(self.binaries.join("pg_ctl"));
        let stopped =
            output(stop.args(["stop", "--wait", "--mode=immediate", "-D"]).arg(self.folder.join("data")));
        if let Err(error) = stopped.and_then(|_| Ok(fs::remove_dir_all(&self.folder)?)) {
            eprintln!("{} is left behind: {error}", self.folder.display());
        }
    }
}

/// Where to connect when the socket is in this folder.
pub(crate) fn url(sockets: &Path) -> String {
    format!("postgres://postgres@localhost/postgres?host={}", sockets.display())
}

/// Postgres refuses to run as root, so root hands over to the user `postgres`.
fn as_owner(program: impl AsRef<Path>) -> Command {
    let is_root = output(Command::new("id").arg("-u")).is_ok_and(|user| user.trim_ascii() == b"0");
    if !is_root {
        return Command::new(program.as_ref());
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--"]).arg(program.as_ref()).current_dir("/");
    command
}

fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("{command:?} can't be started"))?;
    ensure!(output.status.success(), "{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

/// The folder of `initdb`: from PATH, else the newest version where Debian puts it.
fn binaries() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).find(|folder| folder.join("initdb").is_file());
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let versions = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let installed =
        || versions.max().map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin")));
    on_path.or_else(installed).context("Postgres is not installed: install it, so that `initdb` is found")
}

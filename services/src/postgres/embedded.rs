//! The Postgres for machines without one: built from crates.io when it is first needed, and started
//! as a child process.
//!
//! It must never be compiled with this crate, as a developer with another Postgres should not wait
//! for it. And it must never build silently, as that takes minutes.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::kept::PREDECESSOR_GONE_WITHIN;
use super::{Folder, PostgresError};
use crate::choice::say;
use crate::process::{ChildProcess, Ending, Guard, Launch};

/// Beside this crate, outside its workspace.
const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../embedded-postgres/Cargo.toml");
/// In the workspace's own, so that `cargo clean` removes it.
const TARGET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/embedded-postgres");
const PROGRAM: &str = "embedded-postgres";
const READY_WITHIN: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(20);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);
/// The engine's message about a folder that another engine has open.
const IN_USE: &str = "already in use";

/// A running embedded Postgres with the superuser `postgres` and no password. All connections to a
/// database share one session, transaction by transaction; `embedded-postgres/README.md` lists what
/// that gives up.
#[derive(Debug)]
pub struct EmbeddedPostgres {
    process: ChildProcess,
    port: u16,
    folder: PathBuf,
    _guard: Guard,
}

impl EmbeddedPostgres {
    /// Builds the program if necessary, starts it and waits until it accepts connections.
    pub async fn start(folder: &Folder) -> Result<Self, PostgresError> {
        let program = build().await?;
        let (folder, temporary) = match folder {
            Folder::Persistent(folder) => (folder.clone(), None),
            Folder::Temporary | Folder::Memory => {
                let name = format!("wakeq-embedded-{:016x}", RandomState::new().hash_one(std::process::id()));
                let folder = std::env::temp_dir().join(name);
                (folder.clone(), Some(folder))
            }
        };
        let guard = Guard::new(temporary.as_deref())?;
        let deadline = Instant::now() + PREDECESSOR_GONE_WITHIN;
        loop {
            match launch(&guard, &program, &folder).await {
                Ok((process, port)) => return Ok(Self { process, port, folder, _guard: guard }),
                Err(PostgresError::Ended(words)) if words.contains(IN_USE) => {
                    if Instant::now() > deadline {
                        return Err(PostgresError::InUse { folder });
                    }
                    sleep(BETWEEN_ATTEMPTS).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The URL of a database on this server; `postgres` always exists.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Kills it; the next start on the same folder recovers.
    pub async fn kill_9(&self) -> Result<(), PostgresError> {
        Ok(self.process.kill_9().await?)
    }

    /// Shuts it down gracefully: connections are closed and all data is in its files.
    pub async fn stop(self) -> Result<(), PostgresError> {
        Ok(self.process.interrupt(ENDS_WITHIN).await?)
    }
}

impl fmt::Display for EmbeddedPostgres {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, folder, .. } = self;
        write!(formatter, "Postgres: the embedded one, in {}, on port {port}", folder.display())
    }
}

/// Starts the program; returns it with its port.
async fn launch(guard: &Guard, program: &Path, folder: &Path) -> Result<(ChildProcess, u16), PostgresError> {
    let (port, mut ports) = watch::channel(None);
    let launch = Launch::new(program)
        .argument("--data")
        .argument(folder)
        // Where the engine unpacks itself once.
        .environment("XDG_CACHE_HOME", Path::new(TARGET).join("cache"))
        // Its last words are for people.
        .environment("RUST_BACKTRACE", "0")
        .ending(Ending::Quit)
        .on_line(move |line| {
            if let Some(number) = line.strip_prefix("ready ").and_then(|number| number.parse().ok()) {
                port.send_replace(Some(number));
            }
        });
    let process = guard.start(launch)?;
    let found = timeout(READY_WITHIN, ports.wait_for(Option::is_some)).await;
    match found.map(|found| found.ok().and_then(|port| *port)) {
        Ok(Some(port)) => Ok((process, port)),
        Ok(None) => Err(PostgresError::Ended(process.last_lines())),
        Err(_) => Err(PostgresError::Silent(process.last_lines())),
    }
}

/// Builds the program with the cargo that built us, which has nothing to do after the first time;
/// returns its path.
async fn build() -> Result<PathBuf, PostgresError> {
    let is_first = !was_built();
    if is_first {
        say("Postgres: building the embedded one from crates.io; this happens once and takes minutes:");
        fs::create_dir_all(TARGET).map_err(|source| PostgresError::File { path: TARGET.into(), source })?;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let (programs, program) = watch::channel(None);
    let launch = Launch::new(cargo)
        .arguments(["build", "--locked", "--manifest-path", MANIFEST, "--target-dir", TARGET])
        .argument("--message-format=json-render-diagnostics")
        .on_line(move |line| {
            if let Some(program) = executable(line) {
                programs.send_replace(Some(program));
            }
            if is_first && !is_message(line) {
                say(line);
            }
        });
    let build = Guard::new(None)?.start(launch)?;
    let is_built = build.ended().await.success();
    let program = program.borrow().clone().filter(|_| is_built);
    program.ok_or_else(|| {
        let said = build.last_lines();
        let for_people: Vec<&str> = said.lines().filter(|line| !is_message(line)).collect();
        PostgresError::NotBuilt(for_people.join("\n"))
    })
}

/// Whether a build finished here, for the machine's default target or for a configured one.
fn was_built() -> bool {
    let program = Path::new("debug").join(PROGRAM);
    let targets = fs::read_dir(TARGET).into_iter().flatten().flatten().map(|entry| entry.path());
    targets.chain([PathBuf::from(TARGET)]).any(|folder| folder.join(&program).is_file())
}

/// Whether this is one of cargo's JSON messages.
fn is_message(line: &str) -> bool {
    line.starts_with(r#"{"reason":"#)
}

/// The path of our program, if this message of cargo contains it: the folder depends on the
/// configured target.
fn executable(message: &str) -> Option<PathBuf> {
    let (_, rest) =
        message.strip_prefix(r#"{"reason":"compiler-artifact""#)?.split_once(r#""executable":""#)?;
    let path = PathBuf::from(rest.split_once('"')?.0);
    (path.file_stem()? == PROGRAM).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Shows: DEV-01
    #[test]
    fn the_program_is_where_cargo_says() {
        let artifact = r#"{"reason":"compiler-artifact","package_id":"x","filenames":["/t/p"],"executable":"/t/aarch64-apple-darwin/debug/embedded-postgres","fresh":true}"#;
        let found = executable(artifact);
        assert_eq!(found.as_deref(), Some(Path::new("/t/aarch64-apple-darwin/debug/embedded-postgres")));
        for other in [
            r#"{"reason":"compiler-artifact","filenames":["/t/libone.rlib"],"executable":null,"fresh":true}"#,
            r#"{"reason":"compiler-artifact","executable":"/t/debug/build/one/build-script-build","fresh":true}"#,
            r#"{"reason":"build-finished","success":true}"#,
            "   Compiling one v1.0.0",
        ] {
            assert_eq!(executable(other), None, "{other}");
        }
    }
}

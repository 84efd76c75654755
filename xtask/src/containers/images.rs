//! Images of what is installed on this machine, from nothing but what it needs, by `docker build`: no registry is asked.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use wakeq_services::{find, installed_postgres};

use super::engine::{Engine, said};
use crate::image::archive;
use crate::image::contents::{Entry, libraries, libraries_beside, read, with_folders};
use crate::{cargo, root, succeed};

const POSTGRES: &str = "wakeq-test-postgres:installed";
const OWN_EMULATOR: &str = "wakeq-test-pubsub:own";
const GOOGLE_EMULATOR: &str = "wakeq-test-pubsub:google";

/// No machine knows it by name, but Postgres wants to know its own.
const USER: u32 = 65_532;

/// What the entry point of Postgres's official image does, as far as tests go: a cluster with this password for its
/// superuser, which any network may ask for; then the server, with the arguments that are given.
const POSTGRES_ENTRY_POINT: &str = r#"#!/bin/sh
set -eu
data=/tmp/data
if [ ! -s $data/PG_VERSION ]; then
    (umask 077 && printf '%s' "$POSTGRES_PASSWORD" >/tmp/password)
    BIN/initdb --username=postgres --auth=scram-sha-256 --pwfile=/tmp/password ${POSTGRES_INITDB_ARGS:-} --pgdata=$data
    echo 'host all all all scram-sha-256' >>$data/pg_hba.conf
fi
exec BIN/postgres -D $data -c unix_socket_directories=/tmp "$@"
"#;

/// Programs of Java that an emulator does not run, and parts that make no difference to it.
const NOT_OF_JAVA: [&str; 4] = ["jmods", "man", "demo", "src.zip"];

/// The installed Postgres; its reference.
pub(super) fn postgres(engine: &Engine) -> Result<&'static str> {
    let programs = installed_postgres()?;
    let libraries_of_postgres = asked(&programs, "--pkglibdir")?;
    let mut entries = Vec::new();
    for name in ["postgres", "initdb"] {
        entries.extend(program(&programs.join(name))?);
    }
    entries.extend(program(Path::new("/bin/sh"))?);
    for library in files_under(&libraries_of_postgres)? {
        let is_wanted = library.extension().is_some_and(|extension| extension == "so")
            && library.file_name().is_none_or(|name| name != "llvmjit.so");
        if is_wanted {
            entries.extend(program(&library)?);
        }
    }
    for folder in [asked(&programs, "--sharedir")?, PathBuf::from("/usr/share/zoneinfo")] {
        entries.extend(files(&folder, &[])?);
    }
    let script = POSTGRES_ENTRY_POINT.replace("BIN", &programs.display().to_string());
    entries.push(Entry::file("entrypoint.sh", 0o755, script));
    build(engine, POSTGRES, entries, &["/entrypoint.sh"])
}

/// Our own emulator; its reference.
pub(super) fn own_emulator(engine: &Engine) -> Result<&'static str> {
    succeed(cargo().args(["build", "--bin", "pubsub-emulator"]))?;
    let binary = root().join("target/debug/pubsub-emulator");
    let mut entries = vec![Entry::file("pubsub-emulator", 0o755, read(&binary)?)];
    entries.extend(libraries_of(&binary)?);
    build(engine, OWN_EMULATOR, entries, &["/pubsub-emulator"])
}

/// Google's emulator with the installed Java; its reference.
pub(super) fn google_emulator(engine: &Engine) -> Result<&'static str> {
    let found = find()?;
    let java = found.java.canonicalize().context("the installed Java")?;
    let home = java.ancestors().nth(2).context("the installed Java has no home")?;
    let mut entries = program(&java)?;
    let of_java = [home.join("lib"), home.join("lib/server")];
    for library in files_under(home)? {
        if library.extension().is_some_and(|extension| extension == "so") {
            entries.extend(as_entries(&libraries_beside(&library, &of_java)?)?);
        }
    }
    entries.extend(files(home, &NOT_OF_JAVA)?);
    entries.push(Entry::file("emulator.jar", 0o644, read(&found.jar)?));
    let java = java.display().to_string();
    build(engine, GOOGLE_EMULATOR, entries, &[&java, "-Xmx512m", "-jar", "/emulator.jar"])
}

fn build(
    engine: &Engine,
    reference: &'static str,
    mut entries: Vec<Entry>,
    command: &[&str],
) -> Result<&'static str> {
    let began = Instant::now();
    entries.push(Entry::file("etc/passwd", 0o644, format!("postgres:x:{USER}:{USER}:tests:/tmp:/bin/sh\n")));
    let entries = with_folders(entries);
    let folder = root().join("target/containers").join(reference.replace(':', "-"));
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("layer.tar"), archive::layer(&entries)?)?;
    let entry_point = serde_json::to_string(command)?;
    let instructions =
        format!("FROM scratch\nADD layer.tar /\nUSER {USER}:{USER}\nENTRYPOINT {entry_point}\n");
    fs::write(folder.join("Dockerfile"), instructions)?;
    let mut build = engine.client();
    // The engine's own builder: a newer one may want an image of itself. It says at length that it is old.
    said(build.args(["build", "--quiet", "--tag", reference]).arg(&folder).env("DOCKER_BUILDKIT", "0"))?;
    let size: u64 = entries.iter().map(Entry::bytes).sum();
    println!("{reference}: {:.0} MB, built in {:.1} s", size as f64 / 1e6, began.elapsed().as_secs_f64());
    Ok(reference)
}

/// A program or library with the libraries that the loader would load.
fn program(file: &Path) -> Result<Vec<Entry>> {
    let mut entries = vec![Entry::file(&file.display().to_string(), 0o755, read(file)?)];
    entries.extend(libraries_of(file)?);
    Ok(entries)
}

fn libraries_of(file: &Path) -> Result<Vec<Entry>> {
    as_entries(&libraries(file)?)
}

fn as_entries(libraries: &[String]) -> Result<Vec<Entry>> {
    libraries.iter().map(|library| Ok(Entry::file(library, 0o755, read(Path::new(library))?))).collect()
}

/// Everything in a folder, at the place where it is here; links as what they lead to.
fn files(folder: &Path, without: &[&str]) -> Result<Vec<Entry>> {
    let is_wanted = |file: &&PathBuf| {
        let parts = file.strip_prefix(folder).unwrap_or(file).components();
        !parts.into_iter().any(|part| without.iter().any(|name| part.as_os_str() == OsStr::new(name)))
    };
    let found = files_under(folder)?;
    let entry = |file: &PathBuf| {
        let mode = fs::metadata(file)?.permissions().mode() & 0o755 | 0o444;
        Ok(Entry::file(&file.display().to_string(), mode, read(file)?))
    };
    found.iter().filter(is_wanted).map(entry).collect()
}

/// The files in a folder and its folders; links that lead nowhere are none.
fn files_under(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// What `pg_config`, beside the other programs, says of a folder.
fn asked(programs: &Path, option: &str) -> Result<PathBuf> {
    let output = Command::new(programs.join("pg_config")).arg(option).output();
    let output = output.with_context(|| format!("{} has no pg_config", programs.display()))?;
    ensure!(output.status.success(), "pg_config {option} failed");
    Ok(String::from_utf8(output.stdout)?.trim().into())
}

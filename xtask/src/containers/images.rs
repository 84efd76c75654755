//! The images for the tests: of the installed Postgres, and of the emulators.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use wakeq_services::{find, installed_postgres};

use crate::docker::{Engine, Files, Import, USER, files_under, said};
use crate::{cargo, succeed};

const POSTGRES: &str = "wakeq-test-postgres:installed";
const OWN_EMULATOR: &str = "wakeq-test-pubsub:own";
const GOOGLE_EMULATOR: &str = "wakeq-test-pubsub:google";

/// What tests need of the entry point of Postgres's official image: it creates a cluster whose
/// superuser has the given password and may connect from any network, then runs the server with the
/// given arguments.
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

/// Parts of a Java installation that an emulator does not need.
const NOT_OF_JAVA: [&str; 4] = ["jmods", "man", "demo", "src.zip"];

/// Makes the image of the installed Postgres; returns its reference.
pub(super) fn postgres(engine: &Engine) -> Result<&'static str> {
    let programs = installed_postgres()?;
    let mut files = Files::default();
    for program in [&programs.join("postgres"), &programs.join("initdb"), Path::new("/bin/sh")] {
        files.program(program)?;
    }
    for library in files_under(&pg_config_value(&programs, "--pkglibdir")?)? {
        let is_wanted = library.extension().is_some_and(|extension| extension == "so")
            && library.file_name().is_none_or(|name| name != "llvmjit.so");
        if is_wanted {
            files.program(&library)?;
        }
    }
    for folder in [pg_config_value(&programs, "--sharedir")?, PathBuf::from("/usr/share/zoneinfo")] {
        files.folder(&folder, &[])?;
    }
    let script = POSTGRES_ENTRY_POINT.replace("BIN", &programs.display().to_string());
    make(engine, POSTGRES, &files, Some(&script), &["/entrypoint.sh"])
}

/// Makes the image of our own emulator; returns its reference.
pub(super) fn own_emulator(engine: &Engine) -> Result<&'static str> {
    succeed(cargo().args(["build", "--bin", "pubsub-emulator"]))?;
    let binary = std::env::current_exe()?.with_file_name("pubsub-emulator");
    let mut files = Files::default();
    files.program(&binary)?;
    make(engine, OWN_EMULATOR, &files, None, &[&binary.display().to_string()])
}

/// Makes the image of Google's emulator with the installed Java; returns its reference.
pub(super) fn google_emulator(engine: &Engine) -> Result<&'static str> {
    let found = find()?;
    let java = found.java.canonicalize().context("can't resolve the installed Java")?;
    let home = java.ancestors().nth(2).context("the installed Java has no home")?;
    let mut files = Files::default();
    files.program(&java)?;
    let of_java = [home.join("lib"), home.join("lib/server")];
    for library in files_under(home)? {
        if library.extension().is_some_and(|extension| extension == "so") {
            files.libraries_beside(&library, &of_java)?;
        }
    }
    files.folder(home, &NOT_OF_JAVA)?;
    files.add(&found.jar);
    let (java, jar) = (java.display().to_string(), found.jar.display().to_string());
    make(engine, GOOGLE_EMULATOR, &files, None, &[&java, "-Xmx512m", "-jar", &jar])
}

fn make(
    engine: &Engine,
    reference: &'static str,
    files: &Files,
    script: Option<&str>,
    command: &[&str],
) -> Result<&'static str> {
    let entry_point = format!("ENTRYPOINT {}", serde_json::to_string(command)?);
    let changes = [format!("USER {USER}:{USER}"), entry_point];
    Import { reference, files, script, changes: &changes }.make(engine)
}

/// Queries a folder from the `pg_config` beside the other programs.
fn pg_config_value(programs: &Path, option: &str) -> Result<PathBuf> {
    Ok(said(Command::new(programs.join("pg_config")).arg(option))?.trim().into())
}

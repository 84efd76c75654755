//! The image of the installed Postgres, with the interface of the official one.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use wakeq_testbed::installed_postgres;

use super::{Engine, Files, Import, USER, files_under, said};

const REFERENCE: &str = "wakeq-test-postgres:installed";

/// Where the official image mounts its volume.
const DATA: &str = "var/lib/postgresql/data";

/// What is used here of the official image's entry point: it creates a cluster whose superuser may
/// connect from any network, and a database, then runs the server with the given arguments.
///
/// The cluster is in a folder of the volume, since `initdb` wants to own its folder.
const ENTRY_POINT: &str = r#"#!/bin/sh
set -eu
data=/DATA/cluster
if [ ! -s $data/PG_VERSION ]; then
    auth=${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}
    (umask 077 && printf '%s' "${POSTGRES_PASSWORD:-unused}" >/tmp/password)
    initdb --username=postgres --auth=$auth --pwfile=/tmp/password ${POSTGRES_INITDB_ARGS:-} --pgdata=$data
    echo "host all all all $auth" >>$data/pg_hba.conf
    if [ -n "${POSTGRES_DB:-}" ]; then
        echo "create database $POSTGRES_DB" | postgres --single -D $data postgres
    fi
fi
exec postgres -D $data -c listen_addresses='*' -c unix_socket_directories=/tmp "$@"
"#;

/// Makes the image; returns its reference.
pub(crate) fn postgres(engine: &Engine) -> Result<&'static str> {
    let programs = installed_postgres()?;
    let mut files = Files::default();
    for name in ["postgres", "initdb", "pg_isready"] {
        files.program(&programs.join(name))?;
    }
    files.program(Path::new("/bin/sh"))?;
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
    let script = ENTRY_POINT.replace("DATA", DATA);
    let changes = [
        format!("USER {USER}:{USER}"),
        format!("ENV PATH={}:/usr/bin:/bin", programs.display()),
        r#"ENTRYPOINT ["/entrypoint.sh"]"#.to_owned(),
    ];
    Import {
        reference: REFERENCE,
        files: &files,
        script: Some(&script),
        writable: &[DATA],
        changes: &changes,
    }
    .make(engine)
}

/// Queries a folder from the `pg_config` beside the other programs.
fn pg_config_value(programs: &Path, option: &str) -> Result<PathBuf> {
    Ok(said(Command::new(programs.join("pg_config")).arg(option))?.trim().into())
}

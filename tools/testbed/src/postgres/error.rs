//! Errors of Postgres servers, and what to do about them.
//!
//! They must never contain a password.

use std::io;
use std::path::PathBuf;

use super::download::DownloadError;
use crate::choice::UnknownChoice;
use crate::containers::ContainerError;
use crate::process::ProcessError;

/// Why no Postgres could be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// The requested choice does not exist.
    #[error(transparent)]
    Choice(#[from] UnknownChoice),
    /// The server of the environment was requested, but `DATABASE_URL` is not set.
    #[error(
        "{by} requires the server at DATABASE_URL, which is not set: set it to postgres://user:password@host:5432/database"
    )]
    NoUrl {
        /// What requested it.
        by: String,
    },
    /// None could be downloaded, and only that was requested.
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// Its container could not be started.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// There is neither a server nor an installed Postgres, and none could be downloaded.
    #[error(
        "no Postgres: set DATABASE_URL to a running server (postgres://user:password@host:5432/database), or install \
         one (Debian: `apt-get install postgresql`, Alpine: `apk add postgresql`, macOS: `brew install postgresql@17`) with \
         initdb and postgres on PATH"
    )]
    NotInstalled,
    /// The installed Postgres is too old for the migrations.
    #[error(
        "{version} in {} is too old ({needed} is needed): install a newer Postgres, or set DATABASE_URL to a server",
        folder.display()
    )]
    TooOld {
        /// The version of the first one that was found.
        version: String,
        /// Its folder.
        folder: PathBuf,
        /// The oldest major version that works.
        needed: u32,
    },
    /// `DATABASE_URL` is not an address of Postgres.
    #[error("DATABASE_URL must begin with postgres:// or postgresql:// and name a database at its end")]
    Url,
    /// Postgres does not run as root, and no other user was found to run it as.
    #[error("Postgres refuses to run as root, and there is no user `postgres` or `nobody` to run it as")]
    NoUser,
    /// A folder or file could not be used.
    #[error("{}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A process could not be started or ended.
    #[error("Postgres's process")]
    Process(#[from] ProcessError),
    /// Another server runs in the kept folder.
    #[error("a Postgres (process {pid}, port {port}) already runs in {}: stop it, or use that one", folder.display())]
    AlreadyRunning {
        /// Its data folder.
        folder: PathBuf,
        /// Its process id.
        pid: i32,
        /// Its port.
        port: String,
    },
    /// Something else has the name of a kept folder's substitute.
    #[error("{} does not belong to the user that Postgres runs as: remove it, or run this as a user other than root", folder.display())]
    NotOurs {
        /// Its path.
        folder: PathBuf,
    },
    /// The kept folder was created by another version.
    #[error("{} was created by Postgres {made_by}, but {installed} is installed: remove the folder, or install {made_by}",
        folder.display())]
    OtherVersion {
        /// The data folder.
        folder: PathBuf,
        /// The version that created it.
        made_by: String,
        /// The installed version.
        installed: String,
    },
    /// `initdb` failed.
    #[error("initdb failed:\n{0}")]
    Initialise(String),
    /// The server ended instead of answering; the end of its log.
    #[error("Postgres exited during startup; its last output:\n{0}")]
    Ended(String),
    /// The server runs but does not answer; the end of its log.
    #[error("Postgres does not answer; its last output:\n{0}")]
    Silent(String),
}

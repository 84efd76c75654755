//! What can go wrong with a Postgres, and what to do about it.
//!
//! It must never say a password.

use std::io;
use std::path::PathBuf;

use crate::choice::UnknownChoice;
use crate::containers::ContainerError;
use crate::process::ProcessError;

/// Why there is no Postgres.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// A word that is no choice.
    #[error(transparent)]
    Choice(#[from] UnknownChoice),
    /// The server of the environment is asked for, and the environment names none.
    #[error(
        "{by} asks for the server of DATABASE_URL, which is not set: set it to postgres://user:password@host:5432/database"
    )]
    NoUrl {
        /// What asked for it.
        by: String,
    },
    /// The embedded one did not compile.
    #[error(
        "the embedded Postgres could not be built (it needs crates.io and a C compiler): install Postgres, or set \
         DATABASE_URL. Its last words:\n{0}"
    )]
    NotBuilt(String),
    /// No container.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// Neither a server nor the programs for one.
    #[error(
        "no Postgres: set DATABASE_URL to a server that runs (postgres://user:password@host:5432/database), or install \
         one (Debian: `apt-get install postgresql`, macOS: `brew install postgresql@17`) with initdb and postgres on PATH"
    )]
    NotInstalled,
    /// Only programs for servers on which the migrations fail.
    #[error(
        "{version} in {} is too old ({needed} is needed): install a newer Postgres, or set DATABASE_URL to a server",
        folder.display()
    )]
    TooOld {
        /// That of the first that was found.
        version: String,
        /// Where.
        folder: PathBuf,
        /// The oldest major version that would do.
        needed: u32,
    },
    /// The variable is set to something else than an address of Postgres.
    #[error("DATABASE_URL must begin with postgres:// or postgresql:// and name a database at its end")]
    Url,
    /// Root may not run Postgres, and there is nobody else.
    #[error(
        "Postgres does not run as root, and there is neither a user `postgres` nor `nobody` to run it as"
    )]
    NoUser,
    /// A folder or file.
    #[error("{}", path.display())]
    File {
        /// Where.
        path: PathBuf,
        /// What.
        #[source]
        source: io::Error,
    },
    /// A process could not be started or ended.
    #[error("Postgres's process")]
    Process(#[from] ProcessError),
    /// The kept folder is in use.
    #[error("a Postgres (process {pid}, port {port}) already runs in {}: stop it, or use that one", folder.display())]
    AlreadyRunning {
        /// Its data folder.
        folder: PathBuf,
        /// Its process.
        pid: i32,
        /// Its port.
        port: String,
    },
    /// Another embedded one has the folder.
    #[error("another embedded Postgres runs in {}: stop it, or set DATABASE_URL to use that one", folder.display())]
    InUse {
        /// Its folder.
        folder: PathBuf,
    },
    /// Something else has the name of the folder that stands for a kept one.
    #[error("{} is not a folder of Postgres's user: remove it, or run this as another user than root", folder.display())]
    NotOurs {
        /// What is there.
        folder: PathBuf,
    },
    /// The kept folder is of another version.
    #[error("{} was made by Postgres {made_by}, and {installed} is installed: remove the folder, or install {made_by}",
        folder.display())]
    OtherVersion {
        /// The data folder.
        folder: PathBuf,
        /// The version that made it.
        made_by: String,
        /// The version that is here.
        installed: String,
    },
    /// `initdb` failed.
    #[error("initdb failed:\n{0}")]
    Initialise(String),
    /// The server ended instead of answering.
    #[error("Postgres ended at its start; its last words:\n{0}")]
    Ended(String),
    /// The server runs and does not answer.
    #[error("Postgres does not answer; its last words:\n{0}")]
    Silent(String),
}

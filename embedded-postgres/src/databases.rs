//! The databases of this server, one folder each: finds, creates, copies, renames and drops them.
//!
//! It must never touch a folder outside its own, whatever a database is called, nor copy a database
//! that is in use.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::database::{ClientGuard, Database};
use crate::engine::EngineError;
use crate::sql::DatabaseCommand;

const LONGEST_NAME_BYTES: usize = 63;
/// Each has an engine, with memory of its own.
const MOST_OPEN: usize = 200;
/// Files that only a running engine may have.
const LOCKS: [&str; 2] = [".pglite-oxide.lock", "postmaster.pid"];

/// Why an operation on a database failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DatabaseError {
    #[error("database \"{0}\" does not exist")]
    Missing(String),
    #[error("database \"{0}\" already exists")]
    Exists(String),
    #[error("database \"{0}\" is being accessed by other users")]
    InUse(String),
    #[error("database \"{0}\" is not currently accepting connections")]
    Closed(String),
    #[error("a database's name has 1 to 63 letters, digits, _ and - here, not \"{0}\"")]
    Name(String),
    #[error("{MOST_OPEN} databases are open: drop some")]
    TooMany,
    #[error("{}", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl DatabaseError {
    /// Postgres's SQLSTATE for the error.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Missing(_) => "3D000",
            Self::Exists(_) => "42P04",
            Self::InUse(_) => "55006",
            Self::Closed(_) => "55000",
            Self::Name(_) => "42602",
            Self::TooMany => "53300",
            Self::File(..) => "58030",
            Self::Engine(_) => "XX000",
        }
    }
}

/// All databases of this server.
#[derive(Debug)]
pub(crate) struct Databases {
    folder: PathBuf,
    known: Mutex<HashMap<String, Arc<Database>>>,
    /// Those that do not allow connections; forgotten when this process ends.
    closed: std::sync::Mutex<HashSet<String>>,
    ended: CancellationToken,
}

impl Databases {
    pub(crate) fn new(folder: PathBuf, ended: CancellationToken) -> Self {
        Self { folder, known: Mutex::default(), closed: std::sync::Mutex::default(), ended }
    }

    /// Opens the database for a client, which is counted as long as the guard lives.
    pub(crate) async fn enter(&self, name: &str) -> Result<(Arc<Database>, ClientGuard), DatabaseError> {
        let mut known = self.known.lock().await;
        if self.closed().contains(name) {
            return Err(DatabaseError::Closed(name.to_owned()));
        }
        if !known.contains_key(name) {
            if !self.folder_of(name)?.is_dir() {
                return Err(DatabaseError::Missing(name.to_owned()));
            }
            if known.len() >= MOST_OPEN {
                return Err(DatabaseError::TooMany);
            }
            let database = Database::new(self.folder_of(name)?, self.ended.child_token());
            known.insert(name.to_owned(), Arc::new(database));
        }
        let database = known.get(name).cloned().ok_or_else(|| DatabaseError::Missing(name.to_owned()))?;
        let guard = database.enter();
        Ok((database, guard))
    }

    /// Creates a database, unless it exists.
    pub(crate) async fn ensure(&self, name: &str) -> Result<(), DatabaseError> {
        let create = DatabaseCommand::Create { name: name.to_owned(), template: None };
        match self.execute(create).await {
            Ok(()) | Err(DatabaseError::Exists(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Carries out a statement.
    pub(crate) async fn execute(&self, what: DatabaseCommand) -> Result<(), DatabaseError> {
        let mut known = self.known.lock().await;
        match what {
            DatabaseCommand::Create { name, template } => {
                let folder = self.new_folder(&name)?;
                match template {
                    None => fs::create_dir_all(&folder).map_err(at(&folder)),
                    Some(template) => {
                        let source = self.close_idle(&mut known, &template).await?;
                        copy_whole(&source, &folder).await
                    }
                }
            }
            DatabaseCommand::Rename { from, to } => {
                let target = self.new_folder(&to)?;
                let source = self.close_idle(&mut known, &from).await?;
                fs::rename(&source, &target).map_err(at(&target))
            }
            DatabaseCommand::Drop { name, if_exists, force } => {
                if force {
                    end(&mut known, &name).await?;
                }
                let folder = match self.close_idle(&mut known, &name).await {
                    Err(DatabaseError::Missing(_)) if if_exists => return Ok(()),
                    folder => folder?,
                };
                self.closed().remove(&name);
                fs::remove_dir_all(&folder).map_err(at(&folder))
            }
            DatabaseCommand::Allow { name, connections } => {
                if !self.folder_of(&name)?.is_dir() {
                    return Err(DatabaseError::Missing(name));
                }
                if connections {
                    self.closed().remove(&name);
                    return Ok(());
                }
                self.closed().insert(name.clone());
                end(&mut known, &name).await
            }
        }
    }

    /// Shuts every engine down gracefully.
    pub(crate) async fn close(&self) -> Result<(), EngineError> {
        self.ended.cancel();
        let known = std::mem::take(&mut *self.known.lock().await);
        let mut result = Ok(());
        for database in known.into_values() {
            result = result.and(database.close().await);
        }
        result
    }

    /// The folder of a database, once it has no clients and no engine.
    async fn close_idle(
        &self,
        known: &mut HashMap<String, Arc<Database>>,
        name: &str,
    ) -> Result<PathBuf, DatabaseError> {
        if let Some(database) = known.get(name) {
            if !database.has_no_clients().await {
                return Err(DatabaseError::InUse(name.to_owned()));
            }
            database.close().await?;
            known.remove(name);
        }
        let folder = self.folder_of(name)?;
        if folder.is_dir() { Ok(folder) } else { Err(DatabaseError::Missing(name.to_owned())) }
    }

    fn closed(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder for a database that does not exist yet.
    fn new_folder(&self, name: &str) -> Result<PathBuf, DatabaseError> {
        let folder = self.folder_of(name)?;
        if folder.exists() { Err(DatabaseError::Exists(name.to_owned())) } else { Ok(folder) }
    }

    fn folder_of(&self, name: &str) -> Result<PathBuf, DatabaseError> {
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
        let fits = (1..=LONGEST_NAME_BYTES).contains(&name.len()) && name.chars().all(allowed);
        if fits { Ok(self.folder.join(name)) } else { Err(DatabaseError::Name(name.to_owned())) }
    }
}

/// Ends all connections to a database, and its engine.
async fn end(known: &mut HashMap<String, Arc<Database>>, name: &str) -> Result<(), DatabaseError> {
    if let Some(database) = known.get(name) {
        database.ended.cancel();
        database.close().await?;
        known.remove(name);
    }
    Ok(())
}

/// Copies a folder; the copy gets its name only when it is complete.
async fn copy_whole(source: &Path, target: &Path) -> Result<(), DatabaseError> {
    let (source, target) = (source.to_owned(), target.to_owned());
    let unfinished = target.with_extension("unfinished");
    let work = move || {
        match fs::remove_dir_all(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&unfinished)(error)),
            Err(_) | Ok(()) => {}
        }
        copy(&source, &unfinished)?;
        fs::rename(&unfinished, &target).map_err(at(&target))
    };
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or(Err(DatabaseError::Engine(EngineError::Ended)))
}

fn copy(source: &Path, target: &Path) -> Result<(), DatabaseError> {
    fs::create_dir_all(target).map_err(at(target))?;
    for entry in fs::read_dir(source).map_err(at(source))? {
        let entry = entry.map_err(at(source))?;
        let (from, to) = (entry.path(), target.join(entry.file_name()));
        if entry.file_type().map_err(at(&from))?.is_dir() {
            copy(&from, &to)?;
        } else if !LOCKS.iter().any(|lock| entry.file_name() == *lock) {
            fs::copy(&from, &to).map_err(at(&to))?;
        }
    }
    Ok(())
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> DatabaseError {
    let path = path.to_owned();
    |source| DatabaseError::File(path, source)
}

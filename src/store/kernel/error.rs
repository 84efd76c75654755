//! The errors of statements.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgDatabaseError;

use crate::event::{BatchName, ChosenIdTaken, InvalidTiming, QuotaExceeded, Spelled, WaitingMaxReached};

/// Why a statement gave no result. Whether it took effect is unknown for
/// [`StoreError::Unavailable`], [`StoreError::Defect`] and, unless `ended`,
/// [`StoreError::TimedOut`]; every statement can be repeated.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The server can't be reached or trusted, the connection broke, or the server has no memory,
    /// disk or connections left.
    #[error("{}", unavailable(.0))]
    Unavailable(#[source] Arc<sqlx::Error>),
    /// No answer in time: either the server cancelled the statement and rolled it back, or no
    /// answer came at all and the connection was closed.
    #[error("Postgres did not answer `{statement}` within {}", Spelled(*after))]
    TimedOut {
        /// The statement's name.
        statement: &'static str,
        /// Longest wait of the caller for it.
        after: Duration,
        /// Whether the server cancelled the statement, which then took no effect.
        ended: bool,
    },
    /// The server refused the statement.
    #[error("Postgres refused `{statement}`")]
    Refused {
        /// The statement's name.
        statement: &'static str,
        /// The server's error.
        #[source]
        source: Arc<sqlx::Error>,
    },
    /// The schema `wakeq` is missing or older than this program.
    #[error("the schema `wakeq` is not up to date: run `wakeq migrate`")]
    NotMigrated(#[source] Arc<sqlx::Error>),
    /// A migration failed.
    #[error("the migration failed; what it did was rolled back")]
    Migration(#[source] Arc<sqlx::migrate::MigrateError>),
    /// A migration was begun and not finished, which ours can't be: each is one transaction.
    #[error(
        "migration {0} is marked as not finished: find out what was applied of it, complete or undo that, then \
         correct `success` in its row of wakeq._migrations, or delete the row"
    )]
    PartlyMigrated(i64),
    /// The server may lose commits.
    #[error(
        "the server has {setting} = {value}: a crash may lose events that were acknowledged. Turn it on, or say that \
         losing events is acceptable (`allow_unsafe_durability`, WAKEQ_ALLOW_UNSAFE_DURABILITY=1)"
    )]
    UnsafeDurability {
        /// `fsync` or `synchronous_commit`.
        setting: String,
        /// Its value.
        value: String,
    },
    /// Behind a pooler in transaction mode, the role has to have settings that it lacks.
    #[error(
        "behind a pooler in transaction mode the role needs settings that it lacks. Run these statements, as this \
         role or an administrator, and let the pooler open new connections (pgbouncer: RECONNECT): {statements}"
    )]
    RoleSettings {
        /// One for each setting.
        statements: String,
    },
    /// The sessions of a pool that the program has made lack settings.
    #[error(
        "the sessions of the pool lack settings that wakeq's statements rely on ({lacking}): make the pool with \
         `StoreConfig::pool_options`, or call `StoreConfig::prepare_session` in its `after_connect`"
    )]
    PoolSettings {
        /// Each with its value and with the one that is needed.
        lacking: String,
    },
    /// The server is not one Postgres, and wakeq's promises would not hold on it.
    #[error("{0}")]
    ForeignEngine(String),
    /// A configured duration is invalid.
    #[error(transparent)]
    Timing(#[from] InvalidTiming),
    /// The deployment's other processes use other durations.
    #[error(
        "the duration `{name}` is {} here, and {} in the deployment's other processes: give every process the same, \
         or, to change it, stop them all, run `wakeq settings set`, and start them with the new one",
        Spelled(*ours),
        Spelled(*deployment)
    )]
    OtherTiming {
        /// The field of [`crate::Timing`].
        name: &'static str,
        /// The value of this process.
        ours: Duration,
        /// The value in the table `wakeq.settings`.
        deployment: Duration,
    },
    /// The queue in front of a batched statement is full or gone: more is requested than the
    /// database can answer.
    #[error(
        "too many statements, or too many bytes of them, wait for Postgres: slow down, or give \
         Postgres more capacity"
    )]
    Overloaded,
    /// The canvas has used up a quota; nothing was done.
    #[error(transparent)]
    Quota(#[from] QuotaExceeded),
    /// A limit that the event names is at its `waiting_max`; nothing was done.
    #[error(transparent)]
    WaitingMax(#[from] WaitingMaxReached),
    /// The batch of an event is over, or was never opened: nothing was emitted.
    #[error(
        "the batch {0} is over, or was never opened: open it before you emit into it, and emit into it before it is \
         closed, or from its members"
    )]
    NoBatch(BatchName),
    /// The id that the caller chose is that of an event for another handler: nothing was emitted.
    #[error(transparent)]
    IdTaken(#[from] ChosenIdTaken),
    /// The configuration is invalid.
    #[error("{0}")]
    Config(&'static str),
    /// The statement's code panicked; its message is in the log.
    #[error("a statement ended because of a bug in wakeq; its effect is unknown")]
    Defect,
}

/// Errors that another session, or the server's administrator, can cause: shutting down, starting
/// up, crashed, read-only standby, idle for too long within a transaction. A resource that is used
/// up is not the statement's fault either: disk, memory (also that of locks), connections.
const UNAVAILABLE: [&str; 9] =
    ["57P01", "57P02", "57P03", "25006", "25P03", "53000", "53100", "53200", "53300"];

/// The class of errors for resources that are used up.
const EXHAUSTED: &str = "53";

/// Advice on what to look at when the server is unavailable. TLS is negotiated with a server that
/// runs and was found.
fn unavailable(source: &sqlx::Error) -> &'static str {
    let code = source.as_database_error().and_then(|error| error.code());
    match (source, code.as_deref()) {
        (_, Some(code)) if code.starts_with(EXHAUSTED) => {
            "Postgres has used up its memory, locks, disk or connections: see which sessions hold them"
        }
        (_, Some("25006")) => {
            "Postgres is a standby, which accepts no writes: let DATABASE_URL lead to the primary"
        }
        (sqlx::Error::Tls(_), _) => NO_TLS,
        (sqlx::Error::Io(error), _) if error.kind() == std::io::ErrorKind::InvalidData => NO_TLS,
        // The pool does not say what kept it from opening a connection within its time.
        (sqlx::Error::PoolTimedOut, _) => {
            "Postgres is not reachable: check DATABASE_URL and that the server runs. If it does, it has no connection \
             left for this role: raise the role's limit or max_connections, or run fewer processes (`wakeq doctor` \
             says which it is)"
        }
        _ => "Postgres is not reachable: check DATABASE_URL and that the server runs",
    }
}

const NO_TLS: &str = "Postgres answers, but no TLS connection can be made: check its certificate (X.509 version 3 is \
                      needed), and sslmode and sslrootcert in DATABASE_URL";

/// The batch whose members the trigger of the events refuses, if the error is that.
fn refused_batch(error: &sqlx::Error) -> Option<BatchName> {
    detail_of(error, BATCH_IS_OPEN)?.parse().ok()
}

/// The event that has a chosen id, and its handler, if the error is that.
fn taken_id(error: &sqlx::Error) -> Option<ChosenIdTaken> {
    let mut words = detail_of(error, ONE_HANDLER)?.split(' ');
    let (id, module, name) = (words.next()?, words.next()?, words.next()?);
    Some(ChosenIdTaken { id: id.parse().ok()?, module: module.parse().ok()?, name: name.parse().ok()? })
}

/// The detail of an error that names this constraint.
fn detail_of<'e>(error: &'e sqlx::Error, constraint: &str) -> Option<&'e str> {
    let error = error.as_database_error().filter(|error| error.constraint() == Some(constraint))?;
    error.try_downcast_ref::<PgDatabaseError>()?.detail()
}

/// What the trigger names as the constraint that a member breaks.
const BATCH_IS_OPEN: &str = "events_v2_batch_is_open";
/// What `wakeq.check_repeats` names as the constraint that a repeat breaks.
const ONE_HANDLER: &str = "emitted_ids_one_handler";

/// Deadlock, lock timeout, serialization failure.
const CONTENTION: [&str; 3] = ["40P01", "55P03", "40001"];

impl StoreError {
    /// Classifies an error of the client library.
    #[doc(hidden)]
    pub fn from_sqlx(statement: &'static str, error: sqlx::Error) -> Self {
        let source = Arc::new(error);
        if let Some(batch) = refused_batch(&source) {
            return Self::NoBatch(batch);
        }
        if let Some(taken) = taken_id(&source) {
            return Self::IdTaken(taken);
        }
        match source.as_database_error().map(|error| error.code().unwrap_or_default().into_owned()) {
            // undefined table, schema, function or column
            Some(code) if ["42P01", "3F000", "42883", "42703"].contains(&code.as_str()) => {
                Self::NotMigrated(source)
            }
            Some(code) if UNAVAILABLE.contains(&code.as_str()) => Self::Unavailable(source),
            // a prepared statement exists already, or does not exist
            Some(code) if ["42P05", "26000"].contains(&code.as_str()) => Self::Config(
                "the pooler before Postgres mixes up prepared statements: use pgbouncer 1.21 or newer with \
                 max_prepared_statements above 0, or session mode, or connect directly",
            ),
            Some(_) => Self::Refused { statement, source },
            None => Self::Unavailable(source),
        }
    }

    /// The server cancelled a statement because it took too long, or because an administrator asked
    /// for that, and rolled it back.
    pub(in crate::store) fn is_ended(error: &sqlx::Error) -> bool {
        error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "57014")
    }

    /// The SQLSTATE code, five characters, if the server sent one.
    #[doc(hidden)]
    pub fn code(&self) -> Option<String> {
        match self {
            Self::Unavailable(source) | Self::NotMigrated(source) | Self::Refused { source, .. } => {
                Some(source.as_database_error()?.code()?.into_owned())
            }
            Self::TimedOut { .. }
            | Self::Migration(_)
            | Self::PartlyMigrated(_)
            | Self::UnsafeDurability { .. }
            | Self::RoleSettings { .. }
            | Self::PoolSettings { .. }
            | Self::ForeignEngine(_)
            | Self::Timing(_)
            | Self::OtherTiming { .. }
            | Self::Overloaded
            | Self::Quota(_)
            | Self::WaitingMax(_)
            | Self::NoBatch(_)
            | Self::IdTaken(_)
            | Self::Config(_)
            | Self::Defect => None,
        }
    }

    /// One word, as a metric's label.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::TimedOut { .. } => "timeout",
            Self::Refused { .. } => "refused",
            Self::NotMigrated(_) | Self::Migration(_) | Self::PartlyMigrated(_) => "not_migrated",
            Self::Overloaded => "overloaded",
            Self::Quota(_) => "quota",
            Self::WaitingMax(_) => "waiting_max",
            Self::NoBatch(_) => "no_batch",
            Self::IdTaken(_) => "id_taken",
            Self::UnsafeDurability { .. }
            | Self::RoleSettings { .. }
            | Self::PoolSettings { .. }
            | Self::ForeignEngine(_)
            | Self::Timing(_)
            | Self::OtherTiming { .. }
            | Self::Config(_)
            | Self::Defect => "defect",
        }
    }

    /// The server refused the statement, and its connection is as good as before.
    pub(in crate::store) fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::NotMigrated(_) | Self::NoBatch(_) | Self::IdTaken(_))
    }

    /// The server cancelled it for taking too long, so that it took no effect; it may succeed with
    /// fewer rows.
    pub(crate) fn is_too_long(&self) -> bool {
        matches!(self, Self::TimedOut { ended: true, .. })
    }

    /// A deadlock, a lock timeout or a serialization failure: the same statement may succeed with
    /// fewer rows, or later.
    #[doc(hidden)]
    pub fn is_contention(&self) -> bool {
        self.code().is_some_and(|code| CONTENTION.contains(&code.as_str()))
    }

    /// As [`StoreError::is_contention`], for an error of the client library.
    pub(in crate::store) fn is_refused_lock(error: &sqlx::Error) -> bool {
        let code = error.as_database_error().and_then(|error| error.code());
        code.is_some_and(|code| CONTENTION.contains(&code.as_ref()))
    }

    /// The data of one row was refused; the other rows of its batch may pass.
    #[doc(hidden)]
    pub fn is_data(&self) -> bool {
        matches!(self, Self::NoBatch(_) | Self::IdTaken(_))
            || self.code().is_some_and(|code| code.starts_with("22") || code.starts_with("23"))
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_failed_tls_handshake_is_not_an_unreachable_server() {
        let handshake = io::Error::new(io::ErrorKind::InvalidData, "invalid peer certificate");
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        for (error, beginning) in [
            (sqlx::Error::Io(handshake), "Postgres answers, but no TLS"),
            (sqlx::Error::Tls("server does not support TLS".into()), "Postgres answers, but no TLS"),
            (sqlx::Error::Io(refused), "Postgres is not reachable"),
        ] {
            let words = StoreError::from_sqlx("connect", error).to_string();
            assert!(words.starts_with(beginning), "{words}");
        }
    }

    /// It may be down, or full: both are said, and what to do about either.
    #[test]
    fn a_connection_that_did_not_come_in_time_has_two_causes() {
        let words = StoreError::from_sqlx("connect", sqlx::Error::PoolTimedOut).to_string();
        for part in ["is not reachable: check DATABASE_URL", "raise the role's limit or max_connections"] {
            assert!(words.contains(part), "{words}");
        }
    }
}

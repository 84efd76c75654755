//! The services that development and tests need: a Postgres, a Pub/Sub emulator, a NATS
//! server, and the child processes in which they run.
//!
//! Each is found or started, and ends with this process if it was started. This crate must never
//! depend on `wakeq`: a caller that needs tables passes the function that creates them, and topics
//! and subscriptions are created by a notifier.

mod choice;
mod containers;
mod limit;
mod looks;
mod nats;
mod postgres;
mod process;
mod pubsub;

pub use choice::{Choice, ChosenService, PostgresChoice, PubSubChoice, Requested, UnknownChoice};
pub use containers::{Container, ContainerError};
pub use limit::TestTime;
pub use looks::Looks;
pub use nats::{NatsError, NatsServer};
pub use postgres::{
    Cluster, ClusterOptions, DatabaseError, DownloadError, Folder, PgBouncer, PgBouncerError,
    PgBouncerOptions, Postgres, PostgresError, TestDatabase, installed_postgres, remove_data_folder,
};
pub use process::{
    AtEnd, ChildProcess, Ending, Guard, Launch, ProcessError, RunAs, free_port, program_on_path,
};
pub use pubsub::{EmulatorError, GoogleEmulator, Installation, NotInstalled, OwnEmulator, PubSub, find};

/// Waits as long as a condition holds, for 30 s at most; then panics with the words.
#[macro_export]
macro_rules! wait_while {
    ($condition:expr, $words:literal) => {{
        let limit = std::time::Duration::from_secs(30);
        // A paused clock does not advance meanwhile.
        let began = std::time::Instant::now();
        let mut looks = $crate::Looks::default();
        let waiting = async {
            while $condition {
                assert!(began.elapsed() < limit, $words);
                looks.pause().await;
            }
        };
        tokio::time::timeout(limit, waiting).await.expect($words);
    }};
}

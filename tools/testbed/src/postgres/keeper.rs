//! Creates and drops the databases of this process's tests, one statement at a time, on a
//! connection of its own.
//!
//! It has a thread and a runtime of its own, because it must outlive every test's runtime. It must
//! never connect to a template, which could then not be copied, and never touch a database of a
//! process that still runs.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::sync::oneshot;
use tokio::time::timeout;

pub(crate) const PREFIX: &str = "wakeq_test_";
/// The connection's application name is this and the id of the run, so that other processes see
/// that the run is alive.
const NAME_OF_RUN: &str = "wakeq test ";
const STATEMENT_WITHIN: Duration = Duration::from_secs(60);

/// A statement to run, and where to send the result.
type Order = (String, Reply);

enum Reply {
    Task(oneshot::Sender<Result<(), sqlx::Error>>),
    Drop(mpsc::Sender<()>),
}

/// The handle to the keeper's thread.
#[derive(Debug)]
pub(crate) struct Keeper {
    orders: mpsc::Sender<Order>,
}

impl Keeper {
    /// Connects, and drops the databases that killed processes left on this server.
    pub(crate) async fn start(options: PgConnectOptions, run: String) -> Result<Self, sqlx::Error> {
        let options = options.application_name(&format!("{NAME_OF_RUN}{run}"));
        let (orders, inbox) = mpsc::channel();
        let (ready, started) = oneshot::channel();
        thread::Builder::new()
            .name("test databases".to_owned())
            .spawn(move || work(options, ready, inbox))?;
        started.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))?;
        Ok(Self { orders })
    }

    /// Runs one statement.
    pub(crate) async fn run(&self, statement: String) -> Result<(), sqlx::Error> {
        let (reply, answer) = oneshot::channel();
        let _ = self.orders.send((statement, Reply::Task(reply)));
        answer.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
    }

    /// Runs one statement for a `Drop`: without a runtime, and ignoring its result.
    pub(crate) fn run_blocking(&self, statement: String, limit: Duration) {
        let (reply, answer) = mpsc::channel();
        let _ = self.orders.send((statement, Reply::Drop(reply)));
        let _ = answer.recv_timeout(limit);
    }
}

fn work(
    options: PgConnectOptions,
    ready: oneshot::Sender<Result<(), sqlx::Error>>,
    inbox: mpsc::Receiver<Order>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return drop(ready.send(Err(error.into()))),
    };
    let connected = runtime.block_on(async {
        let mut connection = PgConnection::connect_with(&options).await?;
        sweep(&mut connection).await?;
        Ok(connection)
    });
    let mut connection = match connected {
        Ok(connection) => connection,
        Err(error) => return drop(ready.send(Err(error))),
    };
    let _ = ready.send(Ok(()));
    for (statement, reply) in inbox {
        let result = runtime.block_on(run(&mut connection, &options, statement));
        match reply {
            Reply::Task(sender) => drop(sender.send(result)),
            Reply::Drop(sender) => drop(sender.send(())),
        }
    }
}

async fn run(
    connection: &mut PgConnection,
    options: &PgConnectOptions,
    statement: String,
) -> Result<(), sqlx::Error> {
    if connection.ping().await.is_err() {
        *connection = PgConnection::connect_with(options).await?;
    }
    let execution = sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection);
    timeout(STATEMENT_WITHIN, execution).await.map_err(|_| sqlx::Error::PoolTimedOut)?.map(drop)
}

/// Drops the databases of processes that have gone: their keeper's connection is gone as well. It
/// matches only names exactly as we make them; everything else on the server belongs to others.
async fn sweep(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let left = sqlx::raw_sql(
        "select datname from pg_database
         where datname ~ '^wakeq_test_[0-9a-f]{16}_([0-9]+|template_[0-9a-f]{16})$' and pg_has_role(datdba, 'member')
           and not exists (select from pg_stat_activity
                           where application_name = 'wakeq test ' || split_part(datname, '_', 3))",
    )
    .fetch_all(&mut *connection)
    .await?;
    for row in left {
        let name: String = row.try_get(0)?;
        // Another process may be doing the same.
        let _ = sqlx::raw_sql(AssertSqlSafe(drop_database(&name))).execute(&mut *connection).await;
    }
    Ok(())
}

pub(crate) fn drop_database(name: &str) -> String {
    format!("drop database if exists {name} with (force)")
}

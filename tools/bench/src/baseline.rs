//! Queues that poll: the well-known handwritten one, `for update skip locked`, which is
//! the baseline; and the loop that processes such a queue, which pgmq shares.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result};
use async_trait::async_trait;
use futures_util::future::try_join_all;
use sqlx::{Connection, PgConnection, PgPool};
use tokio_util::sync::CancellationToken;

use crate::server::connect;
use crate::subject::{Job, LIVE, Load, PARKED, Payload, Received, Seen, Subject, Working};

/// As many as there are callers in the phases that emit.
const CONNECTIONS: u32 = 32;

/// The statements of a queue. `$1` is the name of the queue in all of them.
#[derive(Clone, Copy)]
pub(crate) struct Statements {
    pub(crate) send: &'static str,
    pub(crate) send_all: &'static str,
    /// Of at most `$2` events: their ids and payloads.
    pub(crate) read: &'static str,
    pub(crate) delete: &'static str,
    /// Adds `$2` events; `None` if no measured phase needs it.
    pub(crate) fill: Option<&'static str>,
}

const SETUP: &str = "create table jobs (
        id bigint generated always as identity primary key, queue text not null,
        run_at timestamptz not null default now(), locked_at timestamptz, attempts integer not null default 0,
        payload jsonb not null
    );
    create index on jobs (queue, run_at, id) where locked_at is null";

const HANDWRITTEN: Statements = Statements {
    send: "insert into jobs (queue, payload) values ($1, $2::jsonb)",
    send_all: "insert into jobs (queue, payload) select $1, unnest($2::text[])::jsonb",
    read: "update jobs set locked_at = now(), attempts = attempts + 1
            where id in (select id from jobs where queue = $1 and locked_at is null and run_at <= now()
                          order by run_at, id limit $2 for update skip locked)
        returning id, payload::text",
    delete: "delete from jobs where queue = $1 and id = any ($2)",
    fill: Some(
        "insert into jobs (queue, payload)
         select $1, jsonb_build_object('number', lpad(number::text, 20, '0'), 'padding', repeat('x', 80))
           from generate_series(0, $2 - 1) as number",
    ),
};

/// A queue that polls. Pausing a handler means not polling its queue.
pub(crate) struct Polled {
    url: String,
    pool: PgPool,
    statements: Statements,
    with_parked: Arc<AtomicBool>,
}

impl Polled {
    pub(crate) async fn handwritten(url: &str) -> Result<Self> {
        let polled = Self::new(url, HANDWRITTEN).await?;
        sqlx::raw_sql(SETUP).execute(&polled.pool).await?;
        Ok(polled)
    }

    pub(crate) async fn new(url: &str, statements: Statements) -> Result<Self> {
        let pool = connect(url, CONNECTIONS).await?;
        Ok(Self { url: url.to_owned(), pool, statements, with_parked: Arc::default() })
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }
}

fn payload(job: Job) -> Result<String> {
    Ok(serde_json::to_string(&Payload::new(job.number))?)
}

#[async_trait]
impl Subject for Polled {
    async fn emit(&self, job: Job) -> Result<()> {
        sqlx::query(self.statements.send).bind(LIVE).bind(payload(job)?).execute(&self.pool).await?;
        Ok(())
    }

    async fn emit_all(&self, jobs: Vec<Job>) -> Result<()> {
        let payloads = jobs.into_iter().map(payload).collect::<Result<Vec<_>>>()?;
        sqlx::query(self.statements.send_all).bind(LIVE).bind(payloads).execute(&self.pool).await?;
        Ok(())
    }

    async fn park(&self, count: u64) -> Result<()> {
        let fill = self.statements.fill.context("this queue can't be filled")?;
        sqlx::query(fill).bind(PARKED).bind(count as i64).execute(&self.pool).await?;
        sqlx::raw_sql("vacuum analyze").execute(&self.pool).await?;
        Ok(())
    }

    async fn unpark(&self) -> Result<()> {
        self.with_parked.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn work(&self, load: Load, seen: Seen) -> Result<Working> {
        let (stop, ended) = (CancellationToken::new(), Arc::new(AtomicU64::new(0)));
        let mut pollers = Vec::new();
        for _ in 0..load.pollers {
            let poller = Poller {
                connection: PgConnection::connect(&self.url).await?,
                statements: self.statements,
                load,
                with_parked: Arc::clone(&self.with_parked),
                seen: Arc::clone(&seen),
                ended: Arc::clone(&ended),
            };
            pollers.push(poller.run(stop.clone()));
        }
        let task = tokio::spawn(async move { try_join_all(pollers).await.map(drop) });
        Ok(Working { stop, task, ended: Box::new(move || ended.load(Ordering::Relaxed)) })
    }
}

struct Poller {
    connection: PgConnection,
    statements: Statements,
    load: Load,
    with_parked: Arc<AtomicBool>,
    seen: Seen,
    ended: Arc<AtomicU64>,
}

impl Poller {
    async fn run(mut self, stop: CancellationToken) -> Result<()> {
        while !stop.is_cancelled() {
            let mut found = self.poll(LIVE).await?;
            if self.with_parked.load(Ordering::Relaxed) {
                found |= self.poll(PARKED).await?;
            }
            if !found {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(self.load.pause) => {}
                }
            }
        }
        Ok(())
    }

    async fn poll(&mut self, queue: &str) -> Result<bool> {
        let read = sqlx::query_as(self.statements.read).bind(queue).bind(self.load.capacity as i32);
        let rows: Vec<(i64, String)> = read.fetch_all(&mut self.connection).await?;
        if rows.is_empty() {
            return Ok(false);
        }
        let mut ids = Vec::with_capacity(rows.len());
        for (id, payload) in rows {
            let received: Received = serde_json::from_str(&payload)?;
            (self.seen)(received.number()?);
            ids.push(id);
        }
        let count = ids.len() as u64;
        sqlx::query(self.statements.delete).bind(queue).bind(ids).execute(&mut self.connection).await?;
        self.ended.fetch_add(count, Ordering::Relaxed);
        Ok(true)
    }
}

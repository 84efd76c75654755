//! The statements by which a worker claims and completes, with nothing around them: what a worker
//! itself costs is the difference.
//!
//! They are copies. So that they never measure what workers no longer do, a run fails unless a
//! worker on the same database has just used both.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use sqlx::postgres::types::PgInterval;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::latency::{Latencies, Pace};
use crate::meter::{Meter, Usage};
use crate::own::Own;
use crate::phases::{fill, until_ended};
use crate::subject::{Load, Subject};

/// As many as in one statement of a worker.
const BATCH: usize = 250;
/// As many as a worker has in flight.
const CONNECTIONS: usize = 2;
/// How many events a worker drains to show its statements.
const SHOWN: u64 = 1_000;

const CLAIM: &str = "select id, claims, value from wakeq.claim($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const COMPLETE: &str = "delete from wakeq.events_v2
      where id = any ($1) and claims = coalesce($3, ($2::integer[])[array_position($1, id)])
        and locked_at is not null
  returning id";
/// What is looked for in the statements of a worker.
const PARTS: [&str; 2] = [
    "wakeq.claim($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    "where id = any ($1) and claims = coalesce($3, ($2::integer[])[array_position($1, id)])",
];
/// As in each session of the store.
const SESSION: &str = "set enable_seqscan = off; set enable_bitmapscan = off; set enable_hashjoin = off;
    set enable_mergejoin = off; set jit = off";

/// Drains events by these statements.
pub(crate) async fn drain(own: &Own, url: &str, meter: &Meter, count: u64) -> Result<Usage> {
    show(own, meter).await?;
    fill(own, count).await?;
    let mut first = PgConnection::connect(url).await?;
    let ids: Vec<Uuid> =
        sqlx::query_scalar("select id from wakeq.events_v2 order by id").fetch_all(&mut first).await?;
    first.close().await?;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = PgConnection::connect(url).await?;
        sqlx::raw_sql(SESSION).execute(&mut connection).await?;
        connections.push(connection);
    }
    let running = meter.start().await?;
    let parts = ids.chunks(ids.len().div_ceil(CONNECTIONS));
    let ended =
        try_join_all(connections.into_iter().zip(parts).map(|(connection, ids)| work(connection, ids)));
    let ended: usize = ended.await?.into_iter().sum();
    let usage = running.stop().await?;
    ensure!(ended as u64 == count, "{ended} of {count} events were completed");
    Ok(usage)
}

/// Lets a worker drain a few events, and checks that it used these statements.
async fn show(own: &Own, meter: &Meter) -> Result<()> {
    let _running = meter.start().await?;
    fill(own, SHOWN).await?;
    let working = own.work(Load::live(), Latencies::new(SHOWN, Pace::AT_ONCE)?.seen()).await?;
    until_ended(&working, SHOWN, Duration::from_secs(30)).await?;
    working.stop().await?;
    for part in PARTS {
        ensure!(meter.has_run(part).await?, "workers use other statements by now, none with `{part}`");
    }
    Ok(())
}

async fn work(mut connection: PgConnection, ids: &[Uuid]) -> Result<usize> {
    let handlers = vec!["WORKER/bench/_".to_owned()];
    let lease = PgInterval { months: 0, days: 0, microseconds: 60_000_000 };
    let mut ended = 0;
    for batch in ids.chunks(BATCH) {
        let claim = sqlx::query_as(CLAIM)
            .bind(batch)
            .bind(vec![Uuid::nil(); batch.len()])
            .bind(Some(Uuid::nil()))
            .bind(&handlers)
            .bind(Vec::<String>::new())
            .bind(lease)
            .bind(2_i32)
            .bind(256 * 1024_i32)
            .bind("bench");
        let rows: Vec<(Uuid, i32, String)> = claim.fetch_all(&mut connection).await?;
        let claims: Vec<i32> = rows.iter().map(|row| row.1).collect();
        let ids: Vec<Uuid> = rows.into_iter().map(|row| row.0).collect();
        let shared = claims.first().copied().filter(|first| claims.iter().all(|claims| claims == first));
        let complete = sqlx::query_scalar(COMPLETE).bind(ids).bind(claims).bind(shared);
        let gone: Vec<Uuid> = complete.fetch_all(&mut connection).await?;
        ended += gone.len();
    }
    connection.close().await?;
    Ok(ended)
}

//! The statements by which a worker claims and completes, with nothing around them: what a worker
//! itself costs is the difference.
//!
//! Their text comes from `.sqlx`, which every build checks, so that nothing else is ever measured.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use serde::Deserialize;
use sqlx::postgres::types::PgInterval;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use uuid::Uuid;

use crate::meter::{Meter, Usage};
use crate::own::Own;
use crate::phases::fill;

/// As many as in one statement of a worker.
const BATCH: usize = 250;
/// As many as a worker has in flight.
const CONNECTIONS: usize = 2;

const DESCRIPTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.sqlx");
/// What only the claim has.
const CLAIM: &str = "with gate as (insert into wakeq.claim_gate select where false)";
/// The columns of it that are read.
const ID: &str = "id";
const CLAIMS: &str = "claims";
const NONCE: &str = "nonce";
/// What the completion begins with.
const COMPLETE: &str = "delete from wakeq.events_v2
              where id = any ((select $1::uuid[])::uuid[])
                and claims::bigint << 32 | nonce =";
/// As in each session of the store.
const SESSION: &str = "set enable_seqscan = off; set enable_bitmapscan = off; set enable_hashjoin = off;
    set enable_mergejoin = off; set jit = off";

#[derive(Deserialize)]
struct Description {
    query: String,
    describe: Described,
}

#[derive(Deserialize)]
struct Described {
    columns: Vec<DescribedColumn>,
}

#[derive(Deserialize)]
struct DescribedColumn {
    name: String,
}

impl Description {
    /// Whether these columns are among its own.
    fn has(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.describe.columns.iter().any(|column| column.name == *name))
    }
}

/// Drains events by these statements.
pub(crate) async fn drain(own: &Own, url: &str, meter: &Meter, count: u64) -> Result<Usage> {
    let (claim, complete) = (live(CLAIM)?, live(COMPLETE)?.query);
    ensure!(
        claim.has(&[ID, CLAIMS, NONCE]),
        "the claim returns other columns than `{ID}`, `{CLAIMS}` and `{NONCE}`"
    );
    let claim = claim.query;
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
    let workers = connections.into_iter().zip(parts);
    let ended = try_join_all(workers.map(|(connection, ids)| work(connection, ids, &claim, &complete)));
    let ended: usize = ended.await?.into_iter().sum();
    let usage = running.stop().await?;
    ensure!(ended as u64 == count, "{ended} of {count} events were completed");
    Ok(usage)
}

/// The one statement that contains this.
fn live(part: &str) -> Result<Description> {
    let mut found = Vec::new();
    for entry in fs::read_dir(DESCRIPTIONS).with_context(|| format!("{DESCRIPTIONS} can't be read"))? {
        let text = fs::read_to_string(entry?.path())?;
        let description: Description = serde_json::from_str(&text)?;
        if description.query.contains(part) {
            found.push(description);
        }
    }
    ensure!(found.len() == 1, "{} statements contain `{part}`: name the one that workers use", found.len());
    Ok(found.remove(0))
}

async fn work(mut connection: PgConnection, ids: &[Uuid], claim: &str, complete: &str) -> Result<usize> {
    let handlers = vec!["WORKER/bench/_".to_owned()];
    let lease = PgInterval { months: 0, days: 0, microseconds: 60_000_000 };
    let mut ended = 0;
    for batch in ids.chunks(BATCH) {
        let claim = sqlx::query(AssertSqlSafe(claim.to_owned()))
            .bind(batch)
            .bind(vec![Uuid::nil(); batch.len()])
            .bind(Some(Uuid::nil()))
            .bind(&handlers)
            .bind(Vec::<String>::new())
            .bind(lease)
            .bind(2_i32)
            .bind(256 * 1024_i32)
            .bind("bench");
        let mut fences = BTreeMap::<Uuid, i64>::new();
        for row in claim.fetch_all(&mut connection).await? {
            let (claims, nonce): (i32, i32) = (row.try_get(CLAIMS)?, row.try_get(NONCE)?);
            fences.insert(row.try_get(ID)?, i64::from(claims) << 32 | i64::from(nonce));
        }
        let (ids, fences): (Vec<Uuid>, Vec<i64>) = fences.into_iter().unzip();
        let complete = sqlx::query(AssertSqlSafe(complete.to_owned())).bind(ids).bind(fences);
        ended += complete.fetch_all(&mut connection).await?.len();
    }
    connection.close().await?;
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statements_of_workers_are_found() {
        live(COMPLETE).unwrap();
        assert!(live(CLAIM).unwrap().has(&[ID, CLAIMS]));
    }
}

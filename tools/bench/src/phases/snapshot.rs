//! Live traffic while an old snapshot, as of a long report, keeps the rows of many events that have
//! passed through.

use anyhow::Result;
use sqlx::{Connection, PgConnection};

use super::{Measured, PATIENCE, Sizes, Trial, fill, rate, until_ended};
use crate::latency::{Latencies, Pace};
use crate::subject::Load;

const RATE: u32 = 500;

pub(super) async fn run(trial: &Trial, sizes: &Sizes) -> Result<Measured> {
    let mut holder = PgConnection::connect(&trial.url).await?;
    sqlx::raw_sql("begin isolation level repeatable read").execute(&mut holder).await?;
    sqlx::raw_sql("select count(*) from pg_class").execute(&mut holder).await?;
    let seen = Latencies::new(0, Pace::AT_ONCE)?.seen();
    let working = trial.subject.work(Load::drain(1_000), seen).await?;
    fill(trial.subject.as_ref(), sizes.dead).await?;
    until_ended([&working], sizes.dead, PATIENCE).await?;
    working.stop().await?;
    let measured = rate::run(trial, RATE, sizes.length).await?;
    sqlx::raw_sql("rollback").execute(&mut holder).await?;
    holder.close().await?;
    Ok(measured)
}

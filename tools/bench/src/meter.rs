//! What a stretch of work costs: processor time of all processes of Postgres, statements, planning,
//! WAL, and the processor time of the client's process. It reads `/proc`, so it needs Linux.
//!
//! The client's process emits as well as it works, and it holds the benchmark's own loops: it costs
//! more than the queue in it, for every subject. Memory is measured only of a program of its own,
//! since this process keeps what earlier trials have left.
//!
//! It must never use the measured database: its own statements would count.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use sqlx::PgPool;

use crate::server::Server;

/// Of the times in `/proc/PID/stat`: the same on every architecture.
const TICK: Duration = Duration::from_millis(10);
/// The first 15 bytes of the name of the emulator's thread, which is all that Linux keeps.
const EMULATOR: &str = "Pub/Sub emulato";
const MIB: f64 = 1024.0;

const STATEMENTS: &str = "select coalesce(sum(calls), 0)::int8, coalesce(sum(total_exec_time), 0)::float8,
           coalesce(sum(total_plan_time), 0)::float8, (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::int8
      from pg_stat_statements where dbid = (select oid from pg_database where datname = $1::text)";

/// Measures one database and one client process.
pub(crate) struct Meter {
    admin: PgPool,
    postmaster: u32,
    database: String,
    client: u32,
    is_program: bool,
}

/// What a stretch of work cost.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Usage {
    pub(crate) secs: f64,
    pub(crate) statements: f64,
    pub(crate) exec_s: f64,
    pub(crate) plan_s: f64,
    pub(crate) wal_bytes: f64,
    /// Of the postmaster and all its children, the vacuum and the WAL writer included.
    pub(crate) pg_cpu_s: f64,
    /// Of the client's process, without the emulator in it.
    pub(crate) process_cpu_s: f64,
    pub(crate) emulator_cpu_s: f64,
    /// Of the client's process, if that is a program of its own.
    pub(crate) process_peak_mib: Option<f64>,
}

/// A started measurement.
pub(crate) struct Running<'a> {
    meter: &'a Meter,
    before: Readings,
}

/// All meters at one moment.
struct Readings {
    at: Instant,
    statements: (i64, f64, f64, i64),
    pg_cpu: Duration,
    client_cpu: Duration,
    emulator_cpu: Duration,
}

impl Meter {
    /// Of a database, with this process as the client.
    pub(crate) fn new(server: &Server, database: &str) -> Self {
        let (admin, postmaster) = (server.admin().clone(), server.postmaster());
        let client = std::process::id();
        Self { admin, postmaster, database: database.to_owned(), client, is_program: false }
    }

    /// Of a database, with another process as the client.
    pub(crate) fn of_program(server: &Server, database: &str, client: u32) -> Self {
        Self { client, is_program: true, ..Self::new(server, database) }
    }

    pub(crate) async fn start(&self) -> Result<Running<'_>> {
        sqlx::query("select pg_stat_statements_reset()").execute(&self.admin).await?;
        // Resets the peak of the memory; where that is not allowed, it is the peak since the start.
        let _ = fs::write(format!("/proc/{}/clear_refs", self.client), "5");
        Ok(Running { meter: self, before: self.read().await? })
    }

    async fn read(&self) -> Result<Readings> {
        let statements = sqlx::query_as(STATEMENTS).bind(&self.database).fetch_one(&self.admin).await?;
        let emulator_cpu = emulator_cpu(self.client);
        Ok(Readings {
            at: Instant::now(),
            statements,
            pg_cpu: postgres_cpu(self.postmaster)?,
            client_cpu: Stat::read(self.client)?.own.saturating_sub(emulator_cpu),
            emulator_cpu,
        })
    }
}

impl Running<'_> {
    pub(crate) async fn stop(self) -> Result<Usage> {
        let (before, after) = (self.before, self.meter.read().await?);
        let ((calls, exec, plan, wal), (calls_0, exec_0, plan_0, wal_0)) =
            (after.statements, before.statements);
        let took = |after: Duration, before: Duration| after.saturating_sub(before).as_secs_f64();
        Ok(Usage {
            secs: (after.at - before.at).as_secs_f64(),
            statements: (calls - calls_0) as f64,
            exec_s: (exec - exec_0) / 1000.0,
            plan_s: (plan - plan_0) / 1000.0,
            wal_bytes: (wal - wal_0) as f64,
            pg_cpu_s: took(after.pg_cpu, before.pg_cpu),
            process_cpu_s: took(after.client_cpu, before.client_cpu),
            emulator_cpu_s: took(after.emulator_cpu, before.emulator_cpu),
            process_peak_mib: self.meter.is_program.then(|| peak_kib(self.meter.client) / MIB),
        })
    }
}

/// The part of `/proc/PID/stat` that is needed.
struct Stat {
    parent: u32,
    own: Duration,
    /// Of its children that have ended.
    reaped: Duration,
}

impl Stat {
    fn read(process: u32) -> Result<Self> {
        let path = format!("/proc/{process}/stat");
        let text = fs::read_to_string(&path).with_context(|| format!("{path} can't be read"))?;
        Self::parse(&text).with_context(|| format!("{path} is not as expected: {text}"))
    }

    /// The name of the program, in parentheses, may contain anything.
    fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u32>().ok().map(|ticks| ticks * TICK);
        let parent = fields.get(1)?.parse().ok()?;
        Some(Self { parent, own: ticks(11)? + ticks(12)?, reaped: ticks(13)? + ticks(14)? })
    }
}

/// Of the postmaster, its children, and those that have ended.
fn postgres_cpu(postmaster: u32) -> Result<Duration> {
    let of_postmaster = Stat::read(postmaster)?;
    let mut total = of_postmaster.own + of_postmaster.reaped;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(process) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = Stat::read(process) else { continue }; // it has ended
        if stat.parent == postmaster {
            total += run_time(&format!("/proc/{process}")).unwrap_or(stat.own);
        }
    }
    Ok(total)
}

/// The exact time of a thread, or of a process that has one thread.
fn run_time(folder: &str) -> Option<Duration> {
    let text = fs::read_to_string(format!("{folder}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

fn emulator_cpu(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let folders = threads.filter_map(|thread| thread.path().to_str().map(str::to_owned));
    let of_emulator = folders.filter(|folder| {
        fs::read_to_string(format!("{folder}/comm")).is_ok_and(|name| name.trim_end() == EMULATOR)
    });
    of_emulator.filter_map(|folder| run_time(&folder)).sum()
}

fn peak_kib(process: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_is_skipped() {
        let text = "12 (postgres: a) b)) S 7 12 12 0 -1 4194560 10 20 0 0 150 50 3 4 20 0 1 0 99";
        let stat = Stat::parse(text).unwrap();
        assert_eq!((stat.parent, stat.own), (7, Duration::from_secs(2)));
        assert_eq!(stat.reaped, Duration::from_millis(70));
        assert!(Stat::parse("12 (postgres) S 7").is_none());
    }
}

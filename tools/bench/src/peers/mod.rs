//! Other queues, in the same run and on the same Postgres, with the best settings that each
//! documents. Programs of their own, except for pgmq, which is SQL.
//!
//! They are part neither of the gate nor of an ordinary build: `cargo xtask bench --peers` builds
//! them.

mod child;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use sqlx::{Connection, PgConnection};

use crate::baseline::{Polled, Statements};
use crate::meter::{Meter, Usage};
use crate::phases::{CALL, Measured, Phase, Sizes, WARMING};
use crate::report::{ReportRow, Unit};
use crate::server::Server;
use child::{Child, Reply};

/// The peers of each program, as they call themselves, with their versions.
const RUST: [&str; 3] = ["graphile_worker-0.14", "apalis-1.0", "riverqueue-0.5"];
const NODE: [&str; 2] = ["graphile-worker-0.18", "pg-boss-12.38"];
/// The version is that of its Python client, which contains the SQL.
const PGMQ: &str = "pgmq-py-1.1.4";
/// The phases that all of them have.
const PHASES: [Phase; 6] =
    [Phase::EmitSingle, Phase::EmitBulk, Phase::Drain(1_000), Phase::Rate(500), Phase::Idle, Phase::Snapshot];
/// What a worker does at its start is not measured.
const SETTLING: Duration = Duration::from_secs(5);

const STATEMENTS: Statements = Statements {
    send: "select pgmq.send($1, $2::jsonb)",
    send_all: "select pgmq.send_batch($1, ($2::text[])::jsonb[])",
    read: "select msg_id, message::text from pgmq.read($1, 300, $2)",
    delete: "select pgmq.delete($1, $2)",
    fill: None,
};

// Not a doc comment: clap would take it for what the command does.
#[derive(clap::Args)]
pub(crate) struct Peers {
    /// The program of the peers in Rust.
    #[arg(long, value_name = "FILE")]
    peers_rust: Option<PathBuf>,
    /// The folder of the peers in JavaScript, with its installed packages.
    #[arg(long, value_name = "FOLDER")]
    peers_node: Option<PathBuf>,
    /// The SQL of pgmq.
    #[arg(long, value_name = "FILE")]
    pgmq: Option<PathBuf>,
}

impl Peers {
    /// One round of a phase, for each peer.
    pub(crate) async fn trials(
        &self,
        server: &Server,
        phase: Phase,
        sizes: &Sizes,
        round: u32,
    ) -> Result<Vec<ReportRow>> {
        let mut rows = Vec::new();
        if !PHASES.contains(&phase) {
            return Ok(rows);
        }
        if let Some(file) = &self.pgmq {
            let database = server.database().await?;
            let measured = pgmq(server, &database, phase, sizes, file).await?;
            rows.push(ReportRow::new(phase, PGMQ, round, measured));
            server.drop_database(&database).await?;
        }
        for (program, peer) in self.programs() {
            let database = server.database().await?;
            let measured = program_trial(server, &database, phase, sizes, (program.as_slice(), peer)).await;
            let measured = measured.with_context(|| format!("{} of {peer}", phase.name()))?;
            rows.push(ReportRow::new(phase, peer, round, measured));
            server.drop_database(&database).await?;
        }
        Ok(rows)
    }

    /// The command of each peer.
    fn programs(&self) -> Vec<(Vec<PathBuf>, &'static str)> {
        let rust = self.peers_rust.iter().flat_map(|program| RUST.map(|peer| (vec![program.clone()], peer)));
        let node = self.peers_node.iter().flat_map(|folder| {
            let command = vec![folder.join("node_modules/node/bin/node"), folder.join("main.mjs")];
            NODE.map(|peer| (command.clone(), peer))
        });
        rust.chain(node).collect()
    }
}

async fn pgmq(server: &Server, database: &str, phase: Phase, sizes: &Sizes, file: &Path) -> Result<Measured> {
    let sql = std::fs::read_to_string(file).with_context(|| format!("{} can't be read", file.display()))?;
    let polled = Polled::new(&server.url(database), STATEMENTS).await?;
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(polled.pool()).await?;
    sqlx::query("select pgmq.create($1)").bind(crate::subject::LIVE).execute(polled.pool()).await?;
    phase.of(Arc::new(polled), server, database, sizes).await
}

async fn program_trial(
    server: &Server,
    database: &str,
    phase: Phase,
    sizes: &Sizes,
    (command, peer): (&[PathBuf], &str),
) -> Result<Measured> {
    let url = server.url(database);
    let mut child = Child::start(command, peer, &url)?;
    let meter = Meter::of_program(server, database, child.id());
    let secs = sizes.length.as_secs();
    let rate = format!("rate 500 {secs}");
    let (count, (usage, reply)) = match phase {
        Phase::EmitSingle => {
            child.ask(&format!("single {WARMING}"))?;
            (sizes.singles, measure(&meter, &mut child, &format!("single {}", sizes.singles)).await?)
        }
        Phase::EmitBulk => {
            child.ask(&format!("bulk {CALL}"))?;
            (sizes.events, measure(&meter, &mut child, &format!("bulk {}", sizes.events)).await?)
        }
        Phase::Drain(_) => {
            child.ask(&format!("bulk {}", sizes.events))?;
            (sizes.events, measure(&meter, &mut child, &format!("drain {}", sizes.events)).await?)
        }
        Phase::Idle => return idle(&meter, &mut child, sizes).await,
        Phase::Snapshot => {
            let mut holder = PgConnection::connect(&url).await?;
            sqlx::raw_sql("begin isolation level repeatable read").execute(&mut holder).await?;
            sqlx::raw_sql("select count(*) from pg_class").execute(&mut holder).await?;
            child.ask(&format!("bulk {}", sizes.dead))?;
            child.ask(&format!("drain {}", sizes.dead))?;
            child.ask("start")?;
            let measured = measure(&meter, &mut child, &rate).await?;
            holder.close().await?;
            (500 * secs, measured)
        }
        Phase::EmitHttp
        | Phase::Rate(_)
        | Phase::Paused
        | Phase::Noisy
        | Phase::Unpause
        | Phase::Grow(..) => {
            child.ask("start")?;
            (500 * secs, measure(&meter, &mut child, &rate).await?)
        }
    };
    Ok(Measured { count: count as f64, unit: Unit::Event, usage, latency: reply.latency })
}

async fn measure(meter: &Meter, child: &mut Child, request: &str) -> Result<(Usage, Reply)> {
    let running = meter.start().await?;
    let reply = child.ask(request)?;
    let usage = running.stop().await?;
    Ok((Usage { secs: reply.secs, ..usage }, reply))
}

async fn idle(meter: &Meter, child: &mut Child, sizes: &Sizes) -> Result<Measured> {
    child.ask("start")?;
    tokio::time::sleep(SETTLING).await;
    let running = meter.start().await?;
    // They ask every few seconds, so that less time shows as much.
    tokio::time::sleep(sizes.idle / 4).await;
    let usage = running.stop().await?;
    Ok(Measured { count: usage.secs / 60.0, unit: Unit::Minute, usage, latency: None })
}

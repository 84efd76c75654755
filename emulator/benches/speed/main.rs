//! Our emulator beside Google's, under the same workload with the official Rust client:
//! `cargo bench --bench speed`.
//!
//! Every figure is the median of interleaved rounds within one run. The program checks the claims
//! of the README, and fails if one of them does not hold. Each emulator is a process of its own.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints, and ends at the first error"
)]

mod client;
mod emulators;

use std::process::ExitCode;

use client::Client;
use emulators::{Emulators, resident_kb};

const ROUNDS: usize = 5;
/// Messages per round; for each emulator, about a second's worth.
const ONE_STREAM: [usize; 2] = [100_000, 3_000];
const EIGHT_STREAMS: [usize; 2] = [100_000, 16_000];
/// At 300 per second.
const TIMED: usize = 1_500;
const PARKED: usize = 100_000;

const CLAIM_ONE: f64 = 40.0;
const CLAIM_EIGHT: f64 = 5.0;
const CLAIM_P99: f64 = 0.2;
const CLAIM_PARKED_MB: f64 = 100.0;

const SIDES: [&str; 2] = ["ours", "Google's"];

/// A figure for ours and for Google's, in this order.
type Pair = [f64; 2];

#[tokio::main]
async fn main() -> ExitCode {
    // `cargo test --benches` only checks that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return ExitCode::SUCCESS;
    }
    let emulators = Emulators::start().await;
    println!(
        "Google's emulator {}; ours in release; {ROUNDS} rounds that take turns\n",
        emulators.google.version()
    );
    let clients = clients(&emulators).await;
    let (mut one, mut eight, mut p99): (Vec<Pair>, Vec<Pair>, Vec<Pair>) = (vec![], vec![], vec![]);
    for round in 1..=ROUNDS {
        let mut figures = [[0.0; 2]; 3];
        for (side, client) in clients.iter().enumerate() {
            figures[0][side] = client.throughput(1, ONE_STREAM[side]).await;
            figures[1][side] = client.throughput(8, EIGHT_STREAMS[side]).await;
            figures[2][side] = client.p99_ms(TIMED).await;
        }
        println!(
            "round {round} [ours, Google's]: one stream {:.0?}/s, eight {:.0?}/s, p99 {:.2?} ms",
            figures[0], figures[1], figures[2]
        );
        one.push(figures[0]);
        eight.push(figures[1]);
        p99.push(figures[2]);
    }
    // A process keeps the memory that the rounds freed, and would reuse it for the parked messages.
    drop(emulators);
    let parked = parked_mb(&Emulators::start().await).await;
    report(median(&one), median(&eight), median(&p99), parked)
}

async fn clients(emulators: &Emulators) -> [Client; 2] {
    [Client::connect(emulators.ours()).await, Client::connect(emulators.google()).await]
}

/// The resident memory, in MB, that this many untaken messages add to a fresh process.
async fn parked_mb(emulators: &Emulators) -> Pair {
    let mut resident = [0.0; 2];
    for (side, client) in clients(emulators).await.iter().enumerate() {
        let pid = emulators.pids()[side];
        let before = resident_kb(pid) / 1_024.0;
        client.park(PARKED).await;
        resident[side] = resident_kb(pid) / 1_024.0;
        println!("{}: {before:.1} MB, with {PARKED} parked messages {:.1} MB", SIDES[side], resident[side]);
    }
    resident
}

fn median(rounds: &[Pair]) -> Pair {
    [0, 1].map(|side| {
        let mut values: Vec<_> = rounds.iter().map(|round| round[side]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    })
}

fn report(one: Pair, eight: Pair, p99: Pair, parked: Pair) -> ExitCode {
    let claims = [
        ("one stream, messages/s", one, one[0] / one[1], one[0] / one[1] >= CLAIM_ONE, "at least 40 times"),
        (
            "eight streams, messages/s",
            eight,
            eight[0] / eight[1],
            eight[0] / eight[1] >= CLAIM_EIGHT,
            "at least 5 times",
        ),
        ("p99 at 300/s, ms", p99, p99[0] / p99[1], p99[0] / p99[1] < CLAIM_P99, "below a fifth"),
        (
            "resident with 100,000 parked messages, MB",
            parked,
            parked[0] / parked[1],
            parked[0] < CLAIM_PARKED_MB,
            "ours below 100 MB",
        ),
    ];
    println!("\n| median | ours | Google's | ratio | claim | holds |\n|---|---|---|---|---|---|");
    for (what, [ours, google], ratio, holds, claim) in &claims {
        let digits = if *ours < 1_000.0 { 2 } else { 0 };
        println!("| {what} | {ours:.digits$} | {google:.digits$} | {ratio:.3} | {claim} | {holds} |");
    }
    if claims.iter().all(|(.., holds, _)| *holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

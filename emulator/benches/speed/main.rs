//! Our emulator beside Google's, under the same workload with the official Rust client:
//! `cargo bench --bench speed`. With `DELTIO=path`, that program runs beside them.
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
use emulators::{Emulators, Side, resident_kb};

const ROUNDS: usize = 5;
/// Messages per round; for each emulator, about a second's worth.
const ONE_STREAM: [usize; 3] = [100_000, 3_000, 100_000];
const EIGHT_STREAMS: [usize; 3] = [100_000, 16_000, 100_000];
/// At 300 per second.
const TIMED: usize = 1_500;
const PARKED: usize = 100_000;

const CLAIM_ONE: f64 = 40.0;
const CLAIM_EIGHT: f64 = 5.0;
const CLAIM_P99: f64 = 0.2;
const CLAIM_PARKED_MB: f64 = 100.0;

/// A figure for each side: ours, Google's, and deltio if it runs.
type Figures = Vec<f64>;

#[tokio::main]
async fn main() -> ExitCode {
    // `cargo test --benches` only checks that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return ExitCode::SUCCESS;
    }
    let emulators = Emulators::start().await;
    let sides = emulators.sides();
    let names = sides.iter().map(|side| side.name).collect::<Vec<_>>().join(", ");
    println!(
        "Google's emulator {}; ours in release; {ROUNDS} rounds that take turns\n",
        emulators.google.version()
    );
    let clients = clients(&sides).await;
    let (mut one, mut eight, mut p99) = (vec![], vec![], vec![]);
    for round in 1..=ROUNDS {
        let mut figures = [Figures::new(), Figures::new(), Figures::new()];
        for (side, client) in clients.iter().enumerate() {
            figures[0].push(client.throughput(1, ONE_STREAM[side]).await);
            figures[1].push(client.throughput(8, EIGHT_STREAMS[side]).await);
            figures[2].push(client.p99_ms(TIMED).await);
        }
        println!(
            "round {round} [{names}]: one stream {:.0?}/s, eight {:.0?}/s, p99 {:.2?} ms",
            figures[0], figures[1], figures[2]
        );
        let [of_one, of_eight, of_p99] = figures;
        one.push(of_one);
        eight.push(of_eight);
        p99.push(of_p99);
    }
    // A process keeps the memory that the rounds freed, and would reuse it for the parked messages.
    drop((clients, emulators));
    let parked = parked_mb(&Emulators::start().await).await;
    report(&names, [median(&one), median(&eight), median(&p99), parked])
}

async fn clients(sides: &[Side]) -> Vec<Client> {
    let mut clients = Vec::new();
    for side in sides {
        clients.push(Client::connect(&side.host).await);
    }
    clients
}

/// The resident memory, in MB, of fresh processes with this many untaken messages.
async fn parked_mb(emulators: &Emulators) -> Figures {
    let sides = emulators.sides();
    let mut resident = Figures::new();
    for (side, client) in sides.iter().zip(clients(&sides).await) {
        let before = resident_kb(side.pid) / 1_024.0;
        client.park(PARKED).await;
        let after = resident_kb(side.pid) / 1_024.0;
        println!("{}: {before:.1} MB, with {PARKED} parked messages {after:.1} MB", side.name);
        resident.push(after);
    }
    resident
}

fn median(rounds: &[Figures]) -> Figures {
    let of_side = |side: usize| {
        let mut values: Vec<_> = rounds.iter().map(|round| round[side]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    (0..rounds[0].len()).map(of_side).collect()
}

/// The claims are about ours and Google's.
fn report(names: &str, [one, eight, p99, parked]: [Figures; 4]) -> ExitCode {
    let ratio = |figures: &Figures| figures[0] / figures[1];
    let claims = [
        ("one stream, messages/s", ratio(&one) >= CLAIM_ONE, "at least 40 times Google's", one),
        ("eight streams, messages/s", ratio(&eight) >= CLAIM_EIGHT, "at least 5 times Google's", eight),
        ("p99 at 300/s, ms", ratio(&p99) < CLAIM_P99, "below a fifth of Google's", p99),
        (
            "resident with 100,000 parked messages, MB",
            parked[0] < CLAIM_PARKED_MB,
            "ours below 100 MB",
            parked,
        ),
    ];
    println!("\n| median | {} | claim | holds |", names.replace(", ", " | "));
    println!("|---|{}---|---|", "---|".repeat(claims[0].3.len()));
    for (what, holds, claim, figures) in &claims {
        let digits = if figures[0] < 1_000.0 { 2 } else { 0 };
        let figures: Vec<_> = figures.iter().map(|figure| format!("{figure:.digits$}")).collect();
        println!("| {what} | {} | {claim} | {holds} |", figures.join(" | "));
    }
    if claims.iter().all(|(_, holds, ..)| *holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

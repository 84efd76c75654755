//! The behaviour of Pub/Sub according to its documentation: each case runs on our emulator and on
//! Google's.
//!
//! `server` is the exception: it covers ours alone, and how it is reached, waits and ends.
//!
//! Where one of them deviates from the service's documentation, `differences.rs` lists it with the
//! reason. A listed case has to fail: once a difference is gone, the suite fails until it is
//! removed from the list.

#![allow(clippy::unwrap_used, clippy::result_large_err, reason = "tests")]

#[macro_use]
mod sides;
mod differences;
mod stage;
mod streams;

mod dead_letters;
mod exactly_once;
mod filters;
mod ordering;
mod policies;
mod publishing;
mod pulling;
mod push;
mod rest;
mod retries;
mod seeking;
mod sequences;
mod server;
mod snapshots;
mod streaming;
mod subscriptions;
mod topics;
mod updates;

// Features of ours alone.
mod admin;
mod endpoints;
mod inbox;
mod limited;
mod messages;
mod packages;
mod schemas;
mod unsupported;

/// The names of all cases.
fn cases() -> impl Iterator<Item = &'static str> {
    [
        dead_letters::CASES,
        exactly_once::CASES,
        filters::CASES,
        ordering::CASES,
        policies::CASES,
        publishing::CASES,
        pulling::CASES,
        push::CASES,
        rest::CASES,
        retries::CASES,
        seeking::CASES,
        snapshots::CASES,
        streaming::CASES,
        subscriptions::CASES,
        topics::CASES,
        updates::CASES,
    ]
    .into_iter()
    .flatten()
    .copied()
}

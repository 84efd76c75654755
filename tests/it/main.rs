//! The only integration test binary.
#![allow(clippy::print_stdout, reason = "figures, shown by `cargo test -- --nocapture`")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod access;
mod access_tokens;
mod admin_lists;
mod audit;
mod basics;
mod brokers;
mod children;
mod cli;
<<<<<<< HEAD
mod container;
=======
mod cli_access;
>>>>>>> main
mod control;
mod crashes;
mod doctor;
mod documents;
mod door;
mod emit;
mod emitting;
mod google_keys;
mod hostile;
mod http;
mod http_emit;
mod http_idempotency;
mod http_sdk;
mod idempotency;
mod idle;
mod leases;
mod lifting;
mod many;
mod notify;
mod notify_google;
mod notify_memory;
mod operating;
mod operations;
mod packages;
mod processes;
mod scenarios;
mod schema;
mod service;
mod simulation;
mod states;
mod support;
mod theatre;
mod tidy;
mod timing;
mod together;
mod worker;
mod worker_failures;
mod worker_lot;
mod worker_shutdown;
mod world;

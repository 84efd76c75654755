//! Workers: what they take, run and leave to others, and how they stop.

mod basics;
mod batches;
mod cancelling;
mod checkpoints;
mod failures;
mod fair_intake;
mod history;
mod layers;
mod missing_handlers;
mod options;
mod parking_lot;
mod presence;
mod reasons_to_wait;
mod route_limits;
mod runs;
mod shutdown;
mod transactions;
mod typed;
mod under_load;
mod urgent;
mod urgent_load;

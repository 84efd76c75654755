//! Workers: what they take, run and leave to others, and how they stop.

mod basics;
mod failures;
mod fair_intake;
mod missing_handlers;
mod parking_lot;
mod presence;
mod reasons_to_wait;
mod runs;
mod shutdown;
mod under_load;

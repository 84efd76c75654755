//! Statistics by minute and hour: what each process has counted is added to the minute, minutes
//! become hours, hours are deleted, and both are read for charts. What is counted before it is
//! written is in `kernel/counting.rs`.

mod closing;
mod count;
mod read;
mod upkeep;
mod write;

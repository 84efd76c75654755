//! What operators see and do: lists and counts, rules, single events, dead events, the doctor.

mod by_filter;
mod by_ids;
mod cockroach;
pub(crate) mod doctor;
mod due;
mod lifting_rules;
mod lists;
mod operations;
mod rules;
mod running_events;
mod states;
mod statistics;
mod switches;

//! Tests of the decisions.

mod allocating;
mod allocations;
mod entities;
mod owner;
mod positions;

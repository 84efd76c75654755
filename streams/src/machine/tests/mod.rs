//! Tests of the decisions.

mod allocation;
mod entities;
mod owner;
mod positions;

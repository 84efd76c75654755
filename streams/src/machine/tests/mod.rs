//! Tests of the decisions.

mod allocation;
mod entities;

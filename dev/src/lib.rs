//! A Postgres for development and tests: found or brought, and gone with the process.
//!
//! It must never need anything of `wakeq`: whoever wants tables hands in the function that makes them.

mod cluster;
mod database;
mod installed;
mod keeper;
mod postgres;

pub use cluster::{Cluster, ClusterOptions, Folder};
pub use database::{DatabaseError, TestDatabase};
pub use postgres::{Postgres, PostgresError};

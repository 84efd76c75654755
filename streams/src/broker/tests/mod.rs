//! Tests of brokers: the contract of every store of groups, and clusters in one process on a
//! virtual clock.

mod cluster;
mod contract;
mod ends;
mod fakes;
mod refused;
mod single;

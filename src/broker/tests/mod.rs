//! Tests of brokers: what every store of groups has to do, and clusters in one process on a virtual clock.

mod cluster;
mod contract;
mod ends;
mod fakes;
mod refused;
mod single;

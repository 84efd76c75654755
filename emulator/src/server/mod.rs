//! The server: one port for gRPC, REST and the page, and everything that waits, sleeps or
//! communicates on the broker's behalf.
//!
//! It decides nothing about messages: the broker answers every request.

mod admin;
mod calls;
mod core;
mod grpc;
mod listen;
mod origin;
mod port;
mod push;
mod rest;
mod waiting;

pub(crate) use core::Core;
pub(crate) use listen::Server;
pub(crate) use push::Tokens;

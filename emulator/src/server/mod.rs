//! The server: one port for gRPC, REST and the page, and everything that waits, sleeps or
//! communicates on the broker's behalf.
//!
//! It decides nothing about messages: the broker answers every request.

mod admin;
mod calls;
mod core;
mod cors;
mod data;
mod followed;
mod grpc;
mod head_start;
mod listen;
mod log;
mod origin;
mod port;
mod push;
mod rest;
mod stderr;
mod waiting;

pub(crate) use core::Core;
pub(crate) use data::{DataFile, Journal};
pub(crate) use listen::{Server, ServerOptions};
pub(crate) use push::Tokens;
pub(crate) use stderr::written;

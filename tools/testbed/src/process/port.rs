//! Chooses ports for servers on the loopback interface.
//!
//! It must never choose from the ephemeral range, from which outgoing connections take their ports:
//! a server that is killed and started again could find its port taken, even by a client that only
//! tried to reach it.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Linux takes outgoing ports from 32768 up, macOS from 49152 up.
const FIRST_PORT: u16 = 15_000;
const PORTS: u16 = 16_000;
const ATTEMPTS: u32 = 100;

/// A port on 127.0.0.1 on which nothing listens now.
///
/// Another process can still take it before it is bound, so the caller should retry with another
/// port.
///
/// ```
/// let port = wakeq_testbed::free_port()?;
/// std::net::TcpListener::bind(("127.0.0.1", port))?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn free_port() -> io::Result<u16> {
    let mut last_error = None;
    for attempt in 0..ATTEMPTS {
        let port = FIRST_PORT + (RandomState::new().hash_one(attempt) % u64::from(PORTS)) as u16;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last_error = Some(error),
        }
    }
    Err(last_error.unwrap_or_else(|| io::Error::from(io::ErrorKind::AddrInUse)))
}

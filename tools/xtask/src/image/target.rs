//! An HTTP target for one event, on a plain socket: the fakes of HTTP peers are for tests, and this
//! is a program.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// In bytes; more than any request of the trial.
const REQUEST_MAX: u64 = 64 * 1024;

/// Accepts one request and answers that the event was handled.
pub(super) struct Target {
    pub(super) address: SocketAddr,
    requests: Receiver<Result<ReceivedRequest>>,
}

/// A received request.
pub(super) struct ReceivedRequest {
    /// The `webhook-id` header: the event's id.
    pub(super) id: String,
    pub(super) body: String,
}

impl Target {
    pub(super) fn listen() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (sender, requests) = mpsc::channel();
        thread::spawn(move || {
            let request =
                listener.accept().map_err(Into::into).and_then(|(connection, _)| receive(&connection));
            // The trial may be over.
            let _ = sender.send(request);
        });
        Ok(Self { address, requests })
    }

    pub(super) fn request_within(&self, timeout: Duration) -> Result<ReceivedRequest> {
        self.requests.recv_timeout(timeout).with_context(|| format!("no request came within {timeout:?}"))?
    }
}

fn receive(mut connection: &TcpStream) -> Result<ReceivedRequest> {
    let mut reader = BufReader::new(connection.take(REQUEST_MAX));
    let (mut id, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("webhook-id") => id = value.to_owned(),
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse()?,
            Some(_) => {}
            None if line.trim_end().is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    connection.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")?;
    Ok(ReceivedRequest { id, body: String::from_utf8(body)? })
}

//! `wakeq health`: the health check for containers without a shell. Connects to the server in the
//! same container, and must never connect anywhere else.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

/// Timeout for connecting, and for each step of the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many bytes of an answer are read: the first line is enough.
const ANSWER_MAX: u64 = 1024;

#[derive(Args)]
pub(crate) struct Health {
    /// The port that the process serves
    #[arg(long, env = "PORT", default_value_t = 8080)]
    port: u16,
}

impl Health {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let answer = ask(address).with_context(|| format!("http://{address}/livez does not answer"))?;
        anyhow::ensure!(is_well(&answer), "http://{address}/livez answers {:?}", first_line(&answer));
        Ok(())
    }
}

fn ask(address: SocketAddr) -> std::io::Result<String> {
    let mut connection = TcpStream::connect_timeout(&address, PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    write!(connection, "GET /livez HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    match connection.take(ANSWER_MAX).read_to_end(&mut answer) {
        // A server may close the connection as soon as it has answered.
        Err(error) if error.kind() == ErrorKind::ConnectionReset && !answer.is_empty() => {}
        read => {
            read?;
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn is_well(answer: &str) -> bool {
    first_line(answer).split(' ').nth(1).is_some_and(|status| status.len() == 3 && status.starts_with('2'))
}

fn first_line(answer: &str) -> &str {
    answer.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_2xx_status_is_healthy() {
        assert!(is_well("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"));
        assert!(is_well("HTTP/1.1 204 No Content\r\n\r\n"));
        for answer in ["", "HTTP/1.1 503 Service Unavailable\r\n\r\n200", "HTTP/1.1", "\r\n200"] {
            assert!(!is_well(answer), "{answer:?}");
        }
    }
}

//! `pubsub-emulator health`: the health check for containers without a shell. Connects to where the
//! emulator was told to listen, mostly in the same container, and must never connect anywhere else.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::resolve;

/// How long the answer of one address may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many bytes of an answer are read at most.
const ANSWER_MAX: u64 = 4_096;
const WELL: &str = "HTTP/1.1 200 ";
/// What only an emulator of this kind says at its root.
const OURS: &str = " messages not acknowledged.";

#[derive(Args, Debug)]
pub(crate) struct Health {
    /// Address or name that the emulator listens on; without one, or with 0.0.0.0 or ::, those of
    /// the loopback interface are tried
    #[arg(long, env = "PUBSUB_EMULATOR_LISTEN_HOST")]
    host: Option<String>,

    /// The port that the emulator listens on
    #[arg(long, default_value_t = 8085, env = "PUBSUB_EMULATOR_PORT")]
    port: u16,
}

impl Health {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        if let Some(host) = &self.host {
            let address = resolve(host, self.port).await?;
            if !address.ip().is_unspecified() {
                return check(address).await;
            }
        }
        let at = |ip: IpAddr| check(SocketAddr::new(ip, self.port));
        let Err(error) = at(Ipv4Addr::LOCALHOST.into()).await else { return Ok(()) };
        // If none answers, what is wrong with the usual one says more.
        at(Ipv6Addr::LOCALHOST.into()).await.map_err(|_| error)
    }
}

async fn check(address: SocketAddr) -> anyhow::Result<()> {
    let answer = match tokio::time::timeout(PATIENCE, ask(address)).await {
        Ok(answer) => answer,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    let answer = answer.with_context(|| format!("http://{address}/ does not answer"))?;
    let line = answer.lines().next().unwrap_or_default();
    anyhow::ensure!(line.starts_with(WELL), "http://{address}/ answers {line:?}");
    anyhow::ensure!(answer.contains(OURS), "http://{address}/ is something else than this emulator");
    Ok(())
}

/// The beginning of the answer.
async fn ask(address: SocketAddr) -> io::Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    let request = format!("GET / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    connection.take(ANSWER_MAX).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

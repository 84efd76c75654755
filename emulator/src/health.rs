//! `pubsub-emulator health`: the health check for containers without a shell. Connects to the
//! emulator in the same container, and must never connect anywhere else.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many bytes of an answer are read at most: the first line is enough.
const ANSWER_MAX: u64 = 1_024;
const WELL: &str = "HTTP/1.1 200 ";

#[derive(Args, Debug)]
pub(crate) struct Health {
    /// The port that the emulator listens on
    #[arg(long, default_value_t = 8085, env = "PUBSUB_EMULATOR_PORT")]
    port: u16,
}

impl Health {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let answer = match tokio::time::timeout(PATIENCE, ask(address)).await {
            Ok(answer) => answer,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        let line = answer.with_context(|| format!("http://{address}/ does not answer"))?;
        anyhow::ensure!(line.starts_with(WELL), "http://{address}/ answers {line:?}");
        Ok(())
    }
}

/// The first line of the answer.
async fn ask(address: SocketAddr) -> io::Result<String> {
    let mut connection = BufReader::new(TcpStream::connect(address).await?);
    let request = format!("GET / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut line = String::new();
    connection.take(ANSWER_MAX).read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}

//! A proxy before Postgres that changes one statement on its way: what the queue would be if it had been written so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::mutants::Mutant;

/// The code of the message that begins a session; what comes before it are questions about encryption.
const STARTUP: u32 = 196_608;

pub(super) struct Proxy {
    pub(super) url: String,
    met: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Before the server of this address.
    pub(super) async fn start(url: &str, mutant: &Mutant) -> Self {
        let options: PgConnectOptions = url.parse().unwrap();
        let server = (options.get_host().to_owned(), options.get_port());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (old, new) = (format!(":{}/", server.1), format!(":{}/", listener.local_addr().unwrap().port()));
        assert_eq!(url.matches(&old).count(), 1, "{url}");
        let (url, met) = (url.replace(&old, &new), Arc::new(AtomicBool::new(false)));
        let (change, seen) = (mutant.statement.clone(), Arc::clone(&met));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect((server.0.as_str(), server.1)).await.unwrap();
                let (change, seen) = (change.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    let _ = carry(client, server, change, &seen).await;
                });
            }
        });
        Self { url, met, task }
    }

    /// Whether the statement has come by.
    pub(super) fn has_met(&self) -> bool {
        self.met.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(
    client: TcpStream,
    server: TcpStream,
    change: Option<(String, String)>,
    met: &AtomicBool,
) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let back = tokio::spawn(async move { copy(&mut from_server, &mut to_client).await });
    loop {
        let length = from_client.read_u32().await?;
        let code = from_client.read_u32().await?;
        let mut rest = vec![0; length as usize - 8];
        from_client.read_exact(&mut rest).await?;
        to_server.write_u32(length).await?;
        to_server.write_u32(code).await?;
        to_server.write_all(&rest).await?;
        if code == STARTUP {
            break;
        }
    }
    let forth = async {
        loop {
            let kind = from_client.read_u8().await?;
            let length = from_client.read_u32().await?;
            let mut body = vec![0; length as usize - 4];
            from_client.read_exact(&mut body).await?;
            if let (b'P', Some((old, new))) = (kind, &change)
                && let Some(changed) = changed(&body, old, new)
            {
                met.store(true, Ordering::SeqCst);
                body = changed;
            }
            let mut message = vec![kind];
            message.extend((body.len() as u32 + 4).to_be_bytes());
            message.extend(body);
            to_server.write_all(&message).await?;
        }
    };
    let ended: std::io::Result<()> = forth.await;
    back.abort();
    ended
}

/// The body of a message that prepares this statement, with the other one instead; none if it prepares something else.
fn changed(body: &[u8], old: &str, new: &str) -> Option<Vec<u8>> {
    let name = body.iter().position(|byte| *byte == 0)?;
    let text = &body[name + 1..];
    let end = text.iter().position(|byte| *byte == 0)?;
    (&text[..end] == old.as_bytes()).then(|| [&body[..=name], new.as_bytes(), &text[end..]].concat())
}

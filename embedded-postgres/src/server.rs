//! The listener: gives every connection a task, a number and a secret, and forwards cancellations
//! between them.
//!
//! It must never listen on anything but the loopback interface, nor serve more clients than its
//! limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::{self, ClientContext, ClientError};
use crate::databases::Databases;
use crate::frame::Inbox;
use crate::startup::{self, Key, StartupPacket};

const MOST_CLIENTS: usize = 500;
/// How long a client may take to send its startup packet.
const OPENS_WITHIN: Duration = Duration::from_secs(10);
/// The delay after a failure to accept a connection.
const BETWEEN_FAILURES: Duration = Duration::from_millis(50);
/// How long clients have to end once they have been told to.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Shared by all clients.
#[derive(Debug)]
pub(crate) struct Server {
    databases: Arc<Databases>,
    longest_wait: Duration,
    cancellations: Mutex<HashMap<u32, (u32, Arc<Notify>)>>,
}

impl Server {
    pub(crate) fn new(databases: Arc<Databases>, longest_wait: Duration) -> Arc<Self> {
        Arc::new(Self { databases, longest_wait, cancellations: Mutex::default() })
    }

    /// Serves until `end` is cancelled, and then ends its clients.
    pub(crate) async fn run(self: &Arc<Self>, listener: TcpListener, end: &CancellationToken) {
        let mut tasks = JoinSet::new();
        let mut connections = 0_u32;
        loop {
            tokio::select! {
                () = end.cancelled() => break,
                Some(_) = tasks.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections += 1;
                        let is_full = tasks.len() >= MOST_CLIENTS;
                        tasks.spawn(Arc::clone(self).welcome(stream, connections, is_full));
                    }
                    // Too many files are open, or the client has already gone; the next attempt may
                    // succeed.
                    Err(_) => tokio::time::sleep(BETWEEN_FAILURES).await,
                },
            }
        }
        let all = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(ENDS_WITHIN, all).await;
    }

    async fn welcome(self: Arc<Self>, stream: TcpStream, process: u32, is_full: bool) {
        // The client has been told why it ended, or has gone; only failures of the engine are
        // logged.
        match self.serve(stream, process, is_full).await {
            Err(ClientError::Engine(error)) => eprintln!("connection {process}: {error}"),
            Ok(()) | Err(ClientError::Connection(_) | ClientError::Refused) => {}
        }
        self.cancellations().remove(&process);
    }

    async fn serve(&self, stream: TcpStream, process: u32, is_full: bool) -> Result<(), ClientError> {
        stream.set_nodelay(true)?;
        let (reader, mut outbox) = stream.into_split();
        let mut inbox = Inbox::new(reader);
        let request = loop {
            let packet = tokio::time::timeout(OPENS_WITHIN, inbox.startup()).await;
            let Ok(Some(packet)) = packet.unwrap_or(Ok(None)) else { return Ok(()) };
            match startup::read(&packet) {
                StartupPacket::Encryption => outbox.write_all(b"N").await?,
                StartupPacket::Cancel(key) => {
                    self.cancel(key);
                    return Ok(());
                }
                StartupPacket::Session(request) => break request,
                StartupPacket::Unknown => {
                    return Err(client::fatal(&mut outbox, "08P01", "only protocol 3.0 is spoken here").await);
                }
            }
        };
        if is_full {
            return Err(client::fatal(&mut outbox, "53300", "sorry, too many clients already").await);
        }
        let key = Key { process, secret: secret() };
        let cancelled = Arc::new(Notify::new());
        self.cancellations().insert(process, (key.secret, Arc::clone(&cancelled)));
        let (databases, longest_wait) = (Arc::clone(&self.databases), self.longest_wait);
        client::serve(inbox, outbox, request, ClientContext { databases, key, cancelled, longest_wait }).await
    }

    /// Cancels a wait for a turn only: the engine itself cannot be interrupted.
    fn cancel(&self, key: Key) {
        if let Some((secret, cancelled)) = self.cancellations().get(&key.process)
            && *secret == key.secret
        {
            cancelled.notify_waiters();
        }
    }

    fn cancellations(&self) -> std::sync::MutexGuard<'_, HashMap<u32, (u32, Arc<Notify>)>> {
        self.cancellations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From the seed of the standard library's hash maps, which the system randomises.
fn secret() -> u32 {
    use std::hash::{BuildHasher, RandomState};

    let [_, _, _, _, secret @ ..] = RandomState::new().hash_one(0).to_be_bytes();
    u32::from_be_bytes(secret)
}

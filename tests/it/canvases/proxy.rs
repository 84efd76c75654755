//! A proxy in front of Postgres that notes which statements are sent, and changes some of them on
//! their way: the queue then behaves as if it had been written like that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The code of the message that begins a session; before it come questions about encryption.
const STARTUP: u32 = 196_608;

/// A statement, or a part of one, and its replacement.
pub(super) type Change = (String, String);

/// The labels of the requests that sent a statement, by its text.
pub(super) type SentStatements = BTreeMap<String, BTreeSet<String>>;

/// From which length on a part of a statement is looked for anywhere in it. Shorter ones are ends,
/// which stand elsewhere in other statements, too.
const LONG: usize = 100;

/// Where a part of a statement begins, if the statement has it.
pub(super) fn place_of(part: &str, statement: &str) -> Option<usize> {
    if part.len() >= LONG {
        return statement.find(part);
    }
    statement.strip_suffix(part).map(str::len)
}

/// A statement with all parts of it replaced that change.
fn changed(statement: &[u8], changes: &[Change]) -> String {
    let mut statement = String::from_utf8_lossy(statement).into_owned();
    for (old, new) in changes {
        if let Some(start) = place_of(old, &statement) {
            statement.replace_range(start..start + old.len(), new);
        }
    }
    statement
}

#[derive(Default)]
struct Notes {
    asked: String,
    sent: SentStatements,
}

pub(super) struct Proxy {
    pub(super) url: String,
    notes: Arc<Mutex<Notes>>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// In front of the server of this URL.
    pub(super) async fn start(url: &str, changes: &[Change]) -> Self {
        let options: PgConnectOptions = url.parse().unwrap();
        let server = (options.get_host().to_owned(), options.get_port());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (old, new) = (format!(":{}/", server.1), format!(":{}/", listener.local_addr().unwrap().port()));
        assert_eq!(url.matches(&old).count(), 1, "{url}");
        let (url, notes) = (url.replace(&old, &new), Arc::<Mutex<Notes>>::default());
        let (changes, noted) = (Arc::<[Change]>::from(changes), Arc::clone(&notes));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect((server.0.as_str(), server.1)).await.unwrap();
                let (changes, noted) = (Arc::clone(&changes), Arc::clone(&noted));
                tokio::spawn(async move {
                    let _ = carry(client, server, &changes, &noted).await;
                });
            }
        });
        Self { url, notes, task }
    }

    /// Sets the label of the next requests.
    pub(super) fn asked(&self, label: &str) {
        label.clone_into(&mut self.notes.lock().unwrap().asked);
    }

    pub(super) fn sent(&self) -> SentStatements {
        self.notes.lock().unwrap().sent.clone()
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
    changes: &[Change],
    notes: &Mutex<Notes>,
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
        // Prepared statements by name.
        let mut prepared = BTreeMap::new();
        loop {
            let kind = from_client.read_u8().await?;
            let length = from_client.read_u32().await?;
            let mut body = vec![0; length as usize - 4];
            from_client.read_exact(&mut body).await?;
            let mut texts = body.split(|byte| *byte == 0).map(<[u8]>::to_vec);
            let (first, second) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
            match kind {
                b'P' => {
                    let rest = &body[first.len() + 1 + second.len()..];
                    body = [&first, &[0][..], changed(&second, changes).as_bytes(), rest].concat();
                    prepared.insert(first, second);
                }
                // Binds a portal to a prepared statement.
                b'B' => {
                    if let Some(text) = prepared.get(&second) {
                        let mut notes = notes.lock().unwrap();
                        let asked = notes.asked.clone();
                        let text = String::from_utf8_lossy(text).into_owned();
                        notes.sent.entry(text).or_default().insert(asked);
                    }
                }
                _ => {}
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

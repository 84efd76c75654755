//! A server that speaks Postgres's protocol and is not Postgres: what tells it apart, and that its
//! refusals do not hide it.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;
use wakeq::Store;

use super::doctor::doctor;

/// What the statement that makes a session's settings contains.
const SETTINGS: &[u8] = b"set_config";

/// A server that says of itself what CockroachDB does, and refuses settings as it does.
struct Cockroach {
    url: String,
    _serving: AbortOnDropHandle<()>,
}

impl Cockroach {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://root@{}/queue?sslmode=disable", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client));
            }
        });
        Self { url, _serving: AbortOnDropHandle::new(serving) }
    }
}

/// Answers one client, until it leaves.
async fn serve(mut client: TcpStream) -> io::Result<()> {
    body(&mut client).await?;
    let greeting = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
    client.write_all(&greeting).await?;
    let mut refused = false;
    loop {
        let kind = client.read_u8().await?;
        let asked = body(&mut client).await?;
        if kind == b'P' && asked.windows(SETTINGS.len()).any(|part| part == SETTINGS) {
            refused = true;
            client.write_all(&message(b'E', b"SERROR\0C42704\0Munrecognized setting\0\0")).await?;
        }
        match kind {
            b'X' => return Ok(()),
            b'S' => refused = false,
            // What follows an error is skipped.
            _ if refused => continue,
            _ => {}
        }
        client.write_all(&answer(kind)).await?;
    }
}

/// The rest of a message, after its kind.
async fn body(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = client.read_u32().await?;
    let mut body = vec![0; length as usize - 4];
    client.read_exact(&mut body).await?;
    Ok(body)
}

/// The answer to each message about a statement, which is always `select version()`.
fn answer(kind: u8) -> Vec<u8> {
    const VERSION: &[u8] =
        b"CockroachDB CCL v25.1.2 (x86_64-pc-linux-gnu, built 2025/03/12 15:44:22, go1.22.8)";
    // One column: name, no table, the type text, of any length, in text.
    let column = [&b"\0\x01version\0"[..], &[0; 6], &25_u32.to_be_bytes(), &[0xff; 6], &[0; 2]].concat();
    match kind {
        b'P' => message(b'1', b""),
        b'D' => [message(b't', &[0; 2]), message(b'T', &column)].concat(),
        b'B' => message(b'2', b""),
        b'E' => {
            let length = u32::try_from(VERSION.len()).unwrap().to_be_bytes();
            let row = [&b"\0\x01"[..], &length, VERSION].concat();
            [message(b'D', &row), message(b'C', b"SELECT 1\0")].concat()
        }
        b'C' => message(b'3', b""),
        b'S' => message(b'Z', b"I"),
        _ => panic!("the client sent {:?}", char::from(kind)),
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[kind][..], &length, body].concat()
}

#[tokio::test]
async fn cockroach_is_refused_by_the_doctor_and_by_migrate() {
    let cockroach = Cockroach::start().await;
    let found = doctor(&cockroach.url, None, &[]).await;
    found.says("database", "fail", "the server is CockroachDB");
    assert!(found.mend("database").contains("use one Postgres"), "{}", found.mend("database"));
    let refused = Store::migrate(&cockroach.url, true).await.unwrap_err();
    assert!(refused.to_string().contains("CockroachDB"), "{refused}");
}

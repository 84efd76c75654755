//! An HTTP endpoint for pushes that answers as it is told, and a client for what the emulator serves beside the API.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A request or an answer; names of headers in lower case.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) line: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn status(&self) -> u16 {
        self.line.split(' ').nth(1).unwrap().parse().unwrap()
    }

    async fn from(stream: &mut BufReader<TcpStream>) -> io::Result<Self> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let headers: HashMap<String, String> = lines[1..]
            .iter()
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        Ok(Self { line: lines.swap_remove(0), headers, body })
    }
}

/// What the endpoint answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    Status(u16),
    /// A redirect to another path.
    Redirect,
    /// 102, and then nothing more.
    Processing,
    /// Nothing at all.
    Silence,
}

pub(crate) struct Inbox {
    pub(crate) url: String,
    requests: mpsc::Receiver<Received>,
}

impl Inbox {
    /// Answers with these, the last of them for ever.
    pub(crate) async fn open(replies: &'static [Reply]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/inbox?key=1", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::channel(64);
        let answered = Arc::new(AtomicUsize::new(0));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, replies, Arc::clone(&answered), sender.clone()));
            }
        });
        Self { url, requests }
    }

    pub(crate) async fn next(&mut self) -> Received {
        self.requests.recv().await.unwrap()
    }
}

/// One request a connection.
async fn serve(
    stream: TcpStream,
    replies: &'static [Reply],
    answered: Arc<AtomicUsize>,
    sender: mpsc::Sender<Received>,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let received = Received::from(&mut stream).await?;
    let number = answered.fetch_add(1, Ordering::SeqCst);
    let reply = replies[number.min(replies.len() - 1)];
    let close = "content-length: 0\r\nconnection: close\r\n\r\n";
    let answer = match reply {
        Reply::Status(status) => format!("HTTP/1.1 {status} So\r\n{close}"),
        Reply::Redirect => format!("HTTP/1.1 308 There\r\nlocation: /elsewhere\r\n{close}"),
        Reply::Processing => "HTTP/1.1 102 Processing\r\n\r\n".to_owned(),
        Reply::Silence => String::new(),
    };
    stream.write_all(answer.as_bytes()).await?;
    if sender.send(received).await.is_err() || matches!(reply, Reply::Status(_) | Reply::Redirect) {
        return Ok(());
    }
    // Open until the other side has enough of it.
    stream.read_u8().await.map(drop)
}

/// Asks the emulator.
pub(crate) async fn ask(
    address: SocketAddr,
    request: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Received {
    let mut stream = BufReader::new(TcpStream::connect(address).await.unwrap());
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}");
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    Received::from(&mut stream).await.unwrap()
}

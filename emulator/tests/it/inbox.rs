//! An HTTP endpoint for pushes, and a client for what the emulator serves besides the API.
//!
//! The endpoint that stays silent uses a plain socket, and so does the client.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

/// A request (its line is without the version) or an answer; header names are in lower case.
#[derive(Debug)]
pub(crate) struct HttpMessage {
    pub(crate) line: String,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl HttpMessage {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(crate) fn status(&self) -> u16 {
        self.line.split(' ').nth(1).unwrap().parse().unwrap()
    }

    async fn read(stream: &mut BufReader<TcpStream>) -> io::Result<Self> {
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

impl From<&Request> for HttpMessage {
    fn from(request: &Request) -> Self {
        let headers = request.headers.iter();
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        let line = format!("{} {}", request.method, request.url.as_str().replace("http://localhost", ""));
        Self { line, headers: headers.collect(), body: request.body.clone() }
    }
}

pub(crate) struct Inbox {
    pub(crate) url: String,
    requests: mpsc::Receiver<HttpMessage>,
    _server: Option<MockServer>,
}

impl Inbox {
    /// Answers with these statuses, repeating the last one. A redirect leads to another path.
    pub(crate) async fn open(statuses: &'static [u16]) -> Self {
        let (sender, requests) = mpsc::channel(64);
        let answered = AtomicUsize::new(0);
        let answer = move |request: &Request| {
            // The test may have stopped reading.
            let _ = sender.try_send(request.into());
            let number = answered.fetch_add(1, Ordering::SeqCst);
            let answer = ResponseTemplate::new(statuses[number.min(statuses.len() - 1)]);
            answer.insert_header("location", "/elsewhere")
        };
        let server = MockServer::builder().start().await;
        Mock::given(any()).respond_with(answer).mount(&server).await;
        Self { url: format!("{}/inbox", server.uri()), requests, _server: Some(server) }
    }

    /// Writes these bytes in answer to each request, and nothing more for as long as the peer
    /// waits.
    pub(crate) async fn mute(words: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/inbox", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::channel(64);
        tokio::spawn(async move {
            let mut waiting = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = BufReader::new(stream);
                let Ok(mut received) = HttpMessage::read(&mut stream).await else { continue };
                received.line = received.line.strip_suffix(" HTTP/1.1").unwrap().to_owned();
                stream.write_all(words.as_bytes()).await.unwrap();
                waiting.push(stream);
                if sender.send(received).await.is_err() {
                    return;
                }
            }
        });
        Self { url, requests, _server: None }
    }

    pub(crate) async fn next(&mut self) -> HttpMessage {
        self.requests.recv().await.unwrap()
    }
}

/// Sends a request to the emulator.
pub(crate) async fn ask(
    address: SocketAddr,
    request: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpMessage {
    ask_as(address, &address.to_string(), request, headers, body).await
}

/// The same, calling it by another name.
pub(crate) async fn ask_as(
    address: SocketAddr,
    host: &str,
    request: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> HttpMessage {
    let mut stream = BufReader::new(TcpStream::connect(address).await.unwrap());
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("{request} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}");
    stream.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
    HttpMessage::read(&mut stream).await.unwrap()
}

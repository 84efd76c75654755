//! Requests to the API, one connection each.

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

pub(super) async fn get(port: u16, path: &str, key: &str) -> Result<Answer> {
    request(port, "GET", path, key, "").await
}

pub(super) async fn post(port: u16, path: &str, key: &str, body: &str) -> Result<Answer> {
    request(port, "POST", path, key, body).await
}

/// By HTTP/1.0, so that the answer ends with the connection and has no chunks.
async fn request(port: u16, method: &str, path: &str, key: &str, body: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.with_context(|| format!("not an answer: {answer:.100}"))?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    Ok(Answer { status, body })
}

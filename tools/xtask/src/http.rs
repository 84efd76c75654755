//! Requests to servers on this machine, one connection each.

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Asks the API, by HTTP/1.0, so that the answer ends with the connection and has no chunks.
pub(crate) async fn get(port: u16, path: &str, key: &str) -> Result<Answer> {
    request(port, &format!("GET {path} HTTP/1.0\r\nAuthorization: Bearer {key}"), "").await
}

/// The same with a body.
pub(crate) async fn post(port: u16, path: &str, key: &str, body: &str) -> Result<Answer> {
    request(port, &format!("POST {path} HTTP/1.0\r\nAuthorization: Bearer {key}"), body).await
}

/// Asks a driver of browsers, which knows HTTP/1.1 alone and sends no chunks.
pub(crate) async fn drive(port: u16, method: &str, path: &str, body: &str) -> Result<Answer> {
    request(port, &format!("{method} {path} HTTP/1.1\r\nConnection: close"), body).await
}

async fn request(port: u16, head: &str, body: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let length = body.len();
    let head = format!(
        "{head}\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut answer = Vec::new();
    // A driver says that it closes the connection, and does not.
    while !is_whole(&answer) && stream.read_buf(&mut answer).await? > 0 {}
    let answer = String::from_utf8(answer)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.with_context(|| format!("not an answer: {answer:.100}"))?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    Ok(Answer { status, body })
}

/// Whether an answer has as much of a body as it says. One that says nothing ends with the
/// connection.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| answer.len() >= end + 4 + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_body() {
        for (answer, whole) in [
            ("", false),
            ("HTTP/1.1 200 OK\r\nContent-Length:2\r\n", false),
            ("HTTP/1.1 200 OK\r\nContent-Length:2\r\n\r\n", false),
            ("HTTP/1.1 200 OK\r\nContent-Length:2\r\n\r\nab", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", true),
            ("HTTP/1.0 200 OK\r\n\r\nab", false),
        ] {
            assert_eq!(is_whole(answer.as_bytes()), whole, "{answer:?}");
        }
    }
}

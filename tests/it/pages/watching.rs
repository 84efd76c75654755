//! A browser that leaves a page open, and is sent what has changed.

use std::time::Duration;

use reqwest::{Method, Response};
use tokio::time::timeout;

use super::visitor::Visitor;

/// How long a page may be watched.
const LONG: Duration = Duration::from_secs(600);

/// A page that is left open: what is sent to it.
pub(super) async fn watched(visitor: &Visitor, path: &str) -> Response {
    let watch = visitor.request(Method::GET, path).header("accept", "text/event-stream").timeout(LONG);
    let stream = watch.send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream", "{path} is live");
    stream
}

/// What is sent next, until it says this.
pub(super) async fn until(stream: &mut Response, words: &str) -> String {
    let mut sent = String::new();
    let reading = async {
        while !sent.contains(words) {
            let chunk = stream.chunk().await.unwrap().expect("the stream goes on");
            sent.push_str(&String::from_utf8_lossy(&chunk));
        }
    };
    timeout(LONG, reading).await.unwrap_or_else(|_| panic!("{words} is never said"));
    sent
}

//! Push subscriptions: what arrives at the endpoint, and what its answers do.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use wakeq_emulator::proto::pubsub::push_config::{NoWrapper, Wrapper};
use wakeq_emulator::proto::pubsub::{PushConfig, Subscription};

use crate::stage::{Stage, soon, with};

/// What was posted: the head in lower case, and the body.
type Posted = (String, Vec<u8>);

/// An endpoint that answers with these statuses, the last of them for ever.
async fn endpoint(statuses: &'static [u16]) -> (String, mpsc::Receiver<Posted>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/inbox", listener.local_addr().unwrap());
    let (sender, posted) = mpsc::channel(16);
    tokio::spawn(async move {
        let mut answered = 0;
        while let Ok((mut connection, _)) = listener.accept().await {
            // A connection that asks for nothing is a look whether anybody is there.
            let Ok(received) = receive(&mut connection).await else { continue };
            let status = statuses[answered.min(statuses.len() - 1)];
            answered += 1;
            let answer = format!("HTTP/1.1 {status} So\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            connection.write_all(answer.as_bytes()).await.unwrap();
            if sender.send(received).await.is_err() {
                return;
            }
        }
    });
    (url, posted)
}

async fn receive(connection: &mut TcpStream) -> io::Result<Posted> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    connection.read_exact(&mut body).await?;
    Ok((head, body))
}

async fn next(posted: &mut mpsc::Receiver<Posted>) -> Posted {
    soon("a push", posted.recv()).await.unwrap()
}

async fn pushing(stage: &Stage, config: PushConfig) -> String {
    let topic = stage.topic("a-topic").await;
    let subscription = Subscription { push_config: Some(config), ..stage.to(&topic, "pushed") };
    stage.subscribe(subscription).await;
    topic
}

cases! {
    async fn a_push_wraps_the_message_in_json(stage) {
        let (push_endpoint, mut posted) = endpoint(&[204]).await;
        let topic = pushing(&stage, PushConfig { push_endpoint, ..PushConfig::default() }).await;
        let ids = stage.publish(&topic, &[with("hello", &[("colour", "red")])]).await;
        let (head, body) = next(&mut posted).await;
        assert!(head.starts_with("post /inbox http/1.1") && head.contains("application/json"), "{head}");
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["subscription"], stage.subscription_name("pushed"));
        assert_eq!(body["message"]["data"], "aGVsbG8=");
        assert_eq!(body["message"]["attributes"]["colour"], "red");
        assert_eq!(body["message"]["messageId"], ids[0]);
        assert!(body["message"]["publishTime"].is_string(), "{body}");
    }

    async fn what_an_endpoint_refuses_is_pushed_again(stage) {
        let (push_endpoint, mut posted) = endpoint(&[500, 204]).await;
        let topic = pushing(&stage, PushConfig { push_endpoint, ..PushConfig::default() }).await;
        stage.publish_texts(&topic, &["again"]).await;
        let first: Value = serde_json::from_slice(&next(&mut posted).await.1).unwrap();
        let second: Value = serde_json::from_slice(&next(&mut posted).await.1).unwrap();
        assert_eq!(first["message"]["messageId"], second["message"]["messageId"]);
    }

    async fn an_unwrapped_push_is_the_data_alone(stage) {
        let (push_endpoint, mut posted) = endpoint(&[200]).await;
        let wrapper = Some(Wrapper::NoWrapper(NoWrapper { write_metadata: true }));
        let topic = pushing(&stage, PushConfig { push_endpoint, wrapper, ..PushConfig::default() }).await;
        stage.publish(&topic, &[with("hello", &[("colour", "red")])]).await;
        let (head, body) = next(&mut posted).await;
        assert_eq!(String::from_utf8_lossy(&body), "hello");
        assert!(head.contains("x-goog-pubsub-subscription-name: ") && head.contains("\r\ncolour: red"), "{head}");
    }
}

//! Push subscriptions: what arrives at the endpoint, and the effect of its answers.

use wakeq_emulator::proto::pubsub::push_config::{NoWrapper, Wrapper};
use wakeq_emulator::proto::pubsub::{PushConfig, Subscription};

use crate::inbox::{HttpMessage, Inbox};
use crate::stage::{Stage, soon, with};

async fn next(inbox: &mut Inbox) -> HttpMessage {
    soon("a push", inbox.next()).await
}

async fn pushing(stage: &Stage, config: PushConfig) -> String {
    let topic = stage.topic("a-topic").await;
    stage.subscribe(Subscription { push_config: Some(config), ..stage.to(&topic, "pushed") }).await;
    topic
}

cases! {
    async fn a_push_wraps_the_message_in_json(stage) {
        let mut inbox = Inbox::open(&[204]).await;
        let push_endpoint = inbox.url.clone();
        let topic = pushing(&stage, PushConfig { push_endpoint, ..PushConfig::default() }).await;
        let ids = stage.publish(&topic, &[with("hello", &[("colour", "red")])]).await;
        let received = next(&mut inbox).await;
        assert_eq!(received.line, "POST /inbox");
        assert!(received.headers["content-type"].contains("application/json"), "{received:?}");
        let body = received.json();
        assert_eq!(body["subscription"], stage.subscription_name("pushed"));
        assert_eq!(body["message"]["data"], "aGVsbG8=");
        assert_eq!(body["message"]["attributes"]["colour"], "red");
        assert_eq!(body["message"]["messageId"], ids[0]);
        assert!(body["message"]["publishTime"].is_string(), "{body}");
    }

    async fn a_refused_push_is_repeated(stage) {
        let mut inbox = Inbox::open(&[500, 204]).await;
        let push_endpoint = inbox.url.clone();
        let topic = pushing(&stage, PushConfig { push_endpoint, ..PushConfig::default() }).await;
        stage.publish_texts(&topic, &["again"]).await;
        let first = next(&mut inbox).await.json();
        let second = next(&mut inbox).await.json();
        assert_eq!(first["message"]["messageId"], second["message"]["messageId"]);
    }

    async fn an_unwrapped_push_is_the_data_alone(stage) {
        let mut inbox = Inbox::open(&[200]).await;
        let push_endpoint = inbox.url.clone();
        let wrapper = Some(Wrapper::NoWrapper(NoWrapper { write_metadata: true }));
        let topic = pushing(&stage, PushConfig { push_endpoint, wrapper, ..PushConfig::default() }).await;
        stage.publish(&topic, &[with("hello", &[("colour", "red")])]).await;
        let received = next(&mut inbox).await;
        assert_eq!(received.text(), "hello");
        assert!(received.headers.contains_key("x-goog-pubsub-subscription-name"), "{received:?}");
        assert_eq!(received.headers["colour"], "red");
    }
}

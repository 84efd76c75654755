//! One push as an HTTP request: its body and its headers, wrapped and unwrapped. It neither sends
//! nor signs anything.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};

use crate::broker::{Message, PushDelivery};
use crate::proto::pubsub::push_config::Wrapper;

/// The service's user agent, by which receivers recognise pushes.
const AGENT: HeaderValue = HeaderValue::from_static("CloudPubSub-Google");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Headers that a message's attributes cannot set: they belong to the connection, the framing, or
/// Pub/Sub itself.
const RESERVED: [&str; 11] = [
    "authorization",
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const METADATA_PREFIX: &str = "x-goog-pubsub-";

/// The content of a request.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// The body of a wrapped push. Message id and publish time occur twice, under both names that the
/// service uses.
#[derive(serde::Serialize)]
struct Envelope<'a> {
    message: Wrapped<'a>,
    subscription: &'a str,
    #[serde(rename = "deliveryAttempt", skip_serializing_if = "Option::is_none")]
    delivery_attempt: Option<u32>,
}

#[derive(serde::Serialize)]
struct Wrapped<'a> {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    data: String,
    #[serde(rename = "messageId")]
    message_id: &'a str,
    #[serde(rename = "message_id")]
    message_id_again: &'a str,
    #[serde(rename = "orderingKey", skip_serializing_if = "str::is_empty")]
    ordering_key: &'a str,
    #[serde(rename = "publishTime")]
    publish_time: &'a str,
    #[serde(rename = "publish_time")]
    publish_time_again: &'a str,
}

impl Content {
    /// The request for a delivery, without the token.
    pub(super) fn of(delivery: &PushDelivery) -> Result<Self, serde_json::Error> {
        match &delivery.config.wrapper {
            Some(Wrapper::NoWrapper(unwrapped)) => Ok(Self::unwrapped(delivery, unwrapped.write_metadata)),
            Some(Wrapper::PubsubWrapper(_)) | None => Self::wrapped(delivery),
        }
    }

    /// Adds the token.
    pub(super) fn authorize(&mut self, token: &str) -> Result<(), http::header::InvalidHeaderValue> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
        value.set_sensitive(true);
        self.headers.insert(AUTHORIZATION, value);
        Ok(())
    }

    fn wrapped(delivery: &PushDelivery) -> Result<Self, serde_json::Error> {
        let message = &delivery.message;
        let (id, published) = (message.id.to_string(), published(message));
        let attributes = message.delivered_attributes();
        let body = serde_json::to_vec(&Envelope {
            message: Wrapped {
                attributes: &attributes,
                data: STANDARD.encode(&message.data),
                message_id: &id,
                message_id_again: &id,
                ordering_key: &message.ordering_key,
                publish_time: &published,
                publish_time_again: &published,
            },
            subscription: &delivery.subscription,
            delivery_attempt: delivery.attempt,
        })?;
        let headers = HeaderMap::from_iter([(USER_AGENT, AGENT), (CONTENT_TYPE, JSON)]);
        Ok(Self { headers, body: body.into() })
    }

    /// Leaves out metadata that a header cannot hold.
    fn unwrapped(delivery: &PushDelivery, write_metadata: bool) -> Self {
        let message = &delivery.message;
        let mut headers = HeaderMap::from_iter([(USER_AGENT, AGENT)]);
        if write_metadata {
            let attributes = message.delivered_attributes();
            headers.extend(attributes.iter().filter_map(|(key, value)| attribute(key, value)));
            let (id, published) = (message.id.to_string(), published(message));
            headers.extend(metadata("subscription-name", &delivery.subscription));
            headers.extend(metadata("message-id", &id));
            headers.extend(metadata("publish-time", &published));
            headers.extend(metadata("ordering-key", &message.ordering_key));
        }
        Self { headers, body: message.data.clone() }
    }
}

fn attribute(key: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::try_from(key).ok()?;
    if RESERVED.contains(&name.as_str()) || name.as_str().starts_with(METADATA_PREFIX) {
        return None;
    }
    Some((name, HeaderValue::try_from(value).ok()?))
}

fn metadata(key: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    if value.is_empty() {
        return None;
    }
    let name = HeaderName::try_from(format!("{METADATA_PREFIX}{key}")).ok()?;
    Some((name, HeaderValue::try_from(value).ok()?))
}

/// RFC 3339 with a Z, like the service.
fn published(message: &Message) -> String {
    let published = message.published.timestamp();
    let time = DateTime::<Utc>::from_timestamp(published.seconds, published.nanos.unsigned_abs());
    time.unwrap_or(DateTime::<Utc>::MAX_UTC).to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::broker::Time;
    use crate::proto::pubsub::{PushConfig, push_config};

    fn message() -> Message {
        Message {
            id: 2070443601311540,
            published: Time::from_secs(1_614_366_835) + Duration::from_millis(749),
            data: Bytes::from_static(b"{\"status\": \"Hello there\"}"),
            attributes: BTreeMap::from([
                ("Content-Type".into(), "application/json".into()),
                ("color".into(), "red".into()),
            ]),
            ordering_key: "some-key".into(),
            schema: None,
        }
    }

    fn delivery(message: Message, wrapper: Option<Wrapper>) -> PushDelivery {
        PushDelivery {
            subscription: "projects/demo/subscriptions/pushed".into(),
            ack_id: "1".into(),
            config: PushConfig { wrapper, ..PushConfig::default() }.into(),
            attempt: None,
            deadline: Duration::from_secs(10),
            message: Arc::new(message),
        }
    }

    fn body(content: &Content) -> Value {
        serde_json::from_slice(&content.body).unwrap()
    }

    fn unwrapped(message: Message, write_metadata: bool) -> Content {
        let wrapper = Wrapper::NoWrapper(push_config::NoWrapper { write_metadata });
        Content::of(&delivery(message, Some(wrapper))).unwrap()
    }

    fn headers(content: &Content) -> Vec<(&str, &str)> {
        let mut headers: Vec<_> =
            content.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        headers.sort_unstable();
        headers
    }

    #[test]
    fn a_wrapped_message_has_everything_under_the_service_s_names() {
        let mut delivery = delivery(message(), None);
        delivery.attempt = Some(5);
        let content = Content::of(&delivery).unwrap();
        assert_eq!(
            body(&content),
            json!({
                "message": {
                    "attributes": {"Content-Type": "application/json", "color": "red"},
                    "data": "eyJzdGF0dXMiOiAiSGVsbG8gdGhlcmUifQ==",
                    "messageId": "2070443601311540",
                    "message_id": "2070443601311540",
                    "orderingKey": "some-key",
                    "publishTime": "2021-02-26T19:13:55.749Z",
                    "publish_time": "2021-02-26T19:13:55.749Z",
                },
                "subscription": "projects/demo/subscriptions/pushed",
                "deliveryAttempt": 5,
            })
        );
        assert_eq!(
            headers(&content),
            [("content-type", "application/json"), ("user-agent", "CloudPubSub-Google")]
        );
    }

    #[test]
    fn what_a_message_does_not_have_is_left_out() {
        let bare = Message {
            data: Bytes::new(),
            attributes: BTreeMap::new(),
            ordering_key: String::new(),
            published: Time::from_secs(0),
            ..message()
        };
        let wrapper = Wrapper::PubsubWrapper(push_config::PubsubWrapper {});
        let content = Content::of(&delivery(bare, Some(wrapper))).unwrap();
        assert_eq!(
            body(&content),
            json!({
                "message": {
                    "messageId": "2070443601311540",
                    "message_id": "2070443601311540",
                    "publishTime": "1970-01-01T00:00:00Z",
                    "publish_time": "1970-01-01T00:00:00Z",
                },
                "subscription": "projects/demo/subscriptions/pushed",
            })
        );
    }

    #[test]
    fn an_unwrapped_message_is_the_body() {
        let content = unwrapped(message(), false);
        assert_eq!(content.body, message().data);
        assert_eq!(headers(&content), [("user-agent", "CloudPubSub-Google")]);
    }

    #[test]
    fn metadata_and_attributes_become_headers() {
        let content = unwrapped(message(), true);
        assert_eq!(content.body, message().data);
        assert_eq!(
            headers(&content),
            [
                ("color", "red"),
                ("content-type", "application/json"),
                ("user-agent", "CloudPubSub-Google"),
                ("x-goog-pubsub-message-id", "2070443601311540"),
                ("x-goog-pubsub-ordering-key", "some-key"),
                ("x-goog-pubsub-publish-time", "2021-02-26T19:13:55.749Z"),
                ("x-goog-pubsub-subscription-name", "projects/demo/subscriptions/pushed"),
            ]
        );
    }

    #[test]
    fn attributes_cannot_forge_metadata_or_break_the_request() {
        let attributes = [
            ("x-goog-pubsub-message-id", "1"),
            ("Content-Length", "3"),
            ("Transfer-Encoding", "chunked"),
            ("Host", "evil.example"),
            ("Authorization", "Bearer forged"),
            ("line", "one\r\ntwo: 2"),
            ("no name", "of a header"),
            ("kept", "yes"),
        ];
        let attributes = attributes.map(|(key, value)| (key.into(), value.into())).into();
        let content = unwrapped(Message { attributes, ..message() }, true);
        let names: Vec<&str> = headers(&content).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                "kept",
                "user-agent",
                "x-goog-pubsub-message-id",
                "x-goog-pubsub-ordering-key",
                "x-goog-pubsub-publish-time",
                "x-goog-pubsub-subscription-name",
            ]
        );
        assert_eq!(content.headers["x-goog-pubsub-message-id"], "2070443601311540");
    }

    #[test]
    fn the_token_is_a_bearer_token_and_is_never_logged() {
        let mut content = unwrapped(message(), false);
        content.authorize("a.b.c").unwrap();
        assert_eq!(content.headers[AUTHORIZATION], "Bearer a.b.c");
        assert!(!format!("{content:?}").contains("a.b.c"));
    }
}

//! What the forms of the pages do: publish, acknowledge, purge, seek, make a snapshot. Each calls
//! the same function of the broker as the API, without the faults that are set for calls, which are
//! for clients.
//!
//! Forms of other sites' pages are refused before they get here.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Response, StatusCode, header};

use super::Admin;
use super::fields::Fields;
use super::html::{self, SUBSCRIPTION, TOPIC, escaped};
use crate::broker::{Answer, Place, Refusal};
use crate::proto::protobuf::Timestamp;
use crate::proto::pubsub::seek_request::Target;
use crate::proto::pubsub::{CreateSnapshotRequest, PublishRequest, PubsubMessage, SeekRequest};
use crate::server::calls::publish_without_faults;

/// What was done, as the address of the next page says it, and as that page does.
const DONE: [(&str, &str); 5] = [
    ("published", "Published."),
    ("acknowledged", "Acknowledged."),
    ("purged", "Purged."),
    ("sought", "Seek is done."),
    ("snapshot", "The snapshot is made."),
];

pub(super) async fn publish(State(admin): State<Admin>, body: Body) -> Response<Body> {
    answered(published(&admin, body).await)
}

async fn published(admin: &Admin, body: Body) -> Answer<String> {
    let fields = Fields::read(body).await?;
    let message = PubsubMessage {
        data: fields.lines("data").into(),
        attributes: attributes(&fields.lines("attributes"))?,
        ordering_key: fields.text("ordering_key").to_owned(),
        ..PubsubMessage::default()
    };
    let request = PublishRequest { topic: fields.text("topic").to_owned(), messages: vec![message] };
    publish_without_faults(&admin.core, request).await?;
    Ok(match fields.text("subscription") {
        "" => done(TOPIC, fields.text("topic"), "published"),
        subscription => done(SUBSCRIPTION, subscription, "published"),
    })
}

pub(super) async fn acknowledge(State(admin): State<Admin>, body: Body) -> Response<Body> {
    answered(acknowledged(&admin, body).await)
}

async fn acknowledged(admin: &Admin, body: Body) -> Answer<String> {
    let fields = Fields::read(body).await?;
    let (subscription, message) = (fields.text("subscription"), fields.text("message"));
    let place = Place::parse(message)
        .ok_or_else(|| Refusal::invalid(format!("\"{message}\" is not the place of a message.")))?;
    admin.core.change(|broker, now| broker.acknowledge_message(now, subscription, place)).await??;
    Ok(done(SUBSCRIPTION, subscription, "acknowledged"))
}

/// Seeks to just after now, as a message may have been published at this very time.
pub(super) async fn purge(State(admin): State<Admin>, body: Body) -> Response<Body> {
    answered(purged(&admin, body).await)
}

async fn purged(admin: &Admin, body: Body) -> Answer<String> {
    let fields = Fields::read(body).await?;
    let subscription = fields.text("subscription");
    let purged = admin.core.change(|broker, now| {
        let target = Some(Target::Time((now + Duration::from_millis(1)).timestamp()));
        broker.seek(now, SeekRequest { subscription: subscription.to_owned(), target })
    });
    purged.await??;
    Ok(done(SUBSCRIPTION, subscription, "purged"))
}

pub(super) async fn seek(State(admin): State<Admin>, body: Body) -> Response<Body> {
    answered(sought(&admin, body).await)
}

async fn sought(admin: &Admin, body: Body) -> Answer<String> {
    let fields = Fields::read(body).await?;
    let subscription = fields.text("subscription");
    let target = match fields.text("snapshot") {
        "" => Target::Time(time(fields.text("time").trim())?),
        snapshot => Target::Snapshot(snapshot.to_owned()),
    };
    let request = SeekRequest { subscription: subscription.to_owned(), target: Some(target) };
    admin.core.change(|broker, now| broker.seek(now, request)).await??;
    Ok(done(SUBSCRIPTION, subscription, "sought"))
}

/// The snapshot is named by its id; without one, it gets a name.
pub(super) async fn snapshot(State(admin): State<Admin>, body: Body) -> Response<Body> {
    answered(snapshot_made(&admin, body).await)
}

async fn snapshot_made(admin: &Admin, body: Body) -> Answer<String> {
    let fields = Fields::read(body).await?;
    let subscription = fields.text("subscription");
    let project = subscription.split('/').nth(1).unwrap_or_default();
    let name = match fields.text("snapshot") {
        "" => String::new(),
        id => format!("projects/{project}/snapshots/{id}"),
    };
    let request = CreateSnapshotRequest { name, subscription: subscription.to_owned(), ..Default::default() };
    admin.core.change(|broker, now| broker.create_snapshot(now, request)).await??;
    Ok(done(SUBSCRIPTION, subscription, "snapshot"))
}

/// The form that publishes to a topic. It leads back to a subscription, if one is named.
pub(super) fn publish_form(topic: &str, subscription: &str) -> String {
    let fields = "<label>Body <textarea name=\"data\" rows=\"5\"></textarea></label>\
                  <label>Attributes, each on a line as <code>key=value</code>\
                  <textarea name=\"attributes\" rows=\"2\"></textarea></label>\
                  <label>Ordering key <input name=\"ordering_key\"></label>";
    form("publish", &[("topic", topic), ("subscription", subscription)], fields, "Publish")
}

/// A form of hidden fields and others, which are HTML.
pub(super) fn form(action: &str, hidden: &[(&str, &str)], fields: &str, button: &str) -> String {
    let mut form = format!("<form method=\"post\" action=\"/admin/{action}\" autocomplete=\"off\">");
    for (name, value) in hidden {
        let _infallible =
            write!(form, "<input type=\"hidden\" name=\"{name}\" value=\"{}\">", escaped(value));
    }
    let _infallible = write!(form, "{fields}<button>{button}</button></form>");
    form
}

/// A form that opens when it is asked for.
pub(super) fn folded(title: &str, form: &str) -> String {
    format!("<details><summary>{title}</summary>{form}</details>\n")
}

/// Says what was done before this page, if its address says so.
pub(super) fn notice(fields: &Fields) -> String {
    let done = DONE.iter().find(|(done, _)| *done == fields.text("done"));
    done.map_or_else(String::new, |(_, words)| format!("<p class=\"notice\" role=\"status\">{words}</p>\n"))
}

fn done(page: &str, name: &str, done: &str) -> String {
    format!("{}&done={done}", html::address(page, name))
}

/// Leads to the next page, so that reloading it does nothing twice.
fn answered(answer: Answer<String>) -> Response<Body> {
    let address = match answer {
        Ok(address) => HeaderValue::try_from(address).unwrap_or(HeaderValue::from_static("/")),
        Err(refusal) => return html::refused(&refusal),
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(header::LOCATION, address);
    response
}

fn time(text: &str) -> Answer<Timestamp> {
    text.parse::<Timestamp>()
        .map_err(|error| Refusal::invalid(format!("\"{text}\" cannot be read as a time: {error}.")))
}

/// Reads `key=value` lines.
fn attributes(lines: &str) -> Answer<BTreeMap<String, String>> {
    let mut attributes = BTreeMap::new();
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let Some((key, value)) = line.split_once('=') else {
            return Err(Refusal::invalid(format!(
                "An attribute is written as key=value, not as \"{line}\"."
            )));
        };
        if attributes.insert(key.trim().to_owned(), value.to_owned()).is_some() {
            return Err(Refusal::invalid(format!("The attribute \"{}\" is there twice.", key.trim())));
        }
    }
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_lines() {
        let read = attributes("kind=invoice\n\n sum =1=2 \nnone=").unwrap();
        let expected = [("kind", "invoice"), ("none", ""), ("sum", "1=2 ")];
        assert_eq!(read, BTreeMap::from(expected.map(|(key, value)| (key.to_owned(), value.to_owned()))));
        assert!(attributes("kind").unwrap_err().message.contains("\"kind\""));
        assert!(attributes("a=1\na=2").unwrap_err().message.contains("twice"));
    }

    #[test]
    fn hidden_fields_are_escaped() {
        let form = form("purge", &[("subscription", "\"><script>")], "", "Purge");
        assert!(form.contains("value=\"&quot;&gt;&lt;script&gt;\""), "{form}");
    }

    #[test]
    fn a_notice_has_words_of_ours_only() {
        let notice_of = |address: &str| notice(&Fields::of(&address.parse().unwrap()));
        assert!(notice_of("/?done=purged").contains("Purged."));
        assert_eq!(notice_of("/?done=%3Cscript%3E"), "");
    }
}

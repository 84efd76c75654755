//! The page of a topic: its subscriptions and snapshots, the messages that it keeps itself, and a
//! form to publish.

use std::fmt::Write as _;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, Uri};

use super::Admin;
use super::card::card;
use super::fields::Fields;
use super::forms::{folded, notice, publish_form};
use super::html::{self, TOPIC, address, escaped};
use super::page::subscriptions;
use super::subscription::{PAGE_BYTES, page_size, snapshots, write_links};
use crate::broker::{PageSize, Refusal, TopicContents};
use crate::proto::pubsub;

pub(super) async fn show(State(admin): State<Admin>, uri: Uri) -> Response<Body> {
    let fields = Fields::of(&uri);
    let (name, size) = (fields.text("name"), page_size(&fields));
    let after = match fields.text("after") {
        "" => Ok(0),
        after => after.parse::<u64>(),
    };
    let Ok(after) = after else {
        return html::refused(&Refusal::invalid(
            "A page begins after the id of a message, which is a number.",
        ));
    };
    match admin.core.with(|broker, now| broker.topic_contents(now, name, after, size)) {
        Ok(contents) => html::shown(page(&contents, after, size, &fields)),
        Err(refusal) => html::refused(&refusal),
    }
}

fn page(contents: &TopicContents, after: u64, size: PageSize, fields: &Fields) -> String {
    let name = contents.config.name.as_str();
    let publish = folded("Publish", &publish_form(name, ""));
    let fixed = format!("{}<section class=\"actions\">{publish}</section>", notice(fields));
    let mut figures = schema(&contents.config);
    let fed = (contents.subscriptions.as_slice(), contents.subscription_count);
    subscriptions(&mut figures, "Subscriptions", fed);
    snapshots(&mut figures, (contents.snapshots.as_slice(), contents.snapshot_count), |_| String::new());
    let messages = messages(contents, after, size);
    let live = [("figures", figures.as_str()), ("messages", messages.as_str())];
    html::document(name.rsplit('/').next().unwrap_or(name), &fixed, &live)
}

/// What its messages are validated with.
fn schema(topic: &pubsub::Topic) -> String {
    let Some(settings) = &topic.schema_settings else { return String::new() };
    let mut words = format!("{} in {}", escaped(&settings.schema), settings.encoding().as_str_name());
    for (bound, id) in [("from", &settings.first_revision_id), ("up to", &settings.last_revision_id)] {
        if !id.is_empty() {
            let _infallible = write!(words, ", {bound} the revision {}", escaped(id));
        }
    }
    format!("<section><h2>Schema</h2><p>{words}</p></section>\n")
}

fn messages(contents: &TopicContents, after: u64, size: PageSize) -> String {
    let kept_for = match &contents.config.message_retention_duration {
        Some(duration) => format!("kept by the topic for {} s", duration.seconds),
        None => "the topic keeps none itself".to_owned(),
    };
    let mut section = format!("<section><h2>Messages <small>{}, {kept_for}</small></h2>", contents.retained);
    let mut next = contents.next;
    let mut messages = contents.messages.iter();
    while let Some(message) = messages.next() {
        card(&mut section, message, &[], "");
        if section.len() >= PAGE_BYTES && !messages.as_slice().is_empty() {
            next = Some(message.id);
            break;
        }
    }
    if contents.messages.is_empty() {
        section.push_str("<p>None here.</p>");
    }
    let list = format!("{}&limit={}", address(TOPIC, &contents.config.name), size.messages);
    let mut links = Vec::new();
    if after > 0 {
        links.push((list.clone(), "From the oldest"));
    }
    if let Some(next) = next {
        links.push((format!("{list}&after={next}"), "Next page"));
    }
    write_links(&mut section, &links);
    section.push_str("</section>\n");
    section
}

//! The page of a subscription: its figures, its messages and who holds them, the snapshots that it
//! can seek to, and what can be done with it.

use std::fmt::Write as _;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, Uri};

use super::Admin;
use super::card::card;
use super::fields::Fields;
use super::forms::{folded, form, notice, publish_form};
use super::html::{self, SUBSCRIPTION, TOPIC, address, encoded, escaped, named, number, table};
use super::page::subscriptions;
use crate::broker::{
    Holder, MessageQuery, MessageState, MessageView, PageSize, Place, Refusal, SnapshotOverview,
    SubscriptionContents, Time,
};

/// How many messages a page has unless its address says otherwise, and at most.
const MESSAGES: usize = 50;
const MESSAGES_MAX: usize = 200;
/// A page ends with the message that reaches this size, as sent or as written, which may be several
/// times longer.
pub(super) const PAGE_BYTES: usize = 2 * 1024 * 1024;

pub(super) async fn show(State(admin): State<Admin>, uri: Uri) -> Response<Body> {
    let fields = Fields::of(&uri);
    let after = fields.text("after");
    let query = MessageQuery {
        after: Place::parse(after),
        acknowledged: fields.text("acknowledged") == "1",
        size: page_size(&fields),
    };
    if query.after.is_none() && !after.is_empty() {
        return html::refused(&Refusal::invalid(format!("\"{after}\" is not the place of a message.")));
    }
    let name = fields.text("name");
    match admin.core.with(|broker, now| broker.messages(now, name, &query).map(|contents| (now, contents))) {
        Ok((now, contents)) => html::shown(page(now, &contents, &query, &fields)),
        Err(refusal) => html::refused(&refusal),
    }
}

/// The size of a page whose address may say how many messages it has.
pub(super) fn page_size(fields: &Fields) -> PageSize {
    let messages = fields.text("limit").parse().unwrap_or(MESSAGES);
    PageSize { messages: messages.clamp(1, MESSAGES_MAX), bytes: PAGE_BYTES }
}

/// The first of this many snapshots of a topic. `button` says what the form in each row does, if
/// there is any.
pub(super) fn snapshots(
    page: &mut String,
    listed: (&[SnapshotOverview], usize),
    button: impl Fn(&SnapshotOverview) -> String,
) {
    if listed.0.is_empty() {
        return;
    }
    table(page, "Snapshots of the topic", &["Snapshot", "Messages", ""], listed, |row, snapshot| {
        named(row, &snapshot.name);
        number(row, &snapshot.messages);
        let _infallible = write!(row, "<td>{}</td>", button(snapshot));
    });
}

fn page(now: Time, contents: &SubscriptionContents, query: &MessageQuery, fields: &Fields) -> String {
    let name = contents.config.name.as_str();
    let fixed = format!("{}{}", notice(fields), actions(now, contents));
    let mut figures = String::new();
    subscriptions(&mut figures, "Subscription", (std::slice::from_ref(&contents.overview), 1));
    let listed = (contents.snapshots.as_slice(), contents.snapshot_count);
    snapshots(&mut figures, listed, |snapshot| {
        form("seek", &[("subscription", name), ("snapshot", snapshot.name.as_str())], "", "Seek to it")
    });
    let messages = messages(contents, query);
    let live = [("figures", figures.as_str()), ("messages", messages.as_str())];
    html::document(name.rsplit('/').next().unwrap_or(name), &fixed, &live)
}

/// The forms of a subscription.
fn actions(now: Time, contents: &SubscriptionContents) -> String {
    let subscription = [("subscription", contents.config.name.as_str())];
    let mut actions = "<section class=\"actions\">".to_owned();
    let topic = contents.config.topic.as_str();
    if topic.contains('/') && !contents.config.detached {
        let publish = publish_form(topic, &contents.config.name);
        actions.push_str(&folded("Publish to its topic", &publish));
    }
    let purge = "<p>All that was published until now counts as acknowledged, whoever holds it.</p>";
    actions.push_str(&folded("Purge", &form("purge", &subscription, purge, "Purge")));
    let time = format!(
        "<label>What was published before this time counts as acknowledged, and what is kept since becomes available \
         <input name=\"time\" value=\"{}\" required></label>",
        escaped(&now.rfc3339())
    );
    actions.push_str(&folded("Seek to a time", &form("seek", &subscription, &time, "Seek")));
    let id = "<label>Id of the snapshot, if it is to have a certain one <input name=\"snapshot\"></label>";
    actions.push_str(&folded("Make a snapshot", &form("snapshot", &subscription, id, "Make it")));
    actions.push_str("</section>");
    actions
}

fn messages(contents: &SubscriptionContents, query: &MessageQuery) -> String {
    let figures = &contents.overview.messages;
    let mut section = format!(
        "<section><h2>Messages <small>{} not acknowledged, {} acknowledged and kept</small></h2>",
        figures.backlog, figures.acked_retained
    );
    let mut next = contents.page.next;
    let mut views = contents.page.messages.iter();
    while let Some(view) = views.next() {
        message(&mut section, contents, view);
        if section.len() >= PAGE_BYTES && !views.as_slice().is_empty() {
            next = Some(view.place);
            break;
        }
    }
    if contents.page.messages.is_empty() {
        section.push_str("<p>None here.</p>");
    }
    links(&mut section, contents, query, next);
    section.push_str("</section>\n");
    section
}

fn message(section: &mut String, contents: &SubscriptionContents, view: &MessageView) {
    let state = match view.state {
        MessageState::Available => "waiting to be handed out".to_owned(),
        MessageState::Waiting { until } => format!("waiting until {}", until.rfc3339()),
        MessageState::Behind => "waiting for earlier messages of its ordering key".to_owned(),
        MessageState::Outstanding { until, holder } => {
            format!("outstanding until {}, held by {}", until.rfc3339(), held_by(contents, holder))
        }
        MessageState::Acknowledged => "acknowledged".to_owned(),
    };
    let facts = [("State", state), ("Attempts", view.attempts.to_string())];
    let place = view.place.to_string();
    let hidden = [("subscription", contents.config.name.as_str()), ("message", place.as_str())];
    let acknowledge = match view.state {
        MessageState::Acknowledged => String::new(),
        MessageState::Available
        | MessageState::Waiting { .. }
        | MessageState::Behind
        | MessageState::Outstanding { .. } => {
            form("acknowledge", &hidden, warning(contents, view), "Acknowledge")
        }
    };
    card(section, &view.message, &facts, &acknowledge);
}

/// What the acknowledgement of an ordered message does not prevent. With exactly-once delivery, it
/// is refused as long as there are earlier ones.
fn warning(contents: &SubscriptionContents, view: &MessageView) -> &'static str {
    let config = &contents.config;
    if config.enable_message_ordering
        && !config.enable_exactly_once_delivery
        && !view.message.ordering_key.is_empty()
    {
        "<p>It is delivered again if an earlier message of its ordering key is.</p>"
    } else {
        ""
    }
}

fn held_by(contents: &SubscriptionContents, holder: Holder) -> String {
    match holder {
        Holder::Pull => "a pull".to_owned(),
        Holder::Push => "the push endpoint".to_owned(),
        Holder::Stream(stream) => match contents.clients.get(&stream) {
            Some(client) if !client.is_empty() => format!("the stream of {client}"),
            Some(_) => "a stream".to_owned(),
            None => "a stream that has ended".to_owned(),
        },
    }
}

/// Links to other pages of the list; the next one begins after `next`.
fn links(section: &mut String, contents: &SubscriptionContents, query: &MessageQuery, next: Option<Place>) {
    let base = address(SUBSCRIPTION, &contents.config.name);
    let list = format!("{base}&limit={}", query.size.messages);
    let acknowledged = if query.acknowledged { "&acknowledged=1" } else { "" };
    let mut links = Vec::new();
    if query.after.is_some() {
        links.push((format!("{list}{acknowledged}"), "From the oldest"));
    }
    if let Some(next) = next {
        links.push((format!("{list}{acknowledged}&after={}", encoded(&next.to_string())), "Next page"));
    }
    if query.acknowledged {
        links.push((list, "Without acknowledged ones"));
    } else if contents.overview.messages.acked_retained > 0 {
        links.push((format!("{list}&acknowledged=1"), "With acknowledged ones"));
    }
    let topic = contents.config.topic.as_str();
    if topic.contains('/') {
        links.push((address(TOPIC, topic), "The topic"));
    }
    write_links(section, &links);
}

/// Writes links, each with its address and its words.
pub(super) fn write_links(section: &mut String, links: &[(String, &str)]) {
    section.push_str("<nav>");
    for (address, words) in links {
        let _infallible = write!(section, "<a href=\"{}\">{words}</a>", escaped(address));
    }
    section.push_str("</nav>");
}
